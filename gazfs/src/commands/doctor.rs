//! `gazfs doctor`

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use gazette_process::ExitStatus;

use super::say;
use crate::{
    doctor::{Finding, Verdict, can_mount, examine},
    work_dir,
};

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 mounts are possible here, 1 they are not.")]
pub(super) struct DoctorArgs {
    /// Folder whose disk is measured; the state folder of this user if not given
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,

    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let state = args.work.clone().or_else(|| work_dir::default_dir("log"));
    let findings = examine(&state.unwrap_or_else(|| PathBuf::from("/var/lib")));
    if args.json {
        say(&format!("{}\n", serde_json::to_string_pretty(&findings)?));
    } else {
        say(&findings.iter().map(line).collect::<String>());
    }
    let status = if can_mount(&findings) {
        ExitStatus::Done
    } else {
        ExitStatus::Failed
    };
    Ok(status.into())
}

fn line(finding: &Finding) -> String {
    let verdict = match finding.verdict {
        Verdict::Ok => "ok",
        Verdict::Slower => "slower",
        Verdict::Missing => "MISSING",
    };
    format!("{verdict:8}{:17}{}\n", finding.name, finding.text)
}
