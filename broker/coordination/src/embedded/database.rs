//! The `SQLite` file: which rows it has, and what can be wrong with it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};

use super::{EmbeddedOptions, FIRST_REVISION, MEMBER_ID, random_id};
use crate::{
    KeyValue, LeaseId,
    engine::{Engine, EngineConfig},
};

/// `PRAGMA application_id` of our files: "Gzco".
const APPLICATION_ID: i32 = 0x477a_636f;

/// `PRAGMA user_version` of our files. A greater one was written by a later release.
const SCHEMA_VERSION: i32 = 1;

const SCHEMA: &str = "
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    cluster_id INTEGER NOT NULL,
    raft_term INTEGER NOT NULL,
    revision INTEGER NOT NULL
) STRICT;
CREATE TABLE keys (
    key BLOB PRIMARY KEY,
    value BLOB NOT NULL,
    create_revision INTEGER NOT NULL,
    mod_revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    lease INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// A store could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("open {}: {cause}; next: {}", path.display(), cause.next())]
pub struct OpenError {
    /// File of the store.
    pub path: PathBuf,
    /// What is wrong with it.
    pub cause: OpenCause,
}

/// What is wrong with a store's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenCause {
    /// Another process has it open.
    #[error("another process has it open")]
    Locked,
    /// It was written by a later release.
    #[error("its schema version is {found}, and this release knows {known} at most")]
    Newer {
        /// Version of the file.
        found: i32,
        /// Greatest version that this release can read.
        known: i32,
    },
    /// It is a file of something else.
    #[error("it is not a coordination store, or its first page is damaged")]
    Foreign,
    /// Its content is damaged.
    #[error("it is damaged: {detail}")]
    Corrupt {
        /// What was found.
        detail: String,
    },
    /// The disk is full.
    #[error("the disk is full")]
    NoSpace,
    /// The file could not be read or written.
    #[error("{cause}")]
    Io {
        /// What the system said.
        cause: String,
    },
}

impl OpenCause {
    fn next(&self) -> &'static str {
        match self {
            Self::Locked => "stop the other process, or use another folder",
            Self::Newer { .. } => "use the release that wrote it, or a later one",
            Self::Foreign => "name another file, or restore it from a copy",
            Self::Corrupt { .. } => {
                "restore it from a copy; without one, move it away and apply the journal specs again"
            }
            Self::NoSpace => "make room and start again",
            Self::Io { .. } => "check that its folder exists and can be written",
        }
    }
}

/// A commit did not reach the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CommitError {
    NoSpace,
    Failed { cause: String },
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("the disk is full"),
            Self::Failed { cause } => f.write_str(cause),
        }
    }
}

impl From<CommitError> for OpenCause {
    fn from(err: CommitError) -> Self {
        match err {
            CommitError::NoSpace => Self::NoSpace,
            CommitError::Failed { cause } => Self::Io { cause },
        }
    }
}

/// An open file.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    connection: Connection,
    /// The first failure after which the state of the disk is not known. There is no second try:
    /// the kernel may have dropped pages that it could not write.
    failed: Option<CommitError>,
}

impl Database {
    /// Opens or creates a file. Returns what an engine needs to go on from it.
    pub(super) fn open(
        path: PathBuf,
        options: EmbeddedOptions,
    ) -> Result<(Self, EngineConfig, i64, Vec<KeyValue>), OpenError> {
        match Self::try_open(&path, options) {
            Ok((connection, config, revision, keys)) => {
                let database = Self {
                    path,
                    connection,
                    failed: None,
                };
                Ok((database, config, revision, keys))
            }
            Err(cause) => Err(OpenError { path, cause }),
        }
    }

    fn try_open(
        path: &Path,
        options: EmbeddedOptions,
    ) -> Result<(Connection, EngineConfig, i64, Vec<KeyValue>), OpenCause> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(std::time::Duration::ZERO)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        let application: i32 = pragma(&connection, "application_id")?;
        let version: i32 = pragma(&connection, "user_version")?;
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if application != APPLICATION_ID && (tables > 0 || application != 0 || version != 0) {
            return Err(OpenCause::Foreign);
        }
        if version > SCHEMA_VERSION {
            return Err(OpenCause::Newer {
                found: version,
                known: SCHEMA_VERSION,
            });
        }
        let check: String = pragma(&connection, "quick_check(1)")?;
        if check != "ok" {
            return Err(OpenCause::Corrupt { detail: check });
        }
        let mode: String =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            return Err(OpenCause::Io {
                cause: "its disk cannot hold a write-ahead log".to_owned(),
            });
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        load(&mut connection, options, version == 0)
            .map(|(config, revision, keys)| (connection, config, revision, keys))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what changed in `engine` since its latest commit.
    pub(super) fn commit(&mut self, engine: &Engine) -> Result<(), CommitError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let result =
            write(&mut self.connection, engine).map_err(|err| match err.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => CommitError::NoSpace,
                _ => CommitError::Failed {
                    cause: err.to_string(),
                },
            });
        if let Err(err @ CommitError::Failed { .. }) = &result {
            self.failed = Some(err.clone());
        }
        result
    }

    /// Makes the file full at so many pages.
    #[cfg(test)]
    pub(super) fn limit_pages(&self, count: u32) {
        self.connection
            .pragma_update(None, "max_page_count", count)
            .unwrap();
    }

    /// Makes every further commit fail.
    #[cfg(test)]
    pub(super) fn break_schema(&self) {
        self.connection.execute_batch("DROP TABLE keys").unwrap();
    }

    pub(super) fn close(self) {
        if let Err((_, err)) = self.connection.close() {
            tracing::warn!(%err, path = %self.path.display(), "close coordination store");
        }
    }
}

fn write(connection: &mut Connection, engine: &Engine) -> rusqlite::Result<()> {
    let changes = engine.changes();
    if changes.is_empty() {
        return Ok(());
    }
    let txn = connection.transaction()?;
    {
        let mut put = txn.prepare_cached(
            "INSERT OR REPLACE INTO keys
             (key, value, create_revision, mod_revision, version, lease)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        let mut delete = txn.prepare_cached("DELETE FROM keys WHERE key = ?1")?;
        for (key, kv) in changes {
            match kv {
                Some(kv) => put.execute(params![
                    kv.key.as_ref(),
                    kv.value.as_ref(),
                    kv.create_revision,
                    kv.mod_revision,
                    kv.version,
                    kv.lease.0,
                ])?,
                None => delete.execute([key.as_ref()])?,
            };
        }
        txn.prepare_cached("UPDATE store SET revision = ?1")?
            .execute([engine.header().revision])?;
    }
    txn.commit()
}

/// Reads everything, and counts the opening.
fn load(
    connection: &mut Connection,
    options: EmbeddedOptions,
    create: bool,
) -> Result<(EngineConfig, i64, Vec<KeyValue>), OpenCause> {
    let txn = connection.transaction()?;
    if create {
        let cluster_id = options.cluster_id.unwrap_or_else(random_id);
        txn.execute_batch(SCHEMA)?;
        txn.pragma_update(None, "application_id", APPLICATION_ID)?;
        txn.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        txn.execute(
            "INSERT INTO store (id, cluster_id, raft_term, revision) VALUES (1, ?1, 0, ?2)",
            params![cluster_id.cast_signed(), FIRST_REVISION],
        )?;
    }
    txn.execute("UPDATE store SET raft_term = raft_term + 1", [])?;
    let corrupt = |detail: &str| OpenCause::Corrupt {
        detail: detail.to_owned(),
    };
    let (cluster_id, raft_term, revision): (i64, i64, i64) = txn
        .query_row(
            "SELECT cluster_id, raft_term, revision FROM store",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?
        .ok_or_else(|| corrupt("its identity is missing"))?;
    if cluster_id == 0 || raft_term <= 0 || revision < FIRST_REVISION {
        return Err(corrupt("its identity is out of range"));
    }
    let mut keys = Vec::new();
    {
        let mut select = txn.prepare(
            "SELECT key, value, create_revision, mod_revision, version, lease
             FROM keys ORDER BY key",
        )?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let kv = KeyValue {
                key: row.get::<_, Vec<u8>>(0)?.into(),
                value: row.get::<_, Vec<u8>>(1)?.into(),
                create_revision: row.get(2)?,
                mod_revision: row.get(3)?,
                version: row.get(4)?,
                lease: LeaseId(row.get(5)?),
            };
            let created = FIRST_REVISION < kv.create_revision && 1 <= kv.version;
            let ordered = kv.create_revision <= kv.mod_revision && kv.mod_revision <= revision;
            if !(created && ordered) {
                return Err(corrupt("a key has impossible revisions"));
            }
            keys.push(kv);
        }
    }
    txn.commit()?;
    let config = EngineConfig {
        cluster_id: cluster_id.cast_unsigned(),
        member_id: MEMBER_ID,
        raft_term: raft_term.cast_unsigned(),
        max_txn_ops: options.max_txn_ops,
        history_revisions: options.history_revisions,
    };
    Ok((config, revision, keys))
}

fn pragma<T: rusqlite::types::FromSql>(connection: &Connection, name: &str) -> rusqlite::Result<T> {
    connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
}

impl From<rusqlite::Error> for OpenCause {
    fn from(err: rusqlite::Error) -> Self {
        match err.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            Some(ErrorCode::DiskFull) => Self::NoSpace,
            Some(ErrorCode::NotADatabase) => Self::Foreign,
            // Without a code it is not an answer of SQLite: a row was not what we write.
            Some(ErrorCode::DatabaseCorrupt) | None => Self::Corrupt {
                detail: err.to_string(),
            },
            Some(_) => Self::Io {
                cause: err.to_string(),
            },
        }
    }
}
