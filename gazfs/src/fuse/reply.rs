//! Answers to requests, each of its kind.

use std::{io, os::fd::BorrowedFd, sync::Arc, time::Duration};

use rustix::io::Errno;

use super::{
    device::{Backing, Device},
    rings::InRing,
    wire::{Answer, Attributes, Lines, OpenFlags, Space},
};

/// Answers a request: with an error if nobody does.
#[derive(Debug)]
pub(super) struct Responder {
    device: Arc<Device>,
    unique: u64,
    way: Way,
    is_answered: bool,
}

/// By which way a request came, and is answered.
#[derive(Debug)]
pub(super) enum Way {
    /// By the device. The buffer is for what is read.
    Device(Vec<u8>),
    /// Through a ring.
    Ring(InRing),
}

impl Responder {
    pub(super) fn new(device: Arc<Device>, unique: u64, way: Way) -> Self {
        Self {
            device,
            unique,
            way,
            is_answered: false,
        }
    }

    /// Answers with an error.
    pub(super) fn error(self, error: Errno) {
        self.send(Err(error));
    }

    /// Answers with bytes.
    pub(super) fn bytes(self, bytes: &[u8]) {
        self.send(Ok(bytes));
    }

    /// Where bytes of an answer can be put.
    fn room(&mut self, size: usize) -> &mut [u8] {
        match &mut self.way {
            Way::Device(buffer) => {
                super::device::take_room(buffer, size);
                &mut buffer[..size]
            }
            Way::Ring(ring) => ring.room(size),
        }
    }

    /// Answers with the first bytes that were put there.
    fn filled(mut self, length: usize) {
        self.is_answered = true;
        match &mut self.way {
            Way::Device(buffer) => {
                let buffer = std::mem::take(buffer);
                let filled = &buffer[..length.min(buffer.len())];
                self.device.answer(self.unique, Ok(filled));
                super::device::give_room(buffer);
            }
            Way::Ring(ring) => ring.answer_filled(self.unique, length),
        }
    }

    fn send(mut self, answer: Result<&[u8], Errno>) {
        self.answer(answer);
    }

    fn answer(&mut self, answer: Result<&[u8], Errno>) {
        self.is_answered = true;
        match &mut self.way {
            Way::Device(_) => self.device.answer(self.unique, answer),
            Way::Ring(ring) => ring.answer(self.unique, answer),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answer(Err(Errno::IO));
        }
    }
}

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(Responder);

        impl $name {
            pub(super) fn new(responder: Responder) -> Self {
                Self(responder)
            }

            /// Answers with an error.
            pub fn error(self, error: Errno) {
                self.0.error(error);
            }
        }
    )*};
}

replies! {
    /// Answers with a file that was looked up or made.
    ReplyEntry;
    /// Answers with attributes.
    ReplyAttr;
    /// Answers with attributes and the time when the file was made.
    ReplyStatx;
    /// Answers with bytes.
    ReplyData;
    /// Answers with an open file.
    ReplyOpen;
    /// Answers with a new file that is open.
    ReplyCreate;
    /// Answers that it is done.
    ReplyEmpty;
    /// Answers how much was written.
    ReplyWrite;
    /// Answers how much room there is.
    ReplyStatfs;
    /// Answers with an attribute, or its size.
    ReplyXattr;
    /// Answers where something was found.
    ReplyLseek;
}

impl ReplyEntry {
    /// The file. The kernel believes the name and the attributes so long.
    pub fn entry(self, attributes: &Attributes, name_ttl: Duration, attributes_ttl: Duration) {
        self.0
            .bytes(Answer::entry(attributes, name_ttl, attributes_ttl).bytes());
    }

    /// There is none. The kernel believes it so long.
    pub fn no_entry(self, name_ttl: Duration) {
        self.0.bytes(Answer::no_entry(name_ttl).bytes());
    }
}

impl ReplyAttr {
    /// The attributes. The kernel believes them so long.
    pub fn attr(self, attributes: &Attributes, ttl: Duration) {
        self.0.bytes(Answer::attributes(attributes, ttl).bytes());
    }
}

impl ReplyStatx {
    /// The attributes. The kernel believes them so long.
    pub fn attr(self, attributes: &Attributes, ttl: Duration) {
        self.0
            .bytes(Answer::more_attributes(attributes, ttl).bytes());
    }
}

impl ReplyData {
    /// The bytes.
    pub fn data(self, bytes: &[u8]) {
        self.0.bytes(bytes);
    }

    /// Where as many bytes as were asked for can be put, to save copying them.
    pub fn room(&mut self, size: usize) -> &mut [u8] {
        self.0.room(size)
    }

    /// The first bytes that were put there.
    pub fn filled(self, length: usize) {
        self.0.filled(length);
    }
}

impl ReplyOpen {
    /// The handle.
    pub fn opened(self, handle: u64, flags: OpenFlags) {
        self.0.bytes(Answer::opened(handle, flags, None).bytes());
    }

    /// The handle, and the backing file that the kernel reads and writes itself.
    pub fn opened_passthrough(self, handle: u64, flags: OpenFlags, backing: &Backing) {
        self.0
            .bytes(Answer::opened(handle, flags, Some(backing.id())).bytes());
    }

    /// Gives a backing file to the kernel.
    pub fn register(&self, file: BorrowedFd<'_>) -> io::Result<Backing> {
        Backing::open(&self.0.device, file)
    }
}

impl ReplyCreate {
    /// The file and its handle, and the backing file that the kernel reads and writes itself, if it
    /// does. The kernel believes the name and the attributes so long.
    pub fn created(
        self,
        attributes: &Attributes,
        ttl: Duration,
        (handle, flags): (u64, OpenFlags),
        backing: Option<&Backing>,
    ) {
        let opened = (handle, flags, backing.map(Backing::id));
        self.0
            .bytes(Answer::created(attributes, ttl, opened).bytes());
    }

    /// Gives a backing file to the kernel.
    pub fn register(&self, file: BorrowedFd<'_>) -> io::Result<Backing> {
        Backing::open(&self.0.device, file)
    }
}

impl ReplyEmpty {
    /// It is done.
    pub fn ok(self) {
        self.0.bytes(&[]);
    }
}

impl ReplyWrite {
    /// So many bytes were written.
    pub fn written(self, length: u32) {
        self.0.bytes(Answer::written(length).bytes());
    }
}

impl ReplyStatfs {
    /// The room.
    pub fn statfs(self, space: &Space) {
        self.0.bytes(Answer::space(space).bytes());
    }
}

impl ReplyXattr {
    /// Only its size was asked for.
    pub fn size(self, length: u32) {
        self.0.bytes(Answer::xattr_size(length).bytes());
    }

    /// The attribute.
    pub fn data(self, bytes: &[u8]) {
        self.0.bytes(bytes);
    }
}

impl ReplyLseek {
    /// It is there.
    pub fn offset(self, offset: u64) {
        self.0.bytes(Answer::offset(offset).bytes());
    }
}

/// Answers with lines of a directory.
#[derive(Debug)]
pub struct ReplyDirectory {
    responder: Responder,
    lines: Lines,
}

impl ReplyDirectory {
    pub(super) fn new(responder: Responder, size: u32) -> Self {
        Self {
            responder,
            lines: Lines::new(size),
        }
    }

    /// Adds a line, after which the directory goes on at `next`. Returns `true` if it did not fit.
    pub fn add(&mut self, ino: u64, next: u64, mode: u32, name: &[u8]) -> bool {
        !self.lines.add(ino, next, mode, name)
    }

    /// Adds a line with attributes, which the kernel believes so long. Returns `true` if it did not
    /// fit.
    pub fn add_plus(
        &mut self,
        attributes: &Attributes,
        ttl: Duration,
        next: u64,
        name: &[u8],
    ) -> bool {
        !self
            .lines
            .add_plus(attributes, ttl, (attributes.ino, next), name)
    }

    /// These are the lines.
    pub fn ok(self) {
        self.responder.bytes(self.lines.bytes());
    }

    /// Answers with an error.
    pub fn error(self, error: Errno) {
        self.responder.error(error);
    }
}
