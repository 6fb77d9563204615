//! What an owner hears from standbys and people, and says to them.

use std::{
    collections::HashSet,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use gazette_client::Client;
use gazette_recoverylog::{
    fsm::Author,
    notices::{Board, Notice, Noticed, Notices, Told, Who},
    owner_of,
    recorder::Recorder,
    standby::Now,
};

use super::{Options, RecordingError};

/// A hand-off that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) handoff: String,
    pub(super) to: Option<String>,
}

/// The owner's side.
#[derive(Debug)]
pub(super) struct Neighbours {
    pub(super) notices: Notices,
    pub(super) who: Who,
    pub(super) board: Board,
    author: u32,
    since_ms: u64,
    base: Instant,
    told: Option<Told>,
    greeted: HashSet<String>,
    is_watched: bool,
}

impl Neighbours {
    /// Says whose the log is now, and begins to hear. A log can be recorded in without.
    pub(super) async fn start(client: &Client, options: &Options, author: Author) -> Self {
        let notices = Notices::new(client.clone(), &options.log);
        let told = notices.hear().await;
        if let Err(error) = &told {
            tracing::warn!(err = %error, "standbys are not heard, and cannot be handed anything");
        }
        let neighbours = Self {
            notices,
            who: who(options),
            board: Board::default(),
            author: author.get(),
            since_ms: since_epoch_ms(),
            base: Instant::now(),
            told: told.ok(),
            greeted: HashSet::new(),
            is_watched: false,
        };
        neighbours.greet();
        neighbours
    }

    pub(super) fn now(&self) -> Now {
        self.base.elapsed()
    }

    /// Who owns the log, as it is said, if that is somebody else.
    pub(super) fn successor(&self) -> Option<&Who> {
        let owner = self.board.last_owner()?;
        (owner.author != self.author).then_some(&owner.who)
    }

    /// Says something, soon.
    pub(super) fn say(&self, notice: Notice) {
        let notices = self.notices.clone();
        let saying = async move {
            if let Err(error) = notices.say(&notice).await {
                tracing::warn!(err = %error, "others are not told");
            }
        };
        drop(tokio::spawn(saying));
    }

    fn greet(&self) {
        self.say(Notice::Owner {
            who: self.who.clone(),
            author: self.author,
            since_ms: self.since_ms,
        });
    }

    /// Hears until somebody asks for a hand-off. Nothing is lost if this is not waited for to its end.
    pub(super) async fn next(&mut self, recorder: &Recorder) -> Request {
        loop {
            let until = self.board.watched_until().filter(|_| self.is_watched);
            let noticed = tokio::select! {
                biased;
                noticed = heard(&mut self.told) => Some(noticed),
                () = passed(until.map(|until| self.base + until)) => None,
            };
            match noticed {
                Some(noticed) => {
                    if let Some(request) = self.handle(noticed, recorder) {
                        return request;
                    }
                }
                None => self.watch(recorder, false),
            }
        }
    }

    fn watch(&mut self, recorder: &Recorder, is_watched: bool) {
        if self.is_watched != is_watched {
            self.is_watched = is_watched;
            recorder.set_watched(is_watched);
        }
    }

    fn handle(&mut self, noticed: Noticed, recorder: &Recorder) -> Option<Request> {
        let Noticed { notice, is_old } = noticed;
        let now = self.now();
        let is_own = matches!(&notice, Notice::Owner { author, .. } if *author == self.author);
        self.board.apply(now, &notice);
        if is_own {
            return None;
        }
        match notice {
            Notice::Standby { who, .. } => {
                self.watch(recorder, true);
                if self.greeted.insert(who.id) {
                    self.greet();
                }
                None
            }
            Notice::Ask { .. } if !is_old => {
                // One that is fenced does not know it before he asks.
                self.greet_if_owner(recorder);
                None
            }
            Notice::Handoff {
                handoff,
                to,
                force: false,
            } if !is_old => Some(Request { handoff, to }),
            Notice::Owner { .. }
            | Notice::Ended { .. }
            | Notice::Gone { .. }
            | Notice::Ask { .. }
            | Notice::Handoff { .. }
            | Notice::Stopping { .. }
            | Notice::CalledOff { .. }
            | Notice::Serving { .. } => None,
        }
    }

    fn greet_if_owner(&self, recorder: &Recorder) {
        use gazette_recoverylog::recorder::State;
        match recorder.status().state {
            State::Recording | State::Stalled { .. } => self.greet(),
            State::Failed(_) | State::Fenced(_) => {}
        }
    }
}

pub(super) async fn heard(told: &mut Option<Told>) -> Noticed {
    match told {
        Some(told) => told.next().await,
        None => std::future::pending().await,
    }
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

/// This process, for others.
pub(super) fn who(options: &Options) -> Who {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let pid = std::process::id();
    Who {
        id: options
            .id
            .clone()
            .unwrap_or_else(|| format!("{host}-{pid}")),
        host,
        pid,
        mountpoint: options.point.to_string_lossy().into_owned(),
        boot: boot(),
    }
}

/// Tells one boot of a host, and one namespace of processes there, from others.
fn boot() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), namespace.display())
}

pub(super) fn since_epoch_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Makes sure that nobody is at work who owns the log. Who does not answer is taken for dead. Returns what is to be
/// told of him.
pub(super) async fn ask_owner(
    client: &Client,
    options: &Options,
) -> Result<Option<String>, RecordingError> {
    let owner = owner_of(client, &options.log).await;
    let Ok((Some(author), _)) = owner else {
        // Nobody owns it; or what is wrong shows when it is taken over.
        return Ok(None);
    };
    let author = author.get();
    let notices = Notices::new(client.clone(), &options.log);
    let mut board = Board::default();
    for notice in notices.recent().await.unwrap_or_default() {
        board.apply(Now::ZERO, &notice);
    }
    if board.has_ended(author) {
        return Ok(None);
    }
    let known = board.owner(author).map(|owner| owner.who.clone());
    let name = known.as_ref().map_or_else(
        || format!("author {author}"),
        |who| format!("{who} (author {author})"),
    );
    if options.takes_over {
        return Ok(Some(format!(
            "the log was taken over from {name}, who was not asked; his changes fail from now on"
        )));
    }
    if known.is_some_and(|who| who.boot == boot() && !is_alive(who.pid)) {
        return Ok(None);
    }
    match answer(&notices, author, options).await {
        Some((who, since_ms)) => Err(RecordingError::Owned {
            log: options.log.clone(),
            owner: who.to_string(),
            since: format_ms(since_ms),
        }),
        None => Ok(Some(format!(
            "the log was taken over from {name}, who did not answer; if he is alive, his changes fail \
             from now on"
        ))),
    }
}

/// Waits for the owner's answer, for as long as one who is alive may take.
async fn answer(notices: &Notices, author: u32, options: &Options) -> Option<(Who, u64)> {
    let mut told = notices.hear().await.ok()?;
    let id = who(options).id;
    notices.say(&Notice::Ask { id }).await.ok()?;
    let answered = async {
        loop {
            let Noticed { notice, is_old } = told.next().await;
            if let Notice::Owner {
                who,
                author: owner,
                since_ms,
            } = notice
                && !is_old
                && owner == author
            {
                return (who, since_ms);
            }
        }
    };
    tokio::time::timeout(ANSWER_WITHIN, answered).await.ok()
}

fn is_alive(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap_or(true)
}

fn format_ms(since_ms: u64) -> String {
    let moment = UNIX_EPOCH + Duration::from_millis(since_ms);
    humantime::format_rfc3339_seconds(moment).to_string()
}

/// How long an owner is waited for who may be alive. He answers in milliseconds, unless his host is overloaded.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
