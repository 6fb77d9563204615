//! What a recorder does next. No I/O and no clock: what happened comes in by the `handle_*` methods,
//! with the time, and what to do comes out of [`Machine::poll_output`].
//!
//! One RPC is under way at a time. An op that finds none under way leaves at once, as a batch of its
//! own; ops that come while one is under way gather in the batches behind it. Each append says at which
//! offset it must land, so that it is done once at most, and what became of one whose answer was lost
//! can be found out by reading that offset.
//!
//! Once another owner is known, that is latched: from then on nothing is sent, and no barrier succeeds.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use gazette_recoverylog_fsm::Author;

use super::outcome::{Acked, Fault, Hold, Room, State};

mod answers;
mod events;
mod hints;

pub(crate) use events::{BarrierId, Check, Found, Limits, Now, Outcome, Output, Register, Seen};
use hints::Hints;

/// The recorder's decisions.
#[derive(Debug)]
pub(crate) struct Machine {
    author: Author,
    limits: Limits,
    /// What the log has; the next append must land at its offset.
    acked: Acked,
    recorded_seq_no: i64,
    phase: Phase,
    /// What the next append asks of the register: to be claimed until that is done.
    check: Check,
    batches: VecDeque<Batch>,
    /// Groups of mutations that are being recorded: the open batch stays open meanwhile.
    groups: usize,
    /// Bytes of the batches.
    pending_bytes: u64,
    /// Bytes that mutations may still become which are being applied.
    reserved_bytes: u64,
    barriers: VecDeque<Barrier>,
    next_barrier: u64,
    /// Number of the next append, probe or look.
    next_rpc: u64,
    /// Failures in a row, with the time of the first.
    failures: u32,
    failing_since: Option<Now>,
    last_error: Option<Arc<str>>,
    no_space: bool,
    room: Option<Room>,
    /// When the broker last confirmed that the log is ours.
    confirmed_at: Now,
    /// Whether a look shows for sure that nobody else has appended.
    looks_confirm: bool,
    /// Whether somebody waits for signs of life in the log, so that an idle owner has to give them.
    is_watched: bool,
    hints: Hints,
    stop_by: Option<Now>,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
struct Batch {
    bytes: u64,
    last_seq_no: i64,
    begun: Now,
    sealed: bool,
    /// It holds nothing but an idle mark.
    is_mark: bool,
}

#[derive(Debug)]
struct Barrier {
    id: BarrierId,
    /// Op that must be acknowledged.
    seq_no: i64,
    /// Number of the first RPC that confirms it: one that was made after the barrier, if there was no op
    /// to wait for.
    rpc: u64,
    since: Now,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rpc {
    Send,
    Probe,
    /// Only so that an idle owner learns that he is one no more.
    Look,
    /// A look that a barrier without ops waits for.
    Confirm,
    ReadBack,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// There is nothing to send.
    Idle,
    /// An RPC is under way.
    Busy(Rpc),
    /// One failed, and is made again at that time.
    Waiting { until: Now, then: Rpc },
    /// Recording failed for good. `asks` while it is being found out where the other owner began.
    Latched { fault: Fault, asks: bool },
    /// All is over. The fault is why nothing more is taken.
    Ended { fault: Fault },
}

impl Machine {
    /// Returns the machine of an author that has recovered all that `acked` tells of, and that is to
    /// claim the log with the first batch that is recorded.
    pub(crate) fn new(author: Author, limits: Limits, acked: Acked, now: Now) -> Self {
        Self {
            author,
            limits,
            acked,
            recorded_seq_no: acked.seq_no,
            phase: Phase::Idle,
            check: Check::Claim,
            batches: VecDeque::new(),
            groups: 0,
            pending_bytes: 0,
            reserved_bytes: 0,
            barriers: VecDeque::new(),
            next_barrier: 0,
            next_rpc: 0,
            failures: 0,
            failing_since: None,
            last_error: None,
            no_space: false,
            room: None,
            confirmed_at: now,
            looks_confirm: true,
            is_watched: false,
            hints: Hints {
                at: now,
                ..Hints::default()
            },
            stop_by: None,
            outputs: VecDeque::new(),
        }
    }

    /// What the log has.
    pub(crate) fn acked(&self) -> Acked {
        self.acked
    }

    /// The last op that was recorded.
    pub(crate) fn recorded_seq_no(&self) -> i64 {
        self.recorded_seq_no
    }

    /// Bytes that are not acknowledged.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending_bytes
    }

    /// Age of the oldest op that is not acknowledged.
    pub(crate) fn oldest_pending(&self, now: Now) -> Option<Duration> {
        let batch = self.batches.front()?;
        Some(now.saturating_sub(batch.begun))
    }

    /// The last error of the broker.
    pub(crate) fn last_error(&self) -> Option<&Arc<str>> {
        self.last_error.as_ref()
    }

    /// Whether the broker refused an append for want of space.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.no_space
    }

    /// Room for the log, if it is known.
    pub(crate) fn room(&self) -> Option<Room> {
        self.room
    }

    /// How it is going.
    pub(crate) fn state(&self, now: Now) -> State {
        match &self.phase {
            Phase::Latched { fault, .. } | Phase::Ended { fault } => match fault {
                Fault::Fenced(fence) => State::Fenced(*fence),
                Fault::Lost { .. }
                | Fault::Diverged { .. }
                | Fault::TimedOut { .. }
                | Fault::Ended => State::Failed(fault.clone()),
            },
            Phase::Idle | Phase::Busy(_) | Phase::Waiting { .. } => {
                match (self.failing_since, &self.last_error) {
                    (Some(since), Some(error)) => State::Stalled {
                        lasting: now.saturating_sub(since),
                        error: Arc::clone(error),
                    },
                    (None, _) | (_, None) => State::Recording,
                }
            }
        }
    }

    /// Why nothing can be recorded any more, if so.
    fn fault(&self) -> Option<Fault> {
        match &self.phase {
            Phase::Latched { fault, .. } | Phase::Ended { fault } => Some(fault.clone()),
            Phase::Idle | Phase::Busy(_) | Phase::Waiting { .. } => None,
        }
    }

    /// Asks for room for a mutation that may become `bytes` of log. `shrinks` if it frees space.
    pub(crate) fn reserve(&mut self, now: Now, bytes: u64, shrinks: bool) -> Result<(), Hold> {
        if let Some(fault) = self.fault() {
            return Err(fault.into());
        }
        if self.stop_by.is_some() {
            return Err(Hold::Failed(Fault::Ended));
        }
        if !shrinks && (self.no_space || self.room.is_some_and(|room| room.is_low())) {
            return Err(Hold::NoSpace);
        }
        let reserve = if shrinks {
            self.limits.shrink_reserve_bytes
        } else {
            0
        };
        let held = self.pending_bytes + self.reserved_bytes;
        if held != 0 && held + bytes > self.limits.max_pending_bytes + reserve {
            return Err(match (self.limits.fail_after, self.oldest_pending(now)) {
                (Some(limit), Some(age)) if age >= limit => Hold::Failed(self.timed_out(age)),
                (None | Some(_), None | Some(_)) => Hold::Full,
            });
        }
        self.reserved_bytes += bytes;
        Ok(())
    }

    /// Gives back what was reserved.
    pub(crate) fn release(&mut self, bytes: u64) {
        self.reserved_bytes = self.reserved_bytes.saturating_sub(bytes);
    }

    /// Whether the next group of ops begins a batch.
    pub(crate) fn begins_batch(&self) -> bool {
        self.batches.back().is_none_or(|batch| batch.sealed)
    }

    /// Notes that a group of ops was recorded: the last one and the bytes that they add.
    pub(crate) fn handle_recorded(&mut self, now: Now, seq_no: i64, bytes: u64) {
        self.recorded_seq_no = seq_no;
        self.pending_bytes += bytes;
        let is_mark = std::mem::take(&mut self.hints.is_marked);
        if self.begins_batch() {
            self.batches.push_back(Batch {
                bytes: 0,
                last_seq_no: seq_no,
                begun: now,
                sealed: false,
                is_mark,
            });
        }
        if let Some(batch) = self.batches.back_mut() {
            batch.bytes += bytes;
            batch.last_seq_no = seq_no;
            batch.is_mark &= is_mark;
            batch.sealed = self.groups == 0 && batch.bytes >= self.limits.max_batch_bytes;
        }
        self.advance(now);
    }

    /// Keeps what is recorded from now on together, in one append, until the group ends.
    pub(crate) fn handle_group_begun(&mut self) {
        self.groups += 1;
    }

    /// Notes that a group ended.
    pub(crate) fn handle_group_ended(&mut self, now: Now) {
        self.groups = self.groups.saturating_sub(1);
        if self.groups == 0
            && let Some(batch) = self.batches.back_mut()
        {
            batch.sealed |= batch.bytes >= self.limits.max_batch_bytes;
        }
        self.advance(now);
    }

    /// Takes a barrier: it succeeds when everything that is recorded is acknowledged, by an append or
    /// a probe that shows that the log is still ours.
    pub(crate) fn handle_barrier(&mut self, now: Now) -> BarrierId {
        let id = BarrierId(self.next_barrier);
        self.next_barrier += 1;
        if let Some(fault) = self.fault() {
            self.outputs.push_back(Output::Answer {
                barrier: id,
                result: Err(fault),
            });
            return id;
        }
        let waits_for_ops = self.recorded_seq_no > self.acked.seq_no;
        self.barriers.push_back(Barrier {
            id,
            seq_no: self.recorded_seq_no,
            rpc: if waits_for_ops { 0 } else { self.next_rpc },
            since: now,
        });
        self.advance(now);
        id
    }

    /// Notes whether somebody watches for signs of life in the log.
    pub(crate) fn handle_watched(&mut self, now: Now, is_watched: bool) {
        self.is_watched = is_watched;
        self.advance(now);
    }

    /// Asks it to end as [`handle_stop`](Self::handle_stop) does, but at once when the log has all: hints are the next
    /// owner's business.
    pub(crate) fn handle_release(&mut self, now: Now) {
        self.hints.is_final = true;
        self.handle_stop(now);
    }

    /// Notes how much room there is for the log.
    pub(crate) fn handle_room(&mut self, room: Option<Room>) {
        self.room = room;
    }

    /// Asks it to end: nothing more is recorded, and what is pending is waited for.
    pub(crate) fn handle_stop(&mut self, now: Now) {
        if self.stop_by.is_none() {
            self.stop_by = Some(now + self.limits.stop_within);
            // The end is a barrier too, which nobody but the machine waits for.
            self.handle_barrier(now);
        }
        self.advance(now);
    }

    /// Notes that time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Now) {
        self.advance(now);
    }

    /// Notes that what happened to the files cannot be recorded: the log no longer tells of them.
    pub(crate) fn handle_diverged(&mut self, cause: Arc<str>) {
        if self.fault().is_none() {
            self.latch(Fault::Diverged { cause }, false);
        }
    }

    /// Ends it at once, as its process ends.
    pub(crate) fn handle_end(&mut self) {
        self.end(Err(Fault::Ended));
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(crate) fn next_timeout(&self) -> Option<Now> {
        if matches!(self.phase, Phase::Ended { .. }) {
            return None;
        }
        let waiting = match self.phase {
            Phase::Waiting { until, then } if self.may_start(then) => Some(until),
            Phase::Idle if self.may_start(Rpc::Look) => self.look_at(),
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Busy(_)
            | Phase::Latched { .. }
            | Phase::Ended { .. } => None,
        };
        let barrier = self.barriers.front().zip(self.limits.fail_after);
        let barrier = barrier.map(|(barrier, limit)| barrier.since + limit);
        let times = [waiting, barrier, self.hints_at(), self.stop_by];
        times.into_iter().flatten().min()
    }

    /// Returns the next thing to do, until there is none.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn timed_out(&self, after: Duration) -> Fault {
        let cause = self.failing_since.and_then(|_| self.last_error.clone());
        Fault::TimedOut { after, cause }
    }

    fn is_claimed(&self) -> bool {
        self.check != Check::Claim
    }

    /// When the log is to be looked at, while nothing is under way and nothing is pending.
    fn look_at(&self) -> Option<Now> {
        let idle = self.limits.idle.filter(|_| self.is_claimed())?;
        Some(self.confirmed_at + idle)
    }

    /// Whether somebody waits for an append, if only for an empty one.
    fn has_work(&self) -> bool {
        !self.batches.is_empty() || !self.barriers.is_empty()
    }

    /// Whether an RPC may be made now. One that sends the open batch would cut a group in two.
    fn may_start(&self, rpc: Rpc) -> bool {
        let is_whole = self.groups == 0 || self.batches.front().is_none_or(|batch| batch.sealed);
        rpc == Rpc::ReadBack || is_whole
    }

    fn answer_all(&mut self, fault: &Fault) {
        for barrier in std::mem::take(&mut self.barriers) {
            self.outputs.push_back(Output::Answer {
                barrier: barrier.id,
                result: Err(fault.clone()),
            });
        }
    }

    fn end(&mut self, result: Result<Acked, Fault>) {
        if matches!(self.phase, Phase::Ended { .. }) {
            return;
        }
        self.answer_all(result.as_ref().err().unwrap_or(&Fault::Ended));
        // One that was fenced stays so.
        let fault = match &self.phase {
            Phase::Latched { fault, .. } => fault.clone(),
            Phase::Idle | Phase::Busy(_) | Phase::Waiting { .. } | Phase::Ended { .. } => {
                Fault::Ended
            }
        };
        self.phase = Phase::Ended { fault };
        self.outputs.push_back(Output::Ended(result));
    }

    /// Does what is due.
    fn advance(&mut self, now: Now) {
        self.expire_barriers(now);
        match self.phase {
            // What waits for an append does not wait for a look.
            Phase::Idle
            | Phase::Busy(Rpc::Look)
            | Phase::Waiting {
                then: Rpc::Look, ..
            } if self.has_work() && self.may_start(Rpc::Send) => self.start(Rpc::Send),
            Phase::Idle
                if self.look_at().is_some_and(|at| now >= at) && self.may_start(Rpc::Look) =>
            {
                if self.is_watched && self.stop_by.is_none() {
                    // Its append shows whose the log is, too.
                    self.confirmed_at = now;
                    self.hints.is_marked = true;
                    self.outputs.push_back(Output::IdleMark);
                } else {
                    self.start(Rpc::Look);
                }
            }
            Phase::Waiting { until, then } if now >= until && self.may_start(then) => {
                self.start(then);
            }
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Busy(_)
            | Phase::Latched { .. }
            | Phase::Ended { .. } => {}
        }
        self.advance_hints(now);
        self.advance_stop(now);
    }

    fn expire_barriers(&mut self, now: Now) {
        let Some(limit) = self.limits.fail_after else {
            return;
        };
        while let Some(barrier) = self.barriers.front() {
            let after = now.saturating_sub(barrier.since);
            if after < limit {
                break;
            }
            let barrier = barrier.id;
            self.barriers.pop_front();
            let result = Err(self.timed_out(after));
            self.outputs.push_back(Output::Answer { barrier, result });
        }
    }

    /// Makes an RPC: the one given, or whatever suits what waits now.
    fn start(&mut self, rpc: Rpc) {
        let offset = self.acked.offset;
        let (rpc, output) = if rpc == Rpc::ReadBack {
            (rpc, Output::ReadBack { offset })
        } else if let Some(batch) = self.batches.front_mut() {
            batch.sealed = true;
            self.next_rpc += 1;
            let check = self.check;
            (Rpc::Send, Output::Send { offset, check })
        } else {
            let number = self.next_rpc;
            self.next_rpc += 1;
            match (self.barriers.is_empty(), self.looks_confirm) {
                (true, _) => (Rpc::Look, Output::Look { number }),
                (false, true) => (Rpc::Confirm, Output::Look { number }),
                (false, false) => (Rpc::Probe, Output::Probe { offset }),
            }
        };
        self.phase = Phase::Busy(rpc);
        self.outputs.push_back(output);
    }

    fn advance_stop(&mut self, now: Now) {
        let Some(stop_by) = self.stop_by else { return };
        match &self.phase {
            Phase::Latched { fault, asks } => {
                let fault = fault.clone();
                if *asks {
                    self.outputs.push_back(Output::Report(fault.clone()));
                }
                self.end(Err(fault));
            }
            _ if now >= stop_by => {
                let is_done = self.batches.is_empty() && self.barriers.is_empty();
                let result = if is_done {
                    Ok(self.acked)
                } else {
                    Err(self.timed_out(self.limits.stop_within))
                };
                self.end(result);
            }
            Phase::Idle if self.batches.is_empty() && self.barriers.is_empty() => {
                if self.is_told() {
                    self.end(Ok(self.acked));
                }
            }
            Phase::Idle | Phase::Busy(_) | Phase::Waiting { .. } | Phase::Ended { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
