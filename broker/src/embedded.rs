//! A whole broker in this process: its log, its stores, its coordination store. Nothing else runs.

use std::{
    fmt, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{Router, extract::Request};
use gazette_allocator::{
    Allocator, AllocatorOptions, Brokers, Decoded, KeepAlive, KeyError, Keys, Schema as _, Session,
    SessionError, session::EMBEDDED_TTL,
};
use gazette_client::{Client, ClientOptions, in_process_channel};
use gazette_coordination::Coordination;
use gazette_journal::append::Limits;
use gazette_keyspace::{Mirror, MirrorError, MirrorOptions, MirrorWatch};
use gazette_process::{TaskError, TaskGroup};
use gazette_protocol::{
    BrokerSpec, MAX_JOURNAL_LIMIT, ProcessSpec, Validate as _, ValidationError,
    journal_server::JournalServer, process_spec,
};
use gazette_stores::{StoreConfig, Stores};
use gazette_wal::{Disk, Durability, Log, OpenError, Options, RealDisk, RecoveredJournal};
use prost::Message as _;
use tokio_util::sync::CancellationToken;

use crate::{
    gateway, metrics,
    persister::Persister,
    replica::{Context, Pulse, Specs},
    replicas::Replicas,
    rest,
    service::Service,
    topology::Topology,
};

/// The root of the keys of a cluster, that of the reference.
const ROOT: &str = "/gazette/cluster";
/// How long the end waits for uploads and replicas. What is not done then is done after the next
/// start.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// Spools that are read at the same time at the start.
const VERIFYING_MAX: usize = 4;
/// Messages of gRPC, at most.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// What an embedded broker is started with.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Folder of all its data. It is made if it is not there; one broker may use it at a time.
    pub data_dir: PathBuf,
    /// What an acknowledged append survives.
    pub durability: Durability,
    /// Zone and suffix by which routes name it.
    pub id: process_spec::Id,
    /// Where clients reach it, as routes tell them.
    pub endpoint: String,
    /// Journals that it takes.
    pub journal_limit: u32,
    /// Folder that `file://` stores are below; `fragments` in the data folder if none is given.
    pub file_root: Option<PathBuf>,
    /// Takes every store for `file:///`.
    pub file_only: bool,
    /// Least rate of an append, in bytes per second.
    pub min_append_rate: u64,
    /// Greatest rate of the appends to a journal, in bytes per second; zero is unlimited.
    pub max_append_rate: u64,
    /// Where the log and the spools are: the real disk, or a double of a test.
    pub disk: Arc<dyn Disk>,
    /// What the log leaves out, to show that a test notices.
    #[cfg(feature = "test-util")]
    pub planted: gazette_wal::Planted,
}

impl EmbeddedOptions {
    /// A durable broker with its data in `data_dir`, which clients reach at `endpoint`.
    pub fn new(data_dir: impl Into<PathBuf>, endpoint: impl Into<String>) -> Self {
        Self {
            data_dir: data_dir.into(),
            durability: Durability::Durable,
            id: process_spec::Id::new("local", "embedded"),
            endpoint: endpoint.into(),
            journal_limit: MAX_JOURNAL_LIMIT,
            file_root: None,
            file_only: false,
            min_append_rate: 1 << 16,
            max_append_rate: 0,
            disk: Arc::new(RealDisk),
            #[cfg(feature = "test-util")]
            planted: gazette_wal::Planted::default(),
        }
    }

    /// Folder that `file://` stores are below.
    pub fn fragments_dir(&self) -> PathBuf {
        self.file_root
            .clone()
            .unwrap_or_else(|| self.data_dir.join("fragments"))
    }
}

/// Why an embedded broker does not start, or how it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// A folder or file of its data cannot be used.
    #[error("{operation} {}: {cause}; next: {next}", path.display())]
    Folder {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        cause: io::Error,
        /// What to do.
        next: &'static str,
    },
    /// Another broker uses the data.
    #[error(
        "start broker: {} is in use by another broker{}; next: end that one, or use another folder",
        path.display(), holder.as_ref().map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Process that holds it, if it is known.
        holder: Option<String>,
    },
    /// The write-ahead log cannot be recovered.
    #[error("recover the write-ahead log: {0}")]
    Log(#[from] OpenError),
    /// The coordination database cannot be opened.
    #[error(transparent)]
    Coordination(#[from] gazette_coordination::OpenError),
    /// The mirror of it cannot be loaded.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// The broker cannot be announced.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Its zone, identity or endpoint is not valid.
    #[error("start broker: {0}; next: correct the zone, id or endpoint")]
    Spec(#[from] ValidationError),
    /// Its keys are not valid.
    #[error("start broker: {0}")]
    Keys(#[from] KeyError),
    /// A task of the broker failed.
    #[error("broker ended: {0}")]
    Task(#[from] TaskError),
}

/// A running embedded broker.
pub struct Embedded {
    service: Service,
    client: Client,
    tasks: TaskGroup,
    topology: Arc<Topology>,
    coordination: Arc<gazette_coordination::Embedded>,
    session: Session,
    log: Log,
    /// Ends reads and listings.
    stop_streams: CancellationToken,
    /// Ends the persister.
    stop_persister: CancellationToken,
    /// Tasks that must outlive the replicas.
    support: TaskGroup,
    /// Holds the data folder.
    _lock: fs::File,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl Embedded {
    /// Recovers what is in the data folder, and starts to serve it.
    pub async fn start(options: EmbeddedOptions) -> Result<Self, EmbeddedError> {
        let member = member_of(&options)?;
        metrics::describe();
        gazette_wal::metrics::describe();
        gazette_stores::metrics::describe();
        gazette_client::metrics::describe();
        let keys = Keys::new(ROOT)?;
        let Data {
            lock,
            scratch,
            store,
            log,
            recovered,
        } = Data::open(&options).await?;
        let coordination: Arc<dyn Coordination> = Arc::clone(&store) as _;
        let Joined {
            session,
            keep_alive,
            mirror,
            watch,
        } = Joined::join(&coordination, &keys, &member).await?;

        // The broker ends by `stop`, in order; nothing above cancels its tasks.
        let root = CancellationToken::new();
        let tasks = TaskGroup::new(&root);
        let support = TaskGroup::new(&root);
        let stores = Arc::new(Stores::new(StoreConfig {
            file_root: Some(options.fragments_dir()),
            file_only: options.file_only,
            ..StoreConfig::default()
        }));
        let (persister, persister_task) =
            Persister::new(Arc::clone(&stores), scratch, support.clone());
        let pulse = Arc::new(OnceLock::new());
        let context = Context {
            specs: Specs {
                mirror: mirror.clone(),
                keys: keys.clone(),
            },
            stores: Arc::clone(&stores),
            persister,
            tasks: tasks.clone(),
            verifying: Arc::new(tokio::sync::Semaphore::new(VERIFYING_MAX)),
            pulse: Arc::clone(&pulse),
        };
        let local = options.id.clone();
        let replicas = Replicas::new(keys.clone(), local.clone(), log.clone(), context, recovered);
        let replicas = Arc::new(replicas);
        let topology = Arc::new(Topology {
            mirror: mirror.clone(),
            coordination: Arc::clone(&coordination),
            keys: keys.clone(),
            local: local.clone(),
            replicas: Arc::clone(&replicas),
            // However many replicas a spec wants: here is one broker.
            max_replication: 1,
        });
        let stop_streams = CancellationToken::new();
        let service = Service::new(
            Arc::clone(&topology),
            Arc::clone(&stores),
            limits_of(&options),
            tasks.clone(),
            stop_streams.clone(),
        );
        let set = pulse.set(pulse_of(&service));
        assert!(set.is_ok(), "the pulse is set once");

        // Deleted while the broker was away, or while it was about to forget them.
        replicas.forget_deleted(|name, revision| topology.create_revision(name) == Some(revision));
        mirror.observe(move |space, changes| replicas.observe(space, changes));

        let stop_persister = CancellationToken::new();
        spawn_support(&support, &stores, watch, keep_alive, &log);
        let stop = stop_persister.clone();
        support.spawn("persister", async move {
            persister_task.run(stop, STOP_GRACE).await;
            Ok(())
        });
        let how = AllocatorOptions::default();
        spawn_allocator(
            &tasks,
            Allocator::new(coordination, keys, mirror, local, how),
        );
        topology.assigned().await;
        let client_options = ClientOptions {
            file_root: Some(options.fragments_dir()),
            zone: options.id.zone.clone(),
            ..ClientOptions::default()
        };
        let client = Client::from_channel(in_process_channel(service.clone()), client_options);
        Ok(Self {
            service,
            client,
            tasks,
            topology,
            coordination: store,
            session,
            log,
            stop_streams,
            stop_persister,
            support,
            _lock: lock,
        })
    }

    /// The service, to be called in this process.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// A client of the broker, without any socket.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Its gRPC services, to be served to others.
    pub fn grpc(&self) -> tonic::service::Routes {
        let journal = JournalServer::new(self.service.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        tonic::service::Routes::new(journal)
    }

    /// Its HTTP gateway, and the REST form of some RPCs.
    pub fn http(&self) -> Router {
        let rest_service = self.service.clone();
        let journals = self.service.clone();
        Router::new()
            .route(
                "/v1/{*path}",
                axum::routing::any(move |request: Request| {
                    rest::serve(rest_service.clone(), request)
                }),
            )
            .fallback(move |request: Request| gateway::serve(journals.clone(), request))
    }

    /// Resolves when the broker ended by itself, because something failed for good.
    pub async fn failed(&self) {
        let (tasks, support) = (self.tasks.token(), self.support.token());
        tokio::select! {
            biased;
            () = tasks.cancelled() => {}
            () = support.cancelled() => {}
        }
    }

    /// Ends reads and listings, so that connections can close. Appends go on.
    pub fn end_streams(&self) {
        self.stop_streams.cancel();
    }

    /// Ends the broker. What is acknowledged is on the disk already; fragments that wait for their
    /// store have some seconds to get there, and otherwise go there after the next start.
    pub async fn stop(self) -> Result<(), EmbeddedError> {
        self.stop_streams.cancel();
        self.topology.replicas.stop();
        self.tasks.cancel();
        let tasks = self.tasks.join(STOP_GRACE).await;
        self.stop_persister.cancel();
        let closed = self.session.close().await;
        self.topology.mirror.stop();
        self.support.cancel();
        let support = self.support.join(STOP_GRACE + Duration::from_secs(1)).await;
        let log = self.log;
        // It writes what was handed over, and syncs it.
        drop(tokio::task::spawn_blocking(move || log.close()).await);
        self.coordination.close().await;
        tasks?;
        support?;
        closed?;
        Ok(())
    }
}

/// How the broker announces itself.
fn member_of(options: &EmbeddedOptions) -> Result<BrokerSpec, ValidationError> {
    let (id, endpoint) = (options.id.clone(), options.endpoint.clone());
    let member = BrokerSpec {
        process_spec: ProcessSpec { id, endpoint },
        journal_limit: options.journal_limit,
        exiting: false,
    };
    member.validate()?;
    Ok(member)
}

/// The bounds of its appends.
fn limits_of(options: &EmbeddedOptions) -> Limits {
    Limits {
        min_append_rate: options.min_append_rate,
        max_append_rate: options.max_append_rate,
        ..Limits::default()
    }
}

/// What is in the data folder.
struct Data {
    lock: fs::File,
    scratch: PathBuf,
    store: Arc<gazette_coordination::Embedded>,
    log: Log,
    recovered: Vec<RecoveredJournal>,
}

impl Data {
    async fn open(options: &EmbeddedOptions) -> Result<Self, EmbeddedError> {
        let lock = lock_folder(&options.data_dir)?;
        let scratch = options.data_dir.join("tmp");
        clear_folder(&scratch)?;
        make_folder(&options.fragments_dir())?;
        let store = gazette_coordination::Embedded::open(options.data_dir.join("coordination.db"));
        let store = Arc::new(store.await?);
        let (log, recovered) = open_log(options).await?;
        Ok(Self {
            lock,
            scratch,
            store,
            log,
            recovered,
        })
    }
}

/// The broker's place in its cluster.
struct Joined {
    session: Session,
    keep_alive: KeepAlive,
    mirror: Mirror<Decoded<Brokers>>,
    watch: MirrorWatch<Decoded<Brokers>>,
}

impl Joined {
    async fn join(
        coordination: &Arc<dyn Coordination>,
        keys: &Keys,
        member: &BrokerSpec,
    ) -> Result<Self, EmbeddedError> {
        let (session, keep_alive) = Session::open(Arc::clone(coordination), EMBEDDED_TTL).await?;
        let key = keys.member(&member.process_spec.id);
        let value = member.encode_to_vec().into();
        let announced = session.announce(key, value, Duration::from_secs(1)).await?;
        let (mirror, watch) = Mirror::load(
            Arc::clone(coordination),
            keys.root().to_owned(),
            Some(announced.revision()),
            Brokers::decoder(keys.clone()),
            MirrorOptions::embedded(),
        )
        .await?;
        Ok(Self {
            session,
            keep_alive,
            mirror,
            watch,
        })
    }
}

fn pulse_of(service: &Service) -> Pulse {
    let service = service.clone();
    Box::new(move |journal| {
        let service = service.clone();
        Box::pin(async move { service.pulse(journal).await })
    })
}

fn spawn_allocator(tasks: &TaskGroup, allocator: Allocator<Brokers>) {
    let stop = tasks.token();
    tasks.spawn("allocator", async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            ended = allocator.run() => match ended {
                Ok(_exit) => Ok(()),
                Err(error) => Err(error.into()),
            },
        }
    });
}

/// Tasks that replicas and appends need until they have ended.
fn spawn_support(
    support: &TaskGroup,
    stores: &Arc<Stores>,
    watch: MirrorWatch<Decoded<Brokers>>,
    keep_alive: KeepAlive,
    log: &Log,
) {
    support.spawn("mirror of the coordination store", async move {
        watch.run().await.map_err(Into::into)
    });
    support.spawn("lease", async move {
        keep_alive.run().await.map_err(Into::into)
    });
    let (stop, stores) = (support.token(), Arc::clone(stores));
    support.spawn("health of stores", async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = stores.run(rand::random()) => {}
        }
        Ok(())
    });
    let (stop, mut failed) = (support.token(), log.failed());
    support.spawn("write-ahead log", async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            failure = failed.wait_for(Option::is_some) => match failure.as_deref() {
                Ok(Some(failure)) => Err(anyhow::anyhow!(
                    "{failure}; next: mend the disk and start again, what was acknowledged is kept"
                )),
                Ok(None) | Err(_) => Ok(()),
            },
        }
    });
}

async fn open_log(
    options: &EmbeddedOptions,
) -> Result<(Log, Vec<RecoveredJournal>), EmbeddedError> {
    let mut log_options = Options::new(
        options.data_dir.join("wal"),
        options.data_dir.join("spools"),
    );
    log_options.durability = options.durability;
    let disk = Arc::clone(&options.disk);
    #[cfg(feature = "test-util")]
    let planted = options.planted;
    let open = move || {
        #[cfg(not(feature = "test-util"))]
        return Log::open(log_options, disk);
        #[cfg(feature = "test-util")]
        return Log::open_planted(log_options, disk, planted);
    };
    let opened = tokio::task::spawn_blocking(open).await;
    Ok(opened.expect("opening a log does not panic")?)
}

/// Makes the data folder, and takes its lock for as long as the file is open.
fn lock_folder(folder: &Path) -> Result<fs::File, EmbeddedError> {
    make_folder(folder)?;
    let path = folder.join("lock");
    let failed = |cause| EmbeddedError::Folder {
        operation: "open",
        path: path.clone(),
        cause,
        next: "let this user write the data folder",
    };
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(failed)?;
    if let Err(error) = file.try_lock() {
        return Err(match error {
            fs::TryLockError::WouldBlock => EmbeddedError::InUse {
                path: folder.to_owned(),
                holder: fs::read_to_string(&path)
                    .ok()
                    .map(|pid| pid.trim().to_owned())
                    .filter(|pid| !pid.is_empty()),
            },
            fs::TryLockError::Error(cause) => failed(cause),
        });
    }
    let written = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(failed)?;
    Ok(file)
}

/// Makes a folder and its parents, which only this user may enter.
fn make_folder(path: &Path) -> Result<(), EmbeddedError> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|cause| EmbeddedError::Folder {
            operation: "make",
            path: path.to_owned(),
            cause,
            next: "let this user write its parent, or use another folder",
        })
}

/// Makes a folder of temporary files anew.
fn clear_folder(path: &Path) -> Result<(), EmbeddedError> {
    match fs::remove_dir_all(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            return Err(EmbeddedError::Folder {
                operation: "clear",
                path: path.to_owned(),
                cause,
                next: "let this user write the data folder",
            });
        }
        _ => {}
    }
    make_folder(path)
}
