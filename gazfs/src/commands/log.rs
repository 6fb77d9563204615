//! `gazfs log`

use std::io::{self, BufWriter, Write};

use clap::Args;
use gazette_process::ExitStatus;
use gazette_recoverylog::{
    Source,
    fsm::{Body, Change, Kind, Mark, SizeChange},
    history::{HistoryEntry, HistoryEvent, HistoryFilter, HistoryStanding, Moment, history},
};
use serde_json::json;
use time::OffsetDateTime;

use super::{
    bytes::format_bytes,
    moment::{Point, timestamp},
    recording_args::BrokerArgs,
    recover::show,
    say_error,
};

#[derive(Debug, Args)]
#[command(after_help = "\
A line for each operation: where it ends in the log (which --at of gazfs recover takes), when, by
which recorder, what, and which files.

Examples:
  gazfs log --log recovery/app
  gazfs log --log recovery/app --path db/ --since \"1h ago\"
  gazfs log --log recovery/app --json | jq 'select(.event == \"unlink\")'")]
pub(super) struct LogCommandArgs {
    /// Recovery log
    #[arg(long, value_name = "NAME")]
    log: String,

    /// Only what is about this path in the directory, or lies below it
    #[arg(long, value_name = "PATH")]
    path: Option<String>,

    /// Only from an offset or a time on: 2026-11-30T12:00:00Z, -90s, "5m ago"
    #[arg(long, value_name = "POINT", allow_hyphen_values = true)]
    since: Option<Point>,

    /// Only up to an offset or a time
    #[arg(long, value_name = "POINT", allow_hyphen_values = true)]
    until: Option<Point>,

    /// Also what does not count: of recorders that had lost the log, idle marks, and what was
    /// recorded again so that older parts of the log may go
    #[arg(long)]
    all: bool,

    /// An object a line
    #[arg(long)]
    json: bool,

    /// Read this fragment store, and ask no broker
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) async fn run(args: LogCommandArgs) -> anyhow::Result<ExitStatus> {
    let source = match &args.store {
        Some(url) => Source::of_store(url),
        None => Source::Broker(args.broker.connect()?),
    };
    let now = OffsetDateTime::now_utc();
    let moment = |point: Option<Point>| {
        point.map(|point| match point {
            Point::Offset(offset) => Moment::Offset(offset),
            Point::Moment(moment) => Moment::Time(timestamp(moment.at(now))),
        })
    };
    // In a log all paths begin at the directory.
    let path = args
        .path
        .map(|path| format!("/{}", path.trim_start_matches('/')));
    let filter = HistoryFilter {
        path: path.map(Into::into),
        from: moment(args.since),
        until: moment(args.until),
        with_dead: args.all,
    };
    let mut history = history(&source, &args.log, filter).await?;
    if history.begins() > 0 && args.since.is_none() {
        let begins = history.begins();
        say_error(&format!("what was before offset {begins} is pruned"));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    while let Some(entry) = history.next().await {
        let entry = entry?;
        let is_hidden = matches!(entry.event.mark(), Some(Mark::Idle)) || entry.event.is_repeat();
        if is_hidden && !args.all {
            continue;
        }
        let line = if args.json {
            as_json(&entry).to_string()
        } else {
            as_text(&entry)
        };
        if writeln!(out, "{line}").is_err() {
            // Nobody reads it any more.
            return Ok(ExitStatus::Done);
        }
    }
    drop(out.flush());
    Ok(ExitStatus::Done)
}

fn as_text(entry: &HistoryEntry) -> String {
    let time = entry.time.map_or_else(|| "-".to_owned(), show);
    let paths: Vec<String> = entry.paths.iter().map(|path| printable(path)).collect();
    let dead = match entry.standing {
        HistoryStanding::Live => "",
        HistoryStanding::Nameless => " (of a file without a name)",
        HistoryStanding::Dead => " (does not count)",
    };
    let mut line = format!(
        "{:>12}  {time:24}  {:>10}  {:12}  {}",
        entry.end,
        entry.author,
        entry.event.name(),
        paths.join(" -> "),
    );
    if let Some(detail) = detail(&entry.event) {
        line = format!("{line}  {detail}");
    }
    format!("{}{dead}", line.trim_end())
}

fn as_json(entry: &HistoryEntry) -> serde_json::Value {
    json!({
        "offset": entry.offset,
        "end": entry.end,
        "time": entry.time.map(show),
        "author": entry.author,
        "seq_no": entry.seq_no,
        "event": entry.event.name(),
        "paths": entry.paths.iter().map(|path| String::from_utf8_lossy(path)).collect::<Vec<_>>(),
        "detail": detail(&entry.event),
        "counts": entry.standing == HistoryStanding::Live,
    })
}

fn detail(event: &HistoryEvent) -> Option<String> {
    let body = match event {
        HistoryEvent::Op(body) => body,
        HistoryEvent::Rename { .. } | HistoryEvent::Skipped { .. } => return None,
    };
    match body {
        Body::Write(write) => {
            let length = u64::try_from(write.length).unwrap_or_default();
            Some(format!("{} at {}", format_bytes(length), write.offset))
        }
        Body::Create { inode, .. } => inode.as_ref().map(|inode| {
            let target = printable(&inode.target);
            let to = if target.is_empty() {
                String::new()
            } else {
                format!(" to {target}")
            };
            let mode = format!("mode {:04o}", inode.mode);
            format!("{}{to}, {mode}", kind(inode.kind))
        }),
        Body::Change { change, .. } => Some(changed(change)),
        Body::NoOp { mark } => match mark {
            Some(Mark::Text(text) | Mark::Checkpoint(text)) => Some(printable(text)),
            _ => None,
        },
        Body::Link { .. } | Body::Unlink { .. } | Body::Property { .. } => None,
    }
}

fn changed(change: &Change) -> String {
    match change {
        Change::Attributes(change) => {
            let mut parts = Vec::new();
            if let Some(mode) = change.mode {
                parts.push(format!("mode {mode:04o}"));
            }
            if let Some(uid) = change.uid {
                parts.push(format!("uid {uid}"));
            }
            if let Some(gid) = change.gid {
                parts.push(format!("gid {gid}"));
            }
            if let Some(mtime) = change.mtime {
                parts.push(format!("mtime {}", show(mtime)));
            }
            if let Some(atime) = change.atime {
                parts.push(format!("atime {}", show(atime)));
            }
            parts.join(", ")
        }
        Change::SetXattr { name, .. } | Change::RemoveXattr { name } => printable(name),
        Change::Size(change) => match *change {
            SizeChange::Truncate { size } => format!("to {size}"),
            SizeChange::Punch { offset, length } | SizeChange::Zero { offset, length, .. } => {
                format!("{} at {offset}", format_bytes(length))
            }
        },
        Change::Restated(_) => "what it is, said again".to_owned(),
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Regular => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "character device",
        Kind::BlockDevice => "block device",
    }
}

/// Names are bytes; a terminal shall not obey them.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .flat_map(|c| {
            let escaped: Vec<char> = if c.is_control() {
                c.escape_default().collect()
            } else {
                vec![c]
            };
            escaped
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_steer_the_terminal() {
        assert_eq!(printable("a b\u{1b}[2J\n".as_bytes()), "a b\\u{1b}[2J\\n");
        assert_eq!(printable("\u{e4}".as_bytes()), "\u{e4}");
    }
}
