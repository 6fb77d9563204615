//! `gazfs up`

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use gazette_broker::Durability;
use gazette_process::{ExitStatus, ListenAddress, signals};

use super::{
    embedded::{self, Broker},
    options::JournalArgs,
    say,
    serve::{Ended, serve},
};
use crate::{
    journals::{Ino, JournalFs},
    mount::{Control, Mounted, check, mount},
};

#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// Folder for all of it: DIR/broker is the broker's, DIR/journals shows the journals, and
    /// DIR/gazfs.sock is where gazctl and other mounts of this user reach it
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
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DurabilityArg {
    Durable,
    Replicated,
}

pub(super) async fn run(args: UpArgs) -> anyhow::Result<ExitStatus> {
    let shutdown = signals::shutdown_token().context("watch for signals")?;
    make_folder(&args.dir)?;
    let dir = fs::canonicalize(&args.dir).context("find the folder")?;
    let (data, point) = (dir.join("broker"), dir.join("journals"));
    make_folder(&data)?;
    make_folder(&point)?;
    // Before anything is started, as most mistakes show here.
    check(&point, Some(&data))?;
    let options = args.journals.options(Some(data.clone()))?;
    let durability = match args.durability {
        DurabilityArg::Durable => Durability::Durable,
        DurabilityArg::Replicated => Durability::Replicated,
    };
    let socket = dir.join("gazfs.sock");
    let client = args.journals.client_options();
    let listen = args.listen.as_ref();
    let (client, broker) =
        embedded::start(&data, socket.clone(), listen, durability, client).await?;
    let show = async {
        let fs = JournalFs::start(client, options).await?;
        if fs.is_empty() {
            // Something to write into: a shell makes files, but no folders.
            fs.make_directory(Ino::ROOT, b"app")?;
        }
        let control = Control::listen().context("listen for gazfs umount")?;
        let mounted = mount(&fs, &point, Some(&data), args.journals.access())?;
        anyhow::Ok((fs, control, mounted))
    };
    let shown = show.await;
    let ended = match shown {
        Ok((fs, control, mounted)) => {
            announce(&args, &socket, &mounted);
            Ok(serve_with(&broker, &fs, mounted, control, shutdown).await)
        }
        Err(error) => Err(error),
    };
    let stopped = tokio::time::timeout(STOP_TIMEOUT, broker.stop()).await;
    let ended = ended?;
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

/// Serves until the mount ends, somebody asks for it, or the broker fails for good.
async fn serve_with(
    broker: &Broker,
    fs: &JournalFs,
    mounted: Mounted,
    control: Control,
    shutdown: tokio_util::sync::CancellationToken,
) -> Ended {
    let stop = shutdown.child_token();
    let failed = async {
        broker.failed().await;
        stop.cancel();
        std::future::pending::<Ended>().await
    };
    tokio::select! {
        biased;
        ended = serve(fs, mounted, control, stop.clone()) => ended,
        ended = failed => ended,
    }
}

fn announce(args: &UpArgs, socket: &Path, mounted: &Mounted) {
    let point = mounted.point().display();
    let promise = args.journals.promise();
    let durability = match args.durability {
        DurabilityArg::Durable => {
            format!("durable: {promise} is on the disk, and survives kill -9 and a power cut")
        }
        DurabilityArg::Replicated => format!(
            "replicated, by this one broker: {promise} survives kill -9, but NOT a power cut"
        ),
    };
    let listen = args
        .listen
        .as_ref()
        .map(|at| format!(", and {at} for anybody"));
    say(&format!(
        "journals at {point}\n\
         durability: {durability}\n\
         broker at unix://{socket}{}\n\
         end it with Ctrl-C, or: gazfs umount {point}\n\
         \n\
         try:\n\
         \x20 echo hello >> {point}/app/log\n\
         \x20 tail -f {point}/app/log\n\
         \x20 gazctl journals list --broker.address unix://{socket}\n",
        listen.unwrap_or_default(),
        socket = socket.display(),
    ));
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

/// How long the broker may take to end: it has some seconds for uploads and for each of its parts.
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
