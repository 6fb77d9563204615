//! Whether the backing files of a daemon that was killed are what the log says. Pure.
//!
//! They are if nothing is in them that the log never got, and nothing in the log that somebody else
//! did. In doubt the log is played, and the files are compared with it.

use std::collections::BTreeMap;

use gazette_recoverylog::player::Followup;
use thiserror::Error;

use crate::work_dir::{Ground, LastPulse, Phase, State};

/// Why backing files are not taken as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Doubt {
    /// They were not being recorded.
    #[error("it was not being recorded, or by an earlier version")]
    NotRecorded,
    /// What was not synced may be lost.
    #[error("this machine was started anew")]
    Booted,
    /// It is another tree than the one that was recorded.
    #[error("it is another tree")]
    OtherTree,
    /// The last recorder of the tree left nothing.
    #[error("its last recorder left no pulse")]
    NoPulse,
    /// A change may have happened, and was not recorded.
    #[error("its recorder was killed within {0} changes")]
    Begun(i64),
    /// A change is in the files only.
    #[error("the log has its changes up to op {logged} only, of {recorded}")]
    Unlogged {
        /// The op of the last change of the files.
        recorded: i64,
        /// The last op of their recorder in the log.
        logged: i64,
    },
    /// Somebody changed the directory elsewhere.
    #[error("author {0} recorded elsewhere")]
    Elsewhere(u32),
    /// Where the log ends is not certain.
    #[error("the end of the log is uncertain, or torn")]
    Uncertain,
}

/// Decides what can be decided before the log is read: whether all that the daemon did to the files
/// is still there, and known.
pub(super) fn is_whole<'a>(
    state: &'a State,
    now: &Ground,
    pulse: Option<LastPulse>,
) -> Result<(&'a Ground, LastPulse), Doubt> {
    let ground = match &state.ground {
        Some(ground) if state.phase == Phase::Recording => ground,
        Some(_) | None => return Err(Doubt::NotRecorded),
    };
    if ground.boot != now.boot {
        return Err(Doubt::Booted);
    }
    if (ground.device, ground.root) != (now.device, now.root) {
        return Err(Doubt::OtherTree);
    }
    let pulse = pulse.ok_or(Doubt::NoPulse)?;
    if !ground.authors.contains(&pulse.author) {
        return Err(Doubt::NoPulse);
    }
    // Also fewer than none: then it is not understood.
    if pulse.begun != 0 {
        return Err(Doubt::Begun(pulse.begun));
    }
    Ok((ground, pulse))
}

/// Decides whether the log has all of it, and nothing else. `base` is the last op of the checkpoint;
/// `behind` is what follows upon it in the log.
pub(super) fn is_logged(
    ground: &Ground,
    pulse: LastPulse,
    base: i64,
    behind: &BTreeMap<u32, Followup>,
    is_uncertain: bool,
) -> Result<(), Doubt> {
    if is_uncertain {
        return Err(Doubt::Uncertain);
    }
    let foreign = behind
        .iter()
        .find(|(author, followup)| followup.has_changes && !ground.authors.contains(author));
    if let Some((author, _)) = foreign {
        return Err(Doubt::Elsewhere(*author));
    }
    // Others may have used the numbers of what its recorder did not get into the log.
    let own = behind.get(&pulse.author);
    let logged = own.map_or(base, |own| own.last_seq_no.max(base));
    if pulse.recorded > logged {
        return Err(Doubt::Unlogged {
            recorded: pulse.recorded,
            logged,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
