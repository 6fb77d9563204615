//! What the kernel is answered.

use std::time::Duration;

/// A moment, in seconds since 1970 and nanoseconds after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Whole seconds, also before 1970.
    pub seconds: i64,
    /// Nanoseconds after that.
    pub nanos: u32,
}

/// What stat(2) tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Number of the file.
    pub ino: u64,
    /// Tells files apart that have one number after another.
    pub generation: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes that it takes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// When it was made, if that is known.
    pub btime: Option<Time>,
    /// Kind and permission bits.
    pub mode: u32,
    /// How many names it has.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device.
    pub rdev: u32,
    /// Bytes that programs should read at once.
    pub block_bytes: u32,
}

/// What statfs(2) tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks.
    pub blocks: u64,
    /// Those that are free.
    pub free: u64,
    /// Those of them that any user may take.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Those that are free.
    pub files_free: u64,
    /// The longest name, in bytes.
    pub name_bytes_max: u32,
}

/// What the kernel does with a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenFlags(u32);

impl OpenFlags {
    /// Nothing in particular.
    pub const NONE: Self = Self(0);
    /// Reads and writes go around the pages of the mount.
    pub const DIRECT: Self = Self(1);
    /// Pages that the kernel has of the file are right.
    pub const KEEP_PAGES: Self = Self(1 << 1);
    /// The kernel remembers the lines of a directory.
    pub const KEEP_LINES: Self = Self(1 << 3);
    /// A close is not told.
    pub const NO_FLUSH: Self = Self(1 << 5);
    /// The kernel reads and writes the backing file itself.
    const PASSTHROUGH: Self = Self(1 << 7);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// An answer, without what each begins with.
#[derive(Debug, Clone)]
pub struct Answer {
    bytes: [u8; ANSWER_BYTES_MAX],
    length: usize,
}

impl Answer {
    /// Begins with nothing.
    pub fn new() -> Self {
        Self {
            bytes: [0; ANSWER_BYTES_MAX],
            length: 0,
        }
    }

    /// What was put into it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// A file that was looked up or made. The kernel believes the name and the attributes so long.
    pub fn entry(attributes: &Attributes, name_ttl: Duration, attributes_ttl: Duration) -> Self {
        let mut out = Self::new();
        out.put_entry(attributes, name_ttl, attributes_ttl);
        out
    }

    /// A name that is not there. The kernel believes that so long.
    pub fn no_entry(name_ttl: Duration) -> Self {
        Self::entry(&Attributes::default(), name_ttl, Duration::ZERO)
    }

    /// What stat(2) tells.
    pub fn attributes(attributes: &Attributes, ttl: Duration) -> Self {
        let mut out = Self::new();
        out.u64(ttl.as_secs())
            .u32(ttl.subsec_nanos())
            .u32(0)
            .put_attributes(attributes);
        out
    }

    /// What statx(2) tells.
    pub fn more_attributes(attributes: &Attributes, ttl: Duration) -> Self {
        let mut out = Self::new();
        let born = if attributes.btime.is_some() {
            STATX_BTIME
        } else {
            0
        };
        out.u64(ttl.as_secs()).u32(ttl.subsec_nanos()).zeros(4 + 16);
        out.u32(STATX_BASIC | born)
            .u32(attributes.block_bytes)
            .u64(0);
        out.u32(attributes.nlink)
            .u32(attributes.uid)
            .u32(attributes.gid);
        out.u16(u16::try_from(attributes.mode).unwrap_or(0)).u16(0);
        out.u64(attributes.ino)
            .u64(attributes.size)
            .u64(attributes.blocks)
            .u64(0);
        let times = [
            attributes.atime,
            attributes.btime.unwrap_or_default(),
            attributes.ctime,
            attributes.mtime,
        ];
        for time in times {
            out.u64(time.seconds.cast_unsigned()).u32(time.nanos).u32(0);
        }
        let (major, minor) = device_numbers(attributes.rdev);
        out.u32(major).u32(minor).zeros(8 + 14 * 8);
        out
    }

    /// An open file.
    pub fn opened(handle: u64, flags: OpenFlags, backing: Option<u32>) -> Self {
        let mut out = Self::new();
        out.put_opened(handle, flags, backing);
        out
    }

    /// A new file that is open.
    pub fn created(
        attributes: &Attributes,
        ttl: Duration,
        (handle, flags, backing): (u64, OpenFlags, Option<u32>),
    ) -> Self {
        let mut out = Self::new();
        out.put_entry(attributes, ttl, ttl)
            .put_opened(handle, flags, backing);
        out
    }

    /// How many bytes were written.
    pub fn written(length: u32) -> Self {
        let mut out = Self::new();
        out.u32(length).u32(0);
        out
    }

    /// How long an attribute is.
    pub fn xattr_size(length: u32) -> Self {
        Self::written(length)
    }

    /// Where something was found.
    pub fn offset(offset: u64) -> Self {
        let mut out = Self::new();
        out.u64(offset);
        out
    }

    /// What statfs(2) tells.
    pub fn space(space: &Space) -> Self {
        let mut out = Self::new();
        out.u64(space.blocks).u64(space.free).u64(space.available);
        out.u64(space.files).u64(space.files_free);
        out.u32(space.block_bytes)
            .u32(space.name_bytes_max)
            .u32(space.block_bytes);
        out.zeros(4 + 6 * 4);
        out
    }

    fn put_entry(
        &mut self,
        attributes: &Attributes,
        name_ttl: Duration,
        attributes_ttl: Duration,
    ) -> &mut Self {
        self.u64(attributes.ino).u64(attributes.generation);
        self.u64(name_ttl.as_secs()).u64(attributes_ttl.as_secs());
        self.u32(name_ttl.subsec_nanos())
            .u32(attributes_ttl.subsec_nanos());
        self.put_attributes(attributes)
    }

    fn put_attributes(&mut self, attributes: &Attributes) -> &mut Self {
        let Attributes {
            atime,
            mtime,
            ctime,
            ..
        } = attributes;
        self.u64(attributes.ino)
            .u64(attributes.size)
            .u64(attributes.blocks);
        for time in [atime, mtime, ctime] {
            self.u64(time.seconds.cast_unsigned());
        }
        self.u32(atime.nanos).u32(mtime.nanos).u32(ctime.nanos);
        self.u32(attributes.mode).u32(attributes.nlink);
        self.u32(attributes.uid)
            .u32(attributes.gid)
            .u32(attributes.rdev);
        self.u32(attributes.block_bytes).u32(0)
    }

    fn put_opened(&mut self, handle: u64, flags: OpenFlags, backing: Option<u32>) -> &mut Self {
        let flags = backing.map_or(flags, |_| flags.and(OpenFlags::PASSTHROUGH));
        self.u64(handle).u32(flags.0).u32(backing.unwrap_or(0))
    }

    pub(super) fn u16(&mut self, number: u16) -> &mut Self {
        #[expect(
            clippy::host_endian_bytes,
            reason = "the kernel of this machine reads it"
        )]
        self.put(&number.to_ne_bytes())
    }

    pub(super) fn u32(&mut self, number: u32) -> &mut Self {
        #[expect(
            clippy::host_endian_bytes,
            reason = "the kernel of this machine reads it"
        )]
        self.put(&number.to_ne_bytes())
    }

    pub(super) fn u64(&mut self, number: u64) -> &mut Self {
        #[expect(
            clippy::host_endian_bytes,
            reason = "the kernel of this machine reads it"
        )]
        self.put(&number.to_ne_bytes())
    }

    pub(super) fn zeros(&mut self, count: usize) -> &mut Self {
        // It began with zeros.
        self.length = (self.length + count).min(ANSWER_BYTES_MAX);
        self
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        let end = self.length + bytes.len();
        assert!(end <= ANSWER_BYTES_MAX, "each answer is known, and fits");
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
        self
    }
}

impl Default for Answer {
    fn default() -> Self {
        Self::new()
    }
}

/// Lines of a directory, as many as the kernel asked for.
#[derive(Debug)]
pub struct Lines {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Lines {
    /// Begins with nothing. At most so many bytes fit.
    pub fn new(bytes_max: u32) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(0);
        Self {
            bytes: Vec::with_capacity(bytes_max),
            bytes_max,
        }
    }

    /// Adds a line, after which the directory goes on at `next`. Returns `false` if it does not fit.
    pub fn add(&mut self, ino: u64, next: u64, mode: u32, name: &[u8]) -> bool {
        self.add_after(&[], ino, next, mode, name)
    }

    /// Adds a line and what stat(2) tells of it, which the kernel believes so long. `ino` is that of
    /// the line. Returns `false` if it does not fit.
    pub fn add_plus(
        &mut self,
        attributes: &Attributes,
        ttl: Duration,
        (ino, next): (u64, u64),
        name: &[u8],
    ) -> bool {
        let entry = Answer::entry(attributes, ttl, ttl);
        self.add_after(entry.bytes(), ino, next, attributes.mode, name)
    }

    fn add_after(&mut self, entry: &[u8], ino: u64, next: u64, mode: u32, name: &[u8]) -> bool {
        let length = entry.len() + LINE_BYTES + name.len();
        let padded = length.next_multiple_of(LINE_ALIGNMENT);
        if self.bytes.len() + padded > self.bytes_max {
            return false;
        }
        let mut line = Answer::new();
        line.u64(ino).u64(next);
        line.u32(u32::try_from(name.len()).unwrap_or(u32::MAX))
            .u32((mode & KIND_BITS) >> KIND_SHIFT);
        self.bytes.extend_from_slice(entry);
        self.bytes.extend_from_slice(line.bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(self.bytes.len() + padded - length, 0);
        true
    }

    /// What was put into it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Splits the number of a device as the kernel joined it.
fn device_numbers(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, rdev & 0xff | (rdev >> 12) & 0xfff00)
}

/// That of statx(2) is the longest.
const ANSWER_BYTES_MAX: usize = 288;

const LINE_BYTES: usize = 24;
const LINE_ALIGNMENT: usize = 8;

const KIND_BITS: u32 = 0o170_000;
const KIND_SHIFT: u32 = 12;

const STATX_BASIC: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;
