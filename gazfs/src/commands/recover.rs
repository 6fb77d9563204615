//! `gazfs recover`

use std::{path::PathBuf, sync::Arc};

use anyhow::Context;
use clap::Args;
use gazette_process::{ExitStatus, signals};
use gazette_recoverylog::{
    NotRestored, Refused, Source,
    fsm::{Author, Timestamp},
    player::{self, HintsChoice, HintsUse, Progress, RecoverOptions, Recovered},
};
use time::{
    OffsetDateTime, format_description::StaticFormatDescription, macros::format_description,
};

use super::{
    bytes::format_bytes,
    moment::{Point, timestamp},
    progress::Meter,
    recording_args::BrokerArgs,
    say, say_error,
};
use crate::recording::is_recovery_temporary;

#[derive(Debug, Args)]
#[command(after_help = "\
The directory appears complete, or not at all. It must not be there, or be empty; unfinished work of
an earlier try is replaced. Neither the log nor whoever records in it is disturbed.

Promised: it is one moment of the recorded directory, and holds all that was synced before it.

Exit codes: 0 done, 1 failed, 2 usage, 3 done, but not all could be restored (with --no-owner),
75 try later.

Examples:
  gazfs recover --log recovery/app --to /srv/app
  gazfs recover --log recovery/app --to /tmp/before --at \"5m ago\"
  gazfs recover --log recovery/app --to /tmp/old --at 2026-11-30T12:00:00Z
  gazfs recover --log recovery/app --to /srv/app --store file:///mnt/backup/fragments/")]
pub(super) struct RecoverArgs {
    /// Recovery log
    #[arg(long, value_name = "NAME")]
    log: String,

    /// Directory to rebuild
    #[arg(long, value_name = "DIR")]
    to: PathBuf,

    /// As of an offset of the log, or of a time: 2026-11-30T12:00:00Z (UTC if no zone is given),
    /// -90s, "5m ago". The last append that is not after it counts
    #[arg(long, value_name = "POINT", allow_hyphen_values = true)]
    at: Option<Point>,

    /// Read this fragment store, and ask no broker. What was never persisted is not there
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// Restore what this user may, and list the rest: owners, devices, some attributes
    #[arg(long)]
    no_owner: bool,

    /// Play the log from its beginning
    #[arg(long)]
    no_hints: bool,

    /// How many fragments are read at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: u16,

    /// Tell the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) async fn run(args: RecoverArgs) -> anyhow::Result<ExitStatus> {
    let shutdown = signals::shutdown_token().context("watch for signals")?;
    let source = match &args.store {
        Some(url) => Source::of_store(url),
        None => Source::Broker(args.broker.connect()?),
    };
    let meter = Meter::new();
    let shown = meter.clone();
    let options = RecoverOptions {
        point: match args.at {
            None => player::Point::Head,
            Some(Point::Offset(offset)) => player::Point::Offset(offset),
            Some(Point::Moment(moment)) => {
                player::Point::Time(timestamp(moment.at(OffsetDateTime::now_utc())))
            }
        },
        restore_owner: !args.no_owner,
        hints: if args.no_hints {
            HintsChoice::Never
        } else {
            HintsChoice::Newest
        },
        parallel: usize::from(args.parallel),
        progress: Some(Arc::new(move |progress: Progress| {
            shown.show("recovering", progress.bytes, Some(progress.total_bytes));
        })),
        cancel: shutdown,
        ..RecoverOptions::new(&args.log, &args.to)
    };
    let recovered = player::recover(&source, options).await;
    meter.clear();
    let recovered = match recovered {
        Ok(recovered) => recovered,
        Err(error) if is_recovery_temporary(&error) => {
            say_error(&format!("error: {error}"));
            return Ok(ExitStatus::TryLater);
        }
        Err(error) => return Err(error.into()),
    };
    if args.json {
        say(&format!("{}\n", as_json(&recovered)));
    } else {
        say(&as_text(&recovered));
    }
    let report = &recovered.report;
    for item in &report.not_restored {
        say_error(&format!("not restored: {}", describe(item)));
    }
    let unnamed = report
        .not_restored_count
        .saturating_sub(report.not_restored.len() as u64);
    if unnamed > 0 {
        say_error(&format!("not restored: {unnamed} more"));
    }
    Ok(if report.not_restored_count == 0 {
        ExitStatus::Done
    } else {
        ExitStatus::Degraded
    })
}

fn describe(item: &NotRestored) -> String {
    let what = match &item.what {
        Refused::Owner { uid, gid } => format!("owner {uid}:{gid}"),
        Refused::Device { .. } => "the device".to_owned(),
        Refused::Xattr { name } => format!("attribute {}", name.escape_ascii()),
    };
    format!("{}: {what}: {}", item.path.display(), item.cause)
}

fn as_text(recovered: &Recovered) -> String {
    let Recovered {
        path,
        offset,
        report,
        ..
    } = recovered;
    let mut text = format!(
        "recovered {}: {} files, from {} of {}\nas of offset {offset}{}\n",
        path.display(),
        report.files,
        format_bytes(report.bytes),
        recovered.log,
        recovered
            .time
            .map(|time| format!(", {}", show(time)))
            .unwrap_or_default(),
    );
    if let Some(torn) = report.torn_tail() {
        let begin = torn.begin;
        text = format!(
            "{text}the log's end, from offset {begin} on, was torn when its recorder died, and is left out\n"
        );
    }
    if let Some(from) = report.unpersisted_from {
        text = format!(
            "{text}only the store was read: what was recorded from offset {from} on, if anything was, is \
             not in it\n"
        );
    }
    if report.is_head_uncertain {
        text.push_str(
            "the log's primary broker did not answer: what it acknowledged last may be missing\n",
        );
    }
    text
}

fn as_json(recovered: &Recovered) -> serde_json::Value {
    let report = &recovered.report;
    serde_json::json!({
        "log": &*recovered.log,
        "to": recovered.path.to_string_lossy(),
        "offset": recovered.offset,
        "write_head": recovered.write_head,
        "time": recovered.time.map(show),
        "last_author": recovered.last_author.map(Author::get),
        "files": report.files,
        "ops": report.ops,
        "dead_ops": report.dead_ops,
        "bytes_read": report.bytes,
        "hints_offset": match report.hints {
            HintsUse::Of(offset) => Some(offset),
            HintsUse::None | HintsUse::NotAsked | HintsUse::Given => None,
        },
        "skipped": report.skipped.iter().map(|skipped| serde_json::json!({
            "log": skipped.log,
            "begin": skipped.begin,
            "end": skipped.end,
            "is_tail": skipped.is_tail,
        })).collect::<Vec<_>>(),
        "unpersisted_from": report.unpersisted_from,
        "is_head_uncertain": report.is_head_uncertain,
        "not_restored": report.not_restored_count,
    })
}

/// A time of the log, as people write it.
pub(super) fn show(time: Timestamp) -> String {
    let moment = OffsetDateTime::from_unix_timestamp(time.seconds)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        + std::time::Duration::from_millis(u64::from(time.nanos / 1_000_000));
    moment
        .format(SHOWN)
        .unwrap_or_else(|_| time.seconds.to_string())
}

const SHOWN: StaticFormatDescription =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
