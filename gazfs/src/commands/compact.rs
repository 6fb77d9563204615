//! `gazfs compact`

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use gazette_process::ExitStatus;
use serde_json::{Value, json};

use super::{bytes::format_bytes, say, status};
use crate::mount::{Question, ask};

#[derive(Debug, Args)]
#[command(after_help = "\
The daemon on this machine that records the log records again what is live in the oldest part of it,
at full speed, so that older parts are not needed any more. It does so by itself, slowly, when that is
worth it. gazfs prune removes what is not needed then.

Exit codes: 0 done, 1 failed, 2 usage.

Examples:
  gazfs compact --log recovery/app --dry-run      says what would be gained
  gazfs compact --log recovery/app && gazfs prune --log recovery/app")]
pub(super) struct CompactArgs {
    /// Recovery log
    #[arg(long, value_name = "NAME")]
    log: String,

    /// Where it is recorded, if several brokers have a log of this name
    mountpoint: Option<PathBuf>,

    /// Only say what would be gained
    #[arg(long)]
    dry_run: bool,

    /// Tell the result as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CompactArgs) -> anyhow::Result<ExitStatus> {
    let log = &args.log;
    let found = status::recording(log, args.mountpoint.as_ref())?;
    let result = if args.dry_run {
        json!({
            "log": log,
            "live_bytes": found.status["live_bytes"],
            "span_bytes_before": found.status["log_bytes_needed"],
        })
    } else {
        let answer = ask(found.pid, Question::Compact).with_context(|| format!("compact {log}"))?;
        serde_json::from_str(&answer).with_context(|| format!("compact {log}: read the answer"))?
    };
    if args.json {
        say(&format!("{result}\n"));
        return Ok(ExitStatus::Done);
    }
    let number = |name: &str| result.get(name).and_then(Value::as_u64);
    let (Some(live), Some(before)) = (number("live_bytes"), number("span_bytes_before")) else {
        bail!(
            "compact {log}: the daemon does not say what is live; next: see whether the log is of mode native"
        );
    };
    let text = match (number("span_bytes"), number("recorded_again_bytes")) {
        (Some(after), Some(again)) => format!(
            "{log}: {} of it were needed, {} are now, of which {} are live; {} were recorded again\n\
             next: gazfs prune --log {log} removes what is not needed\n",
            format_bytes(before),
            format_bytes(after),
            format_bytes(live),
            format_bytes(again),
        ),
        _ => format!(
            "{log}: {} of it are needed, and {} are live; at most the difference can be gained\n",
            format_bytes(before),
            format_bytes(live),
        ),
    };
    say(&text);
    Ok(ExitStatus::Done)
}
