//! Reads: which content answers an offset.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::{Stream, stream};
use gazette_protocol::{Fragment, Header, ReadRequest, ReadResponse, Status, journal_spec};
use tokio::sync::watch;

use super::{FakeBroker, State};
use crate::router::without_meta;

/// Content of one message, as small as that of Gazette's broker.
const CHUNK_BYTES: usize = (1 << 15) - 32;

struct Reading {
    broker: FakeBroker,
    request: ReadRequest,
    changes: watch::Receiver<u64>,
    ready: VecDeque<ReadResponse>,
    /// For the first message only.
    header: Option<Header>,
    ended: bool,
}

/// What to do at an offset.
enum Found {
    Wait,
    Refuse {
        status: Status,
        offset: i64,
        write_head: i64,
    },
    Content {
        offset: i64,
        write_head: i64,
        fragment: Fragment,
        url: String,
        content: Bytes,
    },
}

pub(super) fn answers(
    broker: FakeBroker,
    request: ReadRequest,
) -> impl Stream<Item = ReadResponse> {
    let header = broker.lock().header_of(without_meta(&request.journal));
    let reading = Reading {
        changes: broker.inner.changes.subscribe(),
        broker,
        request,
        ready: VecDeque::new(),
        header: Some(header),
        ended: false,
    };
    stream::unfold(reading, async |mut reading| {
        let answer = reading.next().await?;
        Some((answer, reading))
    })
}

impl Reading {
    async fn next(&mut self) -> Option<ReadResponse> {
        loop {
            if let Some(answer) = self.ready.pop_front() {
                return Some(answer);
            }
            if self.ended {
                return None;
            }
            self.changes.borrow_and_update();
            let found = find(&self.broker.lock(), &mut self.request);
            match found {
                Found::Wait => self.changes.changed().await.ok()?,
                Found::Refuse {
                    status,
                    offset,
                    write_head,
                } => {
                    self.ended = true;
                    self.ready.push_back(ReadResponse {
                        status: status.into(),
                        header: self.header.take(),
                        offset,
                        write_head,
                        ..ReadResponse::default()
                    });
                }
                Found::Content {
                    offset,
                    write_head,
                    fragment,
                    url,
                    content,
                } => {
                    self.give(offset, write_head, fragment, url, content);
                }
            }
        }
    }

    fn give(
        &mut self,
        offset: i64,
        write_head: i64,
        fragment: Fragment,
        url: String,
        mut content: Bytes,
    ) {
        let remote = !url.is_empty();
        let end = self.request.end_offset;
        self.ready.push_back(ReadResponse {
            header: self.header.take(),
            offset,
            write_head,
            fragment: Some(fragment),
            fragment_url: url,
            ..ReadResponse::default()
        });
        let over = |offset: i64| end != 0 && offset >= end;
        if self.request.metadata_only || (remote && self.request.do_not_proxy) || over(offset) {
            self.ended = true;
            return;
        }
        let mut at = offset;
        while !content.is_empty() && !over(at) {
            let mut chunk = content.split_to(content.len().min(CHUNK_BYTES));
            if end != 0 {
                let left = usize::try_from(end - at).unwrap_or(0);
                chunk.truncate(left);
            }
            let length = i64::try_from(chunk.len()).unwrap_or(i64::MAX);
            self.ready.push_back(ReadResponse {
                offset: at,
                content: chunk,
                ..ReadResponse::default()
            });
            at += length;
        }
        self.request.offset = at;
        self.ended = over(at);
    }
}

fn find(state: &State, request: &mut ReadRequest) -> Found {
    let Some(journal) = state.journals.get(without_meta(&request.journal)) else {
        return Found::Refuse {
            status: Status::JournalNotFound,
            offset: 0,
            write_head: 0,
        };
    };
    let refuse = |status| Found::Refuse {
        status,
        offset: 0,
        write_head: 0,
    };
    if journal.spec.suspend_level() == journal_spec::suspend::Level::Full {
        return refuse(Status::Suspended);
    }
    if !journal.spec.may_read() {
        return refuse(Status::NotAllowed);
    }
    let write_head = journal.head();
    if request.offset < 0 {
        request.offset = write_head;
    }
    let wanted = request.offset;
    // Content that is gone is jumped over.
    for stored in &journal.stored {
        let Fragment { begin, end, .. } = stored.fragment;
        if wanted < end {
            let offset = wanted.max(begin);
            let skip = usize::try_from(offset - begin)
                .unwrap_or(0)
                .min(stored.content.len());
            return Found::Content {
                offset,
                write_head,
                fragment: stored.fragment.clone(),
                url: stored.url.clone(),
                content: stored.content.slice(skip..),
            };
        }
    }
    let offset = wanted.max(journal.local_begin);
    if offset >= write_head {
        if request.block {
            return Found::Wait;
        }
        return Found::Refuse {
            status: Status::OffsetNotYetAvailable,
            offset: wanted,
            write_head,
        };
    }
    let skip = usize::try_from(offset - journal.local_begin).unwrap_or(0);
    Found::Content {
        offset,
        write_head,
        fragment: journal.local_fragment(),
        url: String::new(),
        content: Bytes::copy_from_slice(&journal.local[skip..]),
    }
}
