//! Why a log could not be read.

use std::{io, sync::Arc};

use gazette_client::{AppendError, ClientError, FragmentReaderError, ReadError};
use gazette_codecs::CodecError;
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
    Client(#[from] ClientError),
    /// The primary could not be asked where the journal ends.
    #[error("ask where a log ends: {0}")]
    Append(#[source] AppendError),
    /// The brokers could not be read from.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A fragment in a store could not be read.
    #[error(
        "read [{begin}, {end}) of log {journal}: {cause}; next: restore the fragment's file, or recover as of an offset before {begin}"
    )]
    Url {
        /// The journal.
        journal: String,
        /// Where the fragment begins.
        begin: i64,
        /// Where it ends.
        end: i64,
        /// What went wrong.
        cause: FragmentReaderError,
    },
    /// A fragment in a store is not what its name says, or breaks off.
    #[error(
        "read [{begin}, {end}) of log {journal}: fragment {path}: {cause}; next: restore that file, or recover as of an offset before {begin}"
    )]
    Fragment {
        /// The journal.
        journal: String,
        /// Where the fragment begins.
        begin: i64,
        /// Where it ends.
        end: i64,
        /// Its path in the store.
        path: String,
        /// What went wrong.
        cause: Arc<io::Error>,
    },
    /// A fragment has a codec that is not known here.
    #[error(
        "read [{begin}, {end}) of log {journal}: fragment {path}: {cause}; next: recover with a version that knows it"
    )]
    Codec {
        /// The journal.
        journal: String,
        /// Where the fragment begins.
        begin: i64,
        /// Where it ends.
        end: i64,
        /// Its path in the store.
        path: String,
        /// What is wrong.
        cause: CodecError,
    },
}
