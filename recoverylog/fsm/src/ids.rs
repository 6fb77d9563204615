//! Identities that ops carry.

use std::fmt;

/// A recorder, drawn at random when it starts: 1 to 2^32 - 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Author(u32);

impl Author {
    /// Takes a number, which must not be zero.
    pub const fn new(number: u32) -> Option<Self> {
        match number {
            0 => None,
            number => Some(Self(number)),
        }
    }

    /// Maps any random number to an author, so that the caller draws once.
    pub const fn from_random(random: u32) -> Self {
        match random {
            0 | u32::MAX => Self(1),
            number => Self(number),
        }
    }

    /// Returns the number that ops carry.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the value of the journal register by which the author owns a log: the number in base
    /// 32.
    pub fn register_value(self) -> String {
        let mut value = String::new();
        for shift in (0..7).rev().map(|digit| digit * 5) {
            let digit = (self.0 >> shift) & 31;
            if digit != 0 || !value.is_empty() {
                value.extend(char::from_digit(digit, 32));
            }
        }
        value
    }

    /// Takes the value of that register.
    pub fn from_register_value(value: &str) -> Option<Self> {
        let is_canonical = |author: &Self| author.register_value() == value;
        u32::from_str_radix(value, 32)
            .ok()
            .and_then(Self::new)
            .filter(is_canonical)
    }
}

/// A file, by the sequence number of the op that created it. Zero is the parent of what lies in the
/// root directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fnode(pub i64);

impl Fnode {
    /// What ops name as the parent of entries of the root directory.
    pub const ROOT: Self = Self(0);
}

impl fmt::Display for Fnode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment, as file systems keep it: seconds since 1970, and nanoseconds in 0..1,000,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970, negative before it.
    pub seconds: i64,
    /// Nanoseconds of the second.
    pub nanos: u32,
}
