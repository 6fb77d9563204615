//! Data that the reference wrote, read and written both ways.

#![allow(missing_docs, reason = "a test")]

#[path = "golden/fsm.rs"]
mod fsm;
#[path = "golden/logs.rs"]
mod logs;
#[path = "golden/segments.rs"]
mod segments;
#[path = "golden/support.rs"]
mod support;
