//! Why a log could not be read.

use std::{fmt, io, sync::Arc};

use gazette_client::{AppendError, ClientError, FragmentReaderError, ReadError};
use gazette_codecs::CodecError;
use gazette_protocol::Fragment;
use gazette_stores::StoreError;

/// Why a log could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SourceError {
    /// The brokers know no such journal.
    #[error(
        "read log {journal}: there is no such journal; next: check the name, or read its store without brokers (--store URL)"
    )]
    NoJournal {
        /// Its name.
        journal: String,
    },
    /// The store holds nothing of the journal.
    #[error(
        "read log {journal} in {store}: the store holds no fragment of it; next: check the name and the store's URL; what a broker has not persisted yet is only there"
    )]
    NothingStored {
        /// The journal.
        journal: String,
        /// URL of the store.
        store: String,
    },
    /// The brokers could not be asked.
    #[error(transparent)]
    Client(Box<ClientError>),
    /// The primary could not be asked where the journal ends.
    #[error("ask where a log ends: {0}")]
    Append(#[source] AppendError),
    /// The brokers could not be read from.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store failed.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// Nothing came for a long time.
    #[error(
        "read log {journal} at {offset}: nothing came for {seconds} s; next: look at its store and brokers, and try again"
    )]
    Stalled {
        /// The journal.
        journal: String,
        /// What was waited for.
        offset: i64,
        /// How long.
        seconds: u64,
    },
    /// A fragment in a store could not be read.
    #[error("read {at}: {cause}; next: {}", at.next())]
    Url {
        /// Which fragment.
        at: Box<FragmentName>,
        /// What went wrong.
        cause: Box<FragmentReaderError>,
    },
    /// A fragment in a store is not what its name says, or breaks off.
    #[error("read {at}: {cause}; next: {}", at.next())]
    Fragment {
        /// Which fragment.
        at: Box<FragmentName>,
        /// What went wrong.
        cause: Arc<io::Error>,
    },
    /// A fragment has a codec that is not known here.
    #[error("read {at}: {cause}; next: recover with a version that knows it")]
    Codec {
        /// Which fragment.
        at: Box<FragmentName>,
        /// What is wrong.
        cause: Box<CodecError>,
    },
}

impl From<ClientError> for SourceError {
    fn from(error: ClientError) -> Self {
        Self::Client(Box::new(error))
    }
}

impl From<StoreError> for SourceError {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

/// A fragment of a journal in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FragmentName {
    /// The journal.
    pub journal: String,
    /// Where it begins.
    pub begin: i64,
    /// Where it ends.
    pub end: i64,
    /// Its path in the store; empty if it was read at a URL.
    pub path: String,
}

impl FragmentName {
    pub(super) fn new(fragment: &Fragment, path: &str) -> Self {
        Self {
            journal: fragment.journal.clone(),
            begin: fragment.begin,
            end: fragment.end,
            path: path.to_owned(),
        }
    }

    fn next(&self) -> String {
        let begin = self.begin;
        format!(
            "restore the fragment's file, or recover as of an offset up to {begin} (--at {begin})"
        )
    }
}

impl fmt::Display for FragmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            journal,
            begin,
            end,
            path,
        } = self;
        write!(f, "[{begin}, {end}) of log {journal}")?;
        if !path.is_empty() {
            write!(f, " in fragment {path}")?;
        }
        Ok(())
    }
}
