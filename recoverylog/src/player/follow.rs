//! Keeps what was played up to date: reads the log on from its end, as it grows.

use std::{
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use gazette_client::{Client, ReadEvent, RetryOptions};
use gazette_protocol::ReadRequest;
use gazette_recoverylog_fsm::{Author, Fnode, Fsm, FsmHints, RecordedOp, Tree};
use tokio::{runtime::Handle, sync::watch, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Playback, Player, Recovered, error::RecoverError, playback::Next};
use crate::{Source, hints::PublishedHints};

/// How far a copy is.
#[derive(Debug, Clone, Default)]
pub struct Followed {
    /// All of the log before it is in the copy.
    pub offset: i64,
    /// Ops of the chain that were played.
    pub ops: u64,
    /// Author of the last one.
    pub author: Option<Author>,
    /// Why it does not go on. Then a new copy is to be made.
    pub ended: Option<Arc<str>>,
}

/// A copy of the recorded directory: its names and attributes, and its content in files.
///
/// What is seen of it is one moment of the directory.
#[derive(Debug)]
pub struct Copied {
    playback: Mutex<Option<Playback>>,
    /// Told when something was played.
    played: Condvar,
}

impl Copied {
    fn lock(&self) -> MutexGuard<'_, Option<Playback>> {
        self.playback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at names and attributes, and at where the content of a file is; one without content has no such file.
    /// Nothing is played meanwhile. `None` if the copy is no more, or is within a change for longer than `within`.
    pub fn look<R>(
        &self,
        within: Duration,
        look: impl FnOnce(&Tree, &dyn Fn(Fnode) -> Option<PathBuf>) -> R,
    ) -> Option<R> {
        let until = Instant::now() + within;
        let mut playback = self.lock();
        loop {
            let found = playback.as_ref()?;
            if found.is_settled() {
                let content = |fnode| Some(found.image.as_ref()?.content_path(fnode));
                return Some(look(&found.tree, &content));
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = self.played.wait_timeout(playback, left);
            playback = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn with_fsm<R>(&self, look: impl FnOnce(&Fsm, &Playback) -> R) -> Option<R> {
        let playback = self.lock();
        playback
            .as_ref()
            .map(|playback| look(&playback.fsm, playback))
    }
}

/// Follows a log.
#[derive(Debug)]
pub(crate) struct Follower {
    player: Player,
    copied: Arc<Copied>,
    followed: watch::Receiver<Followed>,
    cancel: CancellationToken,
    /// It does not go on without anybody.
    _ends: DropGuard,
    task: JoinHandle<()>,
}

impl Player {
    /// Goes on from what was played, for as long as the log grows.
    pub(crate) fn follow(mut self, client: Client) -> Option<Follower> {
        let mut playback = self.playback.take()?;
        let offset = self.start.head;
        playback.go_on(offset);
        let log: Arc<str> = Arc::from(self.options.log.as_str());
        let (tell, followed) = watch::channel(state_of(&playback, offset, None));
        let copied = Arc::new(Copied {
            playback: Mutex::new(Some(playback)),
            played: Condvar::new(),
        });
        let cancel = self.options.cancel.child_token();
        let following = Following {
            client,
            log,
            copied: Arc::clone(&copied),
            tell,
            cancel: cancel.clone(),
        };
        let handle = Handle::current();
        let task = tokio::task::spawn_blocking(move || following.run(&handle, offset));
        Some(Follower {
            player: self,
            copied,
            followed,
            _ends: cancel.clone().drop_guard(),
            cancel,
            task,
        })
    }
}

impl Follower {
    pub(crate) fn copied(&self) -> Arc<Copied> {
        Arc::clone(&self.copied)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Followed> {
        self.followed.clone()
    }

    /// Returns the op by which an author claims the log from here on, and where the copy ends.
    pub(crate) fn claim(&self, author: Author) -> Option<(RecordedOp, i64)> {
        let offset = self.followed.borrow().offset;
        let mode = self.player.start.mode;
        self.copied.with_fsm(|fsm, playback| {
            let mode = fsm.mode().or(mode).unwrap_or_else(|| playback.tree.mode());
            (fsm.claim(author, mode), offset)
        })
    }

    /// Hints of all that was played, unless that ends within an op or a group of them.
    pub(crate) fn hints(&self) -> Option<PublishedHints> {
        let mode = self.player.start.mode;
        let hints = self.copied.with_fsm(|fsm, playback| {
            let progress = &playback.progress;
            let author = progress.author.and_then(Author::new)?;
            playback.is_settled().then(|| PublishedHints {
                author,
                offset: progress.offset,
                seq_no: fsm.next_seq_no() - 1,
                checksum: fsm.next_checksum(),
                time: progress.time.unwrap_or_default(),
                hints: FsmHints {
                    mode,
                    ..fsm.hints(fsm.log())
                },
            })
        });
        hints.flatten()
    }

    /// Ends it, and lets the directory appear as it is at `end`, up to where it was followed.
    pub(crate) async fn finish(mut self, end: i64) -> Result<Recovered, RecoverError> {
        self.cancel.cancel();
        let log = self.player.options.log.clone();
        let thread = || RecoverError::Thread { log: log.clone() };
        (&mut self.task).await.map_err(|_| thread())?;
        let playback = self.copied.lock().take().ok_or_else(thread)?;
        playback.check_end(self.player.options.takes_cut_seed)?;
        self.player.start.head = end;
        self.player.start.limit = end;
        self.player.playback = Some(playback);
        self.player.finish().await
    }

    /// Ends it, and leaves nothing behind.
    pub(crate) async fn stop(mut self) {
        self.cancel.cancel();
        // It leaves nothing, however it ended.
        let _ended = (&mut self.task).await;
        drop(self.copied.lock().take());
    }
}

/// What the thread has that follows.
struct Following {
    client: Client,
    log: Arc<str>,
    copied: Arc<Copied>,
    tell: watch::Sender<Followed>,
    cancel: CancellationToken,
}

impl Following {
    fn run(self, handle: &Handle, mut at: i64) {
        let request = ReadRequest {
            journal: self.log.to_string(),
            offset: at,
            block: true,
            ..ReadRequest::default()
        };
        let mut reader = self
            .client
            .retry_reader_with(request, RetryOptions::default());
        let cause = loop {
            let event = handle.block_on(async {
                tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => None,
                    event = reader.next() => Some(event),
                }
            });
            match event {
                None => return,
                Some(Ok(Some(ReadEvent::Metadata(_)))) => {}
                Some(Ok(Some(ReadEvent::Content { offset, bytes }))) if offset == at => {
                    at = at.saturating_add_unsigned(bytes.len() as u64);
                    let mut playback = self.copied.lock();
                    let Some(playing) = playback.as_mut() else {
                        return;
                    };
                    let fed = playing.feed(bytes);
                    self.tell.send_replace(state_of(playing, at, None));
                    drop(playback);
                    self.copied.played.notify_all();
                    match fed {
                        Ok(Next::Feed) => {}
                        // Whoever plays it from the beginning says what it is.
                        Ok(Next::Rewind(_) | Next::Stop) => {
                            break format!("the log holds something else than ops at {at}");
                        }
                        Err(error) => break error.to_string(),
                    }
                }
                Some(Ok(Some(ReadEvent::Content { .. } | ReadEvent::Jump { .. }))) => {
                    break format!("what the log had at {at} is gone");
                }
                Some(Ok(None)) => break "the read ended".to_owned(),
                Some(Err(error)) if error.kind() == gazette_client::ErrorKind::Retry => {
                    handle.block_on(tokio::time::sleep(RETRY_INTERVAL));
                }
                Some(Err(error)) => break error.to_string(),
            }
        };
        self.tell
            .send_modify(|followed| followed.ended = Some(cause.into()));
    }
}

fn state_of(playback: &Playback, offset: i64, ended: Option<Arc<str>>) -> Followed {
    Followed {
        offset,
        ops: playback.progress.ops,
        author: playback.progress.author.and_then(Author::new),
        ended,
    }
}

/// Recovers the head of a log, and goes on from there.
pub(crate) async fn follow(
    client: &Client,
    options: super::RecoverOptions,
) -> Result<Follower, RecoverError> {
    let log = options.log.clone();
    let mut player = Player::begin(&Source::Broker(client.clone()), options).await?;
    player.play().await?;
    player
        .follow(client.clone())
        .ok_or(RecoverError::Thread { log })
}

/// Before a read is begun again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
