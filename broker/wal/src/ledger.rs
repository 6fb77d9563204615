//! What is alive in the log, and what must be done before its oldest segment can be used again.
//! Pure: no I/O.
//!
//! The same ledger is kept by the writer of a running log, with the spools' files, and built by
//! recovery, with the writes that their files need. So what a replay makes of the records is what
//! the writer believed when it wrote them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use gazette_protocol::{Fragment, LabelSet};

use crate::format::{
    Kind,
    payload::{Frame, Identity, JournalRef, SpoolRef, encode_state},
};

/// All live journals and spools. `X` is what the owner keeps for each spool.
#[derive(Debug)]
pub(crate) struct Ledger<X> {
    journals: BTreeMap<u64, Journal<X>>,
    /// Spools of which the log may hold the only durable copy of some bytes: journal and spool.
    pinned: BTreeSet<(u64, u64)>,
}

/// A live journal.
#[derive(Debug)]
pub(crate) struct Journal<X> {
    pub(crate) identity: Arc<Identity>,
    pub(crate) registers: Arc<LabelSet>,
    pub(crate) end: i64,
    pub(crate) spools: BTreeMap<u64, Spool<X>>,
    /// Generation of the newest record that has all of the above but the spools.
    recorded_in: u64,
}

/// A live spool. It is never empty.
#[derive(Debug)]
pub(crate) struct Spool<X> {
    pub(crate) fragment: Fragment,
    pub(crate) registers: Arc<LabelSet>,
    pub(crate) first_append: Option<SystemTime>,
    pub(crate) complete: bool,
    pub(crate) extra: X,
    /// Generation of the newest record that has all of the above.
    recorded_in: u64,
    /// Generation of the oldest record with bytes that no sync of the spool covers, nor one that
    /// is under way.
    inline_since: Option<u64>,
    /// The same, of bytes that a sync covers which is under way.
    syncing_since: Option<u64>,
}

/// An append, as the ledger sees it.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) journal: Arc<Identity>,
    pub(crate) spool_id: u64,
    pub(crate) fragment: Fragment,
    pub(crate) registers: Arc<LabelSet>,
    pub(crate) first_append: Option<SystemTime>,
    pub(crate) placement: Placement,
}

/// Where the bytes of an append are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// There are none.
    Nowhere,
    /// In the record; what is in the spool file is not synced.
    Inline,
    /// In the spool file, all of which was synced since they were written.
    InSpool,
}

impl<X> Default for Ledger<X> {
    fn default() -> Self {
        Self {
            journals: BTreeMap::new(),
            pinned: BTreeSet::new(),
        }
    }
}

impl<X> Ledger<X> {
    pub(crate) fn journals(&self) -> &BTreeMap<u64, Journal<X>> {
        &self.journals
    }

    pub(crate) fn journals_mut(&mut self) -> &mut BTreeMap<u64, Journal<X>> {
        &mut self.journals
    }

    pub(crate) fn journal(&self, id: u64) -> Option<&Journal<X>> {
        self.journals.get(&id)
    }

    pub(crate) fn spool_mut(&mut self, journal_id: u64, spool_id: u64) -> Option<&mut Spool<X>> {
        self.journals
            .get_mut(&journal_id)?
            .spools
            .get_mut(&spool_id)
    }

    /// An append is recorded in a generation. Returns what the owner keeps for the spool, made by
    /// `extra` where the spool is new; nothing where the spool is empty.
    pub(crate) fn commit(
        &mut self,
        generation: u64,
        committed: Committed,
        extra: impl FnOnce() -> X,
    ) -> Option<&mut X> {
        let Committed {
            journal: identity,
            spool_id,
            fragment,
            registers,
            first_append,
            placement,
        } = committed;
        let key = (identity.id, spool_id);
        let journal = self.set_journal(generation, identity, fragment.end, Arc::clone(&registers));
        if fragment.begin == fragment.end {
            journal.spools.remove(&spool_id);
            self.pinned.remove(&key);
            return None;
        }
        let (extra, since, syncing) = match journal.spools.remove(&spool_id) {
            Some(old) => (old.extra, old.inline_since, old.syncing_since),
            None => (extra(), None, None),
        };
        let (inline_since, syncing_since) = match placement {
            Placement::Nowhere => (since, syncing),
            Placement::Inline => {
                self.pinned.insert(key);
                (since.or(Some(generation)), syncing)
            }
            Placement::InSpool => {
                self.pinned.remove(&key);
                (None, None)
            }
        };
        let journal = self.journals.get_mut(&key.0)?;
        let spool = journal.spools.entry(spool_id).or_insert(Spool {
            fragment,
            registers,
            first_append,
            complete: false,
            extra,
            recorded_in: generation,
            inline_since,
            syncing_since,
        });
        Some(&mut spool.extra)
    }

    /// A journal's state is recorded in a generation.
    pub(crate) fn set_journal(
        &mut self,
        generation: u64,
        identity: Arc<Identity>,
        end: i64,
        registers: Arc<LabelSet>,
    ) -> &mut Journal<X> {
        let journal = self.journals.entry(identity.id).or_insert_with(|| Journal {
            identity,
            registers: Arc::clone(&registers),
            end,
            spools: BTreeMap::new(),
            recorded_in: generation,
        });
        journal.registers = registers;
        journal.end = end;
        journal.recorded_in = generation;
        journal
    }

    /// A spool's state is recorded in a generation, after its journal's.
    pub(crate) fn set_spool(
        &mut self,
        generation: u64,
        journal_id: u64,
        spool_id: u64,
        state: SpoolState,
        extra: impl FnOnce() -> X,
    ) {
        let Some(journal) = self.journals.get_mut(&journal_id) else {
            return;
        };
        let SpoolState {
            fragment,
            registers,
            first_append,
            complete,
        } = state;
        if let Some(spool) = journal.spools.get_mut(&spool_id) {
            spool.fragment = fragment;
            spool.registers = registers;
            spool.first_append = first_append;
            spool.complete = complete;
            spool.recorded_in = generation;
            return;
        }
        let spool = Spool {
            fragment,
            registers,
            first_append,
            complete,
            extra: extra(),
            recorded_in: generation,
            inline_since: None,
            syncing_since: None,
        };
        journal.spools.insert(spool_id, spool);
    }

    /// The record of a roll: the new state of the journal and of the completed spool.
    pub(crate) fn roll_frame(
        &self,
        identity: &Identity,
        completed: Option<u64>,
        next_begin: i64,
        registers: &LabelSet,
    ) -> Frame {
        let spool = completed
            .and_then(|id| Some((id, self.journals.get(&identity.id)?.spools.get(&id)?)))
            .map(|(id, spool)| SpoolRef {
                complete: true,
                ..spool.by_ref(id, registers)
            });
        let journal = JournalRef {
            identity,
            end: next_begin,
            registers,
        };
        Frame::new(Kind::Roll, encode_state(journal, spool), Vec::new())
    }

    /// A roll is recorded in a generation.
    pub(crate) fn roll(
        &mut self,
        generation: u64,
        identity: &Arc<Identity>,
        completed: Option<u64>,
        next_begin: i64,
        registers: &Arc<LabelSet>,
    ) {
        let (identity, registers) = (Arc::clone(identity), Arc::clone(registers));
        let journal = self.set_journal(generation, identity, next_begin, registers);
        if let Some(spool) = completed.and_then(|id| journal.spools.get_mut(&id)) {
            spool.complete = true;
            spool.recorded_in = generation;
        }
    }

    /// What the owner keeps for a spool.
    pub(crate) fn spool(&self, journal_id: u64, spool_id: u64) -> Option<&X> {
        Some(&self.journals.get(&journal_id)?.spools.get(&spool_id)?.extra)
    }

    /// A spool is dropped.
    pub(crate) fn drop_spool(&mut self, journal_id: u64, spool_id: u64) -> Option<X> {
        self.pinned.remove(&(journal_id, spool_id));
        let journal = self.journals.get_mut(&journal_id)?;
        journal.spools.remove(&spool_id).map(|spool| spool.extra)
    }

    /// A journal is forgotten.
    pub(crate) fn forget(&mut self, journal_id: u64) -> Vec<X> {
        let Some(journal) = self.journals.remove(&journal_id) else {
            return Vec::new();
        };
        for spool_id in journal.spools.keys() {
            self.pinned.remove(&(journal_id, *spool_id));
        }
        journal
            .spools
            .into_values()
            .map(|spool| spool.extra)
            .collect()
    }

    /// Journal and number of each spool that must be synced before a generation goes. All of
    /// their bytes count as being synced from here on, until [`Self::synced`].
    pub(crate) fn begin_sync(&mut self, generation: u64) -> Vec<(u64, u64)> {
        let mut due = Vec::new();
        for (journal_id, spool_id) in &self.pinned {
            let spool = self
                .journals
                .get_mut(journal_id)
                .and_then(|j| j.spools.get_mut(spool_id));
            let Some(spool) = spool else { continue };
            if spool.inline_since.is_some_and(|since| since <= generation) {
                let since = spool.inline_since.take();
                spool.syncing_since = spool.syncing_since.or(since);
                due.push((*journal_id, *spool_id));
            }
        }
        due
    }

    /// The syncs that [`Self::begin_sync`] asked for are done.
    pub(crate) fn synced(&mut self, spools: &[(u64, u64)]) {
        for (journal_id, spool_id) in spools {
            let Some(spool) = self.spool_mut(*journal_id, *spool_id) else {
                continue;
            };
            spool.syncing_since = None;
            if spool.inline_since.is_none() {
                self.pinned.remove(&(*journal_id, *spool_id));
            }
        }
    }

    /// Whether the log holds the only durable copy of bytes in a generation or an older one.
    pub(crate) fn is_pinned(&self, generation: u64) -> bool {
        self.pinned.iter().any(|(journal_id, spool_id)| {
            let spool = self
                .journals
                .get(journal_id)
                .and_then(|j| j.spools.get(spool_id));
            let pins = |since: Option<u64>| since.is_some_and(|since| since <= generation);
            spool.is_some_and(|spool| pins(spool.inline_since) || pins(spool.syncing_since))
        })
    }

    /// Copies of states whose newest record is in generation `through` or an older one, to be
    /// recorded in the generation `head`, as many as fit into `room` bytes, but not more than
    /// `budget` bytes and one. The second value says whether these are all.
    pub(crate) fn copy_states(
        &mut self,
        through: u64,
        head: u64,
        room: usize,
        budget: usize,
    ) -> (Vec<Frame>, bool) {
        let mut frames = Vec::new();
        let mut used = 0;
        let mut add = |frame: Frame| {
            let bytes = frame.record_bytes();
            if used + bytes > room || used >= budget {
                return false;
            }
            used += bytes;
            frames.push(frame);
            true
        };
        for journal in self.journals.values_mut() {
            // A copy of a spool has the journal's state too.
            for (spool_id, spool) in &mut journal.spools {
                if spool.recorded_in <= through {
                    let state = JournalRef {
                        identity: &journal.identity,
                        end: journal.end,
                        registers: &journal.registers,
                    };
                    if !add(spool.frame(state, *spool_id)) {
                        return (frames, false);
                    }
                    spool.recorded_in = head;
                    journal.recorded_in = head;
                }
            }
            if journal.recorded_in <= through {
                if !add(journal.frame()) {
                    return (frames, false);
                }
                journal.recorded_in = head;
            }
        }
        (frames, true)
    }

    /// Bytes that copies of all states take in the log.
    pub(crate) fn live_bytes(&self) -> u64 {
        let record = |payload: usize| crate::format::record_bytes(payload) as u64;
        let mut bytes = 0;
        for journal in self.journals.values() {
            let alone = journal.by_ref().encoded_len();
            if journal.spools.is_empty() {
                bytes += record(alone);
            }
            for spool in journal.spools.values() {
                let spool = spool.by_ref(u64::MAX, &journal.registers).encoded_len();
                // Two keys and lengths on top.
                bytes += record(alone + spool + 16);
            }
        }
        bytes
    }

    /// The same ledger with something else for each spool, as if all of it was recorded before
    /// the first generation, and all spools synced.
    pub(crate) fn map<Y>(self, mut with: impl FnMut(u64, &Fragment, X) -> Y) -> Ledger<Y> {
        let mut journals = BTreeMap::new();
        for (id, journal) in self.journals {
            let Journal {
                identity,
                registers,
                end,
                spools,
                recorded_in: _,
            } = journal;
            let spools = spools
                .into_iter()
                .map(|(spool_id, spool)| {
                    let Spool {
                        fragment,
                        registers,
                        first_append,
                        complete,
                        extra,
                        ..
                    } = spool;
                    let extra = with(spool_id, &fragment, extra);
                    let spool = Spool {
                        fragment,
                        registers,
                        first_append,
                        complete,
                        extra,
                        recorded_in: 0,
                        inline_since: None,
                        syncing_since: None,
                    };
                    (spool_id, spool)
                })
                .collect();
            journals.insert(
                id,
                Journal {
                    identity,
                    registers,
                    end,
                    spools,
                    recorded_in: 0,
                },
            );
        }
        Ledger {
            journals,
            pinned: BTreeSet::new(),
        }
    }
}

/// A spool's state, as its records have it.
#[derive(Debug)]
pub(crate) struct SpoolState {
    pub(crate) fragment: Fragment,
    pub(crate) registers: Arc<LabelSet>,
    pub(crate) first_append: Option<SystemTime>,
    pub(crate) complete: bool,
}

impl<X> Journal<X> {
    fn by_ref(&self) -> JournalRef<'_> {
        JournalRef {
            identity: &self.identity,
            end: self.end,
            registers: &self.registers,
        }
    }

    fn frame(&self) -> Frame {
        let mut message = Vec::new();
        self.by_ref().encode(&mut message);
        Frame::new(Kind::Journal, message, Vec::new())
    }
}

impl<X> Spool<X> {
    fn by_ref<'a>(&'a self, id: u64, journal_registers: &LabelSet) -> SpoolRef<'a> {
        SpoolRef {
            id,
            fragment: &self.fragment,
            first_append: self.first_append,
            complete: self.complete,
            registers: (*self.registers != *journal_registers).then_some(&*self.registers),
        }
    }

    fn frame(&self, journal: JournalRef<'_>, id: u64) -> Frame {
        let spool = self.by_ref(id, journal.registers);
        Frame::new(Kind::Spool, encode_state(journal, Some(spool)), Vec::new())
    }
}

#[cfg(test)]
mod tests;
