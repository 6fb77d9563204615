//! The program, as people use it: recorded directories with real mounts, a real broker, and daemons
//! that are killed. Where `/dev/fuse` does not open they are skipped, and say so.

#![expect(
    clippy::print_stderr,
    reason = "a test that is skipped must say so where people look"
)]

mod harness;
mod life;
mod owners;
mod past;
mod programs;
mod readme;
mod seeds;
mod standby;
