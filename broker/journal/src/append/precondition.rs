//! What must hold before an append may stream, in the order in which it is looked at.

use gazette_protocol::{AppendRequest, JournalSpec, Status, journal_spec::suspend::Level};

use crate::{
    Now,
    fragment::{Spool, index::Summary},
    registers,
    suspend::{self, Decision},
};

/// What becomes of the append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It streams, after a roll to this offset if one is named.
    Stream { roll_to: Option<i64> },
    /// The replicas synchronise anew, at this offset. Then it is looked at again.
    Resync { roll_to: i64 },
    /// It is answered with this status.
    Respond(Status),
    /// The suspension of the journal changes. Then it is looked at again.
    Suspend(Level),
}

/// Looks at the preconditions of an append by a primary that holds the pipeline.
pub(super) fn check(
    request: &AppendRequest,
    spec: &JournalSpec,
    spool: &Spool,
    index: Summary,
    now: Now,
) -> Verdict {
    if !registers::admits(spool.registers(), request.check_registers.as_ref()) {
        return Verdict::Respond(Status::RegisterMismatch);
    }
    let suspended = spec.suspend.unwrap_or_default();
    if spool.end() < suspended.offset {
        return Verdict::Resync {
            roll_to: suspended.offset,
        };
    }
    let head = spool.end().max(index.end);
    match request.offset {
        // A journal that cannot be written may mirror the stores of another one.
        0 if spool.end() != head && spec.may_write() => {
            return Verdict::Respond(Status::IndexHasGreaterOffset);
        }
        0 => {}
        offset if offset != head => return Verdict::Respond(Status::WrongAppendOffset),
        _ if spool.end() != head => return Verdict::Resync { roll_to: head },
        _ => {}
    }
    let has_content = spool.fragment().content_length() > 0;
    let facts = suspend::Facts {
        index,
        has_spool: has_content || !spool.is_acknowledged(),
        flush_interval: spec.fragment.flush_interval.seconds,
    };
    match suspend::decide(request.suspend(), suspended.level(), facts, now) {
        Decision::Proceed => {}
        Decision::Suspended => return Verdict::Respond(Status::Suspended),
        Decision::Update { roll: true, .. } if has_content => {
            return Verdict::Resync {
                roll_to: spool.end(),
            };
        }
        Decision::Update { level, .. } => return Verdict::Suspend(level),
    }
    // Closes the first fragment of a journal early, so that its stores soon tell that the
    // journal is not new: a cluster that lost all its brokers must not begin it at zero again.
    let is_first = spool.begin() == index.begin;
    let is_rolled = is_first || request.flush;
    Verdict::Stream {
        roll_to: is_rolled.then(|| spool.end()),
    }
}

#[cfg(test)]
mod tests;
