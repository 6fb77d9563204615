//! What the kernel asks for.

use super::{Header, Malformed, Time, fields::Fields};

/// What the kernel asks for. Handles are numbers that this side gave out.
#[expect(missing_docs, reason = "names of fields are those of the system calls")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Looks a name up.
    Lookup { name: &'a [u8] },
    /// The kernel forgot the file so many times. There is no answer.
    Forget { lookups: u64 },
    /// The same of several. There is no answer.
    BatchForget(Forgotten<'a>),
    /// stat(2)
    GetAttributes { handle: Option<u64> },
    /// chmod(2), chown(2), truncate(2), utimensat(2)
    SetAttributes {
        handle: Option<u64>,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    },
    /// readlink(2)
    ReadLink,
    /// symlink(2)
    Symlink { name: &'a [u8], target: &'a [u8] },
    /// mknod(2)
    MakeNode {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    /// mkdir(2)
    MakeDirectory {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    /// unlink(2)
    Unlink { name: &'a [u8] },
    /// rmdir(2)
    RemoveDirectory { name: &'a [u8] },
    /// rename(2)
    Rename {
        from: &'a [u8],
        to_node: u64,
        to: &'a [u8],
        flags: u32,
    },
    /// link(2)
    Link { node: u64, name: &'a [u8] },
    /// open(2)
    Open { flags: u32 },
    /// read(2)
    Read { handle: u64, offset: u64, size: u32 },
    /// write(2). `flags` are those of the open file.
    Write {
        handle: u64,
        offset: u64,
        data: &'a [u8],
        write_flags: u32,
        flags: u32,
    },
    /// statfs(2)
    Space,
    /// The last descriptor of a handle was closed.
    Release { handle: u64 },
    /// fsync(2), fdatasync(2)
    Sync { handle: u64, is_data_only: bool },
    /// setxattr(2)
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
    },
    /// getxattr(2)
    GetXattr { name: &'a [u8], size: u32 },
    /// listxattr(2)
    ListXattr { size: u32 },
    /// removexattr(2)
    RemoveXattr { name: &'a [u8] },
    /// A descriptor of a handle was closed.
    Flush { handle: u64 },
    /// The first request.
    Init,
    /// opendir(3)
    OpenDirectory { flags: u32 },
    /// readdir(3)
    ReadDirectory { handle: u64, offset: u64, size: u32 },
    /// readdir(3), and attributes of each line.
    ReadDirectoryPlus { handle: u64, offset: u64, size: u32 },
    /// closedir(3)
    ReleaseDirectory { handle: u64 },
    /// fsync(2) of a directory
    SyncDirectory { handle: u64 },
    /// access(2)
    Access { mask: u32 },
    /// open(2) with `O_CREAT`
    Create {
        name: &'a [u8],
        flags: u32,
        mode: u32,
        umask: u32,
    },
    /// open(2) with `O_TMPFILE`
    Unnamed { flags: u32, mode: u32, umask: u32 },
    /// Whoever made a request got a signal.
    Interrupt { unique: u64 },
    /// The mount ends.
    Destroy,
    /// ioctl(2)
    Ioctl { handle: u64, command: u32 },
    /// poll(2)
    Poll { handle: u64 },
    /// fallocate(2)
    Allocate {
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    /// lseek(2) to data or a hole
    Seek {
        handle: u64,
        offset: i64,
        whence: u32,
    },
    /// `copy_file_range(2)`
    CopyRange,
    /// syncfs(2)
    SyncAll,
    /// statx(2)
    GetMoreAttributes { handle: Option<u64> },
    /// Something else.
    Unknown,
}

/// To what a time is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The moment.
    Now,
    /// A given one.
    To(Time),
}

/// Files that the kernel forgot, and how many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten<'a> {
    bytes: &'a [u8],
}

impl<'a> Forgotten<'a> {
    /// Files and how many times each was forgotten.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        self.bytes.chunks_exact(FORGOTTEN_BYTES).filter_map(|one| {
            let mut fields = Fields::new(one);
            Some((fields.u64().ok()?, fields.u64().ok()?))
        })
    }
}

/// How many bytes of arguments a request has before its payload of names and data.
pub fn argument_bytes(opcode: u32) -> usize {
    match opcode {
        FORGET | RENAME | LINK | OPEN | OPENDIR | SETXATTR | GETXATTR | LISTXATTR | ACCESS
        | INTERRUPT | MKDIR | BATCH_FORGET | SYNCFS => 8,
        GETATTR | MKNOD | CREATE | TMPFILE | RENAME2 | FSYNC | FSYNCDIR => 16,
        RELEASE | RELEASEDIR | FLUSH | LSEEK | STATX | POLL => 24,
        ALLOCATE | IOCTL => 32,
        READ | READDIR | READDIRPLUS | WRITE => 40,
        COPY_RANGE | COPY_RANGE_64 => 56,
        SETATTR => 88,
        _ => 0,
    }
}

/// Says whether the kernel waits for an answer to such a request.
pub fn is_answered(opcode: u32) -> bool {
    !matches!(opcode, FORGET | BATCH_FORGET | INTERRUPT)
}

impl<'a> Operation<'a> {
    /// Reads what is asked for from the arguments of a request and its payload.
    #[expect(clippy::too_many_lines, reason = "some lines for each kind of request")]
    pub fn decode(
        header: &Header,
        arguments: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Self, Malformed> {
        let mut fields = Fields::new(arguments);
        let mut payload = Fields::new(payload);
        Ok(match header.opcode {
            LOOKUP => Self::Lookup {
                name: payload.name()?,
            },
            FORGET => Self::Forget {
                lookups: fields.u64()?,
            },
            BATCH_FORGET => {
                let count = usize::try_from(fields.u32()?).map_err(|_| Malformed)?;
                let bytes = count.checked_mul(FORGOTTEN_BYTES).ok_or(Malformed)?;
                Self::BatchForget(Forgotten {
                    bytes: payload.take(bytes)?,
                })
            }
            GETATTR => {
                let flags = fields.u32()?;
                fields.skip(4)?;
                Self::GetAttributes {
                    handle: given(flags, GETATTR_HANDLE, fields.u64()?),
                }
            }
            STATX => {
                let flags = fields.u32()?;
                fields.skip(4)?;
                Self::GetMoreAttributes {
                    handle: given(flags, GETATTR_HANDLE, fields.u64()?),
                }
            }
            SETATTR => set_attributes(fields)?,
            READLINK => Self::ReadLink,
            SYMLINK => Self::Symlink {
                name: payload.name()?,
                target: payload.name()?,
            },
            MKNOD => {
                let (mode, rdev, umask) = (fields.u32()?, fields.u32()?, fields.u32()?);
                Self::MakeNode {
                    name: payload.name()?,
                    mode,
                    umask,
                    rdev,
                }
            }
            MKDIR => {
                let (mode, umask) = (fields.u32()?, fields.u32()?);
                Self::MakeDirectory {
                    name: payload.name()?,
                    mode,
                    umask,
                }
            }
            UNLINK => Self::Unlink {
                name: payload.name()?,
            },
            RMDIR => Self::RemoveDirectory {
                name: payload.name()?,
            },
            RENAME | RENAME2 => {
                let to_node = fields.u64()?;
                let flags = if header.opcode == RENAME2 {
                    fields.u32()?
                } else {
                    0
                };
                Self::Rename {
                    from: payload.name()?,
                    to_node,
                    to: payload.name()?,
                    flags,
                }
            }
            LINK => Self::Link {
                node: fields.u64()?,
                name: payload.name()?,
            },
            OPEN => Self::Open {
                flags: fields.u32()?,
            },
            OPENDIR => Self::OpenDirectory {
                flags: fields.u32()?,
            },
            READ | READDIR | READDIRPLUS => read(header.opcode, fields)?,
            WRITE => {
                let (handle, offset) = (fields.u64()?, fields.u64()?);
                let (size, write_flags) = (fields.u32()?, fields.u32()?);
                fields.skip(8)?;
                let flags = fields.u32()?;
                let data = payload.take(usize::try_from(size).map_err(|_| Malformed)?)?;
                Self::Write {
                    handle,
                    offset,
                    data,
                    write_flags,
                    flags,
                }
            }
            STATFS => Self::Space,
            RELEASE => Self::Release {
                handle: fields.u64()?,
            },
            RELEASEDIR => Self::ReleaseDirectory {
                handle: fields.u64()?,
            },
            FSYNC => {
                let (handle, flags) = (fields.u64()?, fields.u32()?);
                Self::Sync {
                    handle,
                    is_data_only: flags & SYNC_DATA_ONLY != 0,
                }
            }
            FSYNCDIR => Self::SyncDirectory {
                handle: fields.u64()?,
            },
            SETXATTR => {
                let (size, flags) = (fields.u32()?, fields.u32()?);
                let name = payload.name()?;
                let value = payload.take(usize::try_from(size).map_err(|_| Malformed)?)?;
                Self::SetXattr { name, value, flags }
            }
            GETXATTR => Self::GetXattr {
                size: fields.u32()?,
                name: payload.name()?,
            },
            LISTXATTR => Self::ListXattr {
                size: fields.u32()?,
            },
            REMOVEXATTR => Self::RemoveXattr {
                name: payload.name()?,
            },
            FLUSH => Self::Flush {
                handle: fields.u64()?,
            },
            INIT => Self::Init,
            ACCESS => Self::Access {
                mask: fields.u32()?,
            },
            CREATE | TMPFILE => create(header.opcode, fields, payload)?,
            INTERRUPT => Self::Interrupt {
                unique: fields.u64()?,
            },
            DESTROY => Self::Destroy,
            IOCTL => {
                let handle = fields.u64()?;
                fields.skip(4)?;
                Self::Ioctl {
                    handle,
                    command: fields.u32()?,
                }
            }
            POLL => Self::Poll {
                handle: fields.u64()?,
            },
            ALLOCATE => {
                let (handle, offset, length) = (fields.u64()?, fields.u64()?, fields.u64()?);
                Self::Allocate {
                    handle,
                    offset,
                    length,
                    mode: fields.u32()?,
                }
            }
            LSEEK => {
                let (handle, offset) = (fields.u64()?, fields.i64()?);
                Self::Seek {
                    handle,
                    offset,
                    whence: fields.u32()?,
                }
            }
            COPY_RANGE | COPY_RANGE_64 => Self::CopyRange,
            SYNCFS => Self::SyncAll,
            _ => Self::Unknown,
        })
    }
}

fn set_attributes(mut fields: Fields<'_>) -> Result<Operation<'static>, Malformed> {
    let valid = fields.u32()?;
    fields.skip(4)?;
    let (handle, size) = (fields.u64()?, fields.u64()?);
    fields.skip(8)?;
    let (atime, mtime, _ctime) = (fields.i64()?, fields.i64()?, fields.i64()?);
    let (atime_nanos, mtime_nanos, _ctime_nanos) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let mode = fields.u32()?;
    fields.skip(4)?;
    let (uid, gid) = (fields.u32()?, fields.u32()?);
    let time = |bit, now_bit, seconds, nanos| {
        let to = if valid & now_bit == 0 {
            SetTime::To(Time { seconds, nanos })
        } else {
            SetTime::Now
        };
        given(valid, bit, to)
    };
    Ok(Operation::SetAttributes {
        handle: given(valid, SET_HANDLE, handle),
        mode: given(valid, SET_MODE, mode),
        uid: given(valid, SET_UID, uid),
        gid: given(valid, SET_GID, gid),
        size: given(valid, SET_SIZE, size),
        atime: time(SET_ATIME, SET_ATIME_NOW, atime, atime_nanos),
        mtime: time(SET_MTIME, SET_MTIME_NOW, mtime, mtime_nanos),
    })
}

fn read(opcode: u32, mut fields: Fields<'_>) -> Result<Operation<'static>, Malformed> {
    let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
    Ok(match opcode {
        READDIR => Operation::ReadDirectory {
            handle,
            offset,
            size,
        },
        READDIRPLUS => Operation::ReadDirectoryPlus {
            handle,
            offset,
            size,
        },
        _ => Operation::Read {
            handle,
            offset,
            size,
        },
    })
}

fn create<'a>(
    opcode: u32,
    mut fields: Fields<'a>,
    mut payload: Fields<'a>,
) -> Result<Operation<'a>, Malformed> {
    let (flags, mode, umask) = (fields.u32()?, fields.u32()?, fields.u32()?);
    Ok(if opcode == TMPFILE {
        Operation::Unnamed { flags, mode, umask }
    } else {
        Operation::Create {
            name: payload.name()?,
            flags,
            mode,
            umask,
        }
    })
}

fn given<T>(flags: u32, bit: u32, value: T) -> Option<T> {
    (flags & bit != 0).then_some(value)
}

const FORGOTTEN_BYTES: usize = 16;

const GETATTR_HANDLE: u32 = 1;
const SYNC_DATA_ONLY: u32 = 1;

const SET_MODE: u32 = 1;
const SET_UID: u32 = 1 << 1;
const SET_GID: u32 = 1 << 2;
const SET_SIZE: u32 = 1 << 3;
const SET_ATIME: u32 = 1 << 4;
const SET_MTIME: u32 = 1 << 5;
const SET_HANDLE: u32 = 1 << 6;
const SET_ATIME_NOW: u32 = 1 << 7;
const SET_MTIME_NOW: u32 = 1 << 8;

pub(super) const LOOKUP: u32 = 1;
pub(super) const FORGET: u32 = 2;
pub(super) const GETATTR: u32 = 3;
pub(super) const SETATTR: u32 = 4;
pub(super) const READLINK: u32 = 5;
pub(super) const SYMLINK: u32 = 6;
pub(super) const MKNOD: u32 = 8;
pub(super) const MKDIR: u32 = 9;
pub(super) const UNLINK: u32 = 10;
pub(super) const RMDIR: u32 = 11;
pub(super) const RENAME: u32 = 12;
pub(super) const LINK: u32 = 13;
pub(super) const OPEN: u32 = 14;
pub(super) const READ: u32 = 15;
pub(super) const WRITE: u32 = 16;
pub(super) const STATFS: u32 = 17;
pub(super) const RELEASE: u32 = 18;
pub(super) const FSYNC: u32 = 20;
pub(super) const SETXATTR: u32 = 21;
pub(super) const GETXATTR: u32 = 22;
pub(super) const LISTXATTR: u32 = 23;
pub(super) const REMOVEXATTR: u32 = 24;
pub(super) const FLUSH: u32 = 25;
pub(super) const INIT: u32 = 26;
pub(super) const OPENDIR: u32 = 27;
pub(super) const READDIR: u32 = 28;
pub(super) const RELEASEDIR: u32 = 29;
pub(super) const FSYNCDIR: u32 = 30;
pub(super) const ACCESS: u32 = 34;
pub(super) const CREATE: u32 = 35;
pub(super) const INTERRUPT: u32 = 36;
pub(super) const DESTROY: u32 = 38;
pub(super) const IOCTL: u32 = 39;
pub(super) const POLL: u32 = 40;
pub(super) const BATCH_FORGET: u32 = 42;
pub(super) const ALLOCATE: u32 = 43;
pub(super) const READDIRPLUS: u32 = 44;
pub(super) const RENAME2: u32 = 45;
pub(super) const LSEEK: u32 = 46;
pub(super) const COPY_RANGE: u32 = 47;
pub(super) const SYNCFS: u32 = 50;
pub(super) const TMPFILE: u32 = 51;
pub(super) const STATX: u32 = 52;
pub(super) const COPY_RANGE_64: u32 = 53;
