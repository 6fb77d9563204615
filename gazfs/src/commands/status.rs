//! `gazfs status` and `gazfs flush`

use std::{io, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use gazette_process::ExitStatus;
use serde_json::{Value, json};

use super::{say, say_error};
use crate::mount::{
    Daemon, FlushOutcome, MountError, Question, ask, ask_as, daemon_of, daemons, resolve,
};

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 all is well, 1 nothing is mounted there, 3 something is not well, 4 fenced.

Examples:
  gazfs status                  all mounts of this user on this machine
  gazfs status /mnt/app         one of them
  gazfs status --json | jq .    for programs")]
pub(super) struct StatusArgs {
    /// Where something is mounted; all mounts if not given
    mountpoint: Option<PathBuf>,

    /// As JSON: an object, or a list if no mount is given
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 all is acknowledged, 1 it failed, 4 fenced, 75 it takes too long.")]
pub(super) struct FlushArgs {
    /// Where something is mounted; all mounts if not given
    mountpoint: Option<PathBuf>,

    /// Wait until everything that was done so far is acknowledged. That is what is done in any
    /// case; the option is for those who want to say so
    #[arg(long)]
    wait: bool,

    /// How long to wait at most
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
}

/// A daemon, and what it says of itself.
struct Told {
    pid: u32,
    status: Value,
}

pub(super) fn run(args: &StatusArgs) -> anyhow::Result<ExitStatus> {
    let told = find(args.mountpoint.as_ref())?;
    let statuses = told.iter().map(|told| &told.status);
    if !args.json && told.is_empty() {
        say("nothing of this user is mounted by gazfs on this machine\n");
    } else if !args.json {
        say(&statuses.clone().map(describe).collect::<String>());
    } else if args.mountpoint.is_some() {
        for status in statuses.clone() {
            say(&format!("{}\n", serde_json::to_string_pretty(status)?));
        }
    } else {
        let all: Vec<&Value> = statuses.clone().collect();
        say(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let states = statuses.map(|status| text(status, "state"));
    Ok(states.fold(ExitStatus::Done, |worst, state| match state {
        "fenced" => ExitStatus::Fenced,
        "recording" | "serving" | "standing by" => worst,
        _ if worst == ExitStatus::Fenced => worst,
        _ => ExitStatus::Degraded,
    }))
}

pub(super) fn flush(args: &FlushArgs) -> anyhow::Result<ExitStatus> {
    let told = find(args.mountpoint.as_ref())?;
    let mut worst = ExitStatus::Done;
    for Told { pid, status } in told {
        let point = text(&status, "mountpoint").to_owned();
        let (send, answer) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send(ask_as::<FlushOutcome>(pid, Question::Flush)));
        let waited = match args.timeout {
            Some(timeout) => answer.recv_timeout(timeout).ok(),
            None => answer.recv().ok(),
        };
        let Some(outcome) = waited else {
            say_error(&format!(
                "error: flush {point}: not all is acknowledged yet; next: gazfs status {point} \
                 says why"
            ));
            return Ok(ExitStatus::TryLater);
        };
        match outcome.with_context(|| format!("flush {point}"))? {
            FlushOutcome::Done => {}
            FlushOutcome::Failed { message, is_fenced } => {
                say_error(&format!("error: flush {point}: {message}"));
                worst = if is_fenced {
                    ExitStatus::Fenced
                } else {
                    ExitStatus::Failed
                };
            }
        }
    }
    Ok(worst)
}

/// Finds the daemon of a mount, also if the mount itself is in another namespace; or all of them.
fn find(point: Option<&PathBuf>) -> anyhow::Result<Vec<Told>> {
    let all = || {
        let all = daemons().context("look for daemons")?;
        anyhow::Ok(all.into_iter().filter_map(told))
    };
    let Some(point) = point else {
        return Ok(all()?.collect());
    };
    match daemon_of(point) {
        Ok(Daemon::Alive { pid, point }) => {
            let told = tell(pid).map_err(|cause| {
                let point = point.display();
                anyhow!(
                    "look at {point}: process {pid} does not answer: {cause}; next: try again, and \
                     see whether the process is stopped, or about to end"
                )
            })?;
            Ok(vec![told])
        }
        Ok(Daemon::Dead { point }) => {
            let point = point.display();
            bail!(
                "look at {point}: its daemon died; next: start it again, which replaces the mount, \
                 or take it away with gazfs umount {point}"
            )
        }
        Err(MountError::NotMounted { .. }) => {
            let resolved = resolve(point).unwrap_or_else(|_| point.clone());
            let found =
                all()?.find(|told| text(&told.status, "mountpoint") == resolved.to_string_lossy());
            let point = point.display();
            let found = found.with_context(|| {
                format!(
                    "look at {point}: nothing of gazfs is mounted there; next: gazfs status lists \
                     what is"
                )
            })?;
            Ok(vec![found])
        }
        Err(error) => Err(error.into()),
    }
}

fn tell(pid: u32) -> io::Result<Told> {
    let answer = ask(pid, Question::Status)?;
    let status = serde_json::from_str(&answer)?;
    Ok(Told { pid, status })
}

/// What one of many says. One that ended meanwhile, or that is of another user, is none of ours.
fn told(pid: u32) -> Option<Told> {
    match tell(pid) {
        Ok(told) => Some(told),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let status = json!({ "pid": pid, "state": "does not answer" });
            Some(Told { pid, status })
        }
        Err(_) => None,
    }
}

/// A status for people: a line each, names as in JSON, and each mount by itself.
fn describe(status: &Value) -> String {
    let mut lines = match status.get("mountpoint") {
        Some(point) => format!("{}\n", plain(point)),
        None => "unknown mount\n".to_owned(),
    };
    let mut more = String::new();
    for (name, value) in status.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::Array(items) if items.is_empty() => {}
            Value::Object(_) => more.push_str(&describe(value)),
            Value::String(_) if name == "mountpoint" => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                lines = format!("{lines}  {}: {}\n", name.replace('_', " "), plain(value));
            }
        }
    }
    lines + &more
}

/// A value as people write it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

fn text<'a>(status: &'a Value, name: &str) -> &'a str {
    status.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_a_line_each_and_each_mount_by_itself() {
        // In the order of their names, which is the one that maps may have.
        let status = json!({
            "detail": null,
            "journals": { "kind": "journals", "mountpoint": "/d/journals", "pending_appends": 0 },
            "kind": "recorded",
            "last_error": "none",
            "mountpoint": "/d/data",
            "unrecorded": ["/w/unrecorded-1", "/w/unrecorded-2"],
        });
        let expected = "/d/data\n  kind: recorded\n  last error: none\n  unrecorded: \
                        /w/unrecorded-1, /w/unrecorded-2\n/d/journals\n  kind: journals\n  pending \
                        appends: 0\n";
        assert_eq!(describe(&status), expected);
        assert_eq!(describe(&json!({ "unrecorded": [] })), "unknown mount\n");
    }
}
