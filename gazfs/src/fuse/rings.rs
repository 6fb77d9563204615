//! Requests through rings: one for each processor, with a thread that stays there.
//!
//! The kernel hands a request to the ring of the processor on which its program runs, so no other
//! has to be woken. An answer that is given later, by another thread, goes through the outbox of the ring.

mod outbox;

use std::{
    fs, io,
    os::fd::AsFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    thread::{CpuSet, sched_setaffinity},
};

pub(super) use self::outbox::InRing;
use self::outbox::{Done, Outbox};
use super::{
    device::Device,
    dispatch::dispatch,
    filesystem::Filesystem,
    reply::{Responder, Way},
    sys::{HEADERS_BYTES, Payload, Ring, WOKEN},
    wire::{self, ANSWER_HEADER_BYTES, Header, Operation, argument_bytes},
};

/// Rings that the kernel does not have yet.
#[derive(Debug)]
pub(super) struct Prepared<F> {
    queues: Vec<Queue<F>>,
}

/// Rings that the kernel has.
#[derive(Debug)]
pub(super) struct Running {
    threads: Vec<(Arc<Outbox>, JoinHandle<()>)>,
}

/// What a thread needs to serve its ring. It tells if it cannot go on.
#[derive(Debug)]
struct Go<F> {
    device: Arc<Device>,
    fs: Arc<F>,
    ended: Sender<io::Result<()>>,
}

/// A thread that waits for its device.
#[derive(Debug)]
struct Queue<F> {
    outbox: Arc<Outbox>,
    go: Sender<Go<F>>,
    state: Receiver<io::Result<()>>,
    thread: JoinHandle<()>,
}

/// Opens as many rings as the kernel wants, which shows whether this process may have any. `payload_bytes`
/// is the most that a request or an answer has beside its header.
pub(super) fn prepare<F: Filesystem>(payload_bytes: usize) -> io::Result<Prepared<F>> {
    let count = processors()?;
    let queues = (0..count).map(|number| queue(number, payload_bytes));
    let queues = queues.collect::<io::Result<Vec<_>>>()?;
    for queue in &queues {
        queue.wait()?;
    }
    Ok(Prepared { queues })
}

/// Says whether this process may have rings of the kind that is needed.
pub fn try_rings() -> io::Result<()> {
    Ring::open(0, 1).map(drop)
}

impl<F: Filesystem> Prepared<F> {
    /// Gives the rings to the kernel. If it does not take each of them, none is used, and the mount does
    /// not work.
    pub(super) fn start(
        self,
        device: &Arc<Device>,
        fs: &Arc<F>,
        ended: &Sender<io::Result<()>>,
    ) -> io::Result<Running> {
        for queue in &self.queues {
            let go = Go {
                device: Arc::clone(device),
                fs: Arc::clone(fs),
                ended: ended.clone(),
            };
            // One that ended is found below.
            let _gone = queue.go.send(go);
        }
        let until = Instant::now() + START_TIMEOUT;
        let mut failed = None;
        let mut threads = Vec::with_capacity(self.queues.len());
        for queue in self.queues {
            let waited = queue.wait_until(until);
            failed = failed.or_else(|| waited.err());
            threads.push((queue.outbox, queue.thread));
        }
        let running = Running { threads };
        match failed {
            None => Ok(running),
            Some(error) => {
                running.end();
                Err(error)
            }
        }
    }
}

impl Running {
    /// Ends all threads. The kernel does not have the rings any more after that.
    pub(super) fn end(self) {
        for (outbox, _) in &self.threads {
            outbox.close();
        }
        for (_, thread) in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of a ring panicked");
            }
        }
    }
}

impl<F> Queue<F> {
    fn wait(&self) -> io::Result<()> {
        self.wait_until(Instant::now() + START_TIMEOUT)
    }

    fn wait_until(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let late = |_| io::Error::other("a ring does not start");
        self.state.recv_timeout(left).map_err(late)?
    }
}

fn queue<F: Filesystem>(number: u16, payload_bytes: usize) -> io::Result<Queue<F>> {
    let outbox = Arc::new(Outbox::new()?);
    let (go, gone) = channel::<Go<F>>();
    let (state, states) = channel();
    let served = Arc::clone(&outbox);
    let run = move || {
        stay_on(number);
        let mut ring = match Ring::open(number, payload_bytes) {
            Ok(ring) => ring,
            Err(error) => return drop(state.send(Err(error))),
        };
        if state.send(Ok(())).is_err() {
            return;
        }
        let Ok(Go { device, fs, ended }) = gone.recv() else {
            return;
        };
        let registered = register(&mut ring, slots(number), &device, &served);
        let is_registered = registered.is_ok();
        if state.send(registered).is_ok() && is_registered {
            let parked = (0..ring.slots()).map(|_| None).collect();
            let mut server = Server {
                ring,
                device,
                outbox: served,
                fs,
                parked,
                open: 0,
                lost: 0,
                may_grow: true,
            };
            if let Err(error) = server.run() {
                // Nobody may be waiting any more.
                let _nobody = ended.send(Err(error));
            }
        }
    };
    let thread = Builder::new()
        .name(format!("fuse-ring-{number}"))
        .spawn(run)?;
    Ok(Queue {
        outbox,
        go,
        state: states,
        thread,
    })
}

/// Gives so many slots to the kernel, and looks whether it took them.
fn register(ring: &mut Ring, slots: usize, device: &Device, outbox: &Outbox) -> io::Result<()> {
    for _ in 0..slots {
        ring.register(device.as_fd())?;
    }
    ring.watch(outbox.descriptor())?;
    ring.submit()?;
    match ring.refusal() {
        None => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Serves one ring.
struct Server<F> {
    ring: Ring,
    device: Arc<Device>,
    outbox: Arc<Outbox>,
    fs: Arc<F>,
    /// Payloads of requests that are not answered yet.
    parked: Vec<Option<Payload>>,
    /// Requests that are not answered yet.
    open: usize,
    /// Slots that the kernel does not have any more.
    lost: usize,
    may_grow: bool,
}

impl<F: Filesystem> Server<F> {
    fn run(&mut self) -> io::Result<()> {
        let mut completions = Vec::new();
        let mut done = Vec::new();
        loop {
            let is_open = self.outbox.take(&mut done);
            for done in done.drain(..) {
                self.commit(done)?;
            }
            if !is_open || self.lost == self.ring.slots() {
                return Ok(());
            }
            if let Err(error) = self.grow() {
                self.may_grow = false;
                tracing::warn!(err = %error, "requests may have to wait for others that wait");
            }
            match self.ring.submit_and_wait() {
                Ok(()) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            self.outbox.wake();
            self.ring.completions(&mut completions);
            for (what, result) in completions.drain(..) {
                if what == WOKEN {
                    self.outbox.clear();
                    self.ring.watch(self.outbox.descriptor())?;
                } else {
                    self.completed(usize::try_from(what).unwrap_or(usize::MAX), result);
                }
            }
        }
    }

    /// Adds slots while there still are some: what the kernel queues for want of one gets the next that
    /// is answered, and not a new one. So others would wait for requests that wait.
    fn grow(&mut self) -> io::Result<()> {
        let slots = self.ring.slots();
        if self.open < slots / 2 || !self.may_grow || slots >= SLOTS_MAX {
            return Ok(());
        }
        for _ in 0..slots {
            self.parked.push(None);
            self.ring.register(self.device.as_fd())?;
        }
        tracing::debug!(slots = self.ring.slots(), "many requests wait");
        Ok(())
    }

    fn completed(&mut self, slot: usize, result: i32) {
        if result < 0 {
            self.lost += 1;
            self.may_grow = false;
            if !matches!(
                Errno::from_raw_os_error(-result),
                Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED
            ) {
                tracing::error!(slot, result, "the kernel gave up a slot of a ring");
            }
            return;
        }
        let Some(payload) = self.ring.take_payload(slot) else {
            tracing::error!(slot, "the kernel gave a slot back twice");
            return;
        };
        self.open += 1;
        let (message, arguments) = self.ring.headers(slot).split_at(ARGUMENTS_AT);
        let Ok(header) = Header::decode(message) else {
            // There is always room for one.
            return;
        };
        let arguments = &arguments[..argument_bytes(header.opcode).min(ARGUMENTS_BYTES)];
        let length = payload_length(self.ring.headers(slot))
            .saturating_sub(header.extension_bytes)
            .min(payload.bytes().len());
        self.parked[slot] = self.serve(slot, &header, arguments, (payload, length));
    }

    /// Has a request answered. Returns the payload, if it did not go with the answer.
    fn serve(
        &self,
        slot: usize,
        header: &Header,
        arguments: &[u8],
        (payload, length): (Payload, usize),
    ) -> Option<Payload> {
        let answer = |payload| {
            let ring = InRing::new(Arc::clone(&self.outbox), slot, payload);
            Responder::new(Arc::clone(&self.device), header.unique, Way::Ring(ring))
        };
        if length == 0 {
            // Nothing is read from it, so the answer can be put there at once.
            match Operation::decode(header, arguments, &[]) {
                Ok(operation) => dispatch(&*self.fs, header, &operation, || answer(Some(payload))),
                Err(error) => refuse(header, error, answer(Some(payload))),
            }
            return None;
        }
        match Operation::decode(header, arguments, &payload.bytes()[..length]) {
            Ok(operation) => dispatch(&*self.fs, header, &operation, || answer(None)),
            Err(error) => refuse(header, error, answer(None)),
        }
        Some(payload)
    }

    /// Gives an answer to the kernel.
    fn commit(&mut self, done: Done) -> io::Result<()> {
        let Done {
            slot,
            unique,
            error,
            bytes,
            filled,
            payload,
        } = done;
        let Some(mut payload) = payload.or_else(|| self.parked[slot].take()) else {
            tracing::error!(slot, "a request is answered twice");
            return Ok(());
        };
        let (error, length) = match payload.bytes_mut().get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(&bytes);
                (error, filled.max(bytes.len()))
            }
            None => (-Errno::IO.raw_os_error(), 0),
        };
        let headers = self.ring.headers_mut(slot);
        headers[..ANSWER_HEADER_BYTES].copy_from_slice(&wire::answer_header(length, error, unique));
        put_payload_length(headers, length);
        self.open -= 1;
        self.ring.commit(self.device.as_fd(), slot, payload, unique)
    }
}

fn refuse(header: &Header, error: wire::Malformed, responder: Responder) {
    tracing::error!(err = %error, opcode = header.opcode, "a request was refused");
    responder.error(Errno::IO);
}

fn payload_length(headers: &[u8; HEADERS_BYTES]) -> usize {
    let mut length = [0; 4];
    length.copy_from_slice(&headers[PAYLOAD_LENGTH_AT..PAYLOAD_LENGTH_AT + 4]);
    #[expect(
        clippy::host_endian_bytes,
        reason = "the kernel of this machine wrote it"
    )]
    let length = u32::from_ne_bytes(length);
    usize::try_from(length).unwrap_or(usize::MAX)
}

fn put_payload_length(headers: &mut [u8; HEADERS_BYTES], length: usize) {
    let length = u32::try_from(length).unwrap_or(0);
    #[expect(
        clippy::host_endian_bytes,
        reason = "the kernel of this machine reads it"
    )]
    headers[PAYLOAD_LENGTH_AT..PAYLOAD_LENGTH_AT + 4].copy_from_slice(&length.to_ne_bytes());
}

/// Says whether it is worth to try again at once.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INTR | Errno::AGAIN | Errno::BUSY)
    )
}

/// Has this thread run on one processor only. Where it may not, it works all the same.
fn stay_on(processor: u16) {
    let processor = usize::from(processor);
    if processor >= CpuSet::MAX_CPU {
        return;
    }
    let mut set = CpuSet::new();
    set.set(processor);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::debug!(processor, err = %error, "the thread of a ring goes where it likes");
    }
}

/// How many processors this machine may ever have: the kernel wants a ring for each.
fn processors() -> io::Result<u16> {
    let listed = listed(POSSIBLE)?;
    u16::try_from(listed.len()).map_err(io::Error::other)
}

/// How many slots the ring of a processor begins with.
fn slots(processor: u16) -> usize {
    // One that is asleep may never have any request; if it has, there soon are more.
    match listed(ONLINE) {
        Ok(online) if !online.contains(&processor) => SLOTS_OF_SLEEPERS,
        Ok(_) | Err(_) => SLOTS_MIN,
    }
}

fn listed(path: &str) -> io::Result<Vec<u16>> {
    let text = fs::read_to_string(path)?;
    parse(&text).ok_or_else(|| io::Error::other(format!("{path} says {text:?}")))
}

/// Returns what a list of ranges has, such as `0-3,6`.
fn parse(list: &str) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if last < first {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Requests that one processor may have open at first. Memory is taken only for those that it had.
const SLOTS_MIN: usize = 256;

/// The most that it ever may have open.
const SLOTS_MAX: usize = 4096;

/// What a processor has at first that is not online.
const SLOTS_OF_SLEEPERS: usize = 2;

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Opening and handing over rings takes milliseconds.
const START_TIMEOUT: Duration = Duration::from_secs(10);

const ARGUMENTS_AT: usize = 128;
const ARGUMENTS_BYTES: usize = 128;
const PAYLOAD_LENGTH_AT: usize = 272;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_those_that_the_kernel_lists() {
        assert_eq!(parse("0\n"), Some(vec![0]));
        assert_eq!(parse("0-1\n"), Some(vec![0, 1]));
        assert_eq!(parse("0-3,6,8-9"), Some(vec![0, 1, 2, 3, 6, 8, 9]));
        assert_eq!(parse("3-1"), None);
        assert_eq!(parse("x"), None);
        assert!(processors().is_ok_and(|count| count > 0));
    }

    #[test]
    fn a_processor_that_is_asleep_has_few_slots() {
        assert_eq!(slots(0), SLOTS_MIN);
        assert_eq!(slots(u16::MAX), SLOTS_OF_SLEEPERS);
    }
}
