//! Lines of directories.

use super::{
    Adapter,
    convert::{TTL, file_attributes, kind_bits},
};
use crate::{
    fuse::ReplyDirectory,
    recorded::{HandleId, Ino, Line, log::Log},
};

impl<L: Log> Adapter<L> {
    /// Names.
    pub(super) fn list(&self, handle: HandleId, offset: u64, mut reply: ReplyDirectory) {
        let add =
            |line: Line<'_>| reply.add(line.ino.0, line.next, kind_bits(line.kind), line.name);
        match self.fs.read_directory(handle, offset, add) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.errno()),
        }
    }

    /// Names, and the files that they are of, which the kernel knows then.
    pub(super) fn list_plus(
        &self,
        directory: Ino,
        handle: HandleId,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let add = |line: Line<'_>| {
            let is_dots = matches!(line.name, b"." | b"..");
            let found = if is_dots {
                self.fs.attributes(directory, None)
            } else {
                self.fs.look_up(directory, line.name)
            };
            let Ok(mut attributes) = found else {
                // It went away meanwhile.
                return false;
            };
            // What was looked up is what the kernel gets to know, and forgets. The number in the line
            // may be another: of an overlay, or of a file that had the name before.
            if is_dots {
                attributes.ino = line.ino;
            }
            let known = attributes.ino;
            let attributes = file_attributes(&attributes);
            let is_full = reply.add_plus(&attributes, TTL, line.next, line.name);
            if is_full && !is_dots {
                self.fs.forget(known, 1);
            }
            is_full
        };
        match self.fs.read_directory(handle, offset, add) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.errno()),
        }
    }
}
