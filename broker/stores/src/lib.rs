#![doc = include_str!("../README.md")]

mod active;
#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
mod error;
#[cfg(any(test, feature = "test-util"))]
mod faulty;
mod file;
mod health;
mod key;
mod memory;
pub mod metrics;
mod registry;
mod rewrite;
mod store;
mod url;

pub use active::ActiveStore;
pub use error::{StoreError, StoreErrorKind};
#[cfg(any(test, feature = "test-util"))]
pub use faulty::{Fault, FaultyStore};
pub use file::FileStore;
pub use health::{Health, next_check};
pub use memory::MemoryStore;
pub use registry::{StoreConfig, StoreOpener, Stores};
pub use rewrite::Rewriter;
pub use store::{BoxRead, Content, Listed, Operation, Store};
pub use url::StoreUrl;
