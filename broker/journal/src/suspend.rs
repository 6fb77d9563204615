//! What the suspend control of an append asks for.

use gazette_protocol::{append_request, journal_spec, journal_spec::suspend::Level};

use crate::{Now, fragment::index::Summary};

/// Age that the last stored fragment must have for the journal to count as idle, where the
/// spec names no flush interval.
const IDLE_AGE_SECONDS_DEFAULT: i64 = 24 * 60 * 60;

/// What becomes of an append, as far as suspension goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It goes on as an ordinary append.
    Proceed,
    /// It is answered that the journal is suspended.
    Suspended,
    /// The level of the spec is changed, and the journal is resolved anew.
    Update {
        /// The level to write.
        level: Level,
        /// Close the present fragment first, so that it is persisted.
        roll: bool,
    },
}

/// What the decision looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// The extent of the index.
    pub index: Summary,
    /// Whether the present fragment holds content, acknowledged or not.
    pub has_spool: bool,
    /// Seconds of the spec's flush interval.
    pub flush_interval: i64,
}

/// Decides on an append with `control` to a journal that is suspended to `level`.
///
/// A journal without any content is suspended fully. Else it becomes partly suspended, on
/// [`append_request::Suspend::Now`] at once, and on `IfFlushed` if all of it has
/// been in the store for a while.
pub fn decide(control: append_request::Suspend, level: Level, facts: Facts, now: Now) -> Decision {
    use append_request::Suspend as Control;

    let is_active = level == Level::None;
    let is_forced = match control {
        Control::Keep => return Decision::Proceed,
        Control::Resume | Control::NoResume if is_active => return Decision::Proceed,
        Control::Resume => {
            return Decision::Update {
                level: Level::None,
                roll: false,
            };
        }
        Control::NoResume => return Decision::Suspended,
        Control::IfFlushed => false,
        Control::Now => true,
    };
    let is_empty = facts.index.begin == facts.index.end && !facts.has_spool;
    match level {
        Level::None | Level::Partial if is_empty => Decision::Update {
            level: Level::Full,
            roll: false,
        },
        Level::None if is_forced || is_flushed(facts, now) => Decision::Update {
            level: Level::Partial,
            roll: facts.has_spool,
        },
        Level::None => Decision::Proceed,
        Level::Partial | Level::Full => Decision::Suspended,
    }
}

fn is_flushed(facts: Facts, now: Now) -> bool {
    let idle = match facts.flush_interval {
        interval if interval > 0 => interval,
        _ => IDLE_AGE_SECONDS_DEFAULT,
    };
    facts.index.last_mod_time != 0 && facts.index.last_mod_time <= now.unix() - idle
}

/// The floor under the next append's offset that a suspension leaves in the spec.
pub fn suspended_at(level: Level, offset: i64) -> journal_spec::Suspend {
    journal_spec::Suspend {
        level: level.into(),
        offset,
    }
}

#[cfg(test)]
mod tests;
