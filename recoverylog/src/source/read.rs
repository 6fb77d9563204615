//! Reads ranges of a log in order, several stretches at once.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

use super::{
    Part, Source, SourceError, Supply, Survey, cover,
    stored::{self, PIECE_BYTES, Wanted},
};

/// What a read meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Content.
    Content {
        /// Offset of its first byte.
        offset: i64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Content is gone.
    Gap {
        /// Offset of the first byte that is gone.
        begin: i64,
        /// Offset after the last one.
        end: i64,
    },
}

/// Reads ranges of one log. Stretches ahead are read already while one is consumed; the memory for that is
/// bounded.
#[derive(Debug)]
pub(crate) struct LogReader {
    source: Source,
    parallel: usize,
    with_sums: bool,
    waiting: VecDeque<Part>,
    running: VecDeque<Running>,
}

#[derive(Debug)]
enum Running {
    Gap {
        begin: i64,
        end: i64,
    },
    Content {
        journal: String,
        pieces: mpsc::Receiver<Result<Piece, SourceError>>,
        task: JoinHandle<()>,
        at: i64,
        end: i64,
    },
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Content { task, .. } = self {
            task.abort();
        }
    }
}

impl LogReader {
    /// Reads the ranges `[begin, end)`, which rise.
    pub(crate) fn new(
        source: &Source,
        survey: &Survey,
        ranges: impl IntoIterator<Item = (i64, i64)>,
        parallel: usize,
    ) -> Self {
        let waiting = ranges
            .into_iter()
            .flat_map(|(begin, end)| cover::parts(survey, begin, end))
            .collect();
        Self {
            source: source.clone(),
            parallel: parallel.max(1),
            with_sums: true,
            waiting,
            running: VecDeque::new(),
        }
    }

    /// Leaves out the sums of fragments, but for the last one: they take as long as all the rest, and are not
    /// needed where what is read has sums of its own.
    #[must_use]
    pub(crate) fn without_sums(mut self) -> Self {
        self.with_sums = false;
        self
    }

    /// Waits for the next piece. `None` is the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Piece>, SourceError> {
        loop {
            while self.running.len() < self.parallel
                && let Some(part) = self.waiting.pop_front()
            {
                self.start(part);
            }
            let Some(first) = self.running.front_mut() else {
                return Ok(None);
            };
            match first {
                Running::Gap { begin, end } => {
                    let gap = Piece::Gap {
                        begin: *begin,
                        end: *end,
                    };
                    self.running.pop_front();
                    return Ok(Some(gap));
                }
                Running::Content {
                    journal,
                    pieces,
                    at,
                    end,
                    ..
                } => match timeout(PATIENCE, pieces.recv()).await {
                    Err(_elapsed) => {
                        let error = SourceError::Stalled {
                            journal: journal.clone(),
                            offset: *at,
                            seconds: PATIENCE.as_secs(),
                        };
                        self.stop();
                        return Err(error);
                    }
                    Ok(Some(Ok(piece))) => {
                        *at = match &piece {
                            Piece::Content { offset, bytes } => {
                                offset + i64::try_from(bytes.len()).unwrap_or(i64::MAX)
                            }
                            Piece::Gap { end, .. } => *end,
                        };
                        return Ok(Some(piece));
                    }
                    Ok(Some(Err(error))) => {
                        self.stop();
                        return Err(error);
                    }
                    Ok(None) => {
                        let missing = (*at < *end).then_some(Piece::Gap {
                            begin: *at,
                            end: *end,
                        });
                        self.running.pop_front();
                        if missing.is_some() {
                            return Ok(missing);
                        }
                    }
                },
            }
        }
    }

    fn stop(&mut self) {
        self.running.clear();
        self.waiting.clear();
    }

    fn start(&mut self, part: Part) {
        let Part { begin, end, supply } = part;
        let Supply::Stretch(stretch) = supply else {
            self.running.push_back(Running::Gap { begin, end });
            return;
        };
        let pieces = (AHEAD_BYTES / PIECE_BYTES / self.parallel).max(2);
        let (sink, pieces) = mpsc::channel(pieces);
        let journal = stretch.fragment.journal.clone();
        let wanted = Wanted {
            begin,
            end,
            with_sum: self.with_sums || self.waiting.is_empty(),
        };
        let send = stored::send(self.source.clone(), *stretch, wanted, sink);
        self.running.push_back(Running::Content {
            journal,
            pieces,
            task: tokio::spawn(send),
            at: begin,
            end,
        });
    }
}

/// Longer than what supplies content tries by itself.
const PATIENCE: Duration = Duration::from_mins(3);

/// Content that is held ahead of the consumer, of all stretches together.
const AHEAD_BYTES: usize = 64 << 20;
