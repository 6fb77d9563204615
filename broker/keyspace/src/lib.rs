#![doc = include_str!("../README.md")]

mod entry;
mod key_space;
mod watch;

pub use entry::{Change, DecodeError, Decoder, Entry, Rejected};
pub use key_space::{Applied, ApplyError, KeySpace};
pub use watch::{Mirror, MirrorError, MirrorOptions, MirrorWatch, ReadGuard};
