//! What a step does to the files.

use bytes::Bytes;
use gazette_recoverylog_fsm::image::pick_size_change;
use gazette_recoverylog_fsm::{AttributeChange, Inode, Kind, Mutation, Timestamp};

use super::{Run, Step};
use crate::files::File;

impl Run {
    pub(super) fn create(
        &mut self,
        at: Option<(usize, &[u8])>,
        kind: Kind,
        pick: usize,
        now: Timestamp,
    ) {
        let inode = Inode {
            kind,
            mode: 0o600 + pick as u32 % 64,
            uid: pick as u32 % 3,
            gid: pick as u32 % 5,
            rdev: if matches!(kind, Kind::CharDevice | Kind::BlockDevice) {
                0x105
            } else {
                0
            },
            target: if kind == Kind::Symlink {
                "../elsewhere".into()
            } else {
                Bytes::new()
            },
            mtime: now,
        };
        let place = at.map(|(parent, name)| self.place(parent, name));
        let id = self.files.files.len();
        let file = File {
            inode: inode.clone(),
            unnamed: at.is_none(),
            ..File::default()
        };
        self.mutate(
            &Mutation::Create {
                at: place,
                inode: &inode,
            },
            id,
            now,
            |files| {
                files.files.push(file);
                if let Some((parent, name)) = at {
                    files.add(parent, name, id);
                }
            },
        );
    }

    pub(super) fn content(&mut self, step: &Step, id: usize, pick: usize, now: Timestamp) {
        let size = self.files.files[id].content.len();
        let offset = if pick.is_multiple_of(2) {
            size
        } else {
            step.offset as usize
        };
        let length = step.length as usize;
        let data: Vec<u8> = match pick % 5 {
            0 => vec![0; length],
            _ => (0..length).map(|at| (at * 7 + pick) as u8 | 1).collect(),
        };
        let write = Mutation::Write {
            fnode: self.fnodes[id],
            offset: offset as u64,
            data: &data,
            mtime: now,
        };
        self.mutate(&write, id, now, |files| {
            files.files[id].write(offset, &data, now);
        });
    }

    pub(super) fn size(&mut self, step: &Step, id: usize, pick: usize, now: Timestamp) {
        let (offset, length) = (u64::from(step.offset), u64::from(step.length));
        let size = self.files.files[id].content.len() as u64;
        let change = pick_size_change(pick as u64, size, offset, length);
        let mutation = Mutation::Size {
            fnode: self.fnodes[id],
            change,
            mtime: now,
        };
        self.mutate(&mutation, id, now, |files| {
            files.files[id].size(change, now);
        });
    }

    fn is_empty(&self, id: usize) -> bool {
        self.files.files[id].entries.is_empty()
    }

    fn is_directory(&self, id: usize) -> bool {
        self.files.files[id].inode.kind == Kind::Directory
    }

    pub(super) fn unlink(&mut self, (parent, name, id): &(usize, Vec<u8>, usize), now: Timestamp) {
        if self.is_empty(*id) {
            let at = self.place(*parent, name);
            self.mutate(&Mutation::Unlink { at }, *id, now, |files| {
                files.remove(*parent, name);
            });
        }
    }

    pub(super) fn rename(
        &mut self,
        (parent, name, id): &(usize, Vec<u8>, usize),
        to: usize,
        to_name: &[u8],
        now: Timestamp,
    ) {
        if self.is_directory(*id) && self.files.is_within(to, *id) {
            return;
        }
        let replaced = self.files.files[to].entries.get(to_name).copied();
        let fits = replaced.is_none_or(|replaced| {
            self.is_directory(replaced) == self.is_directory(*id) && self.is_empty(replaced)
        });
        if !fits || replaced == Some(*id) && (to, to_name) == (*parent, name) {
            return;
        }
        let (from, at) = (self.place(*parent, name), self.place(to, to_name));
        let mutation = Mutation::Rename {
            from,
            to: at,
            exchange: false,
        };
        self.mutate(&mutation, *id, now, |files| {
            if replaced == Some(*id) {
                // Two names of one file: nothing happens.
                return;
            }
            if replaced.is_some() {
                files.remove(to, to_name);
            }
            files.add(to, to_name, *id);
            files.remove(*parent, name);
        });
    }

    pub(super) fn exchange(
        &mut self,
        (one, one_name, first): &(usize, Vec<u8>, usize),
        (other, other_name, second): &(usize, Vec<u8>, usize),
        now: Timestamp,
    ) {
        let within = |run: &Self, directory: usize, id: usize| {
            run.is_directory(id) && run.files.is_within(directory, id)
        };
        if within(self, *one, *second) || within(self, *other, *first) {
            return;
        }
        let (from, to) = (self.place(*one, one_name), self.place(*other, other_name));
        let mutation = Mutation::Rename {
            from,
            to,
            exchange: true,
        };
        self.mutate(&mutation, *first, now, |files| {
            if first != second {
                files.files[*one].entries.insert(one_name.clone(), *second);
                files.files[*other]
                    .entries
                    .insert(other_name.clone(), *first);
            }
        });
    }

    pub(super) fn attributes(&mut self, id: usize, pick: usize, now: Timestamp) {
        let change = AttributeChange {
            mode: (pick.is_multiple_of(2)).then_some(pick as u32),
            uid: (pick.is_multiple_of(3)).then_some(7),
            gid: (pick.is_multiple_of(5)).then_some(0),
            atime: (pick.is_multiple_of(7)).then_some(now),
            mtime: (pick.is_multiple_of(11)).then_some(Timestamp {
                seconds: -3,
                nanos: 999_999_999,
            }),
        };
        let mutation = Mutation::Attributes {
            fnode: self.fnodes[id],
            change,
        };
        self.mutate(&mutation, id, now, |files| {
            files.files[id].attributes(change);
        });
    }

    pub(super) fn xattrs(&mut self, id: usize, name: &[u8], pick: usize, now: Timestamp) {
        let name = [&b"trusted."[..], name].concat();
        let fnode = self.fnodes[id];
        if pick.is_multiple_of(3) {
            self.mutate(
                &Mutation::RemoveXattr { fnode, name: &name },
                id,
                now,
                |files| {
                    files.files[id].xattrs.remove(&name);
                },
            );
        } else {
            let value = vec![pick as u8; pick % 40];
            let mutation = Mutation::SetXattr {
                fnode,
                name: &name,
                value: &value,
            };
            self.mutate(&mutation, id, now, |files| {
                files.files[id].xattrs.insert(name.clone(), value.clone());
            });
        }
    }

    pub(super) fn release(&mut self, pick: usize, now: Timestamp) {
        let id = pick % self.files.files.len();
        self.mutate(
            &Mutation::Release {
                fnode: self.fnodes[id],
            },
            id,
            now,
            |files| {
                files.files[id].unnamed = false;
            },
        );
    }
}
