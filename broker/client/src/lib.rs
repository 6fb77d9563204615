#![doc = include_str!("../README.md")]

mod append;
mod append_error;
mod append_queue;
mod append_service;
mod backoff;
mod channel;
mod client;
mod error;
#[cfg(feature = "test-util")]
pub mod fake;
mod fragment_reader;
#[cfg(test)]
mod golden;
mod last_error;
mod list;
pub mod metrics;
mod read;
mod read_error;
mod resolve;
mod retry_read;
mod route_cache;
mod router;
mod watch;

pub use append::{AppendContent, Appender};
pub use append_error::{AppendCause, AppendError, Outcome};
pub use append_queue::AppendParams;
pub use append_service::{AppendService, AppendServiceOptions, Landed, Queued};
pub use backoff::retry_delay;
pub use channel::{BoxChannel, ChannelOptions, ConnectError, connect_channel, in_process_channel};
pub use client::{Client, ClientOptions, Head};
pub use error::{Cause, ClientError, ErrorKind};
pub use fragment_reader::{FragmentReader, FragmentReaderError};
pub use last_error::LastError;
pub use list::{Listing, ListingDiff};
pub use read::{ReadEvent, Reader};
pub use read_error::{ReadCause, ReadError};
pub use resolve::{Resolution, ResolveError};
pub use retry_read::{RetryOptions, RetryReader};
pub use route_cache::RouteCacheOptions;
pub use watch::WatchedList;
