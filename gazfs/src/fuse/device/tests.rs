//! A socket stands for the device, and the test for the kernel.

use std::thread::{self, JoinHandle};

use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tempfile::TempDir;

use super::*;
use crate::{
    fuse::recorded::Adapter,
    recorded::{RecordedFs, memory::MemoryLog},
};

/// A recorded directory that is asked by a test.
struct Kernel {
    socket: OwnedFd,
    server: Option<JoinHandle<io::Result<()>>>,
    _dir: TempDir,
}

impl Kernel {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("make a folder");
        let log = Arc::new(MemoryLog::default());
        let fs = RecordedFs::start(log, dir.path()).expect("start");
        let adapter = Adapter::new(fs).expect("start threads");
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let pair = socketpair(family, SocketType::SEQPACKET, flags, None);
        let (socket, device) = pair.expect("make sockets");
        let device = Device::new(device);
        let run = move || serve(&device, &adapter, &mut vec![0; 1 << 16]);
        Self {
            socket,
            server: Some(thread::spawn(run)),
            _dir: dir,
        }
    }

    fn send(&self, request: &[u8]) {
        rustix::io::write(&self.socket, request).expect("send");
    }

    /// Waits for an answer, and returns its number, its error and its bytes.
    fn answer(&self) -> (u64, i32, Vec<u8>) {
        let mut buffer = vec![0; 1 << 16];
        let length = rustix::io::read(&self.socket, &mut buffer).expect("an answer");
        let word = |at: usize| {
            #[expect(clippy::host_endian_bytes, reason = "it was written here")]
            u32::from_ne_bytes([buffer[at], buffer[at + 1], buffer[at + 2], buffer[at + 3]])
        };
        assert_eq!(usize::try_from(word(0)).expect("short"), length);
        let unique = u64::from(word(8)) | u64::from(word(12)) << 32;
        (unique, word(4).cast_signed(), buffer[16..length].to_vec())
    }

    fn forget(&self, node: u32, lookups: u64) {
        #[expect(clippy::host_endian_bytes, reason = "it is read here")]
        let lookups = lookups.to_ne_bytes();
        self.send(&request(FORGET, node, &lookups));
    }

    /// Asks, and returns the error and the bytes of the answer.
    fn ask(&self, request: &[u8]) -> (i32, Vec<u8>) {
        self.send(request);
        let (unique, error, bytes) = self.answer();
        assert_eq!(unique, UNIQUE);
        (error, bytes)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both).expect("close");
        let ended = self.server.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended
                .expect("once")
                .expect("no panic")
                .expect("an orderly end");
        }
    }
}

const UNIQUE: u64 = 0x0100_0000_0002;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const MKNOD: u32 = 8;
const STATFS: u32 = 17;
const OPENDIR: u32 = 27;
const BATCH_FORGET: u32 = 42;
const READDIRPLUS: u32 = 44;

fn request(opcode: u32, node: u32, rest: &[u8]) -> Vec<u8> {
    let length = u32::try_from(wire::HEADER_BYTES + rest.len()).expect("short");
    let words = [length, opcode, 2, 0x0100, node, 0, 0, 0, 1, 0];
    let header = words.iter().flat_map(|word| word.to_ne_bytes());
    header.chain(rest.iter().copied()).collect()
}

#[test]
fn each_request_is_answered_under_its_number() {
    let kernel = Kernel::start();
    let (error, attributes) = kernel.ask(&request(GETATTR, 1, &[0; 16]));
    assert_eq!((error, attributes.len()), (0, 104));
    let (error, none) = kernel.ask(&request(LOOKUP, 1, b"missing\0"));
    assert_eq!(
        (error, none.len(), none[0]),
        (0, 128, 0),
        "it is remembered"
    );
    let (error, _) = kernel.ask(&request(GETATTR, 99, &[0; 16]));
    assert_eq!(error, -Errno::STALE.raw_os_error());
}

#[test]
fn what_is_unknown_or_not_understood_is_refused() {
    let kernel = Kernel::start();
    let (error, _) = kernel.ask(&request(4095, 1, b""));
    assert_eq!(error, -Errno::NOSYS.raw_os_error());
    let (error, _) = kernel.ask(&request(LOOKUP, 1, b"no end"));
    assert_eq!(error, -Errno::IO.raw_os_error());
    let (error, _) = kernel.ask(&request(GETATTR, 1, &[0; 3]));
    assert_eq!(error, -Errno::IO.raw_os_error());
}

#[test]
fn what_is_forgotten_is_not_answered_even_if_it_is_not_understood() {
    let kernel = Kernel::start();
    kernel.send(&request(FORGET, 1, &[1; 8]));
    kernel.send(&request(FORGET, 1, &[1; 3]));
    kernel.send(&request(BATCH_FORGET, 0, &[9; 8]));
    let (error, _) = kernel.ask(&request(STATFS, 1, b""));
    assert_eq!(error, 0, "the first answer is to the first question");
}

#[test]
fn a_reply_that_is_dropped_is_an_error() {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let pair = socketpair(family, SocketType::SEQPACKET, flags, None);
    let (socket, device) = pair.expect("make sockets");
    let way = Way::Device(Vec::new());
    drop(Responder::new(Device::new(device), 7, way));
    let mut buffer = [0; 64];
    assert_eq!(rustix::io::read(&socket, &mut buffer), Ok(16));
    assert_eq!(buffer[4..8], (-5_i32).to_le_bytes());
    assert_eq!(buffer[8], 7);
}

/// Attributes of a line come before it.
const ENTRY_BYTES: usize = 128;
const LINE_BYTES: usize = 24;

fn number(bytes: &[u8]) -> u64 {
    let (first, _) = bytes.split_first_chunk().expect("a number");
    #[expect(clippy::host_endian_bytes, reason = "it was written here")]
    u64::from_ne_bytes(*first)
}

/// The lines of a listing with attributes: the file that the kernel gets to know, where the directory
/// goes on, and the name.
fn lines(mut listing: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    let mut lines = Vec::new();
    while !listing.is_empty() {
        let (node, line) = (number(listing), &listing[ENTRY_BYTES..]);
        let length = usize::from(line[16]);
        let name = line[LINE_BYTES..LINE_BYTES + length].to_vec();
        lines.push((node, number(&line[8..]), name));
        let whole = (ENTRY_BYTES + LINE_BYTES + length).next_multiple_of(8);
        listing = &listing[whole..];
    }
    lines
}

#[test]
fn files_of_a_listing_are_known_as_often_as_the_kernel_was_told() {
    let kernel = Kernel::start();
    let mut told = std::collections::BTreeMap::<u64, u64>::new();
    for file in 0..20 {
        let mut rest = [0o100_600_u32, 0, 0, 0].map(u32::to_ne_bytes).concat();
        rest.extend_from_slice(format!("file {file}\0").as_bytes());
        let (error, made) = kernel.ask(&request(MKNOD, 1, &rest));
        assert_eq!(error, 0);
        told.insert(number(&made), 1);
    }
    let (error, opened) = kernel.ask(&request(OPENDIR, 1, &[0; 8]));
    assert_eq!(error, 0);
    // Each answer has room for three lines and a half, so what did not fit is looked up again.
    let size = 590_u64;
    for _ in 0..2 {
        let mut from = 0;
        loop {
            let rest = [number(&opened), from, size, 0, 0].map(u64::to_ne_bytes);
            let (error, listing) = kernel.ask(&request(READDIRPLUS, 1, &rest.concat()));
            assert_eq!(error, 0);
            let lines = lines(&listing);
            let Some((_, next, _)) = lines.last() else {
                break;
            };
            from = *next;
            for (node, _, name) in lines {
                if name != b"." && name != b".." {
                    *told.entry(node).or_default() += 1;
                }
            }
        }
    }
    assert_eq!(told.len(), 20);
    assert!(told.values().all(|lookups| *lookups == 3), "{told:?}");
    for (node, lookups) in told {
        let node = u32::try_from(node).expect("few files");
        let is_known = || kernel.ask(&request(GETATTR, node, &[0; 16])).0 == 0;
        kernel.forget(node, lookups - 1);
        assert!(is_known(), "it is known once more");
        kernel.forget(node, 1);
        assert!(!is_known(), "it is forgotten");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Whatever comes, it goes on, and the next question is answered.
    #[test]
    fn nonsense_does_not_end_it(
        requests in prop::collection::vec(
            (1_u32..60, 0_u32..4, prop::collection::vec(any::<u8>(), 0..120)),
            1..20,
        ),
    ) {
        let kernel = Kernel::start();
        for (opcode, node, rest) in requests {
            kernel.send(&request(opcode, node, &rest));
        }
        let mut last = request(GETATTR, 1, &[0; 16]);
        last[8] = 3;
        kernel.send(&last);
        let mut answers = 0;
        while kernel.answer().0 == UNIQUE {
            answers += 1;
        }
        prop_assert!(answers <= 20);
    }
}
