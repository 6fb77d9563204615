//! `gazfs up`

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use gazette_broker::Durability;
use gazette_client::Client;
use gazette_process::{ExitStatus, ListenAddress, signals};

use super::{
    embedded,
    options::JournalArgs,
    progress::Meter,
    record::show_start,
    recording_args::{TuningArgs, access},
    say, say_error,
    transport::{self, TransportArgs},
};
use crate::{
    fuse::Chosen,
    journals::{Ino, JournalFs},
    mount::{Control, Mounted, check, mount},
    recording::{Recording, RecordingError},
};

mod serve;

use serve::House;

#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// Folder for all of it: DIR/journals shows the journals, DIR/data is a recorded directory
    /// whose log is the journal recovery/data, DIR/broker is the broker's, DIR/work holds the
    /// backing files, and DIR/gazfs.sock is where gazctl and other mounts of this user reach it
    dir: PathBuf,

    /// Let other machines in, too, without any authentication: `port`, or `host:port` of one
    /// interface
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<ListenAddress>,

    /// What an acknowledged append survives: `durable` also a power cut, as it is synced;
    /// `replicated` only kill -9
    #[arg(long, value_name = "LEVEL", default_value = "durable")]
    durability: DurabilityArg,

    #[command(flatten)]
    journals: JournalArgs,

    #[command(flatten)]
    transport: TransportArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DurabilityArg {
    Durable,
    Replicated,
}

/// Where things are.
#[derive(Debug)]
struct Places {
    broker: PathBuf,
    socket: PathBuf,
    journals: PathBuf,
    data: PathBuf,
    work: PathBuf,
}

impl Places {
    fn of(dir: &Path) -> Self {
        Self {
            broker: dir.join("broker"),
            socket: dir.join("gazfs.sock"),
            journals: dir.join("journals"),
            data: dir.join("data"),
            work: dir.join("work"),
        }
    }
}

pub(super) async fn run(args: UpArgs) -> anyhow::Result<ExitStatus> {
    let shutdown = signals::shutdown_token().context("watch for signals")?;
    make_folder(&args.dir)?;
    let dir = fs::canonicalize(&args.dir).context("find the folder")?;
    let places = Places::of(&dir);
    for folder in [&places.broker, &places.journals, &places.data] {
        make_folder(folder)?;
    }
    // Before anything is started, as most mistakes show here.
    check(&places.journals, Some(&places.broker))?;
    check(&places.data, Some(&places.work))?;
    let durability = match args.durability {
        DurabilityArg::Durable => Durability::Durable,
        DurabilityArg::Replicated => Durability::Replicated,
    };
    let (client, broker) = embedded::start(
        &places.broker,
        places.socket.clone(),
        args.listen.as_ref(),
        durability,
        args.journals.client_options(),
    )
    .await?;
    let ended = match House::open(&args, &places, client, &shutdown).await {
        Ok(house) => {
            say(&announcement(&args, &places, house.data.transport()));
            Ok(house.serve(&broker, &shutdown).await)
        }
        Err(error) => Err(error),
    };
    let stopped = tokio::time::timeout(STOP_TIMEOUT, broker.stop()).await;
    let ended = match ended {
        Err(error) if may_succeed_later(&error) => {
            say_error(&format!("error: {error:#}"));
            return Ok(ExitStatus::TryLater);
        }
        ended => ended?,
    };
    let Ok(stopped) = stopped else {
        anyhow::bail!(
            "end broker: it takes longer than {} s, so it is cut off; next: nothing, what was \
             acknowledged is on the disk",
            STOP_TIMEOUT.as_secs()
        );
    };
    stopped?;
    // Whoever waits in gazfs umount may start another one now.
    Ok(ended.release())
}

fn may_succeed_later(error: &anyhow::Error) -> bool {
    let recording = error.downcast_ref::<RecordingError>();
    recording.is_some_and(RecordingError::is_temporary)
}

impl House {
    async fn open(
        args: &UpArgs,
        places: &Places,
        client: Client,
        shutdown: &tokio_util::sync::CancellationToken,
    ) -> anyhow::Result<Self> {
        let options = args.journals.options(Some(places.broker.clone()))?;
        let fs = JournalFs::start(client.clone(), options).await?;
        // Something to write into: a shell makes files, but no folders. It may be there.
        let _there = fs.make_directory(Ino::ROOT, b"app");
        let recording = TuningArgs::default().options(LOG, &places.data, places.work.clone())?;
        let meter = Meter::new();
        let show = meter.clone();
        let recording = Recording::start(&client, recording, shutdown, move |progress| {
            show_start(&show, progress);
        });
        let recording = recording.await;
        meter.clear();
        let recording = recording?;
        let control = Control::listen().context("listen for gazfs umount")?;
        let how = args.transport.options(access());
        let mounted = mount_both(&fs, &recording, args, places);
        let (journals, data) = match mounted {
            Ok(mounted) => mounted,
            Err(error) => {
                recording.end().await;
                return Err(error);
            }
        };
        Ok(Self {
            fs,
            journals,
            recording,
            data,
            control,
            how,
            log_disk: places.broker.clone(),
        })
    }
}

fn mount_both(
    fs: &JournalFs,
    recording: &Recording,
    args: &UpArgs,
    places: &Places,
) -> anyhow::Result<(Mounted, Mounted)> {
    let journals = mount(
        fs,
        &places.journals,
        Some(&places.broker),
        args.transport.options(args.journals.access()),
    )?;
    let data = recording.mount(args.transport.options(access()))?;
    Ok((journals, data))
}

fn announcement(args: &UpArgs, places: &Places, transport: &Chosen) -> String {
    let journals = places.journals.display();
    let promise = args.journals.promise();
    let durability = match args.durability {
        DurabilityArg::Durable => format!(
            "durable: {promise}, and in data an fsync(2) that returned, is on the disk, and \
             survives kill -9 and a power cut"
        ),
        DurabilityArg::Replicated => format!(
            "replicated, by this one broker: {promise}, and in data an fsync(2) that returned, \
             survives kill -9, but NOT a power cut"
        ),
    };
    let listen = args
        .listen
        .as_ref()
        .map(|at| format!(", and {at} for anybody"));
    format!(
        "journals at {journals}\n\
         recorded directory at {data}, its log is {LOG}\n\
         durability: {durability}\n\
         {transport}\
         broker at unix://{socket}{}\n\
         end it with Ctrl-C, or: gazfs umount {journals}\n\
         \n\
         try:\n\
         \x20 echo hello >> {journals}/app/log\n\
         \x20 tail -f {journals}/app/log\n\
         \x20 gazfs recover --log {LOG} --to /tmp/copy --broker unix://{socket}\n\
         \x20 gazctl journals list --broker.address unix://{socket}\n",
        listen.unwrap_or_default(),
        transport = transport::announcement(transport),
        data = places.data.display(),
        socket = places.socket.display(),
    )
}

/// Makes a folder, unless something has its name already: a dead mount cannot be looked at.
fn make_folder(path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path).with_context(|| format!("make the folder {}", path.display()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Log of the recorded directory.
const LOG: &str = "recovery/data";

/// How long the broker may take to end: it has some seconds for uploads and for each of its parts.
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
