//! `gazfs`, for tests of real programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    gazfs::commands::main()
}
