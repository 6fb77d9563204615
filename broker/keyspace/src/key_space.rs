//! The mirror as a pure machine: what was loaded and watched comes in, changed entries come out.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, ops::Bound, sync::Arc};

use bytes::Bytes;
use gazette_coordination::{Event, EventKind, KeyValue, ResponseHeader, WatchResponse};

use crate::{Change, Decoder, Entry, Rejected};

/// Decoded keys under a prefix, sorted.
pub struct KeySpace<V> {
    prefix: Bytes,
    decoder: Decoder<V>,
    header: ResponseHeader,
    entries: BTreeMap<Bytes, Arc<Entry<V>>>,
}

/// What an update did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied<V> {
    /// Changed entries, ascending on key; several changes of a key are one.
    pub changes: Vec<Change<V>>,
    /// Keys that did not decode. What was stored of them before is unchanged.
    pub rejected: Vec<Rejected>,
}

/// An update cannot be of the store that the key space mirrors, or came out of order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The answer is of another store.
    #[error("the coordination store is {now:#x} now, and was {was:#x}")]
    ClusterChanged {
        /// Identity so far.
        was: u64,
        /// Identity of the answer.
        now: u64,
    },
    /// The store went back in time.
    #[error("the coordination store is at revision {now}, and was at {was}")]
    RevisionWentBack {
        /// Revision so far.
        was: i64,
        /// Revision of the answer.
        now: i64,
    },
    /// A watch delivered a revision again.
    #[error("an event of revision {event} came after revision {was} was applied")]
    EventOutOfOrder {
        /// Revision so far.
        was: i64,
        /// Revision of the event.
        event: i64,
    },
}

impl<V> KeySpace<V> {
    /// Returns a key space of what was read under `prefix`. Its revision is the one read at, which
    /// `header` must hold.
    pub fn load(
        prefix: Bytes,
        header: ResponseHeader,
        kvs: Vec<KeyValue>,
        decoder: Decoder<V>,
    ) -> (Self, Vec<Rejected>) {
        let mut space = Self {
            prefix,
            decoder,
            header,
            entries: BTreeMap::new(),
        };
        let mut rejected = Vec::new();
        for kv in kvs {
            match space.decode(kv) {
                Ok(entry) => {
                    space.entries.insert(entry.raw.key.clone(), entry);
                }
                Err(reject) => rejected.push(reject),
            }
        }
        (space, rejected)
    }

    /// Prefix of all keys.
    pub fn prefix(&self) -> &Bytes {
        &self.prefix
    }

    /// Identity of the store, and [`KeySpace::revision`].
    pub fn header(&self) -> ResponseHeader {
        self.header
    }

    /// Revision of the load, or greatest revision of the changes under the prefix since. Changes
    /// of other keys of the store do not count: peers that mirror the same prefix wait for this
    /// revision, and would never reach one that did not touch it.
    pub fn revision(&self) -> i64 {
        self.header.revision
    }

    /// The entry of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Arc<Entry<V>>> {
        self.entries.get(key)
    }

    /// All entries, ascending on key.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry<V>>> {
        self.entries.values()
    }

    /// Entries whose keys begin with `prefix`, ascending on key. Costs O(log n + k).
    pub fn prefixed<P: AsRef<[u8]>>(
        &self,
        prefix: P,
    ) -> impl Iterator<Item = &Arc<Entry<V>>> + use<'_, V, P> {
        self.entries
            .range::<[u8], _>((Bound::Included(prefix.as_ref()), Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix.as_ref()))
            .map(|(_, entry)| entry)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Applies what a watch delivered, in order.
    ///
    /// A value that does not decode is reported and skipped: an entry keeps its former value and
    /// revision until a valid one comes. An event that contradicts the entries, such as the
    /// deletion of an unknown key, is applied as well as can be.
    pub fn apply(&mut self, responses: &[WatchResponse]) -> Result<Applied<V>, ApplyError> {
        for response in responses {
            self.check(&response.header)?;
        }
        let mut latest = self.header.revision;
        for event in responses.iter().flat_map(|response| &response.events) {
            if event.kv.mod_revision <= self.header.revision || event.kv.mod_revision < latest {
                let event = event.kv.mod_revision;
                return Err(ApplyError::EventOutOfOrder { was: latest, event });
            }
            latest = event.kv.mod_revision;
        }

        let mut before = BTreeMap::new();
        let mut rejected = Vec::new();
        for response in responses {
            self.header = ResponseHeader {
                revision: self.header.revision,
                ..response.header
            };
            for event in &response.events {
                let key = &event.kv.key;
                if !before.contains_key(key) {
                    before.insert(key.clone(), self.entries.get(key).map(Arc::clone));
                }
                if let Err(reject) = self.apply_event(event) {
                    rejected.push(reject);
                }
            }
        }
        self.header.revision = latest;
        Ok(Applied {
            changes: self.changes_since(before),
            rejected,
        })
    }

    /// Replaces everything by what was read anew. Its revision becomes the one read at.
    pub fn reload(
        &mut self,
        header: ResponseHeader,
        kvs: Vec<KeyValue>,
    ) -> Result<Applied<V>, ApplyError> {
        self.check(&header)?;
        let mut before: BTreeMap<_, _> = std::mem::take(&mut self.entries)
            .into_iter()
            .map(|(key, entry)| (key, Some(entry)))
            .collect();
        let mut rejected = Vec::new();
        for kv in kvs {
            let key = kv.key.clone();
            let known = before
                .entry(key.clone())
                .or_default()
                .as_ref()
                .map(Arc::clone);
            let entry = match known {
                Some(known) if known.raw.mod_revision == kv.mod_revision => known,
                known => match (self.decode(kv), known) {
                    (Ok(entry), _) => entry,
                    (Err(reject), known) => {
                        rejected.push(reject);
                        let Some(known) = known else { continue };
                        known
                    }
                },
            };
            self.entries.insert(key, entry);
        }
        self.header = header;
        Ok(Applied {
            changes: self.changes_since(before),
            rejected,
        })
    }

    fn check(&self, header: &ResponseHeader) -> Result<(), ApplyError> {
        if header.cluster_id != self.header.cluster_id {
            let (was, now) = (self.header.cluster_id, header.cluster_id);
            return Err(ApplyError::ClusterChanged { was, now });
        }
        if header.revision < self.header.revision {
            let (was, now) = (self.header.revision, header.revision);
            return Err(ApplyError::RevisionWentBack { was, now });
        }
        Ok(())
    }

    fn apply_event(&mut self, event: &Event) -> Result<(), Rejected> {
        match event.kind {
            EventKind::Put => {
                let entry = self.decode(event.kv.clone())?;
                self.entries.insert(event.kv.key.clone(), entry);
            }
            EventKind::Delete => {
                self.entries.remove(&event.kv.key);
            }
        }
        Ok(())
    }

    fn decode(&self, kv: KeyValue) -> Result<Arc<Entry<V>>, Rejected> {
        match (self.decoder)(&kv) {
            Ok(decoded) => Ok(Arc::new(Entry { raw: kv, decoded })),
            Err(error) => Err(Rejected {
                key: kv.key,
                mod_revision: kv.mod_revision,
                error,
            }),
        }
    }

    fn changes_since(&self, before: BTreeMap<Bytes, Option<Arc<Entry<V>>>>) -> Vec<Change<V>> {
        before
            .into_iter()
            .filter_map(|(key, before)| {
                let after = self.entries.get(&key).map(Arc::clone);
                let same = match (&before, &after) {
                    (Some(before), Some(after)) => Arc::ptr_eq(before, after),
                    (None, None) => true,
                    (Some(_), None) | (None, Some(_)) => false,
                };
                (!same).then_some(Change { before, after })
            })
            .collect()
    }
}

impl<V: fmt::Debug> fmt::Debug for KeySpace<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySpace")
            .field("prefix", &self.prefix)
            .field("header", &self.header)
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}
