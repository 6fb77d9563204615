#![doc = include_str!("../README.md")]

pub mod hints;
pub mod history;
pub mod journals;
pub mod player;
pub mod prune;
pub mod recorder;

mod claim;
mod image;
mod source;

pub use claim::{AUTHOR_REGISTER, author_of_value, author_value, take_over};
pub use gazette_recoverylog_fsm as fsm;
pub use image::{ImageError, NotRestored, Refused};
pub use source::{FragmentName, Source, SourceError};
