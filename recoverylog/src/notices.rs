//! What the owner of a log, its standbys and people say to each other: lines in a journal beside the log.
//!
//! Nothing here decides whose the log is: that does the log's author register. A notice that is lost, late or
//! false costs time, and nothing else. Each is one line of JSON, and one append, so that people can read along
//! (`gazctl journals read -l name=LOG.standby`). Lines of later versions are skipped.

mod board;
mod journal;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use board::{Board, NoStandby, OwnerSeen, StandbySeen};
pub use journal::{
    CONTENT_TYPE_NOTICES, Noticed, Notices, NoticesError, Told, make_notices, notices_journal,
};

/// How often a standby says that it is there.
pub const PRESENT_EVERY: Duration = Duration::from_secs(5);
/// For how long it is believed.
pub const PRESENT_FOR: Duration = Duration::from_secs(15);

/// Who says something: a process on a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Who {
    /// Name among the standbys, drawn anew or given by the user.
    pub id: String,
    /// Name of the host.
    pub host: String,
    /// Process on the host.
    pub pid: u32,
    /// Where the directory is mounted.
    pub mountpoint: String,
    /// Tells one boot of a host, and one namespace of processes there, from others.
    #[serde(default)]
    pub boot: String,
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            id,
            host,
            pid,
            mountpoint,
            ..
        } = self;
        write!(f, "{id}, process {pid} on host {host}, at {mountpoint}")
    }
}

/// One notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum Notice {
    /// This author owns the log, since a moment in milliseconds since 1970.
    Owner {
        /// Who it is.
        who: Who,
        /// As the author register has it.
        author: u32,
        /// Since when.
        since_ms: u64,
    },
    /// He no longer records, and the log has all that he acknowledged.
    Ended {
        /// Who it was.
        author: u32,
        /// Where his part of the log ends.
        offset: i64,
        /// The hand-off that asked for it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        handoff: Option<String>,
    },
    /// A standby has the log up to an offset.
    Standby {
        /// Who it is.
        who: Who,
        /// Up to where.
        offset: i64,
        /// After how many milliseconds of silence it takes over, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        takeover_after_ms: Option<u64>,
    },
    /// A standby is gone.
    Gone {
        /// Its name.
        id: String,
    },
    /// Whoever owns the log is asked to say so.
    Ask {
        /// Who asks.
        id: String,
    },
    /// The owner is to hand the log to a standby.
    Handoff {
        /// Names this hand-off.
        handoff: String,
        /// Which standby. If none is named, whoever the owner chooses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// The standby does not wait for the owner.
        #[serde(default)]
        force: bool,
    },
    /// From now on nobody serves: the owner stops its program.
    Stopping {
        /// The hand-off.
        handoff: String,
        /// To whom.
        to: String,
        /// The owner.
        author: u32,
    },
    /// It is called off, and the owner goes on.
    CalledOff {
        /// The hand-off.
        handoff: String,
        /// Why.
        cause: String,
    },
    /// A standby owns the log now, and serves.
    Serving {
        /// The hand-off, if one was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        handoff: Option<String>,
        /// Who.
        who: Who,
        /// Its author.
        author: u32,
    },
}

impl Notice {
    /// Returns the line.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads a line; `None` if it says nothing that this version knows.
    pub fn decode(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

/// Cuts bytes into lines, as they arrive.
#[derive(Debug, Default)]
pub struct Lines {
    held: Vec<u8>,
    /// The rest of a line of which the beginning was not seen.
    skips: bool,
}

impl Lines {
    /// Begins within a line, or at the beginning of one.
    pub fn new(is_within: bool) -> Self {
        Self {
            held: Vec::new(),
            skips: is_within,
        }
    }

    /// Takes bytes, and returns the notices of which the lines are complete now.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Notice> {
        let mut found = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_end = piece.ends_with(b"\n");
            if !self.skips {
                self.held.extend_from_slice(piece);
                // Nobody says that much.
                self.skips = self.held.len() > LINE_BYTES_MAX;
            }
            if is_end {
                found.extend(Notice::decode(&self.held).filter(|_| !self.skips));
                self.held.clear();
                self.skips = false;
            }
        }
        found
    }
}

const LINE_BYTES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn notice(number: u32) -> Notice {
        Notice::Ended {
            author: number,
            offset: 7,
            handoff: None,
        }
    }

    #[test]
    fn lines_that_are_cut_torn_or_of_later_versions_are_skipped() {
        let mut bytes =
            b"of a line\n{\"say\":\"something new\",\"x\":1}\nnonsense\n\xff\n".to_vec();
        bytes.extend(notice(1).encode().expect("it is plain"));
        bytes.extend(notice(2).encode().expect("it is plain"));
        bytes.extend(b"{\"say\":\"gone\"");
        assert_eq!(Lines::new(true).feed(&bytes), [notice(1), notice(2)]);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_arrive(
            cuts in prop::collection::vec(0_usize..400, 0..20),
            long in 0_usize..3,
        ) {
            let mut bytes = vec![b'x'; long * LINE_BYTES_MAX / 2 + 1];
            bytes.push(b'\n');
            for number in 1..4 {
                bytes.extend(notice(number).encode().expect("it is plain"));
            }
            let whole = Lines::default().feed(&bytes);
            let mut lines = Lines::default();
            let mut rest = &bytes[..];
            let mut found = Vec::new();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                found.extend(lines.feed(piece));
                rest = after;
            }
            found.extend(lines.feed(rest));
            prop_assert_eq!(&found, &whole);
            prop_assert_eq!(whole.len(), 3);
        }
    }
}
