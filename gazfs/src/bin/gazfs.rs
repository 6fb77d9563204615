//! The program `gazfs`: see `gazfs --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gazfs::commands::main()
}
