//! Answers the kernel's requests: one adapter for each file system, by either of two ways.
//!
//! By the device of a mount one thread reads requests: a second reader would cost more in wake-ups than
//! it brings. Through rings they come to a thread of the processor where their program runs. Both ways
//! feed the same adapters, which answer what does not wait and leave the rest to others.

pub mod copied;
mod device;
mod dispatch;
mod filesystem;
pub mod journals;
pub mod recorded;
mod reply;
mod rings;
mod session;
mod sys;
mod transport;
pub mod wire;

pub use self::{
    device::{Backing, Notifier},
    filesystem::{Filesystem, NewFile, Request, SetAttributes, WriteRequest},
    reply::{
        ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek,
        ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr,
    },
    rings::try_rings,
    session::{Mounts, Session},
    transport::{Chosen, ParseTransportError, Transport, Way, obstacle},
};

/// One request of the kernel has at most this. The kernel takes one page less if the program's buffer
/// does not begin at a page.
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// Read-ahead and other requests in the background that the kernel may have open.
const BACKGROUND_MAX: u16 = 64;

/// What lseek(2) is asked for; linux/fs.h.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
