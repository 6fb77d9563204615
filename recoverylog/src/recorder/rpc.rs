//! The calls of a recorder: one try each, in bounded time. What comes of it is the machine's business.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gazette_client::{
    AppendError, Client, ErrorKind, Outcome as Done, ReadError, ReadEvent, RetryOptions,
};
use gazette_protocol::{AppendRequest, AppendResponse, ReadRequest, Status};
use gazette_recoverylog_fsm::Author;
use gazette_recoverylog_fsm::{Event, OpReader};
use tokio::time::timeout;

use super::machine::{Check, Found, Outcome, Register, Seen};
use crate::claim::{author_value, owned_by, ownership, register_of, registers_of};

/// The content of a batch that was sent, in pieces.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) pieces: Arc<[Bytes]>,
    pub(super) length: i64,
}

/// What calls are made with.
#[derive(Debug, Clone)]
pub(super) struct Rpcs {
    pub(super) client: Client,
    pub(super) log: Arc<str>,
    pub(super) author: Author,
    /// Value of the author register before we claim the log.
    pub(super) before: Option<String>,
    /// Longest wait for an answer, besides the time that content takes.
    pub(super) patience: Duration,
    /// Appends without asking whose the log is, and where it ends: only to see tests fail.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) skips_checks: bool,
}

/// Bytes per second that content is read with at least, and sent with in the end; a broker gives up below
/// it too.
const RATE_MIN: u64 = 64 << 10;
/// Bytes per second that content is expected to be sent with, until it was not.
const RATE_EXPECTED: u64 = 1 << 20;
/// Bytes that are read to find out who wrote at an offset.
const PEEK_BYTES: i64 = 64 << 10;

impl Rpcs {
    /// Appends a batch, whose answer was lost that many times before.
    pub(super) async fn append(
        &self,
        offset: i64,
        check: Check,
        lost: u32,
        content: &Content,
    ) -> Outcome {
        let own = author_value(self.author);
        let check_registers = match check {
            Check::Claim => owned_by(self.before.as_deref()),
            Check::Own | Check::Reassert => owned_by(Some(&own)),
        };
        let request = AppendRequest {
            journal: self.log.to_string(),
            offset,
            check_registers: Some(check_registers),
            union_registers: (check != Check::Own).then(|| registers_of(self.author)),
            ..AppendRequest::default()
        };
        let length = content.length.max(0).cast_unsigned();
        let patience = self.patience + time_to_send(length, lost);
        self.call(request, offset, content, patience).await
    }

    /// Appends nothing, which fails if the log is no longer ours.
    pub(super) async fn probe(&self, offset: i64) -> Outcome {
        let request = AppendRequest {
            journal: self.log.to_string(),
            offset,
            check_registers: Some(owned_by(Some(&author_value(self.author)))),
            ..AppendRequest::default()
        };
        let nothing = Content {
            pieces: Arc::new([]),
            length: 0,
        };
        self.call(request, offset, &nothing, self.patience).await
    }

    /// Asks where the log ends. By a read, as an empty append costs the broker a sync of its disk; by an
    /// append only where it cannot be read, such as when it is suspended.
    pub(super) async fn look(&self) -> Result<Seen, Arc<str>> {
        let look = async {
            match self.client.read_head(&self.log).await {
                Ok(head) => Ok(Seen {
                    head: head.write_head,
                    // There is no other replica, so this is the one that takes appends.
                    is_exact: head.header.route.members.len() == 1,
                }),
                Err(_) => ownership(&self.client, &self.log).await.map(|owner| Seen {
                    head: owner.head,
                    is_exact: true,
                }),
            }
        };
        match timeout(self.patience, look).await {
            Ok(head) => head.map_err(|error| error.to_string().into()),
            Err(_) => Err(unanswered(self.patience)),
        }
    }

    async fn call(
        &self,
        request: AppendRequest,
        offset: i64,
        content: &Content,
        patience: Duration,
    ) -> Outcome {
        #[cfg(any(test, feature = "test-util"))]
        let request = if self.skips_checks {
            AppendRequest {
                offset: 0,
                check_registers: None,
                ..request
            }
        } else {
            request
        };
        let answer = timeout(patience, self.send(request, content)).await;
        let answer = match answer {
            Err(_) => {
                let error = unanswered(patience);
                return Outcome::Unknown { error };
            }
            Ok(Err(error)) => return failed(&error),
            Ok(Ok(response)) => response,
        };
        let commit = answer.commit.unwrap_or_default();
        if commit.end.checked_sub(commit.begin) != Some(content.length) {
            return Outcome::Unknown {
                error: "the broker's answer is about another length than was sent".into(),
            };
        }
        #[cfg(any(test, feature = "test-util"))]
        if self.skips_checks {
            return Outcome::Landed {
                begin: offset,
                end: offset + content.length,
                register: Register::Author(self.author),
            };
        }
        // Nothing lands nowhere: the broker says where the log ends.
        let begin = commit.begin;
        let is_empty_elsewhere = content.length == 0 && begin != offset;
        if is_empty_elsewhere {
            return Outcome::WrongOffset;
        }
        Outcome::Landed {
            begin,
            end: commit.end,
            register: register_of(answer.registers.as_ref()),
        }
    }

    async fn send(
        &self,
        request: AppendRequest,
        content: &Content,
    ) -> Result<AppendResponse, AppendError> {
        let mut appender = self.client.appender(request);
        for piece in &*content.pieces {
            appender.write(piece.clone()).await?;
        }
        appender.commit().await
    }

    /// Finds out what the log has at an offset, where `sent` was to be.
    pub(super) async fn read_back(&self, offset: i64, sent: Option<&Content>) -> Found {
        let length = sent.map_or(0, |sent| sent.length.max(0).cast_unsigned());
        let patience = self.patience * 2 + Duration::from_secs(length / RATE_MIN);
        let found = timeout(patience, self.find(offset, sent)).await;
        found.unwrap_or_else(|_| Found::Failed {
            error: unanswered(patience),
        })
    }

    async fn find(&self, offset: i64, sent: Option<&Content>) -> Found {
        // After it, everything that the primary was busy with is done.
        let patience = self.patience * 2;
        let owner = match timeout(patience, ownership(&self.client, &self.log)).await {
            Ok(Ok(owner)) => owner,
            Ok(Err(error)) => return failed_to_find(&error.to_string()),
            Err(_) => return failed_to_find(&unanswered(patience)),
        };
        if owner.head < offset {
            return Found::Shorter { head: owner.head };
        }
        if owner.head == offset {
            return Found::Nothing;
        }
        if let Some(sent) = sent {
            let end = offset.saturating_add(sent.length);
            match self.is_there(offset, end.min(owner.head), sent).await {
                Ok(true) if owner.head >= end => return Found::Own { end },
                Ok(_) => {}
                Err(error) => return failed_to_find(&error.to_string()),
            }
        }
        let successor = match owner.register {
            Register::Author(author) if author != self.author => Some(author),
            Register::Author(_) | Register::Empty | Register::Unknown => None,
        };
        if successor.is_some() {
            return Found::Other { author: successor };
        }
        match self.peek(offset, owner.head).await {
            Ok(author) => Found::Other { author },
            Err(error) => failed_to_find(&error.to_string()),
        }
    }

    fn reader(&self, offset: i64, end: i64) -> gazette_client::RetryReader {
        let request = ReadRequest {
            journal: self.log.to_string(),
            offset,
            end_offset: end,
            block: true,
            ..ReadRequest::default()
        };
        let options = RetryOptions {
            give_up_after: Some(self.patience),
        };
        self.client.retry_reader_with(request, options)
    }

    /// Whether the log has what was sent in `[offset, end)`.
    async fn is_there(&self, offset: i64, end: i64, sent: &Content) -> Result<bool, ReadError> {
        let mut reader = self.reader(offset, end);
        let mut pieces = sent.pieces.iter();
        let mut rest: &[u8] = &[];
        let mut at = offset;
        while at < end {
            match reader.next().await? {
                Some(ReadEvent::Content { bytes, .. }) => {
                    let mut there = &bytes[..];
                    at = at.saturating_add_unsigned(there.len() as u64);
                    while !there.is_empty() {
                        if rest.is_empty() {
                            let Some(piece) = pieces.next() else {
                                return Ok(false);
                            };
                            rest = piece;
                        }
                        let count = rest.len().min(there.len());
                        if rest[..count] != there[..count] {
                            return Ok(false);
                        }
                        (rest, there) = (&rest[count..], &there[count..]);
                    }
                }
                Some(ReadEvent::Metadata(_)) => {}
                Some(ReadEvent::Jump { .. }) | None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Returns the first author other than us that wrote after an offset.
    async fn peek(&self, offset: i64, head: i64) -> Result<Option<Author>, ReadError> {
        let end = head.min(offset.saturating_add(PEEK_BYTES));
        let mut reader = self.reader(offset, end);
        let mut ops = OpReader::new(offset);
        loop {
            match ops.next_event() {
                Event::Op(decoded) if decoded.op.author != self.author.get() => {
                    return Ok(Author::new(decoded.op.author));
                }
                Event::Op(_)
                | Event::Content { .. }
                | Event::Desync { .. }
                | Event::Damaged { .. } => {}
                Event::NeedMore if ops.feed_offset() >= end => return Ok(None),
                Event::NeedMore => match reader.next().await? {
                    Some(ReadEvent::Content { bytes, .. }) => ops.feed(bytes),
                    Some(ReadEvent::Metadata(_)) => {}
                    Some(ReadEvent::Jump { .. }) | None => return Ok(None),
                },
            }
        }
    }
}

/// How long content may take to be sent. A broker that hangs is noticed soon, however much was sent to it;
/// over a slow network the batch is sent again with twice the time, as often as it takes.
fn time_to_send(length: u64, lost: u32) -> Duration {
    let rate = RATE_EXPECTED.checked_shr(lost).unwrap_or(0).max(RATE_MIN);
    Duration::from_millis(length.saturating_mul(1000) / rate)
}

fn unanswered(patience: Duration) -> Arc<str> {
    format!("no answer within {:.1} s", patience.as_secs_f32()).into()
}

fn failed(error: &AppendError) -> Outcome {
    match (error.status(), error.outcome()) {
        (Some(Status::RegisterMismatch), _) => Outcome::Mismatch {
            register: register_of(error.registers()),
        },
        (Some(Status::WrongAppendOffset), _) => Outcome::WrongOffset,
        (_, Done::NotDone) => Outcome::NotDone {
            no_space: error.kind() == ErrorKind::NoSpace,
            error: error.to_string().into(),
        },
        (_, Done::Unknown | Done::Done) => Outcome::Unknown {
            error: error.to_string().into(),
        },
    }
}

fn failed_to_find(error: &str) -> Found {
    Found::Failed {
        error: error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_append_that_hangs_is_noticed_soon_and_a_slow_network_gets_its_time() {
        let batch = 8 << 20;
        assert_eq!(time_to_send(batch, 0), Duration::from_secs(8));
        assert_eq!(time_to_send(batch, 1), Duration::from_secs(16));
        for lost in [4, 5, 100, u32::MAX] {
            assert_eq!(time_to_send(batch, lost), Duration::from_secs(128));
        }
    }
}
