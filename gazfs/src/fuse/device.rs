//! The device of a mount: requests are read from it, and answers written to it.

use std::{
    cell::RefCell,
    fmt,
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Weak},
};

use rustix::io::Errno;

use super::{
    dispatch::dispatch,
    filesystem::Filesystem,
    reply::{Responder, Way},
    sys,
    wire::{self, Header, Operation},
};

/// The device of a mount.
#[derive(Debug)]
pub(super) struct Device {
    file: OwnedFd,
}

impl Device {
    /// Takes over a device that something is mounted by.
    pub(super) fn new(file: OwnedFd) -> Arc<Self> {
        Arc::new(Self { file })
    }

    /// Waits for a request. `None` means that the mount ended.
    pub(super) fn read<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        loop {
            match rustix::io::read(&self.file, &mut *buffer) {
                Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Ok(length) => return Ok(Some(&buffer[..length])),
                // The request was taken back, or a signal came.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answers a request.
    pub(super) fn answer(&self, unique: u64, answer: Result<&[u8], Errno>) {
        let (error, bytes) = match answer {
            Ok(bytes) => (0, bytes),
            Err(error) => (-error.raw_os_error(), &[][..]),
        };
        match self.write(error, unique, bytes) {
            Ok(()) => {}
            // It was taken back, or the mount ended.
            Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {
                tracing::debug!(unique, "an answer came too late");
            }
            Err(cause) => {
                tracing::error!(unique, err = %cause, "the kernel did not take an answer");
                if error == 0 {
                    // The program must not wait for ever.
                    let _gone = self.write(-Errno::IO.raw_os_error(), unique, &[]);
                }
            }
        }
    }

    fn write(&self, error: i32, unique: u64, bytes: &[u8]) -> Result<(), Errno> {
        let header = wire::answer_header(bytes.len(), error, unique);
        let parts = [IoSlice::new(&header), IoSlice::new(bytes)];
        rustix::io::writev(&self.file, &parts).map(drop)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Serves what comes by the device until the mount ends.
pub(super) fn serve<F: Filesystem>(
    device: &Arc<Device>,
    fs: &F,
    buffer: &mut [u8],
) -> io::Result<()> {
    while let Some(request) = device.read(buffer)? {
        match wire::split(request) {
            Ok((header, arguments, payload)) => {
                let responder =
                    || Responder::new(Arc::clone(device), header.unique, Way::Device(Vec::new()));
                match Operation::decode(&header, arguments, payload) {
                    Ok(operation) => dispatch(fs, &header, &operation, responder),
                    Err(error) => refuse(device, &header, error),
                }
            }
            // Nobody can be answered.
            Err(error) => tracing::error!(err = %error, "a request was dropped"),
        }
    }
    Ok(())
}

fn refuse(device: &Device, header: &Header, error: wire::Malformed) {
    tracing::error!(err = %error, opcode = header.opcode, "a request was refused");
    if wire::is_answered(header.opcode) {
        device.answer(header.unique, Err(Errno::IO));
    }
}

/// Tells the kernel what it must not go on to believe.
#[derive(Clone)]
pub struct Notifier {
    device: Weak<Device>,
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}

impl Notifier {
    pub(super) fn new(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::downgrade(device),
        }
    }

    /// The attributes of a file are stale.
    pub fn stale_attributes(&self, node: u64) -> io::Result<()> {
        self.stale(node, -1)
    }

    /// The attributes and the content of a file are stale. The kernel may ask before it is done.
    pub fn stale_content(&self, node: u64) -> io::Result<()> {
        self.stale(node, 0)
    }

    fn stale(&self, node: u64, begin: i64) -> io::Result<()> {
        let Some(device) = self.device.upgrade() else {
            return Ok(());
        };
        let message = wire::stale_inode(node, begin, 0);
        Ok(device.write(wire::NOTIFY_STALE_INODE, 0, message.bytes())?)
    }
}

/// A backing file that the kernel has, until this is dropped.
#[derive(Debug)]
pub struct Backing {
    device: Weak<Device>,
    id: u32,
}

impl Backing {
    pub(super) fn open(device: &Arc<Device>, file: BorrowedFd<'_>) -> io::Result<Self> {
        let id = sys::open_backing(device.as_fd(), file)?;
        Ok(Self {
            device: Arc::downgrade(device),
            id,
        })
    }

    /// What the kernel calls it.
    pub(super) fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade()
            && let Err(error) = sys::close_backing(device.as_fd(), self.id)
        {
            tracing::debug!(err = %error, "the kernel keeps a backing file");
        }
    }
}

thread_local! {
    /// A buffer for what is read: a new one would be filled with zeros for each read.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn take_room(buffer: &mut Vec<u8>, size: usize) {
    if buffer.is_empty() {
        *buffer = ROOM.take();
    }
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
}

pub(super) fn give_room(buffer: Vec<u8>) {
    ROOM.replace(buffer);
}

#[cfg(test)]
mod tests;
