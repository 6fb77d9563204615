//! A log in memory, for tests.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use gazette_recoverylog_fsm::{
    AttributeChange, Fnode, Inode, Mutation, Place, SizeChange, Timestamp,
};

use super::{
    log::{Content, Ended, Hold, Log, Recorded},
    node::lock,
};

/// A log that keeps what it is told.
#[derive(Debug, Default)]
pub struct MemoryLog {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    last: i64,
    forgets: bool,
    mutations: Vec<Owned>,
    /// What the names of the tree lead to.
    names: BTreeMap<(Fnode, Vec<u8>), Fnode>,
    hold: Option<Hold>,
    holds_barriers: bool,
    barriers: Vec<Done>,
    barrier_count: u64,
    on_end: Vec<Box<dyn FnOnce() + Send>>,
    room: Option<u64>,
}

type Done = Box<dyn FnOnce(Result<(), Ended>) + Send>;

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("last", &self.last)
            .field("hold", &self.hold)
            .finish_non_exhaustive()
    }
}

/// A mutation that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in the type that it is a copy of")]
pub enum Owned {
    Create {
        fnode: Fnode,
        at: Option<(Fnode, Vec<u8>)>,
        inode: Inode,
    },
    Link {
        fnode: Fnode,
        at: (Fnode, Vec<u8>),
    },
    Unlink {
        at: (Fnode, Vec<u8>),
    },
    Rename {
        from: (Fnode, Vec<u8>),
        to: (Fnode, Vec<u8>),
        exchange: bool,
    },
    Write {
        fnode: Fnode,
        offset: u64,
        data: Vec<u8>,
        mtime: Timestamp,
    },
    Size {
        fnode: Fnode,
        change: SizeChange,
        mtime: Timestamp,
    },
    Attributes {
        fnode: Fnode,
        change: AttributeChange,
    },
    SetXattr {
        fnode: Fnode,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    RemoveXattr {
        fnode: Fnode,
        name: Vec<u8>,
    },
    Release {
        fnode: Fnode,
    },
}

impl MemoryLog {
    /// Creates a log that keeps names only, for runs that write much.
    pub fn forgetful() -> Self {
        let log = Self::default();
        log.lock().forgets = true;
        log
    }

    /// Returns what was recorded so far.
    pub fn mutations(&self) -> Vec<Owned> {
        self.lock().mutations.clone()
    }

    /// Lets each reservation wait or fail from now on, or none.
    pub fn hold(&self, hold: Option<Hold>) {
        let ended = {
            let mut state = self.lock();
            state.hold = hold;
            if hold == Some(Hold::Ended) {
                std::mem::take(&mut state.on_end)
            } else {
                Vec::new()
            }
        };
        self.changed.notify_all();
        for ended in ended {
            ended();
        }
    }

    /// Keeps barriers from now on, or finishes them.
    pub fn hold_barriers(&self, hold: bool) {
        let done = {
            let mut state = self.lock();
            state.holds_barriers = hold;
            std::mem::take(&mut state.barriers)
        };
        for done in done {
            done(Ok(()));
        }
    }

    /// Returns how many barriers were asked for.
    pub fn barrier_count(&self) -> u64 {
        self.lock().barrier_count
    }

    /// Says how much room there is.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.lock().room = bytes;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Log for MemoryLog {
    type Reservation = ();
    type Group = ();

    fn reserve(&self, _: &Mutation<'_>) -> Result<(), Hold> {
        match self.lock().hold {
            None => Ok(()),
            Some(hold) => Err(hold),
        }
    }

    fn reserve_blocking(&self, _: &Mutation<'_>, give_up: &dyn Fn() -> bool) -> Result<(), Hold> {
        let mut state = self.lock();
        let started = Instant::now();
        loop {
            match state.hold {
                None => return Ok(()),
                Some(Hold::Full) if give_up() => return Err(Hold::GivenUp),
                Some(Hold::Full) if started.elapsed() > PATIENCE => return Err(Hold::TimedOut),
                Some(Hold::Full) => {}
                Some(hold) => return Err(hold),
            }
            let waited = self.changed.wait_timeout(state, LOOK_INTERVAL);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn group(&self) {}

    fn record(&self, (): (), mutation: &Mutation<'_>, _: &mut Content<'_>) -> Recorded {
        let mut state = self.lock();
        state.last += 1;
        let new = Fnode(state.last);
        let (fnode, owned) = own(mutation, new);
        match &owned {
            Owned::Create { at: None, .. }
            | Owned::Write { .. }
            | Owned::Size { .. }
            | Owned::Attributes { .. }
            | Owned::SetXattr { .. }
            | Owned::RemoveXattr { .. }
            | Owned::Release { .. } => {}
            Owned::Create { at: Some(at), .. } | Owned::Link { at, .. } => {
                let before = state.names.insert(at.clone(), fnode);
                assert_eq!(before, None, "{mutation:?} makes a name that is there");
            }
            Owned::Unlink { at } => {
                let before = state.names.remove(at);
                assert!(before.is_some(), "{mutation:?} removes no name");
            }
            Owned::Rename { from, to, exchange } => {
                let source = state.names.remove(from).expect("rename of no name");
                let target = state.names.insert(to.clone(), source);
                if *exchange {
                    let target = target.expect("exchange with no name");
                    state.names.insert(from.clone(), target);
                }
            }
        }
        if !state.forgets {
            state.mutations.push(owned);
        }
        Recorded {
            fnode: (fnode == new).then_some(new),
            replaced: None,
        }
    }

    fn barrier(&self, done: Done) {
        let mut state = self.lock();
        state.barrier_count += 1;
        if state.holds_barriers {
            state.barriers.push(done);
        } else {
            drop(state);
            done(Ok(()));
        }
    }

    fn fnode_at(&self, place: Place<'_>) -> Option<Fnode> {
        let state = self.lock();
        state
            .names
            .get(&(place.parent, place.name.to_vec()))
            .copied()
    }

    fn is_ended(&self) -> bool {
        self.lock().hold == Some(Hold::Ended)
    }

    fn on_end(&self, ended: Box<dyn FnOnce() + Send>) {
        self.lock().on_end.push(ended);
    }

    fn room(&self) -> Option<u64> {
        self.lock().room
    }
}

fn own(mutation: &Mutation<'_>, new: Fnode) -> (Fnode, Owned) {
    let place = |at: Place<'_>| (at.parent, at.name.to_vec());
    match *mutation {
        Mutation::Create { at, inode } => {
            let (at, inode) = (at.map(place), inode.clone());
            (
                new,
                Owned::Create {
                    fnode: new,
                    at,
                    inode,
                },
            )
        }
        Mutation::Link { fnode, at } => {
            let at = place(at);
            (fnode, Owned::Link { fnode, at })
        }
        Mutation::Unlink { at } => (Fnode::ROOT, Owned::Unlink { at: place(at) }),
        Mutation::Rename { from, to, exchange } => {
            let (from, to) = (place(from), place(to));
            (Fnode::ROOT, Owned::Rename { from, to, exchange })
        }
        Mutation::Write {
            fnode,
            offset,
            data,
            mtime,
        } => {
            let data = data.to_vec();
            let owned = Owned::Write {
                fnode,
                offset,
                data,
                mtime,
            };
            (fnode, owned)
        }
        Mutation::Size {
            fnode,
            change,
            mtime,
        } => {
            let owned = Owned::Size {
                fnode,
                change,
                mtime,
            };
            (fnode, owned)
        }
        Mutation::Attributes { fnode, change } => (fnode, Owned::Attributes { fnode, change }),
        Mutation::SetXattr { fnode, name, value } => {
            let (name, value) = (name.to_vec(), value.to_vec());
            (fnode, Owned::SetXattr { fnode, name, value })
        }
        Mutation::RemoveXattr { fnode, name } => {
            let name = name.to_vec();
            (fnode, Owned::RemoveXattr { fnode, name })
        }
        Mutation::Release { fnode } => (fnode, Owned::Release { fnode }),
    }
}

const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Long enough for any test.
const PATIENCE: Duration = Duration::from_secs(30);
