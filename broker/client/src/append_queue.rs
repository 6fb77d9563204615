//! Order, batches and bounds of the appends that wait to be sent. No I/O, no clock.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use gazette_protocol::{LabelSelector, LabelSet, append_request::Suspend};

/// What an append asks for besides its content.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AppendParams {
    /// Where it must begin. `None` and zero are no expectation: zero cannot be asserted.
    pub offset: Option<i64>,
    /// What the journal's registers must match, unless they are empty.
    pub check_registers: Option<LabelSelector>,
    /// Registers to set. They need content.
    pub union_registers: Option<LabelSet>,
    /// Registers to remove before that. They need content.
    pub subtract_registers: Option<LabelSet>,
    /// What to do about a suspended journal.
    pub suspend: Suspend,
    /// Revision that the broker must know of.
    pub min_etcd_revision: i64,
}

impl AppendParams {
    fn expected(&self) -> Option<i64> {
        self.offset.filter(|offset| *offset != 0)
    }

    /// Whether an append with these may follow one with `other` and the `bytes` of its batch in one
    /// RPC. Only if it makes no difference to doing one after the other.
    fn joins(&self, other: &Self, bytes: usize) -> bool {
        let contiguous = match (other.expected(), self.expected()) {
            (None, None) => true,
            (Some(first), Some(next)) => {
                i64::try_from(bytes).is_ok_and(|bytes| first.checked_add(bytes) == Some(next))
            }
            (Some(_), None) | (None, Some(_)) => false,
        };
        // The first may change what the second checks.
        let changes = self.union_registers.is_some() || self.subtract_registers.is_some();
        contiguous
            && !(changes && self.check_registers.is_some())
            && self.suspend == Suspend::Resume
            && self.suspend == other.suspend
            && self.min_etcd_revision == other.min_etcd_revision
            && self.check_registers == other.check_registers
            && self.union_registers == other.union_registers
            && self.subtract_registers == other.subtract_registers
    }
}

/// Bounds of what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Most bytes of one RPC, unless a single append is larger.
    pub(crate) max_batch_bytes: usize,
    /// Most bytes of all journals, unless a single append is larger.
    pub(crate) max_pending_bytes: usize,
    /// Most bytes of one journal, unless a single append is larger. It is less than the above, so that
    /// a journal that cannot be written to does not stop the others.
    pub(crate) max_journal_bytes: usize,
}

/// Counted for each append besides its content, so that many empty ones are bounded too.
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 256;

/// Names one append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryId(u64);

/// What the owner of the queue is to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum QueueOutput {
    /// There is room for the append now, and its caller may go on.
    Admitted(EntryId),
    /// Send these appends in one RPC, and report with [`AppendQueue::handle_landed`] or
    /// [`AppendQueue::handle_failed`]. No other RPC of the journal is under way.
    Send {
        /// The journal.
        journal: Arc<str>,
        /// Parameters of the RPC.
        params: AppendParams,
        /// The appends, in order.
        entries: Vec<EntryId>,
    },
    /// The append is in the journal.
    Landed {
        /// The append.
        entry: EntryId,
        /// Offset of its first byte.
        begin: i64,
        /// Offset after its last byte.
        end: i64,
    },
    /// The append failed, with the error of the RPC that is being reported.
    Failed(EntryId),
}

/// The appends that wait, by journal.
///
/// One RPC of a journal is under way at a time, while further appends gather for the next one. Several
/// would be faster on long ways only, and a broker takes the streams of one connection in any order.
///
/// Inputs are the `handle_*` methods. After each one, drain [`poll_output`](Self::poll_output).
#[derive(Debug)]
pub(crate) struct AppendQueue {
    limits: Limits,
    journals: BTreeMap<Arc<str>, Line>,
    /// Appends for which there was no room yet, in order.
    waiting: BTreeMap<EntryId, (Arc<str>, Item)>,
    /// Cost of all that was admitted and is not settled.
    pending_bytes: usize,
    next_id: u64,
    outputs: VecDeque<QueueOutput>,
}

/// The admitted appends of one journal. Gone when there are none.
#[derive(Debug, Default)]
struct Line {
    /// Of the RPC under way.
    sent: Vec<Item>,
    queued: VecDeque<Item>,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct Item {
    id: EntryId,
    length: usize,
    params: AppendParams,
}

impl Item {
    fn cost(&self) -> usize {
        self.length.saturating_add(ENTRY_OVERHEAD_BYTES)
    }
}

impl AppendQueue {
    /// Returns an empty queue.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            journals: BTreeMap::new(),
            waiting: BTreeMap::new(),
            pending_bytes: 0,
            next_id: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Bytes that are held, with what is counted for each append.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Whether nothing is held and nothing waits.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.journals.is_empty() && self.waiting.is_empty()
    }

    /// The newest append of `journal` that is not settled, of those up to `bound` if it is given.
    pub(crate) fn newest(&self, journal: &str, bound: Option<EntryId>) -> Option<EntryId> {
        let is_within = |id: &EntryId| bound.is_none_or(|bound| *id <= bound);
        let waiting = self
            .waiting
            .iter()
            .filter(|(_, (name, _))| &**name == journal);
        let waiting = waiting.map(|(id, _)| *id).rfind(is_within);
        let admitted = self.journals.get(journal).and_then(|line| {
            line.sent
                .iter()
                .chain(&line.queued)
                .map(|item| item.id)
                .rfind(is_within)
        });
        waiting.or(admitted)
    }

    /// Takes an append of `length` bytes. It goes behind all earlier ones of its journal.
    pub(crate) fn handle_append(
        &mut self,
        journal: &Arc<str>,
        length: usize,
        params: AppendParams,
    ) -> EntryId {
        let id = EntryId(self.next_id);
        self.next_id += 1;
        self.waiting
            .insert(id, (Arc::clone(journal), Item { id, length, params }));
        self.admit();
        self.send(journal);
        id
    }

    /// Takes back an append that was not admitted yet. Returns whether it was so.
    pub(crate) fn handle_withdraw(&mut self, id: EntryId) -> bool {
        let withdrawn = self.waiting.remove(&id).is_some();
        if withdrawn {
            self.admit_and_send();
        }
        withdrawn
    }

    /// Notes that the RPC of `journal` succeeded, and that its content begins at `begin`.
    pub(crate) fn handle_landed(&mut self, journal: &str, begin: i64) {
        let mut at = begin;
        for item in self.take_sent(journal) {
            self.release(journal, &item);
            let end = at.saturating_add(i64::try_from(item.length).unwrap_or(i64::MAX));
            self.outputs.push_back(QueueOutput::Landed {
                entry: item.id,
                begin: at,
                end,
            });
            at = end;
        }
        self.go_on(journal);
    }

    /// Notes that the RPC of `journal` failed. If it failed because the journal was not at the expected
    /// offset, that says nothing about any but the first of its appends.
    pub(crate) fn handle_failed(&mut self, journal: &str, only_first: bool) {
        let mut sent = self.take_sent(journal);
        let rest = if only_first && !sent.is_empty() {
            sent.split_off(1)
        } else {
            Vec::new()
        };
        for item in sent {
            self.release(journal, &item);
            self.outputs.push_back(QueueOutput::Failed(item.id));
        }
        if let Some(line) = self.journals.get_mut(journal) {
            for item in rest.into_iter().rev() {
                line.queued.push_front(item);
            }
        }
        self.go_on(journal);
    }

    /// Returns the next thing to do, until there is none.
    pub(crate) fn poll_output(&mut self) -> Option<QueueOutput> {
        self.outputs.pop_front()
    }

    fn take_sent(&mut self, journal: &str) -> Vec<Item> {
        self.journals
            .get_mut(journal)
            .map(|line| std::mem::take(&mut line.sent))
            .unwrap_or_default()
    }

    fn release(&mut self, journal: &str, item: &Item) {
        self.pending_bytes -= item.cost();
        if let Some(line) = self.journals.get_mut(journal) {
            line.bytes -= item.cost();
        }
    }

    fn go_on(&mut self, journal: &str) {
        self.admit_and_send();
        if let Some((journal, _)) = self.journals.get_key_value(journal) {
            let journal = Arc::clone(journal);
            self.send(&journal);
        }
        if self
            .journals
            .get(journal)
            .is_some_and(|line| line.sent.is_empty() && line.queued.is_empty())
        {
            self.journals.remove(journal);
        }
    }

    fn admit_and_send(&mut self) {
        for journal in self.admit() {
            self.send(&journal);
        }
    }

    /// Admits what there is room for, in order: an append never overtakes one of its own journal, and
    /// overtakes one of another journal only if that is held up by its journal's own bound.
    fn admit(&mut self) -> Vec<Arc<str>> {
        let mut admitted: Vec<(EntryId, Arc<str>)> = Vec::new();
        let mut full: Vec<Arc<str>> = Vec::new();
        for (id, (journal, item)) in &self.waiting {
            if full.contains(journal) {
                continue;
            }
            let held = self.journals.get(journal).map_or(0, |line| line.bytes);
            let cost = item.cost();
            if held != 0 && held.saturating_add(cost) > self.limits.max_journal_bytes {
                full.push(Arc::clone(journal));
                continue;
            }
            let pending = self.pending_bytes;
            if pending != 0 && pending.saturating_add(cost) > self.limits.max_pending_bytes {
                break;
            }
            self.pending_bytes += cost;
            let line = self.journals.entry(Arc::clone(journal)).or_default();
            line.bytes += cost;
            line.queued.push_back(item.clone());
            self.outputs.push_back(QueueOutput::Admitted(*id));
            admitted.push((*id, Arc::clone(journal)));
        }
        for (id, _) in &admitted {
            self.waiting.remove(id);
        }
        admitted.into_iter().map(|(_, journal)| journal).collect()
    }

    /// Starts the next RPC of `journal`, unless one is under way.
    fn send(&mut self, journal: &Arc<str>) {
        let Some(line) = self.journals.get_mut(journal) else {
            return;
        };
        if !line.sent.is_empty() {
            return;
        }
        let Some(first) = line.queued.pop_front() else {
            return;
        };
        let params = first.params.clone();
        let mut bytes = first.length;
        line.sent.push(first);
        while let Some(next) = line.queued.front() {
            // An empty append with registers is refused by the broker. Others must not cure it.
            let empty = next.length == 0 || bytes == 0;
            let changes = params.union_registers.is_some() || params.subtract_registers.is_some();
            if bytes.saturating_add(next.length) > self.limits.max_batch_bytes
                || (empty && changes)
                || !next.params.joins(&params, bytes)
            {
                break;
            }
            bytes += next.length;
            line.sent.extend(line.queued.pop_front());
        }
        self.outputs.push_back(QueueOutput::Send {
            journal: Arc::clone(journal),
            params,
            entries: line.sent.iter().map(|item| item.id).collect(),
        });
    }
}

#[cfg(test)]
mod tests;
