//! What goes into a round.

use super::{COPIES_MAX_BYTES, ROUND_MAX_BYTES, Recycling, TRIM_BYTES, Writer, Written};
use crate::{
    format::{
        Kind,
        payload::{Frame, TrimMessage},
    },
    shared::{Change, Entry},
    spool::SpoolFile,
};

impl Writer {
    /// Copies states out of the segment that is being made free.
    pub(super) fn fill_copies(&mut self, written: &mut Written) {
        let Some(Recycling {
            through, jobs: 0, ..
        }) = self.recycling
        else {
            return;
        };
        let room = self.batch.room();
        let generation = self.head.header.generation;
        let (frames, all) = self
            .ledger
            .copy_states(through, generation, room, COPIES_MAX_BYTES);
        for frame in frames {
            self.batch.push(frame);
        }
        if all && self.batch.room() >= TRIM_BYTES {
            assert!(
                !self.ledger.is_pinned(through),
                "what only the log has stays in it"
            );
            self.push_trim(through + 1);
            written.trimmed = Some(through);
        }
    }

    pub(super) fn push_trim(&mut self, oldest_generation: u64) {
        let trim = TrimMessage {
            oldest_generation,
            next_id: self.shared.next_id(),
        };
        self.batch.push(Frame::message(Kind::Trim, &trim));
    }

    /// Gives places to entries, in order, as far as there is room.
    pub(super) fn fill_entries(&mut self, written: &mut Written) {
        while self.batch.bytes() < ROUND_MAX_BYTES
            && let Some(entry) = self.backlog.pop_front()
        {
            if let Some(entry) = self.place(entry, written) {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    /// Gives a place to an entry, or gives it back where there is no room.
    fn place(&mut self, entry: Entry, written: &mut Written) -> Option<Entry> {
        let generation = self.head.header.generation;
        let room = self.batch.room();
        let Entry { change, waiter } = entry;
        match change {
            Change::Commit { ref frame, .. }
            | Change::DropSpool { ref frame, .. }
            | Change::Forget { ref frame, .. }
                if frame.record_bytes() > room =>
            {
                return Some(Entry { change, waiter });
            }
            Change::Commit {
                frame,
                committed,
                spool,
            } => {
                self.batch.push(frame);
                self.ledger.commit(generation, committed, || spool);
                written.waiters.push(waiter);
            }
            Change::Roll {
                ref journal,
                completed,
                next_begin,
                ref registers,
            } => {
                // It has the state of the completed spool, which is known here only.
                let frame = self
                    .ledger
                    .roll_frame(journal, completed, next_begin, registers);
                if frame.record_bytes() > room {
                    return Some(Entry { change, waiter });
                }
                self.batch.push(frame);
                self.ledger
                    .roll(generation, journal, completed, next_begin, registers);
                written.waiters.push(waiter);
            }
            Change::DropSpool {
                frame,
                journal_id,
                spool,
            } => {
                self.batch.push(frame);
                self.ledger.drop_spool(journal_id, spool.id());
                spool.mark_dropped();
                written.unlinks.push((vec![spool], waiter));
            }
            Change::Forget { frame, journal_id } => {
                self.batch.push(frame);
                let spools = self.ledger.forget(journal_id);
                spools.iter().for_each(SpoolFile::mark_dropped);
                written.unlinks.push((spools, waiter));
            }
        }
        None
    }
}
