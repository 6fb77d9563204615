use std::{
    collections::VecDeque,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use clap::Args;
use futures_util::stream;
use gazette_client::{AppendParams, AppendService, AppendServiceOptions, Client, Listing, Queued};
use gazette_protocol::AppendRequest;
use serde_json::json;
use tokio::{sync::watch, task::JoinSet};

use super::records::{self, Framing, FramingError, Mapping, Splitter};
use crate::{
    error,
    output::{self, ResultFormat},
    selector::{RequiredSelector, SELECTOR_HELP},
};

/// Appends an input to journals
///
/// Without framing, all of the input becomes one append to one journal, taken at random if several
/// match: all of it is in the journal, in one piece, or nothing. With a framing, each record is
/// appended for itself, in order for each journal, and several can be on their way; after an error
/// earlier records may be there, and the count of them is printed. What was acknowledged is as durable as the
/// broker promises.
///
/// With a mapping other than random, the input alternates between key records and content records.
/// A key is not appended: it decides which journal its content goes to.
///
/// An append whose outcome is unknown, as the connection was lost at the wrong moment, is an error
/// and not repeated.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{SELECTOR_HELP}"))]
pub(crate) struct Append {
    #[command(flatten)]
    selector: RequiredSelector,

    /// File with the input; `-` is standard input
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    input: PathBuf,

    /// How the input is cut into records. A last line without a newline gets one
    #[arg(short, long, value_enum, default_value = "none")]
    framing: Framing,

    /// How the journal of a record is found
    #[arg(short, long, value_enum, default_value = "random")]
    mapping: Mapping,

    /// Keys are base64, so that they can hold any byte
    #[arg(long)]
    base64: bool,

    /// Form of the output
    #[arg(short = 'o', long, value_enum, default_value = "text")]
    format: ResultFormat,
}

/// What was appended.
#[derive(Debug, Default)]
struct Tally {
    appends: u64,
    bytes: u64,
}

impl Append {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        if self.framing == Framing::None && self.mapping != Mapping::Random {
            return Err(error::usage(
                "append: a mapping needs keys, and an input without framing has none; next: add \
                 -f lines or -f fixed",
            ));
        }
        let listing = client.list(self.selector.selector.0.clone()).await?;
        if listing.journals.is_empty() {
            return Err(anyhow!(
                "append {}: no journals match the selector; next: create one with `gazctl journals \
                 apply`",
                self.selector.selector
            ));
        }
        if self.framing == Framing::None {
            return self.append_whole(client, &listing).await;
        }
        let mut tally = Tally::default();
        let result = self.append_records(client, listing, &mut tally).await;
        if self.format == ResultFormat::Json {
            let error = result.as_ref().err().map(|error| format!("{error:#}"));
            output::print_json(
                &json!({"appends": tally.appends, "bytes": tally.bytes, "error": error}),
            )?;
        }
        result.with_context(|| format!("{} records were appended before", tally.appends))
    }

    fn open(&self) -> anyhow::Result<Box<dyn io::Read + Send>> {
        if self.input.as_os_str() == "-" {
            return Ok(Box::new(io::stdin()));
        }
        let file = std::fs::File::open(&self.input)
            .with_context(|| format!("open {}", self.input.display()))?;
        Ok(Box::new(file))
    }

    /// Appends all of the input at once. It is read to its end before, as an append that waits for
    /// its content would keep all others of the journal waiting.
    async fn append_whole(&self, client: &Client, listing: &Listing) -> anyhow::Result<()> {
        let input = self.open()?;
        let whole = tokio::task::spawn_blocking(move || Whole::read(input)).await??;
        let random = rand::random_range(0..usize::MAX);
        let journal = records::map(Mapping::Random, b"", &listing.journals, random);
        let request = AppendRequest {
            journal: journal.unwrap_or_default().to_owned(),
            ..AppendRequest::default()
        };
        let response = match whole {
            Whole::Memory(content) => client.append(request, content).await?,
            Whole::File(file) => {
                let pieces = stream::unfold(file, |mut file| async move {
                    read_piece(&mut file).transpose().map(|piece| (piece, file))
                });
                client.append_stream(request, Box::pin(pieces)).await?
            }
        };
        let commit = response.commit.unwrap_or_default();
        tracing::info!(
            journal = commit.journal,
            begin = commit.begin,
            end = commit.end,
            "appended"
        );
        if self.format == ResultFormat::Json {
            output::print_json(&json!({
                "journal": commit.journal,
                "begin": commit.begin,
                "end": commit.end,
            }))?;
        }
        Ok(())
    }

    async fn append_records(
        &self,
        client: &Client,
        listing: Listing,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let service = AppendService::new(client.clone(), AppendServiceOptions::default());
        // Ends when it is dropped.
        let (journals, _following) = follow(client, self.selector.selector.0.clone(), listing);
        let mut records = Records::new(self.open()?, self.framing);
        let mut pending = VecDeque::new();
        let result = loop {
            let record = match self.next_record(&mut records, &journals).await {
                Ok(Some(record)) => record,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let (journal, content) = record;
            let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
            let queued = service
                .append(&journal, content, AppendParams::default())
                .await;
            pending.push_back((queued, bytes));
            // Failures show early, and acknowledged ones take no memory.
            while pending.len() > PENDING_MAX {
                settle(&mut pending, tally).await?;
            }
        };
        while !pending.is_empty() {
            settle(&mut pending, tally).await?;
        }
        result
    }

    /// Returns the next record and its journal.
    async fn next_record(
        &self,
        records: &mut Records,
        journals: &watch::Receiver<Arc<Listing>>,
    ) -> anyhow::Result<Option<(String, Bytes)>> {
        let mut key = Bytes::new();
        if self.mapping != Mapping::Random {
            let Some(record) = records.next().await? else {
                return Ok(None);
            };
            key = records::key_of(self.framing, &record);
            if self.base64 {
                key = decode_base64(&key)?;
            }
        }
        let Some(content) = records.next().await? else {
            if self.mapping == Mapping::Random {
                return Ok(None);
            }
            return Err(anyhow!(
                "append: the input ends after the key {:?}; next: give it a content",
                String::from_utf8_lossy(&key)
            ));
        };
        let listing = Arc::clone(&journals.borrow());
        let random = rand::random_range(0..usize::MAX);
        match records::map(self.mapping, &key, &listing.journals, random) {
            Some(journal) => Ok(Some((journal.to_owned(), content))),
            None => Err(anyhow!(
                "append: no journal matches the selector and the key {:?}; next: create it with \
                 `gazctl journals apply`",
                String::from_utf8_lossy(&key)
            )),
        }
    }
}

/// Waits for the oldest append.
async fn settle(pending: &mut VecDeque<(Queued, u64)>, tally: &mut Tally) -> anyhow::Result<()> {
    if let Some((queued, bytes)) = pending.pop_front() {
        queued.wait().await?;
        tally.appends += 1;
        tally.bytes += bytes;
    }
    Ok(())
}

/// Keeps the listing up to date while the input lasts: journals may be added meanwhile.
fn follow(
    client: &Client,
    selector: gazette_protocol::LabelSelector,
    listing: Listing,
) -> (watch::Receiver<Arc<Listing>>, JoinSet<()>) {
    let (sender, receiver) = watch::channel(Arc::new(listing));
    let mut list = client.watch(selector);
    let mut task = JoinSet::new();
    task.spawn(async move {
        loop {
            let listing = list.next().await;
            if sender.send(Arc::new(listing)).is_err() {
                return;
            }
        }
    });
    (receiver, task)
}

/// The records of an input that is read by a thread.
struct Records {
    splitter: Splitter,
    pieces: tokio::sync::mpsc::Receiver<io::Result<Bytes>>,
    ended: bool,
}

impl Records {
    fn new(mut input: Box<dyn io::Read + Send>, framing: Framing) -> Self {
        let (sender, pieces) = tokio::sync::mpsc::channel(2);
        // It ends with the input, or when nobody wants the next piece.
        drop(tokio::task::spawn_blocking(move || {
            while let Some(piece) = read_piece(&mut input).transpose() {
                let failed = piece.is_err();
                if sender.blocking_send(piece).is_err() || failed {
                    return;
                }
            }
        }));
        Self {
            splitter: Splitter::new(framing),
            pieces,
            ended: false,
        }
    }

    async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        let bad = |error: FramingError| anyhow!("append: {error}; next: check --framing");
        loop {
            if self.ended {
                return self.splitter.finish().map_err(bad);
            }
            if let Some(record) = self.splitter.next().map_err(bad)? {
                return Ok(Some(record));
            }
            match self.pieces.recv().await {
                Some(piece) => self.splitter.push(&piece.context("read input")?),
                None => self.ended = true,
            }
        }
    }
}

/// A whole input, in memory if it is small.
enum Whole {
    Memory(Bytes),
    File(std::fs::File),
}

impl Whole {
    fn read(mut input: Box<dyn io::Read + Send>) -> anyhow::Result<Self> {
        let mut memory = Vec::new();
        let limit = u64::try_from(MEMORY_MAX_BYTES).unwrap_or(u64::MAX);
        input
            .by_ref()
            .take(limit + 1)
            .read_to_end(&mut memory)
            .context("read input")?;
        if memory.len() <= MEMORY_MAX_BYTES {
            return Ok(Self::Memory(memory.into()));
        }
        let mut file = tempfile::tempfile().context("create a temporary file for the input")?;
        file.write_all(&memory).context("write temporary file")?;
        io::copy(&mut input, &mut file).context("copy the input to a temporary file")?;
        file.seek(SeekFrom::Start(0))
            .context("seek in temporary file")?;
        Ok(Self::File(file))
    }
}

/// Reads a piece, or `None` at the end.
fn read_piece(input: &mut impl io::Read) -> io::Result<Option<Bytes>> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match input.read(&mut piece) {
            Ok(0) => return Ok(None),
            Ok(count) => {
                piece.truncate(count);
                return Ok(Some(piece.into()));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Decodes base64 of the standard alphabet with padding.
fn decode_base64(text: &[u8]) -> anyhow::Result<Bytes> {
    let bad = || {
        let key = String::from_utf8_lossy(text);
        anyhow!("append: the key {key:?} is not base64; next: encode it, or leave --base64 out")
    };
    if !text.len().is_multiple_of(4) {
        return Err(bad());
    }
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return Err(bad());
    }
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3);
    let digits = &text[..text.len() - padding];
    for group in digits.chunks(4) {
        let mut bits: u32 = 0;
        for byte in group {
            let digit = BASE64
                .iter()
                .position(|digit| digit == byte)
                .ok_or_else(bad)?;
            bits = bits << 6 | u32::try_from(digit)?;
        }
        bits <<= 6 * (4 - u32::try_from(group.len())?);
        decoded.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Ok(decoded.into())
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// An input without framing is held in memory up to this length.
const MEMORY_MAX_BYTES: usize = 4 << 20;

/// Bytes that are read of an input at a time.
const PIECE_BYTES: usize = 128 << 10;

/// Records that may be on their way. Their bytes are bounded by the service.
const PENDING_MAX: usize = 4096;

const EXAMPLES: &str = "\
Examples:
  echo hello | gazctl journals append -l name=app/log          one append
  tail -F /var/log/app.log | gazctl journals append -l name=app/log -f lines
                                                               a line at a time
  printf 'user-7\\nsigned in\\n' |
    gazctl journals append -l prefix=events/ -f lines -m modulo
                                                               all of user-7 into one journal";

#[cfg(test)]
mod tests;
