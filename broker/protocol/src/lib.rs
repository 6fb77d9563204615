#![doc = include_str!("../README.md")]

mod always_written;
pub mod claims;
pub mod clean_path;
mod codec;
pub mod duration;
pub mod endpoint;
mod fragment;
mod generated;
pub mod go_duration;
pub mod journal_name;
pub mod json;
mod label_set;
pub mod labels;
pub mod postfix;
mod presence;
mod process;
pub mod prototext;
mod reflect;
mod route;
mod selector;
mod sha1_sum;
mod spec;
pub mod store_url;
pub mod uri;
mod validation;
pub mod yaml;

pub use fragment::{FragmentNameError, StoredFragment};
pub use generated::*;
pub use process::MAX_JOURNAL_LIMIT;
pub use selector::SelectorError;
pub use sha1_sum::Sha1SumError;
pub use spec::{MAX_FRAGMENT_LENGTH, MAX_REPLICATION, MIN_FRAGMENT_LENGTH};
pub use validation::{Validate, ValidationCause, ValidationError};
