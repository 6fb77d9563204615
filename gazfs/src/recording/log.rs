//! A recorder, as the file system sees it.

use std::sync::{Arc, Mutex, PoisonError};

use gazette_recoverylog::{
    fsm::{Fnode, Mutation, Place, Refusal},
    recorder::{Fault, Group, Hold, Recorder, Reservation, State},
};
use rustix::io::Errno;
use tokio::sync::watch;

use super::FsyncWaits;
use crate::{
    recorded::log::{Content, Ended, Hold as FsHold, Log, Recorded},
    work_dir::Pulse,
};

/// A recorder, as the file system sees it. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct RecorderLog {
    recorder: Recorder,
    /// Looked at by each open: it costs less than the status.
    state: watch::Receiver<State>,
    fsync: FsyncWaits,
    ends: Arc<Ends>,
    /// Told of each change, before it happens and when it is recorded.
    pulse: Option<Pulse>,
}

/// Room for a mutation, which may happen as long as there is this.
#[derive(Debug)]
pub(super) struct Begun {
    /// First, so that the room is free when the change is not begun any more.
    room: Option<Reservation>,
    pulse: Option<Pulse>,
}

impl Begun {
    fn new(room: Reservation, pulse: Option<Pulse>) -> Self {
        if let Some(pulse) = &pulse {
            pulse.begin();
        }
        Self {
            room: Some(room),
            pulse,
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(pulse) = &self.pulse {
            pulse.end();
        }
    }
}

/// Who is told when nothing more is taken.
#[derive(Default)]
struct Ends {
    callbacks: Mutex<Vec<Callback>>,
}

type Callback = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ends").finish_non_exhaustive()
    }
}

impl RecorderLog {
    pub(super) fn new(recorder: Recorder, fsync: FsyncWaits, pulse: Option<Pulse>) -> Self {
        Self {
            state: recorder.watch(),
            recorder,
            fsync,
            ends: Arc::default(),
            pulse,
        }
    }

    /// Waits until the recorder takes nothing more, and then tells those who asked for it.
    pub(super) async fn until_ended(&self) -> State {
        let mut state = self.recorder.watch();
        let ended = state.wait_for(is_final).await;
        // A recorder whose state is not told any more has ended.
        let ended = ended.map_or(State::Failed(Fault::Ended), |state| state.clone());
        let callbacks = std::mem::take(&mut *self.callbacks());
        for callback in callbacks {
            callback();
        }
        ended
    }

    fn callbacks(&self) -> std::sync::MutexGuard<'_, Vec<Callback>> {
        self.ends
            .callbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log for RecorderLog {
    type Reservation = Begun;
    type Group = Group;

    fn reserve(&self, mutation: &Mutation<'_>) -> Result<Begun, FsHold> {
        let room = self.recorder.reserve(mutation).map_err(hold)?;
        Ok(Begun::new(room, self.pulse))
    }

    fn reserve_blocking(
        &self,
        mutation: &Mutation<'_>,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Begun, FsHold> {
        let room = self.recorder.reserve_blocking(mutation, give_up);
        Ok(Begun::new(room.map_err(hold)?, self.pulse))
    }

    fn record(
        &self,
        mut begun: Begun,
        mutation: &Mutation<'_>,
        content: &mut Content<'_>,
    ) -> Recorded {
        let Some(room) = begun.room.take() else {
            return Recorded::default();
        };
        let recorded = self.recorder.record(room, mutation, content);
        if let Some(pulse) = &self.pulse {
            pulse.recorded(recorded.seq_no);
        }
        // Now the log is behind the files, or not, but nothing is begun.
        drop(begun);
        Recorded {
            fnode: recorded.fnode,
            replaced: recorded.replaced,
        }
    }

    fn group(&self) -> Group {
        self.recorder.group()
    }

    fn barrier(&self, done: Box<dyn FnOnce(Result<(), Ended>) + Send>) {
        match self.fsync {
            FsyncWaits::ForNothing => done(Ok(())),
            FsyncWaits::ForLog => self
                .recorder
                .barrier(move |result| done(result.map_err(|_| Ended))),
        }
    }

    fn unseen_begun(&self) {
        if let Some(pulse) = &self.pulse {
            pulse.begin();
        }
    }

    fn unseen_ended(&self) {
        if let Some(pulse) = &self.pulse {
            pulse.end();
        }
    }

    fn fnode_at(&self, place: Place<'_>) -> Option<Fnode> {
        self.recorder.fnode_at(place.parent, place.name)
    }

    fn is_ended(&self) -> bool {
        is_final(&self.state.borrow())
    }

    fn on_end(&self, ended: Box<dyn FnOnce() + Send>) {
        if self.is_ended() {
            ended();
        } else {
            self.callbacks().push(ended);
        }
    }

    fn room(&self) -> Option<u64> {
        let room = self.recorder.status().room?;
        Some(room.available.saturating_sub(room.reserve))
    }
}

/// Whether nothing more is taken, for ever.
pub(super) fn is_final(state: &State) -> bool {
    match state {
        State::Recording | State::Stalled { .. } => false,
        State::Failed(_) | State::Fenced(_) => true,
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it converts the error of a result"
)]
fn hold(hold: Hold) -> FsHold {
    match hold {
        Hold::Full => FsHold::Full,
        Hold::GivenUp => FsHold::GivenUp,
        Hold::NoSpace => FsHold::NoSpace,
        Hold::Failed(Fault::TimedOut { .. }) => FsHold::TimedOut,
        Hold::Refused(refusal) => FsHold::Refused(errno(&refusal)),
        Hold::Fenced(_) | Hold::Failed(_) => FsHold::Ended,
    }
}

/// What a program sees of a mutation that a log cannot say. Of what is on another file system programs
/// make a copy.
fn errno(refusal: &Refusal) -> Errno {
    match refusal {
        Refusal::Name(_) => Errno::INVAL,
        Refusal::SpecialFile | Refusal::Property => Errno::PERM,
        Refusal::DirectoryTooLarge => Errno::XDEV,
        Refusal::TooLarge(_) => Errno::FBIG,
    }
}
