//! What the file system needs of a log.

use std::fmt::Debug;

use gazette_recoverylog_fsm::{Fnode, Mutation, Place};
use rustix::io::Errno;

/// A log that takes mutations in order.
///
/// A mutation that was recorded is durable only once a barrier that was asked for after it is done.
pub trait Log: Debug + Send + Sync + 'static {
    /// Room for one mutation. It is given back when dropped.
    type Reservation: Send;

    /// Mutations that belong together. They end when it is dropped.
    type Group;

    /// Reserves room for a mutation, which says how large it may become: times and the number that
    /// files get are not known yet. Does not wait.
    fn reserve(&self, mutation: &Mutation<'_>) -> Result<Self::Reservation, Hold>;

    /// Reserves room, and waits until there is some. Asks now and then, at least each 100 ms,
    /// whether to give up.
    fn reserve_blocking(
        &self,
        mutation: &Mutation<'_>,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Self::Reservation, Hold>;

    /// Records a mutation that happened, for which there is room. It is at most as large as the one
    /// that was reserved for. `content` reads the file as it is now, from an offset on, and returns
    /// how much there was: some logs repeat content that a file keeps.
    fn record(
        &self,
        reservation: Self::Reservation,
        mutation: &Mutation<'_>,
        content: &mut Content<'_>,
    ) -> Recorded;

    /// Begins a group: a recovery has all that is recorded until it is dropped, or nothing of it.
    /// Nothing may be reserved meanwhile, as the log takes nothing.
    fn group(&self) -> Self::Group;

    /// Calls back, maybe at once and from any thread, when all that was recorded so far is
    /// acknowledged, or when it never will be.
    fn barrier(&self, done: Box<dyn FnOnce(Result<(), Ended>) + Send>);

    /// From now on a file may change without that being recorded at once.
    fn unseen_begun(&self) {}

    /// It does not any more, and all of it was recorded.
    fn unseen_ended(&self) {}

    /// Returns the file that has a name.
    fn fnode_at(&self, place: Place<'_>) -> Option<Fnode>;

    /// Says whether it takes nothing more, for ever.
    fn is_ended(&self) -> bool;

    /// Calls back when it takes nothing more, from any thread. At once if that is so already.
    fn on_end(&self, ended: Box<dyn FnOnce() + Send>);

    /// Returns how many bytes of mutations it has room for, if that is known.
    fn room(&self) -> Option<u64>;
}

/// Reads a file from an offset on. Returns how much there was.
pub type Content<'a> = dyn FnMut(u64, &mut [u8]) -> usize + 'a;

/// What a mutation became in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recorded {
    /// The file that was created. `None` if nothing was.
    pub fnode: Option<Fnode>,
    /// The file that the log has under another number from now on, and that number.
    pub replaced: Option<(Fnode, Fnode)>,
}

/// Why there is no room for a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// There will be, once the log has taken what waits.
    Full,
    /// The caller gave up.
    GivenUp,
    /// The log took too long.
    TimedOut,
    /// The log's disk is full. What makes files smaller is still taken.
    NoSpace,
    /// It takes nothing more, for ever.
    Ended,
    /// It cannot say such a mutation, for this reason.
    Refused(Errno),
}

/// The log takes nothing more: another recorder took it over, or it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;

impl<L: Log> Log for std::sync::Arc<L> {
    type Reservation = L::Reservation;
    type Group = L::Group;

    fn reserve(&self, mutation: &Mutation<'_>) -> Result<Self::Reservation, Hold> {
        (**self).reserve(mutation)
    }

    fn reserve_blocking(
        &self,
        mutation: &Mutation<'_>,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Self::Reservation, Hold> {
        (**self).reserve_blocking(mutation, give_up)
    }

    fn record(
        &self,
        reservation: Self::Reservation,
        mutation: &Mutation<'_>,
        content: &mut Content<'_>,
    ) -> Recorded {
        (**self).record(reservation, mutation, content)
    }

    fn group(&self) -> L::Group {
        (**self).group()
    }

    fn barrier(&self, done: Box<dyn FnOnce(Result<(), Ended>) + Send>) {
        (**self).barrier(done);
    }

    fn unseen_begun(&self) {
        (**self).unseen_begun();
    }

    fn unseen_ended(&self) {
        (**self).unseen_ended();
    }

    fn fnode_at(&self, place: Place<'_>) -> Option<Fnode> {
        (**self).fnode_at(place)
    }

    fn is_ended(&self) -> bool {
        (**self).is_ended()
    }

    fn on_end(&self, ended: Box<dyn FnOnce() + Send>) {
        (**self).on_end(ended);
    }

    fn room(&self) -> Option<u64> {
        (**self).room()
    }
}
