use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

use anyhow::Context as _;
use clap::Args;
use gazette_client::{Client, Listing};
use gazette_process::signals;
use gazette_protocol::ReadRequest;
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;

use self::{
    offsets::Offsets,
    pump::{Ended, Pump},
    sink::Sink,
};
use super::is_fully_suspended;
use crate::{
    cli::Dialer,
    selector::{RequiredSelector, SELECTOR_HELP},
};

mod offsets;
mod pump;
mod sink;

/// Reads journals to standard output or a file
///
/// Reads each journal from its beginning, or where --offsets or --tail say, and ends when all were
/// read to their ends. With --block it goes on: new content is written as it comes, and journals
/// that are created later and match are read from their beginning; SIGINT and SIGTERM end it
/// well. A reader that closes the pipe (`| head`) ends it well, too.
///
/// Content of several journals is interleaved at the borders of appends, as they are read, except
/// that journals whose fragments are in a store are read a fragment at a time. A journal that is
/// suspended without any broker is left out. Content that is missing, as it was pruned, is skipped
/// with a warning.
///
/// Without --block, a broker that does not answer is tried for a minute. With it, for ever.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{SELECTOR_HELP}"))]
pub(crate) struct Read {
    #[command(flatten)]
    selector: RequiredSelector,

    /// Wait for content that is yet to be appended
    #[arg(short, long)]
    block: bool,

    /// Begin at the ends of the journals, instead of at their beginnings. What is appended after the
    /// broker has told the end is read, also if the connection was lost in between
    #[arg(long)]
    tail: bool,

    /// File to write to, anew; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// File with offsets to begin at, as --offsets-out writes it: a JSON object of names and offsets
    #[arg(long, value_name = "FILE")]
    offsets: Option<PathBuf>,

    /// File to write offsets to at the end, to go on from there. If it is the file of --offsets, that
    /// is kept with the suffix `.previous`
    #[arg(long, value_name = "FILE")]
    offsets_out: Option<PathBuf>,

    /// Folder in which the files of `file://` stores are. Fragments are then read from there, instead
    /// of through a broker
    #[arg(long, value_name = "FOLDER")]
    file_root: Option<PathBuf>,

    /// Skip fragments that were persisted before this Unix second
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    from: i64,
}

impl Read {
    pub(crate) async fn run(self, dialer: &Dialer) -> anyhow::Result<()> {
        let client = dialer.client_with_files(self.file_root.clone())?;
        let given = match &self.offsets {
            Some(path) => Offsets::load(path)?,
            None => Offsets::default(),
        };
        let listing = self.selector.list(&client).await?;
        let stop = signals::shutdown_token().context("install signal handlers")?;
        let sink = Sink::start(self.open_output()?, given.clone());
        let mut reading = Reading {
            do_not_proxy: dialer.goes_direct() || self.file_root.is_some(),
            args: &self,
            client,
            given,
            sink,
            stop,
            started: BTreeMap::new(),
            pumps: JoinSet::new(),
            turns: Arc::new(Semaphore::new(CONCURRENT_MAX)),
        };
        let result = reading.run(listing).await;
        let offsets = reading.finish().await;
        if let (Ok(offsets), Some(path)) = (&offsets, &self.offsets_out) {
            offsets.store(path, self.offsets.as_deref() == Some(path))?;
        }
        result?;
        offsets.map(drop)
    }

    fn open_output(&self) -> anyhow::Result<Box<dyn Write + Send>> {
        if self.output.as_os_str() == "-" {
            return Ok(Box::new(io::stdout()));
        }
        let file = File::create(&self.output)
            .with_context(|| format!("create {}", self.output.display()))?;
        Ok(Box::new(file))
    }
}

/// The journals that are being read.
struct Reading<'a> {
    args: &'a Read,
    client: Client,
    do_not_proxy: bool,
    given: Offsets,
    sink: Sink,
    stop: CancellationToken,
    /// Journals that were begun, with the revisions at which they were created: one that is deleted
    /// and created again is another one.
    started: BTreeMap<String, i64>,
    pumps: JoinSet<anyhow::Result<Ended>>,
    /// Bounds the journals that are read at a time, if each of them will end.
    turns: Arc<Semaphore>,
}

impl Reading<'_> {
    async fn run(&mut self, listing: Listing) -> anyhow::Result<()> {
        self.start(listing, self.args.tail);
        let mut watch = self.client.watch(self.args.selector.selector.0.clone());
        loop {
            if self.pumps.is_empty() && !self.args.block {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                Some(ended) = self.pumps.join_next() => {
                    if ended?? == Ended::OutputClosed {
                        // Its error is told when the sink is finished.
                        return Ok(());
                    }
                }
                listing = watch.next(), if self.args.block => self.start(listing, false),
            }
        }
    }

    /// Begins to read the journals that were not begun yet.
    fn start(&mut self, listing: Listing, tail: bool) {
        for journal in listing.journals {
            let name = journal.spec.name.clone();
            // One that wakes is begun then.
            if is_fully_suspended(&journal.spec) && !self.started.contains_key(&name) {
                tracing::info!(journal = name, "fully suspended; left out");
                continue;
            }
            let before = self.started.insert(name.clone(), journal.create_revision);
            if before == Some(journal.create_revision) {
                continue;
            }
            let offset = match self.given.get(&name) {
                Some(offset) if before.is_none() => offset,
                Some(_) | None if tail => -1,
                Some(_) | None => 0,
            };
            let request = ReadRequest {
                journal: name,
                offset,
                block: self.args.block,
                do_not_proxy: self.do_not_proxy,
                begin_mod_time: self.args.from,
                ..ReadRequest::default()
            };
            let pump = Pump::new(&self.client, request, &self.sink);
            let turns = (!self.args.block).then(|| Arc::clone(&self.turns));
            self.pumps.spawn(async move {
                let _turn = match &turns {
                    Some(turns) => Some(turns.acquire().await?),
                    None => None,
                };
                pump.run().await
            });
        }
    }

    /// Waits until all that was read is written, and returns how far that is.
    async fn finish(mut self) -> anyhow::Result<Offsets> {
        self.pumps.shutdown().await;
        self.sink.finish().await
    }
}

/// Journals that are read at a time, if there is an end to each.
const CONCURRENT_MAX: usize = 32;

const EXAMPLES: &str = "\
Examples:
  gazctl journals read -l name=app/log                 all of it
  gazctl journals read -l name=app/log -b --tail       what comes from now on
  gazctl journals read -l prefix=app/ -o all.log --offsets-out at.json
                                                       all journals below app/, and later
  gazctl journals read -l prefix=app/ --offsets at.json --offsets-out at.json
                                                       what has come since";
