#![doc = include_str!("../README.md")]

mod brokers;
pub mod converge;
mod driver;
pub mod key;
mod schema;
pub mod session;
pub mod solve;
pub mod state;
#[cfg(test)]
mod testing;
pub mod tracker;

pub use brokers::Brokers;
pub use driver::{AllocateError, Allocator, AllocatorOptions, Exit};
pub use key::{Key, KeyError, Keys};
pub use schema::{Assignment, Decoded, Item, Member, Schema};
pub use session::{Announcement, KeepAlive, Session, SessionError};
pub use state::{Entry, State};
