//! A recorded directory through the kernel, over a log in memory: it behaves as a bare directory
//! does, and what it recorded leads to the same tree.

#![expect(
    clippy::print_stderr,
    reason = "a test that is skipped must say so where people look"
)]

mod bare;
mod harness;
mod holds;
mod random;
mod replay;
mod special;
mod table;
mod unprivileged;
