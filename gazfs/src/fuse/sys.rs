//! What the kernel shares memory for: rings, and the calls on the device that hand files over.
//!
//! All unsafe code of the crate that concerns FUSE is here. Memory that the kernel fills is filled
//! only while the one thread that uses a ring is in a system call of that ring, and it lives at least as
//! long as the ring.

#![expect(
    unsafe_code,
    reason = "rings share memory with the kernel, and no library offers these calls"
)]

use std::{
    ffi::c_void,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
    slice,
    sync::Arc,
};

use io_uring::{IoUring, cqueue, opcode, squeue::Entry128, types::Fd};
use rustix::{
    ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode as ioctl_opcode},
    mm::{MapFlags, ProtFlags, mmap_anonymous, munmap},
};

/// A ring of one thread, by which the kernel hands it requests.
///
/// It has slots. Each has room for the header of a request, and a [`Payload`]. The kernel has the slot
/// from [`register`](Self::register) or [`commit`](Self::commit) on until it is among
/// [`completions`](Self::completions).
pub(super) struct Ring {
    // It is dropped first, so that the kernel does not have the memory any more.
    uring: IoUring<Entry128, cqueue::Entry>,
    slots: Vec<Slot>,
    payload_bytes: usize,
    /// Completions that were looked at before their time.
    early: Vec<(u64, i32)>,
    queue: u16,
}

struct Slot {
    headers: Memory,
    memory: Arc<Memory>,
    /// Missing while somebody else has it.
    payload: Option<Payload>,
    /// Where the kernel reads what the two are, when it gets the slot first.
    #[expect(dead_code, reason = "the kernel reads it")]
    parts: Box<[Part; 2]>,
}

/// `struct iovec`
#[repr(C)]
struct Part {
    start: *mut u8,
    length: usize,
}

// SAFETY: the pointers are only read by the kernel, and lead to memory that may be used by any thread.
unsafe impl Send for Part {}

/// Room for names and data of a request, and for its answer. There is one for each slot of a ring; who
/// has it is the only one to read and write it.
#[derive(Debug)]
pub(super) struct Payload {
    memory: Arc<Memory>,
}

impl Payload {
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: there is no other `Payload` of this memory, and the kernel has it only while the ring
        // has this one. It began as zeros, and bytes are bytes.
        unsafe { slice::from_raw_parts(self.memory.start.as_ptr(), self.memory.length) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.memory.start.as_ptr(), self.memory.length) }
    }
}

impl Ring {
    /// Opens a ring for the thread that calls. It has no slots yet.
    pub(super) fn open(queue: u16, payload_bytes: usize) -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(QUEUE_LENGTH)?;
        // Whether there is so much shows now.
        Memory::new(payload_bytes)?;
        Ok(Self {
            uring,
            slots: Vec::new(),
            payload_bytes,
            early: Vec::new(),
            queue,
        })
    }

    /// How many slots it has.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Adds a slot, and gives it to the kernel.
    pub(super) fn register(&mut self, device: BorrowedFd<'_>) -> io::Result<()> {
        let headers = Memory::new(HEADERS_BYTES)?;
        let memory = Arc::new(Memory::new(self.payload_bytes)?);
        let parts = Box::new([
            Part {
                start: headers.start.as_ptr(),
                length: HEADERS_BYTES,
            },
            Part {
                start: memory.start.as_ptr(),
                length: self.payload_bytes,
            },
        ]);
        let length = u32::try_from(parts.len()).unwrap_or(0);
        let entry = opcode::UringCmd80::new(Fd(device.as_raw_fd()), REGISTER)
            .cmd(command(self.queue, 0))
            .addr(Some(address(parts.as_ptr())))
            .build()
            .user_data(user_data(self.slots.len()));
        self.slots.push(Slot {
            payload: Some(Payload {
                memory: Arc::clone(&memory),
            }),
            headers,
            memory,
            parts,
        });
        self.push(&with_length(entry, length))
    }

    /// Answers the request in a slot by what its header and payload say, and gives the slot to the
    /// kernel again.
    pub(super) fn commit(
        &mut self,
        device: BorrowedFd<'_>,
        slot: usize,
        payload: Payload,
        unique: u64,
    ) -> io::Result<()> {
        let home = &mut self.slots[slot];
        assert!(
            Arc::ptr_eq(&home.memory, &payload.memory) && home.payload.is_none(),
            "each payload goes back to where it came from"
        );
        home.payload = Some(payload);
        let entry = opcode::UringCmd80::new(Fd(device.as_raw_fd()), COMMIT_AND_FETCH)
            .cmd(command(self.queue, unique))
            .build()
            .user_data(user_data(slot));
        self.push(&entry)
    }

    /// Says once, with [`WOKEN`], that a descriptor can be read.
    pub(super) fn watch(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let entry = opcode::PollAdd::new(Fd(descriptor.as_raw_fd()), READABLE).build();
        self.push(&Entry128::from(entry).user_data(WOKEN))
    }

    /// Takes the payload of a slot that is not the kernel's.
    pub(super) fn take_payload(&mut self, slot: usize) -> Option<Payload> {
        self.slots[slot].payload.take()
    }

    /// What the kernel put before the payload of a slot that is not its own any more.
    pub(super) fn headers(&self, slot: usize) -> &[u8; HEADERS_BYTES] {
        let start = self.slots[slot].headers.start;
        // SAFETY: it is as long, and the kernel fills it only in system calls of this ring, which need
        // the ring exclusively.
        unsafe { start.cast().as_ref() }
    }

    /// The same, to answer.
    pub(super) fn headers_mut(&mut self, slot: usize) -> &mut [u8; HEADERS_BYTES] {
        let start = self.slots[slot].headers.start;
        // SAFETY: as above.
        unsafe { start.cast().as_mut() }
    }

    fn push(&mut self, entry: &Entry128) -> io::Result<()> {
        loop {
            // SAFETY: what the entry leads to lives as long as the ring, which the kernel drops before.
            let pushed = unsafe { self.uring.submission().push(entry) };
            if pushed.is_ok() {
                return Ok(());
            }
            self.uring.submit()?;
        }
    }

    /// Gives the kernel what there is for it, and does not wait.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.uring.submit().map(drop)
    }

    /// Gives the kernel what there is for it, and waits until something is among
    /// [`completions`](Self::completions).
    pub(super) fn submit_and_wait(&mut self) -> io::Result<()> {
        let wanted = usize::from(self.early.is_empty());
        self.uring.submit_and_wait(wanted).map(drop)
    }

    /// Returns the error of a slot that the kernel did not take.
    pub(super) fn refusal(&mut self) -> Option<i32> {
        let mut early = Vec::new();
        self.completions(&mut early);
        let refusal = early.iter().find(|(_, result)| *result < 0);
        let refusal = refusal.map(|(_, result)| *result);
        self.early = early;
        refusal
    }

    /// Takes what the kernel is done with: slots and their results, and [`WOKEN`].
    pub(super) fn completions(&mut self, into: &mut Vec<(u64, i32)>) {
        into.clear();
        into.append(&mut self.early);
        into.extend(
            self.uring
                .completion()
                .map(|entry| (entry.user_data(), entry.result())),
        );
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// Zeros that stay where they are. Only what is used of them takes memory.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is plain memory, which its owner gives out to one user at a time.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(length: usize) -> io::Result<Self> {
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        );
        // SAFETY: it is a new mapping, wherever the kernel wants.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, protection, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nobody has it any more.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        if let Err(error) = unmapped {
            tracing::error!(err = %error, "memory of a ring stays");
        }
    }
}

/// `struct fuse_uring_cmd_req`
#[expect(
    clippy::host_endian_bytes,
    reason = "the kernel of this machine reads it"
)]
fn command(queue: u16, unique: u64) -> [u8; COMMAND_BYTES] {
    let mut command = [0; COMMAND_BYTES];
    command[8..16].copy_from_slice(&unique.to_ne_bytes());
    command[16..18].copy_from_slice(&queue.to_ne_bytes());
    command
}

/// Sets a field of an entry that the library has no name for: `len`.
fn with_length(entry: Entry128, length: u32) -> Entry128 {
    const { assert!(size_of::<Entry128>() == 128, "it is two of the common size") };
    let mut entry = entry;
    let start = (&raw mut entry).cast::<u8>().wrapping_add(ENTRY_LENGTH_AT);
    // SAFETY: it is laid out as the kernel has it, `len` is there, and any number is one.
    unsafe { start.cast::<u32>().write_unaligned(length) }
    entry
}

fn address(parts: *const Part) -> u64 {
    u64::try_from(parts.addr()).unwrap_or(0)
}

fn user_data(slot: usize) -> u64 {
    u64::try_from(slot).unwrap_or(WOKEN)
}

/// Gives a backing file to the kernel.
pub(super) fn open_backing(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<u32> {
    let open = OpenBacking {
        descriptor: file.as_fd().as_raw_fd(),
        flags: 0,
        padding: 0,
    };
    // SAFETY: the device knows this call, and it reads what `open` is.
    Ok(unsafe { ioctl(device, open) }?)
}

/// Takes a backing file from the kernel.
pub(super) fn close_backing(device: BorrowedFd<'_>, id: u32) -> io::Result<()> {
    // SAFETY: the device knows this call, and it reads a number.
    let close = unsafe { rustix::ioctl::Setter::<CLOSE_BACKING, u32>::new(id) };
    // SAFETY: as above.
    Ok(unsafe { ioctl(device, close) }?)
}

/// `struct fuse_backing_map`
#[repr(C)]
struct OpenBacking {
    descriptor: i32,
    flags: u32,
    padding: u64,
}

// SAFETY: the number is that of the call, which reads this structure, and returns a number.
unsafe impl Ioctl for OpenBacking {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        ioctl_opcode::write::<Self>(DEVICE_GROUP, 1)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut *self).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        Ok(out.cast_unsigned())
    }
}

const DEVICE_GROUP: u8 = 229;
const CLOSE_BACKING: Opcode = ioctl_opcode::write::<u32>(DEVICE_GROUP, 2);

/// What [`Ring::completions`] calls what was watched.
pub(super) const WOKEN: u64 = u64::MAX;

/// `POLLIN`
const READABLE: u32 = 1;

/// What is given to the kernel at once; more of it takes more calls.
const QUEUE_LENGTH: u32 = 64;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

const COMMAND_BYTES: usize = 80;
const ENTRY_LENGTH_AT: usize = 24;

/// `struct fuse_uring_req_header`: the header of a request or an answer, the arguments, and what
/// tells the length of the payload.
pub(super) const HEADERS_BYTES: usize = 288;
