//! What a read answers next.
//!
//! A [`Read`] is asked with the present index, again after the content that it named was sent,
//! and again after the index changed. It looks at nothing else.

use gazette_protocol::{Fragment, Header, JournalSpec, ReadRequest, ReadResponse, Status};

use crate::fragment::{
    Index,
    index::{Found, IndexQuery, QueryResult, Source},
};

/// Content of one message. Gazette sends a quarter of it, but its clients take any; fewer and larger
/// messages cost less.
pub const CHUNK_BYTES: usize = (1 << 17) - 32;

/// One read of one journal.
#[derive(Debug, Clone)]
pub struct Read {
    request: ReadRequest,
    /// Of the first message only.
    header: Option<Header>,
    /// Where it goes on; -1 until the head is first known.
    offset: i64,
    is_allowed: bool,
    /// Whether to go on although the stores were never listed.
    is_settled: bool,
    is_over: bool,
}

/// What a read does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next<L> {
    /// Send a message, then do what `then` says. If that cannot be done any more, see
    /// [`Read::take_back`].
    Respond {
        /// The message. If its fragment is stored, its URL is to be signed and added.
        response: Box<ReadResponse>,
        /// What follows.
        then: Then<L>,
    },
    /// Wait until the index changes, or this Unix second is reached; then ask again.
    Await {
        /// When a hole becomes old enough to be skipped.
        until: Option<i64>,
        /// Whether the stores were never listed, so that there may be content which is not
        /// known of. A read that does not block waits for that alone, for a bounded time;
        /// after it, say so with [`Read::settle_for_unrefreshed`].
        for_refresh: bool,
    },
    /// The read is over, in order.
    End,
}

/// What follows a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Then<L> {
    /// Send this content, in messages of at most [`CHUNK_BYTES`] that have only it and its
    /// offset; then ask again.
    Content(Content<L>),
    /// The read is over, in order.
    End,
}

/// Content to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Content<L> {
    /// The fragment that has it.
    pub fragment: Fragment,
    /// Where the fragment is.
    pub source: Source<L>,
    /// Offset of the first byte.
    pub begin: i64,
    /// Offset after the last byte.
    pub end: i64,
}

impl<L> Content<L> {
    /// Bytes of the next message, once the content up to `offset` was sent. Zero at its end.
    pub fn next_chunk(&self, offset: i64) -> usize {
        usize::try_from(self.end.saturating_sub(offset))
            .unwrap_or(0)
            .min(CHUNK_BYTES)
    }
}

impl Read {
    /// A read that was resolved to this broker. `header` is that of its resolution.
    pub fn new(request: ReadRequest, header: Header, spec: &JournalSpec) -> Self {
        Self {
            offset: request.offset,
            request,
            header: Some(header),
            is_allowed: spec.may_read(),
            is_settled: false,
            is_over: false,
        }
    }

    /// Offset at which the read goes on, or -1 if it was never asked.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// What to do, at Unix second `now`.
    pub fn next<L: Clone>(&mut self, index: &Index<L>, now: i64) -> Next<L> {
        if self.is_over || self.is_at_end() {
            self.is_over = true;
            return Next::End;
        }
        if !self.is_allowed {
            return self.end_with(ReadResponse {
                status: Status::NotAllowed.into(),
                ..ReadResponse::default()
            });
        }
        let query = IndexQuery {
            offset: self.offset,
            begin_mod_time: self.request.begin_mod_time,
        };
        match index.query(query, now) {
            QueryResult::Found(found) => self.found(found),
            QueryResult::NotYet { .. } if !index.is_refreshed() && !self.is_settled => {
                Next::Await {
                    until: None,
                    for_refresh: true,
                }
            }
            QueryResult::NotYet {
                offset, jump_at, ..
            } if self.request.block => {
                self.offset = offset;
                Next::Await {
                    until: jump_at,
                    for_refresh: false,
                }
            }
            QueryResult::NotYet {
                offset, write_head, ..
            } => {
                self.offset = offset;
                self.end_with(ReadResponse {
                    status: Status::OffsetNotYetAvailable.into(),
                    offset,
                    write_head,
                    ..ReadResponse::default()
                })
            }
        }
    }

    /// Goes on with what is known, although the stores could not be listed.
    pub fn settle_for_unrefreshed(&mut self) {
        self.is_settled = true;
    }

    /// Takes back a message whose content turned out to be gone, because its fragment moved from
    /// a spool to a store. Neither may have been sent. The next call answers in its place.
    pub fn take_back(&mut self, response: ReadResponse) {
        self.offset = response.offset;
        self.header = response.header;
        self.is_over = false;
    }

    /// Whether content was sent up to the end that was asked for.
    fn is_at_end(&self) -> bool {
        let end = self.request.end_offset;
        self.header.is_none() && end != 0 && self.offset >= end
    }

    fn found<L>(&mut self, found: Found<L>) -> Next<L> {
        let Found {
            offset,
            fragment,
            source,
            end,
            write_head,
        } = found;
        let end = match self.request.end_offset {
            0 => end,
            end_offset => end.min(end_offset),
        };
        let is_elsewhere = matches!(source, Source::Stored { .. }) && self.request.do_not_proxy;
        let response = ReadResponse {
            header: self.header.take(),
            offset,
            write_head,
            fragment: Some(fragment.clone()),
            ..ReadResponse::default()
        };
        self.offset = offset;
        let then = if self.request.metadata_only || is_elsewhere || offset >= end {
            self.is_over = true;
            Then::End
        } else {
            self.offset = end;
            Then::Content(Content {
                fragment,
                source,
                begin: offset,
                end,
            })
        };
        Next::Respond {
            response: Box::new(response),
            then,
        }
    }

    fn end_with<L>(&mut self, response: ReadResponse) -> Next<L> {
        self.is_over = true;
        let response = Box::new(ReadResponse {
            header: self.header.take(),
            ..response
        });
        Next::Respond {
            response,
            then: Then::End,
        }
    }
}

#[cfg(test)]
mod tests;
