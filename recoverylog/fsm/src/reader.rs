//! Ops and content out of a log's bytes, as they arrive.

use bytes::{Buf, Bytes, BytesMut};

use crate::Fnode;
use crate::op::{Body, FRAME_HEADER_BYTES, FRAME_MAGIC, OpError, RecordedOp, chain};

/// Most bytes that a frame may claim. Ops are small (a path, an extended attribute); the reader keeps
/// a whole frame in memory.
pub const FRAME_BYTES_MAX: u32 = 16 << 20;

/// An op, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedOp {
    /// The op.
    pub op: RecordedOp,
    /// The chain's checksum after it.
    pub next_checksum: u32,
    /// Where its frame begins.
    pub begin: i64,
    /// Where its frame ends, and its content begins.
    pub frame_end: i64,
    /// Where its content ends.
    pub end: i64,
}

/// What the reader came upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An op. Its content follows in pieces, if it has any.
    Op(DecodedOp),
    /// A piece of the last op's content.
    Content {
        /// The file.
        fnode: Fnode,
        /// Where in the file.
        offset: i64,
        /// The piece, never empty.
        bytes: Bytes,
        /// It is the last piece.
        last: bool,
    },
    /// Bytes that are no frame were skipped.
    Desync {
        /// The first.
        begin: i64,
        /// Behind the last: where a frame begins again.
        end: i64,
    },
    /// A frame that holds no op, or content whose CRC is not that of its op. Reading goes on behind
    /// it, or behind the frame's magic word if its length is absurd.
    Damaged {
        /// Where the frame begins.
        begin: i64,
        /// Behind it and its content.
        end: i64,
        /// What is wrong.
        error: OpError,
    },
    /// More bytes are needed.
    NeedMore,
}

/// What lies between the last event and the end of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// Nothing: the bytes end behind an op and its content.
    Nothing,
    /// Bytes that are no frame.
    Junk {
        /// The first of them.
        begin: i64,
    },
    /// A frame that is cut short.
    Frame {
        /// Where it begins.
        begin: i64,
    },
    /// An op whose content is cut short.
    Content {
        /// Where its frame begins.
        begin: i64,
        /// Bytes of content that are missing.
        missing: i64,
    },
}

/// Reads ops out of bytes that arrive in pieces of any size. It does no I/O, and holds at most one
/// frame besides the piece that it was given.
#[derive(Debug)]
pub struct OpReader {
    /// Log offset of what comes next: of `partial` if that has bytes, else of `input`.
    offset: i64,
    /// The beginning of a header or frame that the last piece did not hold whole.
    partial: BytesMut,
    input: Bytes,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Before a frame. Junk was skipped since the offset given, if any.
    Header { junk_since: Option<i64> },
    /// Behind a header, which began at the offset given.
    Frame { begin: i64, length: usize },
    /// Behind the frame of an op with content.
    Content(Pending),
}

#[derive(Debug)]
struct Pending {
    begin: i64,
    end: i64,
    /// `None` if nobody wants the content.
    target: Option<Target>,
}

#[derive(Debug)]
struct Target {
    fnode: Fnode,
    offset: i64,
    expected: Option<u32>,
    actual: u32,
}

impl OpReader {
    /// Starts at an offset of the log.
    pub fn new(offset: i64) -> Self {
        Self {
            offset,
            partial: BytesMut::new(),
            input: Bytes::new(),
            state: State::Header { junk_since: None },
        }
    }

    /// Goes on at another offset, and forgets what it had of the present op.
    pub fn seek(&mut self, offset: i64) {
        *self = Self::new(offset);
    }

    /// Returns the offset of the bytes that must be fed next.
    pub fn feed_offset(&self) -> i64 {
        self.offset
            .saturating_add_unsigned((self.partial.len() + self.input.len()) as u64)
    }

    /// Returns the offset that events were returned for so far.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Takes the next bytes of the log. Call it when [`Event::NeedMore`] was returned; bytes that are
    /// still there are kept in front, which copies.
    pub fn feed(&mut self, bytes: Bytes) {
        if self.input.is_empty() {
            self.input = bytes;
        } else {
            let mut joined = BytesMut::with_capacity(self.input.len() + bytes.len());
            joined.extend_from_slice(&self.input);
            joined.extend_from_slice(&bytes);
            self.input = joined.freeze();
        }
    }

    /// Leaves out the rest of the last op's content: it is consumed without events.
    pub fn skip_content(&mut self) {
        if let State::Content(pending) = &mut self.state {
            pending.target = None;
        }
    }

    /// Tells what is unfinished where the bytes end. Ask when [`Event::NeedMore`] was returned.
    pub fn unfinished(&self) -> Unfinished {
        match &self.state {
            State::Header {
                junk_since: Some(begin),
            } => Unfinished::Junk { begin: *begin },
            State::Header { junk_since: None } if self.partial.is_empty() => Unfinished::Nothing,
            State::Header { junk_since: None } => {
                let word = &self.partial[..self.partial.len().min(FRAME_MAGIC.len())];
                if FRAME_MAGIC.starts_with(word) {
                    Unfinished::Frame { begin: self.offset }
                } else {
                    Unfinished::Junk { begin: self.offset }
                }
            }
            State::Frame { begin, .. } => Unfinished::Frame { begin: *begin },
            State::Content(pending) => Unfinished::Content {
                begin: pending.begin,
                missing: pending.end - self.offset,
            },
        }
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Event {
        loop {
            let event = match self.state {
                State::Header { junk_since } => self.read_header(junk_since),
                State::Frame { begin, length } => Some(self.read_frame(begin, length)),
                State::Content(_) => self.read_content(),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// Reads a header; `None` when the state moved on without an event.
    fn read_header(&mut self, junk_since: Option<i64>) -> Option<Event> {
        let Some(header) = self.take_header() else {
            return Some(Event::NeedMore);
        };
        let begin = self.offset - signed(FRAME_HEADER_BYTES);
        let (magic, mut length) = header.split_at(FRAME_MAGIC.len());
        if magic != FRAME_MAGIC {
            self.skip_junk(begin, junk_since, &header);
            return None;
        }
        let length = length.get_u32_le();
        if length > FRAME_BYTES_MAX {
            // The magic word was part of something else.
            self.skip_junk(begin, junk_since, &header);
            if junk_since.is_none() {
                return Some(Event::Damaged {
                    begin,
                    end: begin.saturating_add(signed(FRAME_MAGIC.len())),
                    error: OpError::FrameTooLong(length),
                });
            }
            return None;
        }
        self.state = State::Frame {
            begin,
            length: length as usize,
        };
        junk_since.map(|junk| Event::Desync {
            begin: junk,
            end: begin,
        })
    }

    fn take_header(&mut self) -> Option<[u8; FRAME_HEADER_BYTES]> {
        let mut header = [0; FRAME_HEADER_BYTES];
        let missing = FRAME_HEADER_BYTES - self.partial.len();
        if self.input.len() < missing {
            self.partial.extend_from_slice(&self.input);
            self.input.clear();
            return None;
        }
        let (front, back) = header.split_at_mut(self.partial.len());
        front.copy_from_slice(&self.partial);
        back.copy_from_slice(&self.input[..missing]);
        self.partial.clear();
        self.input.advance(missing);
        self.offset = self.offset.saturating_add(signed(FRAME_HEADER_BYTES));
        Some(header)
    }

    /// Goes on behind the first byte of what was taken for a header, at the next byte that could
    /// begin a magic word.
    fn skip_junk(&mut self, begin: i64, junk_since: Option<i64>, header: &[u8]) {
        self.state = State::Header {
            junk_since: Some(junk_since.unwrap_or(begin)),
        };
        let rest = &header[1..];
        let kept = rest
            .iter()
            .position(|byte| *byte == FRAME_MAGIC[0])
            .unwrap_or(rest.len());
        let rest = &rest[kept..];
        if rest.is_empty() {
            let junk = self.input.iter().position(|byte| *byte == FRAME_MAGIC[0]);
            let junk = junk.unwrap_or(self.input.len());
            self.input.advance(junk);
            self.offset = self.offset.saturating_add(signed(junk));
        } else {
            self.offset -= signed(rest.len());
            self.partial.extend_from_slice(rest);
        }
    }

    fn read_frame(&mut self, begin: i64, length: usize) -> Event {
        let missing = length - self.partial.len();
        if self.input.len() < missing {
            self.partial.extend_from_slice(&self.input);
            self.input.clear();
            return Event::NeedMore;
        }
        let payload = if self.partial.is_empty() {
            self.input.split_to(length)
        } else {
            self.partial.extend_from_slice(&self.input[..missing]);
            self.input.advance(missing);
            self.partial.split().freeze()
        };
        self.offset = self.offset.saturating_add(signed(length));
        let frame_end = self.offset;
        self.state = State::Header { junk_since: None };
        let payload_for_chain = payload.clone();
        let op = match RecordedOp::decode(payload) {
            Ok(op) => op,
            Err(error) => {
                return Event::Damaged {
                    begin,
                    end: frame_end,
                    error,
                };
            }
        };
        let content = op.content_length();
        let end = match frame_end.checked_add(content) {
            Some(end) if content >= 0 => end,
            _ => {
                let error = OpError::Range;
                return Event::Damaged {
                    begin,
                    end: frame_end,
                    error,
                };
            }
        };
        if content > 0 {
            let target = match &op.body {
                Body::Write(write) => Some(Target {
                    fnode: write.fnode,
                    offset: write.offset,
                    expected: write.crc32c,
                    actual: 0,
                }),
                Body::NoOp { .. }
                | Body::Create { .. }
                | Body::Link { .. }
                | Body::Unlink { .. }
                | Body::Change { .. }
                | Body::Property { .. } => None,
            };
            self.state = State::Content(Pending { begin, end, target });
        }
        let next_checksum = chain(op.checksum, &payload_for_chain);
        Event::Op(DecodedOp {
            op,
            next_checksum,
            begin,
            frame_end,
            end,
        })
    }

    fn read_content(&mut self) -> Option<Event> {
        let State::Content(pending) = &mut self.state else {
            return None;
        };
        let missing = pending.end - self.offset;
        if missing == 0 {
            let (begin, end) = (pending.begin, pending.end);
            let target = pending.target.take();
            self.state = State::Header { junk_since: None };
            let target = target?;
            let (expected, actual) = (target.expected?, target.actual);
            return (expected != actual).then_some(Event::Damaged {
                begin,
                end,
                error: OpError::Content { expected, actual },
            });
        }
        if self.input.is_empty() {
            return Some(Event::NeedMore);
        }
        let here = usize::try_from(missing).map_or(self.input.len(), |m| m.min(self.input.len()));
        let bytes = self.input.split_to(here);
        self.offset = self.offset.saturating_add(signed(here));
        let last = signed(here) == missing;
        let target = pending.target.as_mut()?;
        let offset = target.offset;
        target.offset = target.offset.saturating_add(signed(here));
        if target.expected.is_some() {
            target.actual = crc32c::crc32c_append(target.actual, &bytes);
        }
        Some(Event::Content {
            fnode: target.fnode,
            offset,
            bytes,
            last,
        })
    }
}

/// Lengths of what is in memory fit.
fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
