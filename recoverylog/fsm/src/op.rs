//! Recorded ops.

use bytes::{BufMut, Bytes, BytesMut};

use crate::proto::ProtoError;
use crate::{AttributeChange, Fnode, Inode, SizeChange, Timestamp};

mod decode;
mod encode;
mod fields;

pub(crate) use decode::decode_time;
pub(crate) use encode::{encode_time, mode_number, mode_of};

/// The word that each frame begins with.
pub const FRAME_MAGIC: [u8; 4] = [0x66, 0x33, 0x93, 0x36];

/// Bytes of a frame before its payload: the magic word, and the length in little-endian order.
pub const FRAME_HEADER_BYTES: usize = 8;

/// How a log says what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Directories are fnodes, and links name (parent, name). Every operation of a file system is
    /// one op or a small group.
    Native,
    /// Paths are whole. Content is as a reader sees it who knows the base ops only.
    Compat,
}

/// An op with the fields that all ops have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOp {
    /// Its number, from 1.
    pub seq_no: i64,
    /// The chain's checksum before it.
    pub checksum: u32,
    /// Number of the author that wrote it. Zero is not valid, but can be read.
    pub author: u32,
    /// When it was recorded; the first op of each append has it.
    pub time: Option<Timestamp>,
    /// The group that it is part of; an op without one is a group of its own.
    pub group: Option<Group>,
    /// The mode of the log. Claims and the root directory of native logs say it.
    pub mode: Option<Mode>,
    /// What happened.
    pub body: Body,
    /// Bytes of content that follow the frame although another action counts: of several actions in
    /// one op the first counts, but a write among them still has its content. Never written.
    pub stray_content: i64,
}

/// Part of one mutation, which a recovery has whole or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The sequence number of the group's first op.
    pub first: i64,
    /// This op is its last.
    pub last: bool,
}

/// Name of a link as an op has it. In a native log a name below a parent; otherwise the parent is
/// zero, and the path whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LinkName {
    /// The directory; zero is the root directory.
    pub parent: Fnode,
    /// The name, or the path.
    pub path: Bytes,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Nothing to the files.
    NoOp {
        /// What it stands for.
        mark: Option<Mark>,
    },
    /// A file came to be; its fnode is the op's sequence number.
    Create {
        /// Its first name.
        at: LinkName,
        /// What it is; without it, a regular file with attributes unknown.
        inode: Option<Inode>,
    },
    /// A file got another name.
    Link {
        /// The file.
        fnode: Fnode,
        /// The name.
        at: LinkName,
    },
    /// A file lost a name.
    Unlink {
        /// The file.
        fnode: Fnode,
        /// The name.
        at: LinkName,
    },
    /// Content was written. It follows the frame.
    Write(Write),
    /// Something else about a file changed.
    Change {
        /// The file.
        fnode: Fnode,
        /// What.
        change: Change,
        /// The file's mtime after it.
        mtime: Option<Timestamp>,
    },
    /// A small file outside of fnodes has this content.
    Property {
        /// Its path.
        path: Bytes,
        /// The whole content.
        content: Bytes,
    },
}

/// A write, whose content follows the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Write {
    /// The file.
    pub fnode: Fnode,
    /// First byte.
    pub offset: i64,
    /// Bytes.
    pub length: i64,
    /// CRC-32C of the content.
    pub crc32c: Option<u32>,
    /// The file's mtime after it.
    pub mtime: Option<Timestamp>,
    /// It repeats content that an earlier op wrote, so that the earlier one may go.
    pub rerecorded: bool,
}

/// A change of a file that is no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Attributes were set.
    Attributes(AttributeChange),
    /// An extended attribute was set.
    SetXattr {
        /// Its name.
        name: Bytes,
        /// Its value.
        value: Bytes,
    },
    /// An extended attribute was removed.
    RemoveXattr {
        /// Its name.
        name: Bytes,
    },
    /// Size or holes changed. Without an mtime it repeats the size that the file has, so that the
    /// earlier op may go.
    Size(SizeChange),
    /// Nothing: all that is known of the file but its content is said again, so that the earlier ops
    /// may go.
    Restated(Box<Restated>),
}

/// A file as it is, but for its content and size.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restated {
    /// What it is.
    pub inode: Inode,
    /// Last access, if a program set it.
    pub atime: Option<Timestamp>,
    /// Its names, at least one.
    pub links: Vec<LinkName>,
    /// Its extended attributes: names and values.
    pub xattrs: Vec<(Bytes, Bytes)>,
}

/// What a no-op stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// The author claims the log.
    Claim,
    /// Nothing happened; the log says the time, or carries registers.
    Idle,
    /// A point that a program asked for (a checkpoint), with what it said.
    Checkpoint(Bytes),
    /// A repetition of the whole tree begins.
    SnapshotBegin,
    /// It is complete.
    SnapshotEnd,
    /// The tree is being taken over from elsewhere; the log is not valid until the end of it.
    SeedBegin,
    /// It is complete.
    SeedEnd,
    /// A remark for people.
    Text(Bytes),
    /// A mark of a later version.
    Other {
        /// Its number.
        kind: u64,
        /// Its content.
        content: Bytes,
    },
}

/// Why a frame's payload is no op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// It is not a protobuf message of this shape.
    #[error(transparent)]
    Proto(#[from] ProtoError),
    /// An offset, a length or a size is negative, or too large.
    #[error("an offset or length is out of range")]
    Range,
    /// A time's nanoseconds are a second or more.
    #[error("a time is not valid")]
    Time,
    /// A kind of file that does not exist.
    #[error("a file of the unknown kind {0}")]
    Kind(u64),
    /// A change carries content, or several changes are in one op.
    #[error("the op says several things at once")]
    Ambiguous,
    /// A mode that does not exist.
    #[error("the unknown mode {0} of a log")]
    Mode(u64),
    /// A frame claims more bytes than any op has.
    #[error("a frame claims {0} bytes")]
    FrameTooLong(u32),
    /// Content has another CRC than its op says.
    #[error("content has CRC-32C {actual:08x}, but was recorded with {expected:08x}")]
    Content {
        /// What the op says.
        expected: u32,
        /// What was read.
        actual: u32,
    },
}

/// Returns the chain's checksum after a frame, from the one before it and the frame's payload as it
/// lies in the log.
pub fn chain(previous: u32, frame_payload: &[u8]) -> u32 {
    crc32c::crc32c_append(previous, frame_payload)
}

impl Body {
    /// Whether it says again what the log had said before, so that the earlier op may go. It changes nothing.
    pub fn is_repeat(&self) -> bool {
        match self {
            Self::Write(write) => write.rerecorded,
            Self::Change { change, mtime, .. } => match change {
                Change::Restated(_) => true,
                Change::Size(SizeChange::Truncate { .. }) => mtime.is_none(),
                Change::Size(_)
                | Change::Attributes(_)
                | Change::SetXattr { .. }
                | Change::RemoveXattr { .. } => false,
            },
            Self::NoOp { .. }
            | Self::Create { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::Property { .. } => false,
        }
    }
}

impl RecordedOp {
    /// Makes an op without time, group or mode.
    pub const fn new(seq_no: i64, checksum: u32, author: u32, body: Body) -> Self {
        Self {
            seq_no,
            checksum,
            author,
            time: None,
            group: None,
            mode: None,
            body,
            stray_content: 0,
        }
    }

    /// Appends the op's frame, and returns the chain's checksum after it. The content of a write
    /// must follow.
    pub fn encode_frame(&self, out: &mut BytesMut) -> u32 {
        let message = encode::encode(self);
        let payload = message.as_slice();
        let length = u32::try_from(payload.len()).expect("an op is far smaller than 4 GiB");
        out.reserve(FRAME_HEADER_BYTES + payload.len());
        out.extend_from_slice(&FRAME_MAGIC);
        out.put_u32_le(length);
        out.extend_from_slice(payload);
        chain(self.checksum, payload)
    }

    /// Decodes the payload of a frame.
    pub fn decode(payload: Bytes) -> Result<Self, OpError> {
        decode::decode(payload)
    }

    /// Returns how many bytes of content follow the frame; fewer than none is damage.
    pub fn content_length(&self) -> i64 {
        match &self.body {
            Body::Write(write) => write.length,
            Body::NoOp { .. }
            | Body::Create { .. }
            | Body::Link { .. }
            | Body::Unlink { .. }
            | Body::Change { .. }
            | Body::Property { .. } => self.stray_content,
        }
    }

    /// Returns the file that the op is about.
    pub fn fnode(&self) -> Option<Fnode> {
        match &self.body {
            Body::Create { .. } => Some(Fnode(self.seq_no)),
            Body::Link { fnode, .. } | Body::Unlink { fnode, .. } | Body::Change { fnode, .. } => {
                Some(*fnode)
            }
            Body::Write(write) => Some(write.fnode),
            Body::NoOp { .. } | Body::Property { .. } => None,
        }
    }

    /// Tells whether a recovery may end behind this op.
    pub fn ends_group(&self) -> bool {
        self.group.is_none_or(|group| group.last)
    }
}
