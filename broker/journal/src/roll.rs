//! When a spool closes its fragment and begins the next one.

use gazette_protocol::{Fragment, journal_spec};

use crate::{Now, fragment::Spool, now::unix_seconds};

/// The proposal that begins or ends an append: the present fragment of `spool`, or a new and
/// empty one where it must be closed first. The new one begins at `roll_to`, or where the
/// present one ends, and takes its codec from the spec.
///
/// A fragment is closed when it holds nothing (which only updates its codec), when it is
/// **longer** than `spec.length`, when another begin is asked for, or when the flush interval
/// of its first append has passed. Flush intervals count from the Unix epoch, so all journals
/// of one interval close their fragments together. An append is never split.
pub fn maybe_roll(
    spool: &Spool,
    roll_to: Option<i64>,
    spec: &journal_spec::Fragment,
    now: Now,
) -> Fragment {
    let present = spool.fragment();
    let begin = roll_to.unwrap_or(present.end).max(present.end);

    let is_due = present.content_length() == 0
        || present.content_length() > spec.length
        || roll_to.is_some_and(|offset| offset != present.begin)
        || is_flush_due(spool, spec, now);
    if !is_due {
        return present.clone();
    }
    Fragment {
        journal: present.journal.clone(),
        begin,
        end: begin,
        compression_codec: spec.compression_codec,
        ..Fragment::default()
    }
}

fn is_flush_due(spool: &Spool, spec: &journal_spec::Fragment, now: Now) -> bool {
    let interval = spec.flush_interval.seconds;
    let Some(first) = spool.first_append_time() else {
        return false;
    };
    interval > 0 && unix_seconds(first).div_euclid(interval) != now.unix().div_euclid(interval)
}

#[cfg(test)]
mod tests;
