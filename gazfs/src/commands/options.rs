//! Arguments of all commands that mount.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use gazette_client::ClientOptions;
use rustix::process::{getegid, geteuid};

use crate::{
    journals::{Ack, Options, Origin, Template},
    mount::Access,
};

/// How journals are shown.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Journals")]
pub(super) struct JournalArgs {
    /// When a write is done: `write` waits in each write(2); `close` lets writes go on, and waits
    /// in fsync(2) and close(2), which then report what failed. Writes that are synchronous by themselves
    /// (`O_SYNC`, `O_DSYNC`) always wait
    #[arg(long, value_name = "WHEN", default_value = "write")]
    ack: AckArg,

    /// What is the beginning of a file: `zero` is the journal's own, where what was pruned is a
    /// hole; `available` is the first byte that is there at the first open
    #[arg(long, value_name = "WHAT", default_value = "zero")]
    origin: OriginArg,

    /// How long a call waits for brokers before it fails
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_timeout)]
    timeout: Duration,

    /// Spec of journals that are made here, in YAML; its name is left out
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,

    /// Let rm(1) delete journals with all their content
    #[arg(long)]
    allow_delete: bool,

    /// Owner of all files; the user who mounts if not given
    #[arg(long, value_name = "UID")]
    uid: Option<u32>,

    /// Group of all files; that of the user who mounts if not given
    #[arg(long, value_name = "GID")]
    gid: Option<u32>,

    /// Mode of all files, octal; who may read a directory may also search it
    #[arg(long, value_name = "MODE", default_value = "644", value_parser = parse_mode)]
    mode: u16,

    /// Let other users in, as far as the mode allows; root does so anyway. Others need
    /// `user_allow_other` in /etc/fuse.conf
    #[arg(long)]
    allow_other: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AckArg {
    Write,
    Close,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OriginArg {
    Zero,
    Available,
}

impl JournalArgs {
    /// Returns how journals are shown. Free space is that of `space_of`, if it is given.
    pub(super) fn options(&self, space_of: Option<PathBuf>) -> anyhow::Result<Options> {
        Ok(Options {
            timeout: self.timeout,
            ack: match self.ack {
                AckArg::Write => Ack::Write,
                AckArg::Close => Ack::Close,
            },
            origin: match self.origin {
                OriginArg::Zero => Origin::Zero,
                OriginArg::Available => Origin::Available,
            },
            allow_delete: self.allow_delete,
            uid: self.uid.unwrap_or_else(|| geteuid().as_raw()),
            gid: self.gid.unwrap_or_else(|| getegid().as_raw()),
            mode: self.mode,
            template: template(self.spec.as_deref())?,
            space_of,
        })
    }

    /// Returns how the client of a mount works: it gives up when a call of a program does, and
    /// then knows whether anything was done.
    pub(super) fn client_options(&self) -> ClientOptions {
        ClientOptions {
            call_timeout: self.timeout,
            append_give_up_after: Some(self.timeout),
            ..ClientOptions::default()
        }
    }

    /// Returns who may use the mount.
    pub(super) fn access(&self) -> Access {
        if self.allow_other || geteuid().is_root() {
            Access::All
        } else {
            Access::Owner
        }
    }

    /// When a write is done, in words.
    pub(super) fn promise(&self) -> &'static str {
        match self.ack {
            AckArg::Write => "a write(2) that returned",
            AckArg::Close => "an fsync(2) or close(2) that returned",
        }
    }
}

/// Reads what journals are that are made here.
pub(super) fn template(spec: Option<&Path>) -> anyhow::Result<Template> {
    let Some(file) = spec else {
        return Ok(Template::default());
    };
    let read = || format!("read the spec {}", file.display());
    let text = fs::read_to_string(file).with_context(read)?;
    Template::from_yaml(&text).with_context(read)
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if timeout < TIMEOUT_MIN || timeout > TIMEOUT_MAX {
        return Err("expected something between 1ms and 1day".to_owned());
    }
    Ok(timeout)
}

fn parse_mode(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("expected three octal digits".to_owned()),
    }
}

const TIMEOUT_MIN: Duration = Duration::from_millis(1);
const TIMEOUT_MAX: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_times_are_bounded() {
        assert_eq!(parse_mode("640"), Ok(0o640));
        assert!(parse_mode("1777").is_err());
        assert!(parse_mode("9").is_err());
        assert_eq!(parse_timeout("1500ms"), Ok(Duration::from_millis(1500)));
        assert!(parse_timeout("0s").is_err());
        assert!(parse_timeout("3").is_err());
    }
}
