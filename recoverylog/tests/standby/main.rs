//! Standbys: copies that follow a log, and take it over.

#[path = "../recorder/support.rs"]
#[allow(dead_code, reason = "each program uses a part of it")]
mod support;

mod follow;
mod notices;
mod take;
