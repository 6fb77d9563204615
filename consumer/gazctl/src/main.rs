#![doc = include_str!("../README.md")]

mod bench;
mod cli;
mod error;
#[cfg(test)]
mod golden;
mod journals;
mod journalspace;
mod output;
mod selector;
mod transactions;
mod units;

use std::process::ExitCode;

use clap::Parser;
use gazette_process::{ExitStatus, exit, logging, panic};

use crate::cli::Cli;

fn main() -> ExitCode {
    panic::abort_on_panic();
    // Ends with code 2 on a mistake in the arguments, and prints help on standard output.
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitStatus::Done.into(),
        Err(error) if error::is_broken_pipe(&error) => ExitStatus::Done.into(),
        Err(error) => {
            output::complain(&format!("error: {}", exit::message(&error)));
            error::exit_status(&error).into()
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    logging::init(&cli.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(cli.run());
    // A read of standard input cannot be interrupted; it ends with the process.
    runtime.shutdown_background();
    result
}
