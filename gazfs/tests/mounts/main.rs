//! Journals through the kernel. Each test names the behaviour it shows; where `/dev/fuse` does not
//! open they are skipped, and say so.

#![expect(
    clippy::print_stderr,
    reason = "a test that is skipped must say so where people look"
)]

mod harness;
mod life;
mod names;
mod reads;
mod signals;
mod writes;
