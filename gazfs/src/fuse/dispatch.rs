//! Finds what answers a request.

use rustix::io::Errno;

use super::{
    WRITE_BYTES_MAX,
    filesystem::{Filesystem, NewFile, Request, SetAttributes, WriteRequest},
    reply::{
        ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek,
        ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, Responder,
    },
    wire::{Header, Operation},
};

/// Has a request answered. What needs no answer does not ask for `responder`.
#[expect(clippy::too_many_lines, reason = "one line for each kind of request")]
pub(super) fn dispatch<F: Filesystem>(
    fs: &F,
    header: &Header,
    operation: &Operation<'_>,
    responder: impl FnOnce() -> Responder,
) {
    let request = &Request::of(header);
    // The kernel asks for no more.
    let bounded = |size: u32| size.min(WRITE_BYTES_MAX);
    let node = header.node;
    match *operation {
        Operation::Forget { lookups } => fs.forget(node, lookups),
        Operation::BatchForget(forgotten) => {
            for (node, lookups) in forgotten.iter() {
                fs.forget(node, lookups);
            }
        }
        Operation::Interrupt { unique } => fs.interrupt(unique),
        Operation::Lookup { name } => fs.lookup(request, node, name, ReplyEntry::new(responder())),
        Operation::GetAttributes { handle } => {
            fs.getattr(request, node, handle, ReplyAttr::new(responder()));
        }
        Operation::GetMoreAttributes { handle } => {
            fs.statx(request, node, handle, ReplyStatx::new(responder()));
        }
        Operation::SetAttributes {
            handle,
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
        } => {
            let change = SetAttributes {
                mode,
                uid,
                gid,
                size,
                atime,
                mtime,
            };
            fs.setattr(request, node, handle, &change, ReplyAttr::new(responder()));
        }
        Operation::ReadLink => fs.readlink(request, node, ReplyData::new(responder())),
        Operation::Symlink { name, target } => {
            fs.symlink(request, node, name, target, ReplyEntry::new(responder()));
        }
        Operation::MakeNode {
            name,
            mode,
            umask,
            rdev,
        } => {
            fs.mknod(
                request,
                node,
                name,
                NewFile { mode, umask },
                rdev,
                ReplyEntry::new(responder()),
            );
        }
        Operation::MakeDirectory { name, mode, umask } => {
            fs.mkdir(
                request,
                node,
                name,
                NewFile { mode, umask },
                ReplyEntry::new(responder()),
            );
        }
        Operation::Unlink { name } => fs.unlink(request, node, name, ReplyEmpty::new(responder())),
        Operation::RemoveDirectory { name } => {
            fs.rmdir(request, node, name, ReplyEmpty::new(responder()));
        }
        Operation::Rename {
            from,
            to_node,
            to,
            flags,
        } => {
            let reply = ReplyEmpty::new(responder());
            fs.rename(request, (node, from), (to_node, to), flags, reply);
        }
        Operation::Link { node: linked, name } => {
            fs.link(request, linked, node, name, ReplyEntry::new(responder()));
        }
        Operation::Open { flags } => fs.open(request, node, flags, ReplyOpen::new(responder())),
        Operation::Create {
            name,
            flags,
            mode,
            umask,
        } => {
            fs.create(
                request,
                node,
                name,
                NewFile { mode, umask },
                flags,
                ReplyCreate::new(responder()),
            );
        }
        Operation::Unnamed { flags, mode, umask } => {
            fs.tmpfile(
                request,
                node,
                NewFile { mode, umask },
                flags,
                ReplyCreate::new(responder()),
            );
        }
        Operation::Read {
            handle,
            offset,
            size,
        } => {
            fs.read(
                request,
                handle,
                offset,
                bounded(size),
                ReplyData::new(responder()),
            );
        }
        Operation::Write {
            handle,
            offset,
            data,
            write_flags,
            flags,
        } => {
            let write = WriteRequest {
                handle,
                offset,
                data,
                flags,
                is_mapped: write_flags & WRITE_MAPPED != 0,
                drops_privileges: write_flags & WRITE_DROPS_PRIVILEGES != 0,
            };
            fs.write(request, &write, ReplyWrite::new(responder()));
        }
        Operation::Space => fs.statfs(request, ReplyStatfs::new(responder())),
        Operation::Release { handle } => {
            fs.release(request, handle, ReplyEmpty::new(responder()));
        }
        Operation::Sync { handle, .. } => fs.fsync(request, handle, ReplyEmpty::new(responder())),
        Operation::SyncAll => fs.syncfs(request, ReplyEmpty::new(responder())),
        Operation::SetXattr { name, value, flags } => {
            fs.setxattr(
                request,
                node,
                name,
                value,
                flags,
                ReplyEmpty::new(responder()),
            );
        }
        Operation::GetXattr { name, size } => {
            fs.getxattr(request, node, name, size, ReplyXattr::new(responder()));
        }
        Operation::ListXattr { size } => {
            fs.listxattr(request, node, size, ReplyXattr::new(responder()));
        }
        Operation::RemoveXattr { name } => {
            fs.removexattr(request, node, name, ReplyEmpty::new(responder()));
        }
        Operation::Flush { handle } => fs.flush(request, handle, ReplyEmpty::new(responder())),
        Operation::OpenDirectory { .. } => {
            fs.opendir(request, node, ReplyOpen::new(responder()));
        }
        Operation::ReadDirectory {
            handle,
            offset,
            size,
        } => {
            fs.readdir(
                request,
                node,
                handle,
                offset,
                ReplyDirectory::new(responder(), bounded(size)),
            );
        }
        Operation::ReadDirectoryPlus {
            handle,
            offset,
            size,
        } => {
            let reply = ReplyDirectory::new(responder(), bounded(size));
            fs.readdirplus(request, node, handle, offset, reply);
        }
        Operation::ReleaseDirectory { handle } => {
            fs.releasedir(request, handle, ReplyEmpty::new(responder()));
        }
        Operation::SyncDirectory { handle } => {
            fs.fsyncdir(request, handle, ReplyEmpty::new(responder()));
        }
        // The kernel checks modes itself.
        Operation::Access { .. } | Operation::Destroy => responder().bytes(&[]),
        Operation::Allocate {
            handle,
            offset,
            length,
            mode,
        } => {
            let reply = ReplyEmpty::new(responder());
            fs.fallocate(request, handle, offset, length, mode, reply);
        }
        Operation::Seek {
            handle,
            offset,
            whence,
        } => {
            fs.lseek(
                request,
                handle,
                offset,
                whence,
                ReplyLseek::new(responder()),
            );
        }
        Operation::Ioctl { .. } => responder().error(Errno::NOTTY),
        // Files are always ready then: a program that waits for the end of one with poll(2) must
        // not hang. And the kernel copies by reading and writing.
        Operation::Poll { .. } | Operation::CopyRange | Operation::Init | Operation::Unknown => {
            responder().error(Errno::NOSYS);
        }
    }
}

const WRITE_MAPPED: u32 = 1;
const WRITE_DROPS_PRIVILEGES: u32 = 1 << 2;
