//! Bytes of the kernel, and bytes that no kernel sends.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    Answer, Attributes, Capabilities, HEADER_BYTES, Header, Init, Lines, Malformed, Offer,
    OpenFlags, Operation, SetTime, Space, Time, argument_bytes, operation, split, stale_inode,
};

/// A request as the kernel puts it together.
fn request(opcode: u32, arguments: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = HEADER_BYTES + arguments.len() + payload.len();
    let mut out = Answer::new();
    out.u32(u32::try_from(length).expect("it is short"))
        .u32(opcode)
        .u64(7)
        .u64(1)
        .u32(1000)
        .u32(100)
        .u32(4711)
        .u32(0);
    [out.bytes(), arguments, payload].concat()
}

fn decode(request: &[u8]) -> Result<Operation<'_>, Malformed> {
    let (header, arguments, payload) = split(request)?;
    Operation::decode(&header, arguments, payload)
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    let mut out = Answer::new();
    for number in numbers {
        out.u32(*number);
    }
    out.bytes().to_vec()
}

#[test]
fn who_asks_is_in_each_header() {
    let request = request(operation::READLINK, &[], &[]);
    let (header, arguments, payload) = split(&request).expect("it is one");
    assert_eq!(
        header,
        Header {
            length: 40,
            opcode: operation::READLINK,
            unique: 7,
            node: 1,
            uid: 1000,
            gid: 100,
            pid: 4711,
            extension_bytes: 0,
        }
    );
    assert!(arguments.is_empty() && payload.is_empty());
}

#[test]
fn names_end_at_a_zero_and_one_that_does_not_is_refused() {
    let rename = request(operation::RENAME2, &numbers(&[9, 0, 2, 0]), b"old\0new\0");
    let expected = Operation::Rename {
        from: b"old",
        to_node: 9,
        to: b"new",
        flags: 2,
    };
    assert_eq!(decode(&rename), Ok(expected));
    let cut = request(operation::RENAME2, &numbers(&[9, 0, 2, 0]), b"old\0new");
    assert_eq!(decode(&cut), Err(Malformed));
    let none = request(operation::LOOKUP, &[], b"");
    assert_eq!(decode(&none), Err(Malformed));
}

#[test]
fn a_write_has_as_much_data_as_it_says() {
    let arguments = numbers(&[3, 0, 4096, 0, 5, 1, 0, 0, 0o2001, 0]);
    let write = request(operation::WRITE, &arguments, b"hello and more");
    let expected = Operation::Write {
        handle: 3,
        offset: 4096,
        data: b"hello",
        write_flags: 1,
        flags: 0o2001,
    };
    assert_eq!(decode(&write), Ok(expected));
    let short = request(operation::WRITE, &arguments, b"hell");
    assert_eq!(decode(&short), Err(Malformed));
}

#[test]
fn only_what_is_marked_is_set() {
    let mut arguments = vec![0; argument_bytes(operation::SETATTR)];
    arguments[0] = 1 | 1 << 4 | 1 << 5;
    arguments[1] = 1;
    arguments[32..40].fill(0xff);
    arguments[56..60].copy_from_slice(&numbers(&[5]));
    arguments[68..72].copy_from_slice(&numbers(&[0o644]));
    let set = request(operation::SETATTR, &arguments, &[]);
    let before_1970 = Time {
        seconds: -1,
        nanos: 5,
    };
    let expected = Operation::SetAttributes {
        handle: None,
        mode: Some(0o644),
        uid: None,
        gid: None,
        size: None,
        atime: Some(SetTime::To(before_1970)),
        mtime: Some(SetTime::Now),
    };
    assert_eq!(decode(&set), Ok(expected));
}

#[test]
fn several_are_forgotten_at_once() {
    let pairs = numbers(&[5, 0, 1, 0, 6, 0, 2, 0]);
    let forget = request(operation::BATCH_FORGET, &numbers(&[2, 0]), &pairs);
    let Ok(Operation::BatchForget(forgotten)) = decode(&forget) else {
        panic!("it is not understood");
    };
    assert_eq!(forgotten.iter().collect::<Vec<_>>(), [(5, 1), (6, 2)]);
    let more = request(operation::BATCH_FORGET, &numbers(&[u32::MAX, 0]), &pairs);
    assert_eq!(decode(&more), Err(Malformed));
}

// The kernel adds what says more of who asks, which is not part of the name.
#[test]
fn extensions_are_not_taken_for_payload() {
    let mut lookup = request(operation::LOOKUP, &[], b"name\0\0\0\0extended");
    lookup[36] = 1;
    let (header, _, payload) = split(&lookup).expect("it is one");
    assert_eq!(header.extension_bytes, 8);
    assert_eq!(payload, b"name\0\0\0\0");
    lookup[36] = 0xff;
    assert_eq!(split(&lookup), Err(Malformed));
}

#[test]
fn what_is_not_known_is_told_apart_from_what_is_not_understood() {
    assert_eq!(decode(&request(4095, &[], &[])), Ok(Operation::Unknown));
    assert_eq!(decode(&[]), Err(Malformed));
}

#[test]
fn answers_have_the_sizes_that_the_kernel_wants() {
    let attributes = Attributes {
        btime: Some(Time::default()),
        ..Attributes::default()
    };
    let (ttl, opened) = (Duration::ZERO, (1, OpenFlags::NONE, None));
    let space = Space {
        block_bytes: 1,
        blocks: 1,
        free: 1,
        available: 1,
        files: 1,
        files_free: 1,
        name_bytes_max: 255,
    };
    for (answer, size) in [
        (Answer::entry(&attributes, ttl, ttl), 128),
        (Answer::no_entry(ttl), 128),
        (Answer::attributes(&attributes, ttl), 104),
        (Answer::more_attributes(&attributes, ttl), 288),
        (Answer::opened(1, OpenFlags::NONE, Some(2)), 16),
        (Answer::created(&attributes, ttl, opened), 144),
        (Answer::written(1), 8),
        (Answer::offset(1), 8),
        (Answer::space(&space), 80),
        (stale_inode(1, 0, 0), 24),
    ] {
        assert_eq!(answer.bytes().len(), size);
    }
}

/// Reads a number out of an answer.
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from(bytes[at]) | u32::from(bytes[at + 1]) << 8 | u32::from(bytes[at + 2]) << 16
}

#[test]
fn statx_tells_when_a_file_was_made_only_if_that_is_known() {
    let attributes = Attributes {
        mode: 0o100_644,
        // Device 259:3, as the kernel joins them.
        rdev: 0x0001_0303,
        btime: Some(Time {
            seconds: 77,
            nanos: 5,
        }),
        ..Attributes::default()
    };
    let answer = Answer::more_attributes(&attributes, Duration::ZERO);
    let statx = &answer.bytes()[32..];
    assert_eq!(number(statx, 0), 0xfff);
    assert_eq!(number(statx, 28), 0o100_644);
    assert_eq!((number(statx, 80), number(statx, 88)), (77, 5));
    assert_eq!((number(statx, 128), number(statx, 132)), (0x103, 3));
    let unborn = Attributes {
        btime: None,
        ..attributes
    };
    let answer = Answer::more_attributes(&unborn, Duration::ZERO);
    assert_eq!(number(answer.bytes(), 32), 0x7ff);
}

#[test]
fn lines_of_a_directory_fit_or_are_left_for_the_next_answer() {
    let mut lines = Lines::new(100);
    assert!(lines.add(5, 1, 0o040_755, b"."));
    assert!(lines.add(6, 2, 0o100_644, b"12345678"));
    assert!(!lines.add(7, 3, 0o100_644, b"123456789"));
    assert!(lines.add(7, 3, 0o100_644, b"1234"));
    assert_eq!(lines.bytes().len(), 32 + 32 + 32);
    assert_eq!(number(lines.bytes(), 20), 4, "a directory");
    assert_eq!(&lines.bytes()[56..64], b"12345678");
}

/// The first request of Linux 6.18.
const INIT_OF_LINUX_6_18: &[u8] = include_bytes!("golden/init-6.18");

#[test]
fn what_the_kernel_offers_is_taken_if_it_is_wanted() {
    let (header, _, payload) = split(INIT_OF_LINUX_6_18).expect("it is one");
    assert_eq!(header.opcode, operation::INIT);
    let offer = Offer::decode(payload).expect("it is one");
    assert_eq!((offer.major, offer.minor), (7, 45));
    assert!(offer.is_understood());
    let init = Init {
        wanted: Capabilities::IO_URING.and(Capabilities::PASSTHROUGH),
        write_bytes_max: 1 << 20,
        background_max: 64,
    };
    let agreed = init.agreed(&offer);
    assert!(agreed.has(init.wanted) && agreed.has(Capabilities::BIG_WRITES));
    assert!(!agreed.has(Capabilities::LINES_PLUS));
    let answer = init.answer(&offer, 4096);
    let bytes = answer.bytes();
    assert_eq!(bytes.len(), 64);
    assert_eq!((number(bytes, 0), number(bytes, 4)), (7, 45));
    assert_eq!(number(bytes, 16), 64 | 48 << 16);
    assert_eq!((number(bytes, 20), number(bytes, 28)), (1 << 20, 256));
    // Bits 37 and 41, and files may lie on another file system.
    assert_eq!((number(bytes, 32), number(bytes, 36)), (1 << 5 | 1 << 9, 1));

    let off = Init {
        wanted: Capabilities::NONE,
        ..init
    };
    assert_eq!(number(off.answer(&offer, 4096).bytes(), 36), 0);
}

#[test]
fn old_kernels_and_other_majors_are_not_understood() {
    for (major, minor) in [(7, 30), (6, 45), (8, 0)] {
        let offer = Offer::decode(&numbers(&[major, minor, 0, 0])).expect("it is one");
        assert!(!offer.is_understood());
    }
}

/// Requests that this kernel sent, one after another.
const REQUESTS_OF_LINUX_6_18: &[u8] = include_bytes!("golden/requests-6.18");

#[test]
fn requests_of_this_kernel_are_understood() {
    let mut rest = REQUESTS_OF_LINUX_6_18;
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let header = Header::decode(rest).expect("it is one");
        let length = usize::try_from(header.length).expect("it is short");
        let (request, after) = rest.split_at(length);
        rest = after;
        let operation = decode(request);
        assert!(operation.is_ok_and(|operation| operation != Operation::Unknown));
        seen.push(header.opcode);
        for shorter in HEADER_BYTES..length {
            // What is cut off shows, or was not needed.
            let mut cut = request[..shorter].to_vec();
            cut[..4].copy_from_slice(&numbers(&[u32::try_from(shorter).expect("short")]));
            let _refused = decode(&cut);
        }
    }
    seen.sort_unstable();
    seen.dedup();
    for opcode in [
        operation::LOOKUP,
        operation::FORGET,
        operation::BATCH_FORGET,
        operation::GETATTR,
        operation::SETATTR,
        operation::READLINK,
        operation::SYMLINK,
        operation::MKNOD,
        operation::MKDIR,
        operation::UNLINK,
        operation::RMDIR,
        operation::RENAME2,
        operation::LINK,
        operation::OPEN,
        operation::READ,
        operation::WRITE,
        operation::STATFS,
        operation::RELEASE,
        operation::FSYNC,
        operation::SETXATTR,
        operation::GETXATTR,
        operation::LISTXATTR,
        operation::REMOVEXATTR,
        operation::OPENDIR,
        operation::READDIR,
        operation::RELEASEDIR,
        operation::FSYNCDIR,
        operation::CREATE,
        operation::ALLOCATE,
        operation::READDIRPLUS,
        operation::LSEEK,
        operation::TMPFILE,
        operation::STATX,
    ] {
        assert!(seen.contains(&opcode), "{opcode} is not among them");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _refused = decode(&bytes);
        let _refused = Offer::decode(&bytes);
        if let Ok(Operation::BatchForget(forgotten)) = decode(&bytes) {
            prop_assert!(forgotten.iter().count() <= bytes.len());
        }
    }

    // Most bytes are refused for their length; these are not.
    #[test]
    fn no_arguments_make_it_panic(
        opcode in 0_u32..60,
        arguments in prop::collection::vec(any::<u8>(), 0..200),
        extension in any::<u8>(),
    ) {
        let mut bytes = request(opcode, &[], &arguments);
        bytes[36] = extension;
        if let Ok(Operation::BatchForget(forgotten)) = decode(&bytes) {
            prop_assert!(forgotten.iter().count() <= arguments.len());
        }
    }

    #[test]
    fn requests_of_the_kernel_with_some_other_bytes_do_not_make_it_panic(
        at in 0..REQUESTS_OF_LINUX_6_18.len(),
        bytes in prop::collection::vec(any::<u8>(), 1..8),
    ) {
        let mut requests = REQUESTS_OF_LINUX_6_18.to_vec();
        for (offset, byte) in bytes.iter().enumerate() {
            if let Some(old) = requests.get_mut(at + offset) {
                *old = *byte;
            }
        }
        let mut rest = &requests[..];
        while let Ok(header) = Header::decode(rest) {
            let length = usize::try_from(header.length).unwrap_or(usize::MAX).max(HEADER_BYTES);
            let Some((request, after)) = rest.split_at_checked(length) else { break };
            let _refused = decode(request);
            rest = after;
        }
    }

    #[test]
    fn a_line_says_what_was_put_into_it(
        ino in any::<u64>(),
        name in prop::collection::vec(1_u8..255, 1..256),
        room in 0_u32..600,
    ) {
        let mut lines = Lines::new(room);
        let fits = lines.add(ino, 9, 0o100_644, &name);
        let needed = (24 + name.len()).next_multiple_of(8);
        prop_assert_eq!(fits, needed <= usize::try_from(room).expect("short"));
        if fits {
            prop_assert_eq!(lines.bytes().len(), needed);
            prop_assert_eq!(&lines.bytes()[24..24 + name.len()], &name[..]);
        }
    }
}
