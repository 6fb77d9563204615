//! How fast an append may go, and how slow.
//!
//! Both rates are counted in bytes times nanoseconds, so that nothing is lost to rounding. Time
//! moves in quanta of 50 ms: waits end on their grid, which bounds how many there are.
//!
//! Deliberately different from Gazette: the maximum of the broker holds for journals that have
//! none of their own; a client is not held to the minimum while its chunk is held for the
//! maximum; and a held chunk can be abandoned, which is up to the caller.

use std::time::{Duration, Instant};

/// Waits end on multiples of this, counted from the begin of the append.
pub const QUANTUM: Duration = Duration::from_millis(50);
/// Content that an append may have at once, in terms of its rate.
const BURST: Duration = Duration::from_secs(1);
/// Unused content that later appends may have at once, in terms of the rate.
const BANK: Duration = Duration::from_secs(10);

/// The flow of one journal, from one append to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowControl {
    /// Bytes times nanoseconds that may pass at once. Kept between appends.
    credit: u128,
    /// When `credit` was last brought up to date; none before the first append.
    credited: Option<Instant>,
    stream: Option<Stream>,
}

/// The flow of the append that streams now.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stream {
    began: Instant,
    min_rate: u64,
    max_rate: Option<u64>,
    /// Bytes times nanoseconds by which the client is ahead of the minimum.
    lead: u128,
    /// Since when the client has been waited for; none while its chunk is held.
    awaited: Option<Instant>,
    /// Bytes times nanoseconds of the held chunk that are not debited yet.
    debt: u128,
}

/// Whether a chunk may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// It may.
    Pass,
    /// Not before this. Call [`FlowControl::resume`] then.
    Hold(Instant),
}

/// The maximum of a journal's appends: the lesser of its own and the broker's, of those given.
pub fn max_rate(journal: i64, broker: u64) -> Option<u64> {
    let journal = u64::try_from(journal).ok().filter(|&rate| rate > 0);
    let broker = Some(broker).filter(|&rate| rate > 0);
    match (journal, broker) {
        (Some(journal), Some(broker)) => Some(journal.min(broker)),
        (journal, broker) => journal.or(broker),
    }
}

impl Default for FlowControl {
    fn default() -> Self {
        Self::new()
    }
}

impl FlowControl {
    /// The flow of a journal without appends so far.
    pub fn new() -> Self {
        Self {
            credit: 0,
            credited: None,
            stream: None,
        }
    }

    /// Begins an append, with rates in bytes per second. A minimum of zero asks for none.
    pub fn begin(&mut self, now: Instant, min_rate: u64, max_rate: Option<u64>) {
        match (self.credited, max_rate) {
            (None, Some(rate)) => self.credit = volume(rate, BURST),
            (Some(_), Some(rate)) => {
                self.pay(now, rate, 0);
            }
            (_, None) => {}
        }
        self.credited = Some(self.credited.map_or(now, |before| before.max(now)));
        self.stream = Some(Stream {
            began: now,
            min_rate,
            max_rate,
            lead: volume(min_rate, BURST),
            awaited: Some(now),
            debt: 0,
        });
    }

    /// Ends the append.
    pub fn end(&mut self) {
        self.stream = None;
    }

    /// Lifts the maximum for the rest of this append.
    pub fn lift_max(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.max_rate = None;
            stream.debt = 0;
        }
    }

    /// Counts a chunk of the client.
    pub fn charge(&mut self, now: Instant, length: usize) -> Charge {
        let Some(stream) = &mut self.stream else {
            return Charge::Pass;
        };
        stream.wait(now);
        stream.awaited = None;
        let bytes = u64::try_from(length).unwrap_or(u64::MAX);
        let gained = stream.lead.saturating_add(u128::from(bytes) * NANOS);
        stream.lead = gained.min(volume(stream.min_rate, BURST));
        stream.debt = u128::from(bytes) * NANOS;
        self.resume(now)
    }

    /// Looks at the held chunk again.
    pub fn resume(&mut self, now: Instant) -> Charge {
        let Some(Stream {
            max_rate,
            debt,
            began,
            ..
        }) = self.stream
        else {
            return Charge::Pass;
        };
        let Some(rate) = max_rate else {
            self.let_pass(now);
            return Charge::Pass;
        };
        let debt = self.pay(now, rate, debt);
        if debt == 0 {
            self.let_pass(now);
            return Charge::Pass;
        }
        if let Some(stream) = &mut self.stream {
            stream.debt = debt;
        }
        Charge::Hold(on_grid(began, now + nanos(debt.div_ceil(u128::from(rate)))))
    }

    fn let_pass(&mut self, now: Instant) {
        if let Some(stream) = &mut self.stream {
            stream.debt = 0;
            stream.awaited = Some(now);
        }
    }

    /// When the client has been too slow, if it sends nothing until then. None if no minimum
    /// is asked for, or while its chunk is held.
    pub fn starves_at(&self) -> Option<Instant> {
        let stream = self.stream.as_ref().filter(|stream| stream.min_rate > 0)?;
        let lead = stream.lead.div_ceil(u128::from(stream.min_rate));
        Some(on_grid(stream.began, stream.awaited? + nanos(lead)))
    }

    /// Pays a debt from what is left and what was earned since, and keeps the rest, up to the
    /// bank. Returns what is owed still.
    fn pay(&mut self, now: Instant, rate: u64, debt: u128) -> u128 {
        let since = self
            .credited
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let funds = self.credit.saturating_add(volume(rate, since));
        self.credit = funds.saturating_sub(debt).min(volume(rate, BANK));
        // A clock that stepped back earns nothing until it has caught up.
        self.credited = self.credited.map(|at| at.max(now)).or(Some(now));
        debt.saturating_sub(funds)
    }
}

impl Stream {
    /// Takes the time that the client was waited for from its lead.
    fn wait(&mut self, now: Instant) {
        if let Some(since) = self.awaited {
            let waited = now.saturating_duration_since(since);
            self.lead = self.lead.saturating_sub(volume(self.min_rate, waited));
            self.awaited = Some(now.max(since));
        }
    }
}

const NANOS: u128 = 1_000_000_000;

fn volume(rate: u64, time: Duration) -> u128 {
    u128::from(rate) * time.as_nanos()
}

/// A duration of this many nanoseconds, or the longest that is of any use.
fn nanos(nanos: u128) -> Duration {
    const LONGEST: u64 = 60 * 60 * 24 * 365 * 1_000_000_000;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(LONGEST).min(LONGEST))
}

/// The first multiple of the quantum after `began` that is not before `at`.
fn on_grid(began: Instant, at: Instant) -> Instant {
    let quanta = at
        .saturating_duration_since(began)
        .as_nanos()
        .div_ceil(QUANTUM.as_nanos());
    began + nanos(quanta * QUANTUM.as_nanos())
}

#[cfg(test)]
mod tests;
