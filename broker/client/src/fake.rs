//! A journal service in memory, for tests, with faults by script.
//!
//! It keeps the rules that a client can see: lists and watches, apply with revisions, appends that are
//! all or nothing with their checks of offset and registers, reads that wait, jump, and lead to stored
//! fragments. It has one replica, and commits at once.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use gazette_codecs::Encoder;
use gazette_protocol::{
    CompressionCodec, Fragment, Header, JournalSpec, LabelSet, ProcessSpec, Route, Sha1Sum,
    header::Etcd, journal_spec, list_response, process_spec,
};
use sha1::{Digest, Sha1};
use tokio::sync::watch;

use crate::{Client, ClientOptions, in_process_channel};

mod faults;
mod read;
mod serve;
mod service;

pub use faults::{Call, Fault};
pub use serve::FakeServer;

/// A journal service in memory. A clone is the same service.
#[derive(Clone)]
pub struct FakeBroker {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Tells of every change of the state.
    changes: watch::Sender<u64>,
    faults: faults::Faults,
}

#[derive(Default)]
struct State {
    revision: i64,
    journals: BTreeMap<String, Journal>,
    endpoint: String,
    store_error: String,
}

/// One journal.
struct Journal {
    spec: JournalSpec,
    create_revision: i64,
    mod_revision: i64,
    registers: LabelSet,
    /// Content from `local_begin` on. What is before it is stored, or gone.
    local: Vec<u8>,
    local_begin: i64,
    /// Sum of the local content so far.
    sum: Sha1,
    stored: Vec<Stored>,
}

#[derive(Clone)]
struct Stored {
    fragment: Fragment,
    url: String,
    content: Bytes,
}

impl Journal {
    fn new(spec: JournalSpec, revision: i64) -> Self {
        Self {
            spec,
            create_revision: revision,
            mod_revision: revision,
            registers: LabelSet::default(),
            local: Vec::new(),
            local_begin: 0,
            sum: Sha1::new(),
            stored: Vec::new(),
        }
    }

    fn head(&self) -> i64 {
        self.local_begin + i64::try_from(self.local.len()).unwrap_or(i64::MAX)
    }

    fn push(&mut self, content: &[u8]) {
        self.local.extend_from_slice(content);
        self.sum.update(content);
    }

    fn local_fragment(&self) -> Fragment {
        Fragment {
            journal: self.spec.name.clone(),
            begin: self.local_begin,
            end: self.head(),
            sum: if self.local.is_empty() {
                Sha1Sum::default()
            } else {
                Sha1Sum::from_digest(self.sum.clone().finalize().into())
            },
            compression_codec: CompressionCodec::None.into(),
            ..Fragment::default()
        }
    }
}

impl fmt::Debug for FakeBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeBroker").finish_non_exhaustive()
    }
}

impl Default for FakeBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeBroker {
    /// Returns a service without journals.
    pub fn new() -> Self {
        let state = State {
            revision: 1,
            endpoint: "http://fake.invalid:8080".to_owned(),
            ..State::default()
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                changes: watch::Sender::new(0),
                faults: faults::Faults::default(),
            }),
        }
    }

    /// Returns a client of it, in this process.
    pub fn client(&self) -> Client {
        self.client_with(ClientOptions::default())
    }

    /// Returns a client of it, in this process.
    pub fn client_with(&self, options: ClientOptions) -> Client {
        Client::from_channel(in_process_channel(self.clone()), options)
    }

    /// Returns a small specification that is valid.
    pub fn spec(name: &str) -> JournalSpec {
        JournalSpec {
            name: name.to_owned(),
            replication: 1,
            fragment: journal_spec::Fragment {
                length: 1 << 20,
                compression_codec: CompressionCodec::None.into(),
                stores: vec!["file:///".to_owned()],
                refresh_interval: prost_duration(300),
                ..journal_spec::Fragment::default()
            },
            ..JournalSpec::default()
        }
    }

    /// Creates a journal, or replaces its specification.
    pub fn create(&self, name: &str) {
        self.upsert(Self::spec(name));
    }

    /// Creates a journal, or replaces its specification.
    pub fn upsert(&self, spec: JournalSpec) {
        let mut state = self.lock();
        state.revision += 1;
        state.upsert(spec);
        self.changed(state);
    }

    /// Deletes a journal.
    pub fn delete(&self, name: &str) {
        let mut state = self.lock();
        state.revision += 1;
        state.journals.remove(name);
        self.changed(state);
    }

    /// All content of a journal that still exists.
    pub fn content(&self, name: &str) -> Vec<u8> {
        self.with(name, |journal| {
            let stored = journal
                .stored
                .iter()
                .flat_map(|stored| stored.content.iter().copied());
            stored.chain(journal.local.iter().copied()).collect()
        })
    }

    /// Where a journal ends.
    pub fn head(&self, name: &str) -> i64 {
        self.with(name, |journal| journal.head())
    }

    /// The registers of a journal.
    pub fn registers(&self, name: &str) -> LabelSet {
        self.with(name, |journal| journal.registers.clone())
    }

    /// Sets the registers of a journal.
    pub fn set_registers(&self, name: &str, registers: LabelSet) {
        self.with(name, |journal| journal.registers = registers);
    }

    /// Appends as another client would.
    pub fn append(&self, name: &str, content: &[u8]) {
        self.with(name, |journal| journal.push(content));
    }

    /// Deletes all content before `offset`, as retention does.
    pub fn truncate(&self, name: &str, offset: i64) {
        self.with(name, |journal| {
            journal.stored.retain(|stored| stored.fragment.end > offset);
            if offset > journal.local_begin {
                let content =
                    usize::try_from(offset - journal.local_begin).map_or(Vec::new(), |count| {
                        journal
                            .local
                            .drain(..count.min(journal.local.len()))
                            .collect()
                    });
                drop(content);
                journal.local_begin = offset;
                journal.sum = Sha1::new();
                journal.sum.update(&journal.local);
            }
        });
    }

    /// Moves the local content into a fragment, of which the object is made under the folder `root`.
    /// Returns the fragment. Readers that do not want it proxied get a `file://` URL of it.
    pub fn store(&self, name: &str, codec: CompressionCodec, root: &Path) -> io::Result<Fragment> {
        let (fragment, object) = self.compress(name, codec)?;
        let path = object_path(&fragment);
        let file = root.join(&path);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(file, object)?;
        self.store_at(name, fragment.clone(), format!("file:///{path}"));
        Ok(fragment)
    }

    /// Returns the fragment that the local content would make, and its object.
    pub fn compress(&self, name: &str, codec: CompressionCodec) -> io::Result<(Fragment, Vec<u8>)> {
        let (fragment, content) = self.with(name, |journal| {
            let fragment = Fragment {
                compression_codec: codec.into(),
                backing_store: "file:///".to_owned(),
                mod_time: 1_700_000_000,
                ..journal.local_fragment()
            };
            (fragment, journal.local.clone())
        });
        let mut encoder = Encoder::new(codec, Vec::new()).map_err(io::Error::other)?;
        io::Write::write_all(&mut encoder, &content)?;
        Ok((fragment, encoder.finish()?))
    }

    /// Replaces the local content by `fragment`, which is found at `url`.
    pub fn store_at(&self, name: &str, fragment: Fragment, url: String) {
        self.with(name, |journal| {
            let content = std::mem::take(&mut journal.local);
            journal.local_begin = fragment.end;
            journal.sum = Sha1::new();
            journal.stored.push(Stored {
                fragment,
                url,
                content: content.into(),
            });
        });
    }

    /// Makes the fragment stores unhealthy, for the given reason, or healthy if it is empty.
    pub fn set_store_error(&self, text: &str) {
        let mut state = self.lock();
        text.clone_into(&mut state.store_error);
        self.changed(state);
    }

    /// Advances the revision, as changes elsewhere do.
    pub fn bump_revision(&self) -> i64 {
        let mut state = self.lock();
        state.revision += 1;
        let revision = state.revision;
        self.changed(state);
        revision
    }

    /// The header of its answers.
    pub fn header(&self) -> Header {
        self.lock().header()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, state: MutexGuard<'_, State>) {
        drop(state);
        self.inner.changes.send_modify(|count| *count += 1);
    }

    fn with<T>(&self, name: &str, f: impl FnOnce(&mut Journal) -> T) -> T {
        let mut state = self.lock();
        let journal = state.journals.get_mut(name);
        let result = f(journal.unwrap_or_else(|| panic!("the test did not create {name}")));
        self.changed(state);
        result
    }
}

impl State {
    fn upsert(&mut self, spec: JournalSpec) {
        let revision = self.revision;
        match self.journals.get_mut(&spec.name) {
            Some(journal) => {
                journal.spec = spec;
                journal.mod_revision = revision;
            }
            None => {
                self.journals
                    .insert(spec.name.clone(), Journal::new(spec, revision));
            }
        }
    }

    fn id() -> process_spec::Id {
        process_spec::Id::new("local", "fake")
    }

    fn route(&self) -> Route {
        let member = ProcessSpec {
            id: Self::id(),
            endpoint: self.endpoint.clone(),
        };
        Route {
            members: vec![member.id],
            primary: 0,
            endpoints: vec![member.endpoint],
        }
    }

    fn header(&self) -> Header {
        let etcd = Etcd {
            cluster_id: 1,
            member_id: 1,
            revision: self.revision,
            raft_term: 1,
        };
        Header {
            process_id: Self::id(),
            route: self.route(),
            etcd,
        }
    }

    /// The header of an answer about a journal: without a route if it does not exist.
    fn header_of(&self, name: &str) -> Header {
        let header = self.header();
        if self.journals.contains_key(name) {
            header
        } else {
            Header {
                route: Route::unrouted(),
                ..header
            }
        }
    }

    fn listed(&self, journal: &Journal) -> list_response::Journal {
        list_response::Journal {
            spec: journal.spec.clone(),
            mod_revision: journal.mod_revision,
            route: self.route(),
            create_revision: journal.create_revision,
        }
    }
}

/// Path of the object of a fragment below its store.
fn object_path(fragment: &Fragment) -> String {
    let extension = match fragment.compression_codec() {
        CompressionCodec::None => ".raw",
        CompressionCodec::Gzip => ".gz",
        CompressionCodec::Zstandard => ".zst",
        CompressionCodec::Snappy => ".sz",
        CompressionCodec::Invalid | CompressionCodec::GzipOffloadDecompression => "",
    };
    format!(
        "{}/{:016x}-{:016x}-{}{extension}",
        fragment.journal,
        fragment.begin,
        fragment.end,
        fragment.sum.to_hex()
    )
}

fn prost_duration(seconds: u64) -> prost_types::Duration {
    prost_types::Duration {
        seconds: seconds.cast_signed(),
        nanos: 0,
    }
}
