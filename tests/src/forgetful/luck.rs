//! What survives of what was not synced.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Decides about each thing that a loss of power may take.
pub trait Luck {
    /// Does this change of a name survive?
    fn name(&mut self) -> bool;
    /// Does this page survive?
    fn page(&mut self) -> bool;
    /// Returns the length that a file has after the loss.
    fn size(&mut self, durable: u64, current: u64) -> u64;
}

/// Everything is taken that may be taken.
#[derive(Debug, Clone, Copy)]
pub struct Strict;

impl Luck for Strict {
    fn name(&mut self) -> bool {
        false
    }

    fn page(&mut self) -> bool {
        false
    }

    fn size(&mut self, durable: u64, _current: u64) -> u64 {
        durable
    }
}

/// Nothing is taken.
#[derive(Debug, Clone, Copy)]
pub struct Everything;

impl Luck for Everything {
    fn name(&mut self) -> bool {
        true
    }

    fn page(&mut self) -> bool {
        true
    }

    fn size(&mut self, _durable: u64, current: u64) -> u64 {
        current
    }
}

/// A part survives that a seed decides, and how large that part is too.
#[derive(Debug)]
pub struct Seeded {
    rng: StdRng,
    names: f64,
    pages: f64,
}

impl Seeded {
    /// Makes the luck of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let shares = [0.0, 0.1, 0.5, 0.9, 1.0];
        let names = shares[rng.random_range(0..shares.len())];
        let pages = shares[rng.random_range(0..shares.len())];
        Self { rng, names, pages }
    }
}

impl Luck for Seeded {
    fn name(&mut self) -> bool {
        self.rng.random_bool(self.names)
    }

    fn page(&mut self) -> bool {
        self.rng.random_bool(self.pages)
    }

    fn size(&mut self, durable: u64, current: u64) -> u64 {
        match self.rng.random_range(0..3) {
            0 => durable,
            1 => current,
            _ => self
                .rng
                .random_range(durable.min(current)..=durable.max(current)),
        }
    }
}

/// Decides when a system writes a page back that nobody asked for.
#[derive(Debug)]
pub struct WriteBack {
    rng: StdRng,
}

impl WriteBack {
    /// Makes the decisions of `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// Says after a write whether a page is written back now, and which of the dirty ones.
    pub fn decide(&mut self) -> Option<usize> {
        let is_now = self.rng.random_bool(1.0 / 16.0);
        is_now.then(|| self.rng.random_range(0..1 << 20))
    }
}
