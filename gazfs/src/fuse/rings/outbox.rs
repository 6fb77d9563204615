//! Answers on their way to the thread of a ring.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};

use crate::fuse::sys::Payload;

/// Answers that the thread of a ring has not given to the kernel yet. The thread looks at it before it
/// waits, and whoever comes after that wakes it.
#[derive(Debug)]
pub(super) struct Outbox {
    state: Mutex<State>,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    done: Vec<Done>,
    /// The thread will look again before it waits.
    is_awake: bool,
    is_closed: bool,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) slot: usize,
    pub(super) unique: u64,
    pub(super) error: i32,
    /// What it says, if that is not in the payload already.
    pub(super) bytes: Vec<u8>,
    /// How much of the payload it is.
    pub(super) filled: usize,
    /// The payload, if it was given to whoever answers.
    pub(super) payload: Option<Payload>,
}

impl Outbox {
    pub(super) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            state: Mutex::default(),
            wake,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be read when there is something for a thread that waits.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Takes all answers, before the thread waits. Returns `false` if it is to end.
    pub(super) fn take(&self, into: &mut Vec<Done>) -> bool {
        let mut state = self.lock();
        std::mem::swap(&mut state.done, into);
        state.is_awake = false;
        !state.is_closed
    }

    /// The thread does not wait any more.
    pub(super) fn wake(&self) {
        self.lock().is_awake = true;
    }

    /// Forgets that somebody woke the thread.
    pub(super) fn clear(&self) {
        let mut count = [0; 8];
        // It can be read at most once, and need not be there any more.
        let _read = rustix::io::read(&self.wake, &mut count);
    }

    /// Has the thread end.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        drop(state);
        self.signal();
    }

    fn push(&self, done: Done) {
        let mut state = self.lock();
        if state.is_closed {
            // The mount ended, so nobody waits.
            return;
        }
        state.done.push(done);
        let was_awake = std::mem::replace(&mut state.is_awake, true);
        drop(state);
        if !was_awake {
            self.signal();
        }
    }

    fn signal(&self) {
        #[expect(
            clippy::host_endian_bytes,
            reason = "the kernel of this machine reads it"
        )]
        let one = 1_u64.to_ne_bytes();
        if let Err(error) = rustix::io::write(&self.wake, &one) {
            tracing::error!(err = %error, "the thread of a ring is not woken");
        }
    }
}

/// A request that came through a ring, to be answered.
#[derive(Debug)]
pub(crate) struct InRing {
    outbox: Arc<Outbox>,
    slot: usize,
    payload: Option<Payload>,
    spare: Vec<u8>,
}

impl InRing {
    pub(super) fn new(outbox: Arc<Outbox>, slot: usize, payload: Option<Payload>) -> Self {
        Self {
            outbox,
            slot,
            payload,
            spare: Vec::new(),
        }
    }

    /// Where bytes of the answer can be put.
    pub(crate) fn room(&mut self, size: usize) -> &mut [u8] {
        match &mut self.payload {
            Some(payload) if payload.bytes().len() >= size => &mut payload.bytes_mut()[..size],
            Some(_) | None => {
                self.spare.resize(size, 0);
                &mut self.spare
            }
        }
    }

    /// Answers with the first bytes that were put there.
    pub(crate) fn answer_filled(&mut self, unique: u64, length: usize) {
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.truncate(length);
        let filled = if bytes.is_empty() { length } else { 0 };
        self.push(unique, 0, bytes, filled);
    }

    pub(crate) fn answer(&mut self, unique: u64, answer: Result<&[u8], Errno>) {
        match answer {
            Err(error) => self.push(unique, -error.raw_os_error(), Vec::new(), 0),
            Ok(bytes) => {
                let room = self.payload.as_mut().map(Payload::bytes_mut);
                match room.and_then(|room| room.get_mut(..bytes.len())) {
                    Some(room) => {
                        room.copy_from_slice(bytes);
                        self.push(unique, 0, Vec::new(), bytes.len());
                    }
                    None => self.push(unique, 0, bytes.to_vec(), 0),
                }
            }
        }
    }

    fn push(&mut self, unique: u64, error: i32, bytes: Vec<u8>, filled: usize) {
        self.outbox.push(Done {
            slot: self.slot,
            unique,
            error,
            bytes,
            filled,
            payload: self.payload.take(),
        });
    }
}
