//! The journal of the notices.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gazette_client::{AppendError, Client, ClientError, ReadEvent, RetryOptions};
use gazette_protocol::{
    AppendRequest, ApplyRequest, JournalSpec, ReadRequest, apply_request, labels,
};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

use super::{Lines, Notice};

/// Content type of these journals.
pub const CONTENT_TYPE_NOTICES: &str = "application/x-gazfs-recoverylog-notices";

/// What the name of a log's notices ends in.
const SUFFIX: &str = ".standby";

/// Returns the name of the journal that holds the notices about a log.
pub fn notices_journal(log: &str) -> String {
    format!("{log}{SUFFIX}")
}

/// Why nothing could be said or heard.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoticesError {
    /// The broker did not take it.
    #[error("say something about {log}: {cause}")]
    Append {
        /// The log.
        log: String,
        /// Why.
        cause: Box<AppendError>,
    },
    /// The journal cannot be made or looked at.
    #[error("look for who is there for {log}: {cause}")]
    Client {
        /// The log.
        log: String,
        /// Why.
        cause: Box<ClientError>,
    },
    /// The broker takes too long.
    #[error("say something about {log}: no answer within {} s; next: look after the broker", .within.as_secs())]
    TimedOut {
        /// The log.
        log: String,
        /// How long it was waited for.
        within: Duration,
    },
}

/// Makes the journal, if it is not there, as `template` says.
pub async fn make_notices(
    client: &Client,
    log: &str,
    template: &JournalSpec,
) -> Result<(), NoticesError> {
    let fail = |cause: ClientError| NoticesError::Client {
        log: log.to_owned(),
        cause: Box::new(cause),
    };
    let name = notices_journal(log);
    for attempt in 0..RACES_MAX {
        if client.get_journal(&name).await.map_err(fail)?.is_some() {
            return Ok(());
        }
        let mut spec = template.clone();
        spec.name.clone_from(&name);
        spec.suspend = None;
        spec.labels
            .set_value(labels::CONTENT_TYPE, CONTENT_TYPE_NOTICES);
        let change = apply_request::Change {
            upsert: Some(spec),
            ..apply_request::Change::default()
        };
        let changes = vec![change];
        match client.apply(ApplyRequest { changes }).await {
            Ok(_) => return Ok(()),
            // Somebody else may have made it.
            Err(_) if attempt + 1 < RACES_MAX => {}
            Err(error) => return Err(fail(error)),
        }
    }
    Ok(())
}

/// Says and hears notices about one log. Clones are the same.
#[derive(Debug, Clone)]
pub struct Notices {
    client: Client,
    log: Arc<str>,
    journal: Arc<str>,
}

/// A notice, and whether it was there before whoever hears it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noticed {
    /// What was said.
    pub notice: Notice,
    /// It is not news.
    pub is_old: bool,
}

/// What is heard. Nothing is heard any more when it is dropped.
#[derive(Debug)]
pub struct Told {
    noticed: mpsc::Receiver<Noticed>,
    task: JoinHandle<()>,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Told {
    /// Waits for the next one. Nobody is lost if this is not waited for to its end.
    pub async fn next(&mut self) -> Noticed {
        match self.noticed.recv().await {
            Some(noticed) => noticed,
            // The runtime ends.
            None => std::future::pending().await,
        }
    }
}

impl Notices {
    /// Returns those about a log.
    pub fn new(client: Client, log: &str) -> Self {
        Self {
            client,
            log: log.into(),
            journal: notices_journal(log).into(),
        }
    }

    /// Says something. When it returns, everybody will hear it.
    pub async fn say(&self, notice: &Notice) -> Result<(), NoticesError> {
        let Ok(line) = notice.encode() else {
            return Ok(());
        };
        let request = AppendRequest {
            journal: self.journal.to_string(),
            ..AppendRequest::default()
        };
        let said = self.client.append(request, Bytes::from(line));
        match timeout(SAY_WITHIN, said).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(cause)) => Err(NoticesError::Append {
                log: self.log.to_string(),
                cause: Box::new(cause),
            }),
            Err(_) => Err(NoticesError::TimedOut {
                log: self.log.to_string(),
                within: SAY_WITHIN,
            }),
        }
    }

    /// Begins to hear, with what was said of late. Must be called in a tokio runtime.
    pub async fn hear(&self) -> Result<Told, NoticesError> {
        let head = self.client.read_head(&self.journal).await;
        let head = head.map_err(|cause| NoticesError::Client {
            log: self.log.to_string(),
            cause: Box::new(cause),
        })?;
        let (send, noticed) = mpsc::channel(NOTICES_MAX);
        let hearing = self.clone();
        let task = tokio::spawn(async move { hearing.follow(head.write_head, send).await });
        Ok(Told { noticed, task })
    }

    /// Returns what was said of late.
    pub async fn recent(&self) -> Result<Vec<Notice>, NoticesError> {
        let fail = |cause| NoticesError::Client {
            log: self.log.to_string(),
            cause: Box::new(cause),
        };
        let head = self.client.read_head(&self.journal).await.map_err(fail)?;
        let (begin, end) = (recent_begin(head.write_head), head.write_head);
        let mut found = Vec::new();
        if begin == end {
            return Ok(found);
        }
        let request = ReadRequest {
            end_offset: end,
            ..self.request(begin)
        };
        let options = RetryOptions {
            give_up_after: Some(SAY_WITHIN),
        };
        let mut reader = self.client.retry_reader_with(request, options);
        let mut lines = Lines::new(begin > 0);
        // What cannot be read any more is not recent.
        while let Ok(Ok(Some(event))) = timeout(SAY_WITHIN, reader.next()).await {
            if let ReadEvent::Content { bytes, .. } = event {
                found.extend(lines.feed(&bytes));
            }
        }
        Ok(found)
    }

    fn request(&self, offset: i64) -> ReadRequest {
        ReadRequest {
            journal: self.journal.to_string(),
            offset,
            block: true,
            ..ReadRequest::default()
        }
    }

    async fn follow(&self, head: i64, send: mpsc::Sender<Noticed>) {
        let begin = recent_begin(head);
        let request = self.request(begin);
        let options = RetryOptions::default();
        let mut lines = Lines::new(begin > 0);
        let mut reader = self.client.retry_reader_with(request, options);
        loop {
            match reader.next().await {
                Ok(Some(ReadEvent::Content { offset, bytes })) => {
                    let before = usize::try_from(head.saturating_sub(offset)).unwrap_or(0);
                    let (old, new) = bytes.split_at(before.min(bytes.len()));
                    for (is_old, bytes) in [(true, old), (false, new)] {
                        for notice in lines.feed(bytes) {
                            if send.send(Noticed { notice, is_old }).await.is_err() {
                                return;
                            }
                        }
                    }
                }
                Ok(Some(ReadEvent::Metadata(_))) => {}
                Ok(Some(ReadEvent::Jump { .. })) => lines = Lines::new(true),
                ended @ (Ok(None) | Err(_)) => {
                    tracing::warn!(journal = %self.journal, ?ended, "notices are not heard for a moment");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    lines = Lines::new(true);
                    let offset = self.client.read_head(&self.journal).await;
                    let offset = offset.map_or(begin, |head| head.write_head);
                    reader = self.client.retry_reader_with(self.request(offset), options);
                }
            }
        }
    }
}

/// Where what was said of late begins.
fn recent_begin(head: i64) -> i64 {
    head.saturating_sub(RECENT_BYTES).max(0)
}

/// How often somebody else may be quicker.
const RACES_MAX: u32 = 5;
/// What is read of what was said before.
const RECENT_BYTES: i64 = 64 << 10;
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
const SAY_WITHIN: Duration = Duration::from_secs(5);
/// How many may wait to be heard.
const NOTICES_MAX: usize = 256;
