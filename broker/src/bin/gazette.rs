//! The journal service.

use std::process::ExitCode;

fn main() -> ExitCode {
    gazette_broker::cli::main()
}
