//! Events of the past, for watches and for reads of older revisions.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::{CoordinationError, Event, EventKind, KeyValue, RangeKey};

/// The events of the latest revisions.
#[derive(Debug)]
pub(super) struct History {
    /// Oldest revision whose keys can be read.
    oldest: i64,
    /// Oldest revision whose events can be read: the same, or the one after if the events of that
    /// one are not known any more.
    oldest_events: i64,
    revisions: VecDeque<Revision>,
}

#[derive(Debug)]
struct Revision {
    revision: i64,
    changes: Vec<Change>,
}

#[derive(Debug)]
struct Change {
    event: Event,
    before: Option<KeyValue>,
}

impl History {
    /// Returns a history that begins at `revision`, of which it knows no events. Revision 1 of a
    /// store has none.
    pub(super) fn new(revision: i64) -> Self {
        let oldest_events = if revision == 1 { 1 } else { revision + 1 };
        Self {
            oldest: revision,
            oldest_events,
            revisions: VecDeque::new(),
        }
    }

    pub(super) fn push(
        &mut self,
        revision: i64,
        kind: EventKind,
        kv: KeyValue,
        before: Option<KeyValue>,
    ) {
        let change = Change {
            event: Event { kind, kv },
            before,
        };
        match self.revisions.back_mut() {
            Some(last) if last.revision == revision => last.changes.push(change),
            _ => self.revisions.push_back(Revision {
                revision,
                changes: vec![change],
            }),
        }
    }

    /// Checks that `revision` can be read.
    pub(super) fn check(&self, revision: i64, latest: i64) -> Result<(), CoordinationError> {
        if revision > latest {
            return Err(CoordinationError::FutureRevision {
                requested: revision,
                latest,
            });
        }
        not_older(revision, self.oldest)
    }

    /// Takes the changes after `revision` of covered keys back in `keys`.
    pub(super) fn undo_since(
        &self,
        revision: i64,
        range: &RangeKey,
        keys: &mut BTreeMap<Bytes, KeyValue>,
    ) {
        let later = self
            .revisions
            .iter()
            .rev()
            .take_while(|entry| entry.revision > revision);
        for change in later.flat_map(|entry| entry.changes.iter().rev()) {
            let key = &change.event.kv.key;
            if !range.covers(key) {
                continue;
            }
            match &change.before {
                Some(before) => keys.insert(key.clone(), before.clone()),
                None => keys.remove(key),
            };
        }
    }

    /// Returns the events from revision `start` on, about `max` of them, and the revision of the
    /// last one if there are more.
    pub(super) fn since(
        &self,
        start: i64,
        prefix: &Bytes,
        max: usize,
    ) -> Result<(Vec<Event>, Option<i64>), CoordinationError> {
        not_older(start, self.oldest_events)?;
        let mut events = Vec::new();
        let first = self
            .revisions
            .partition_point(|entry| entry.revision < start);
        for entry in self.revisions.range(first..) {
            if events.len() >= max {
                return Ok((events, Some(entry.revision - 1)));
            }
            let under = entry
                .changes
                .iter()
                .filter(|c| c.event.kv.key.starts_with(prefix));
            events.extend(under.map(|change| change.event.clone()));
        }
        Ok((events, None))
    }

    /// Forgets what was before `revision`.
    pub(super) fn compact(&mut self, revision: i64, latest: i64) -> Result<(), CoordinationError> {
        self.check(revision, latest)?;
        self.oldest = revision;
        self.oldest_events = self.oldest_events.max(revision);
        while self
            .revisions
            .front()
            .is_some_and(|entry| entry.revision < revision)
        {
            self.revisions.pop_front();
        }
        Ok(())
    }

    /// Keeps the latest `max` revisions.
    pub(super) fn trim(&mut self, max: usize) {
        while self.revisions.len() > max.max(1) {
            self.revisions.pop_front();
            if let Some(first) = self.revisions.front() {
                self.oldest = self.oldest.max(first.revision);
                self.oldest_events = self.oldest_events.max(first.revision);
            }
        }
    }

    /// Forgets what was after `revision`.
    pub(super) fn roll_back(&mut self, revision: i64) {
        while self
            .revisions
            .back()
            .is_some_and(|entry| entry.revision > revision)
        {
            self.revisions.pop_back();
        }
        if self.oldest > revision {
            self.oldest = revision;
            self.oldest_events = revision + 1;
        }
    }
}

fn not_older(requested: i64, oldest: i64) -> Result<(), CoordinationError> {
    if requested < oldest {
        return Err(CoordinationError::Compacted { requested, oldest });
    }
    Ok(())
}
