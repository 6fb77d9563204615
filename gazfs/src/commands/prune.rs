//! `gazfs prune`

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use anyhow::Context;
use clap::Args;
use gazette_client::Client;
use gazette_process::ExitStatus;
use gazette_recoverylog::{
    Source,
    fsm::{FsmHints, prune::Verdict},
    hints::{HintsPoint, NoteBody, Pin, append_note, keeping, list_hints, newest_hints, pin},
    prune::{PruneOptions, Pruned, PrunedFragment, prune, stores},
};
use serde_json::json;
use time::OffsetDateTime;

use super::{
    bytes::format_bytes,
    moment::{Point, timestamp},
    recording_args::BrokerArgs,
    say,
};

#[derive(Debug, Args)]
#[command(after_help = "\
What stays: what the newest hints need to rebuild the directory, the ones before them, and all that
somebody keeps: points by --keep, forks, standbys. What is not in a store yet stays, too. Each list is
read twice, and what is to go is written down in between, so that whoever begins to need it meanwhile
is told.

Exit codes: 0 done, 1 failed, 2 usage.

Examples:
  gazfs prune --log recovery/app --dry-run                 what would go, and why the rest stays
  gazfs prune --log recovery/app --keep 2026-11-30T12:00Z  keeps that moment, and prunes
  gazfs prune --log recovery/app --release keep/2026-11-30T12:00Z")]
pub(super) struct PruneArgs {
    /// Recovery log
    #[arg(long, value_name = "NAME")]
    log: String,

    /// Only say what would go, and why the rest stays
    #[arg(long)]
    dry_run: bool,

    /// Keep this point from now on, an offset or a time: gazfs recover --at can always go there
    #[arg(long, value_name = "POINT", allow_hyphen_values = true)]
    keep: Vec<Point>,

    /// Let go what is kept under this name, as --dry-run tells it
    #[arg(long, value_name = "NAME")]
    release: Vec<String>,

    /// How many sets of hints before the newest stay usable
    #[arg(long, value_name = "N", default_value_t = 1)]
    older_hints: usize,

    /// Prune a log of mode compat: no process of Gazette will ever play it
    #[arg(long)]
    no_gazette: bool,

    /// Folder below which `file` stores of the brokers are
    #[arg(long, value_name = "DIR")]
    store_root: Option<PathBuf>,

    /// Tell the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) async fn run(args: PruneArgs) -> anyhow::Result<ExitStatus> {
    let client = args.broker.connect()?;
    if !args.dry_run {
        for name in &args.release {
            release(&client, &args.log, name).await?;
        }
        for point in &args.keep {
            keep(&client, &args.log, *point).await?;
        }
    }
    let stores = stores(&client, args.store_root);
    let options = PruneOptions::new(args.older_hints, args.dry_run, args.no_gazette);
    let pruned = prune(&client, &stores, &args.log, options).await?;
    if args.json {
        say(&format!("{}\n", as_json(&pruned)));
    } else {
        say(&as_text(&args.log, &pruned, args.dry_run));
    }
    Ok(ExitStatus::Done)
}

async fn release(client: &Client, log: &str, name: &str) -> anyhow::Result<()> {
    let known = keeping(&Source::Broker(client.clone()), log).await?;
    let is_known = known.pins.iter().any(|(_, pin)| pin.name == name);
    is_known.then_some(()).with_context(|| {
        format!("release {name}: nothing of {log} is kept under this name; next: gazfs prune --log {log} --dry-run lists what is")
    })?;
    let name = name.to_owned();
    append_note(client, log, NoteBody::Release { name }).await?;
    Ok(())
}

/// Has a point kept: what the newest hints before it need, and what follows up to it.
async fn keep(client: &Client, log: &str, point: Point) -> anyhow::Result<()> {
    let source = Source::Broker(client.clone());
    let (wanted, name) = match point {
        Point::Offset(offset) => (HintsPoint::Offset(offset), offset.to_string()),
        Point::Moment(moment) => {
            let time = timestamp(moment.at(OffsetDateTime::now_utc()));
            (HintsPoint::Time(time), super::recover::show(time))
        }
    };
    let name = format!("keep/{name}");
    let known = keeping(&source, log).await?;
    let mut known = known.pins.iter();
    if known.any(|(_, pin)| pin.name == name && pin.to < i64::MAX) {
        // A second pin could but need more than the first, of which some may be gone.
        return Ok(());
    }
    let newest = newest_hints(&source, log, wanted).await?;
    let (from, hints) = newest.map_or_else(
        || (0, FsmHints::of_log(log)),
        |newest| (newest.offset, newest.hints),
    );
    let to = match wanted {
        HintsPoint::Offset(offset) => offset,
        // The first hints after it are after its last append. Without any, nobody knows what is.
        HintsPoint::Time(_) | HintsPoint::Head => {
            let listed = list_hints(&source, log).await?;
            let later = listed
                .iter()
                .filter(|of| !wanted.admits(of.offset, of.time));
            later.map(|of| of.offset).min().unwrap_or(i64::MAX)
        }
    };
    let kept = Pin {
        name,
        until: None,
        from,
        to: to.max(from),
        hints,
    };
    Ok(pin(client, log, kept).await?)
}

fn length(of: &PrunedFragment) -> u64 {
    of.fragment.end.abs_diff(of.fragment.begin)
}

fn reason(verdict: &Verdict<Arc<str>>) -> String {
    match verdict {
        Verdict::Goes => "nothing needs it".to_owned(),
        Verdict::Needed(by) => {
            let mut by: Vec<&str> = by.iter().map(|what| &**what).collect();
            by.dedup();
            format!("needed by {}", by.join(", "))
        }
        Verdict::NotPersisted => "not in the store yet".to_owned(),
        Verdict::NothingKept => "no hints say what is needed".to_owned(),
    }
}

fn as_text(log: &str, pruned: &Pruned, is_dry_run: bool) -> String {
    let mut text = String::new();
    let mut stays: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut gone = (0, 0);
    for of in &pruned.fragments {
        if of.is_removed || (is_dry_run && of.verdict == Verdict::Goes) {
            gone = (gone.0 + 1, gone.1 + length(of));
            if is_dry_run {
                let of = &of.fragment;
                text = format!(
                    "{text}would go: {} from {} to {}\n",
                    of.journal, of.begin, of.end
                );
            }
        } else {
            let why = if of.verdict == Verdict::Goes {
                "needless since just now; it goes next time".to_owned()
            } else {
                reason(&of.verdict)
            };
            let entry = stays.entry(why).or_default();
            *entry = (entry.0 + 1, entry.1 + length(of));
        }
    }
    for (why, (count, bytes)) in &stays {
        text = format!(
            "{text}stays: {count} fragments, {}: {why}\n",
            format_bytes(*bytes)
        );
    }
    let verb = if is_dry_run {
        "would be freed"
    } else {
        "freed"
    };
    format!(
        "{text}{log}: {} fragments, {}, {verb}\n",
        gone.0,
        format_bytes(gone.1)
    )
}

fn as_json(pruned: &Pruned) -> serde_json::Value {
    let (stays, goes) = pruned.bytes();
    let freed: u64 = pruned
        .fragments
        .iter()
        .filter(|of| of.is_removed)
        .map(length)
        .sum();
    json!({
        "bytes_needed": stays,
        "bytes_needless": goes,
        "bytes_freed": freed,
        "fragments": pruned.fragments.iter().map(|of| json!({
            "journal": of.fragment.journal,
            "begin": of.fragment.begin,
            "end": of.fragment.end,
            "goes": of.verdict == Verdict::Goes,
            "removed": of.is_removed,
            "reason": reason(&of.verdict),
        })).collect::<Vec<_>>(),
    })
}
