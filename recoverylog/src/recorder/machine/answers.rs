//! What an answer of the broker means.

use std::{sync::Arc, time::Duration};

use gazette_recoverylog_fsm::Author;

use super::{Check, Found, Machine, Now, Outcome, Output, Phase, Register, Rpc, Seen};
use crate::recorder::outcome::{Fault, Fence};

impl Machine {
    /// Notes what became of an append or a probe.
    pub(crate) fn handle_outcome(&mut self, now: Now, outcome: Outcome) {
        let Phase::Busy(rpc) = self.phase else { return };
        match outcome {
            Outcome::Landed {
                begin,
                end,
                register,
            } => self.landed(now, begin, end, register),
            Outcome::NotDone { no_space, error } => {
                self.no_space = no_space;
                self.failed(now, error, rpc);
            }
            Outcome::Unknown { error } => {
                // An empty append leaves nothing to be found out.
                let then = if rpc == Rpc::Probe {
                    Rpc::Probe
                } else {
                    Rpc::ReadBack
                };
                self.failed(now, error, then);
            }
            Outcome::WrongOffset => self.read_back(),
            Outcome::Mismatch { register } => match self.successor(register) {
                None => self.read_back(),
                author => {
                    let offset = self.acked.offset;
                    self.latch(Fault::Fenced(Fence { author, offset }), true);
                }
            },
        }
        self.advance(now);
    }

    /// Notes where the log ends, or why that could not be seen.
    pub(crate) fn handle_looked(&mut self, now: Now, number: u64, seen: Result<Seen, Arc<str>>) {
        let Phase::Busy(rpc @ (Rpc::Look | Rpc::Confirm)) = self.phase else {
            return;
        };
        if number + 1 != self.next_rpc {
            return;
        }
        let offset = self.acked.offset;
        match seen {
            Ok(seen) if seen.head > offset => self.read_back(),
            Ok(seen) => {
                self.looks_confirm = seen.is_exact;
                // A replica may be behind, but what it has is what we wrote.
                self.landed(now, offset, offset, Register::Unknown);
            }
            Err(error) => self.failed(now, error, rpc),
        }
        self.advance(now);
    }

    /// Notes what the log has at the offset that was asked for.
    pub(crate) fn handle_found(&mut self, now: Now, found: Found) {
        if let Phase::Latched { fault, asks } = &mut self.phase {
            if std::mem::take(asks) {
                if let (Found::Own { end }, Fault::Fenced(fence)) = (found, &mut *fault) {
                    fence.offset = end;
                }
                let report = Output::Report(fault.clone());
                self.outputs.push_back(report);
            }
            return;
        }
        if self.phase != Phase::Busy(Rpc::ReadBack) {
            return;
        }
        match found {
            Found::Own { end } => {
                let begin = self.acked.offset;
                self.landed(now, begin, end, Register::Unknown);
            }
            // The first time, it is sent again at once: one lost answer costs no wait.
            Found::Nothing if self.failures == 0 => {
                self.failures = 1;
                self.phase = Phase::Idle;
            }
            Found::Nothing => {
                let error = self.last_error.clone();
                let error = error.unwrap_or_else(|| "the log does not end where it says".into());
                self.failed(now, error, Rpc::Probe);
            }
            Found::Other { author } => {
                let offset = self.acked.offset;
                let author = author.filter(|author| *author != self.author);
                self.latch(Fault::Fenced(Fence { author, offset }), false);
            }
            Found::Shorter { head } => {
                let acknowledged = self.acked.offset;
                self.latch(Fault::Lost { acknowledged, head }, false);
            }
            Found::Failed { error } => self.failed(now, error, Rpc::ReadBack),
        }
        self.advance(now);
    }

    /// The owner that a register names, if it is another one.
    fn successor(&self, register: Register) -> Option<Author> {
        match register {
            Register::Author(author) if author != self.author => Some(author),
            Register::Author(_) | Register::Empty | Register::Unknown => None,
        }
    }

    fn landed(&mut self, now: Now, begin: i64, end: i64, register: Register) {
        let Phase::Busy(rpc) = self.phase else { return };
        let offset = self.acked.offset;
        let author = self.successor(register);
        // What is acknowledged elsewhere than it was meant to be was not placed by our rules.
        if author.is_some() || begin != offset {
            self.latch(Fault::Fenced(Fence { author, offset }), false);
            return;
        }
        self.phase = Phase::Idle;
        self.failures = 0;
        self.failing_since = None;
        self.confirmed_at = now;
        if matches!(rpc, Rpc::Send | Rpc::ReadBack) {
            if self.check == Check::Claim {
                self.check = Check::Own;
            }
            self.no_space = false;
            self.acked.offset = end;
            if let Some(batch) = self.batches.pop_front() {
                self.acked.seq_no = batch.last_seq_no;
                self.pending_bytes -= batch.bytes;
                if batch.is_mark {
                    self.hints.pass_mark(begin, end);
                }
                self.outputs.push_back(Output::Release { begin });
            }
        }
        let shows_owner = match rpc {
            Rpc::Send | Rpc::Probe => true,
            Rpc::Look | Rpc::Confirm => self.looks_confirm,
            Rpc::ReadBack => false,
        };
        if !shows_owner {
            // It landed, but whether the log was ours ever since is not shown by that.
            for barrier in &mut self.barriers {
                barrier.rpc = barrier.rpc.max(self.next_rpc);
            }
        }
        match register {
            Register::Author(_) => self.check = Check::Own,
            Register::Empty if self.check == Check::Own => {
                self.check = Check::Reassert;
                self.outputs.push_back(Output::Mark);
            }
            Register::Empty | Register::Unknown => {}
        }
        while let Some(barrier) = self.barriers.front() {
            if barrier.seq_no > self.acked.seq_no || barrier.rpc >= self.next_rpc {
                break;
            }
            let barrier = barrier.id;
            self.barriers.pop_front();
            let result = Ok(());
            self.outputs.push_back(Output::Answer { barrier, result });
        }
    }

    fn failed(&mut self, now: Now, error: Arc<str>, then: Rpc) {
        let index = usize::try_from(self.failures).unwrap_or(usize::MAX);
        let wait = Duration::from_millis(BACKOFF_MS[index.min(BACKOFF_MS.len() - 1)]);
        self.failures = self.failures.saturating_add(1);
        self.failing_since.get_or_insert(now);
        self.last_error = Some(error);
        let until = now + wait;
        self.phase = Phase::Waiting { until, then };
    }

    fn read_back(&mut self) {
        self.phase = Phase::Busy(Rpc::ReadBack);
        let offset = self.acked.offset;
        self.outputs.push_back(Output::ReadBack { offset });
    }

    /// Fails for good. If `asks`, the log is read for where the other owner began.
    pub(super) fn latch(&mut self, fault: Fault, asks: bool) {
        self.answer_all(&fault);
        let next = if asks {
            Output::ReadBack {
                offset: self.acked.offset,
            }
        } else {
            Output::Report(fault.clone())
        };
        self.outputs.push_back(next);
        self.phase = Phase::Latched { fault, asks };
    }
}

/// Waits after failures in a row; the last is repeated. They are short, as a database waits behind them.
const BACKOFF_MS: [u64; 6] = [20, 50, 100, 200, 500, 1000];
