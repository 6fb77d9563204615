#![doc = include_str!("../README.md")]

pub mod hints;
pub mod history;
pub mod journals;
pub mod notices;
pub mod player;
pub mod recorder;
pub mod standby;

mod claim;
mod image;
mod source;

pub use claim::{
    AUTHOR_REGISTER, Claimed, author_of_value, author_value, claim_from, owner_of, take_over,
};
pub use gazette_recoverylog_fsm as fsm;
pub use image::{ImageError, NotRestored, Refused};
pub use source::{FragmentName, Source, SourceError};
