//! The program `gazfs`.

mod bytes;
mod doctor;
mod embedded;
mod handoff;
mod log;
mod moment;
mod mount;
mod notify;
mod options;
mod progress;
mod record;
mod recording_args;
mod recover;
mod run;
mod serve;
mod standby;
mod status;
mod transport;
mod umount;
mod up;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use gazette_process::{ExitStatus, LogArgs, exit, logging, panic};
use tokio::runtime;

/// Journals as files: append-only logs that any program can write and follow. And recorded
/// directories: each change of any program's files goes into a log, from which they can be rebuilt.
///
/// What is promised of journals: one write(2) is one append, whole or not at all, in one order with those of
/// all others, and never overwritten. When it has returned it is acknowledged (with --ack=close:
/// when fsync or close has). Bytes that were read once never change. Of recorded directories: when
/// fsync(2) has returned, all that was done before is in the log; a recovery is one moment of the
/// whole directory, not older than that. Every wait ends: with data, or with an error that says
/// what to do.
///
/// Exit codes: 0 done, 1 failed, 2 usage, 3 done in part, 4 somebody else owns it, 75 try later.
#[derive(Debug, Parser)]
#[command(name = "gazfs", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a broker with its data in a folder, and mount its journals there
    Up(up::UpArgs),
    /// Mount the journals of brokers elsewhere
    Mount(mount::MountArgs),
    /// Mount a directory whose every change goes into a recovery log
    Record(record::RecordArgs),
    /// The same around a program
    Run(Box<run::RunArgs>),
    /// Follow a recorded directory elsewhere, ready to go on with it
    Standby(Box<standby::StandbyArgs>),
    /// Move a recorded directory to a standby
    Handoff(handoff::HandoffArgs),
    /// Rebuild a recorded directory from its log, as it is or as it was
    Recover(recover::RecoverArgs),
    /// Tell what a recovery log says: the history of a recorded directory
    Log(log::LogCommandArgs),
    /// End a mount when all that was written is acknowledged
    Umount(umount::UmountArgs),
    /// Tell how mounts are: what is not acknowledged yet, who owns the log, what went wrong
    Status(status::StatusArgs),
    /// Wait until everything that was done in a mount is acknowledged
    Flush(status::FlushArgs),
    /// Say what this machine lacks, in one line each
    Doctor(doctor::DoctorArgs),
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    panic::abort_on_panic();
    let cli = Cli::parse();
    let ended = match logging::init(&cli.log) {
        Ok(_handle) => run(cli.command),
        Err(error) => Err(error.into()),
    };
    ended.unwrap_or_else(|error| {
        say_error(&format!("error: {}", exit::message(&error)));
        ExitStatus::Failed.into()
    })
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let status = match command {
        Command::Umount(args) => umount::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Flush(args) => status::flush(&args),
        Command::Doctor(args) => return doctor::run(&args),
        Command::Record(args) => block_on(record::run(args)),
        Command::Recover(args) => block_on(recover::run(args)),
        Command::Log(args) => block_on(log::run(args)),
        Command::Run(args) => {
            run::enter_namespace();
            return block_on(run::run(*args));
        }
        Command::Standby(args) => {
            run::enter_namespace();
            return block_on(standby::run(*args));
        }
        Command::Handoff(args) => block_on(handoff::run(args)),
        Command::Mount(args) => block_on(mount::run(args)),
        Command::Up(args) => block_on(up::run(args)),
    };
    Ok(status?.into())
}

fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(command);
    // What is left are watches and reads that nobody waits for.
    runtime.shutdown_background();
    ended
}

/// Prints for the person at the terminal. Whether anybody reads it does not matter.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    drop(written);
}

fn say_error(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}
