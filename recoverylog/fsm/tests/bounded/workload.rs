//! What programs do to files.

use gazette_recoverylog_fsm::image::pick_size_change;
use gazette_recoverylog_fsm::{
    AttributeChange, Fnode, Inode, Kind as FileKind, Mutation, Place, SizeChange,
};

use crate::world::World;

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// All operations, at random.
    Everything,
    /// Pages of one preallocated file are written again, at random.
    RewriteInPlace,
    /// So are those of a small part of it, while the rest and other files hardly change.
    RewriteHotPart,
    /// The same with little live, so that all of it is cleaned often.
    RewriteLittle,
    /// A few bytes at a time are appended to a file, which is cut when it is large.
    AppendSmall,
    /// A journal that is cut to nothing after each transaction, beside a database.
    Truncate,
    /// Small files are made, replaced and removed.
    SmallFiles,
    /// The same files are renamed again and again.
    RenameForEver,
}

/// A generator of numbers (xorshift), so that a run depends on its seed only.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let limit = of.len() as u64;
        (limit > 0).then(|| of[self.below(limit) as usize])
    }

    fn data(&mut self, length: u64) -> Vec<u8> {
        let first = self.next();
        (0..length)
            .map(|at| (at.wrapping_mul(31) ^ first) as u8 | 1)
            .collect()
    }
}

const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];

pub(super) fn run(world: &mut World, kind: Kind, seed: u64, steps: usize) {
    let mut random = Random(seed | 1);
    for _ in 0..3 {
        random.next();
    }
    match kind {
        Kind::Everything => {
            for _ in 0..steps {
                for _ in 0..=random.below(3) {
                    anything(world, &mut random);
                }
                world.end_step();
            }
        }
        Kind::RewriteInPlace => {
            let file = preallocated(world, b"data", 64);
            for _ in 0..steps {
                let page = random.below(64);
                write(world, &mut random, file, page * 4096, 4096);
                world.end_step();
            }
        }
        Kind::RewriteHotPart | Kind::RewriteLittle => {
            let (pages, count) = if kind == Kind::RewriteLittle {
                (8, 4)
            } else {
                (64, 20)
            };
            let file = preallocated(world, b"data", pages);
            let others: Vec<Fnode> = (0..count)
                .map(|of| create(world, &[b'x', b'a' + of]))
                .collect();
            for other in &others {
                write(world, &mut random, *other, 0, 3000);
            }
            for page in 0..pages {
                write(world, &mut random, file, page * 4096, 4096);
                world.end_step();
            }
            for _ in 0..steps {
                let offset = random.below(8 * 4096 - 700);
                write(world, &mut random, file, offset, 700);
                if random.below(40) == 0 {
                    let other = others[random.below(count.into()) as usize];
                    write(world, &mut random, other, 0, 3000);
                }
                world.end_step();
            }
        }
        Kind::AppendSmall => {
            let file = create(world, b"text");
            for _ in 0..steps {
                let size = world.size(file);
                if size > 40_000 {
                    resize(world, file, SizeChange::Truncate { size: 17 });
                } else {
                    let length = 1 + random.below(60);
                    write(world, &mut random, file, size, length);
                }
                world.end_step();
            }
        }
        Kind::Truncate => {
            let (data, journal) = (preallocated(world, b"data", 40), create(world, b"journal"));
            for _ in 0..steps {
                let page = random.below(40);
                write(world, &mut random, journal, 0, 512);
                write(world, &mut random, journal, 512, 4104);
                write(world, &mut random, data, page * 4096, 4096);
                resize(world, journal, SizeChange::Truncate { size: 0 });
                world.end_step();
            }
        }
        Kind::SmallFiles => {
            for _ in 0..steps {
                let name = [b'n', b'0' + random.below(40) as u8];
                let place = Place {
                    parent: Fnode::ROOT,
                    name: &name,
                };
                world.mutate(&Mutation::Unlink { at: place });
                let file = create(world, b"new");
                let length = 1 + random.below(6000);
                write(world, &mut random, file, 0, length);
                let from = Place {
                    parent: Fnode::ROOT,
                    name: b"new",
                };
                world.mutate(&Mutation::Rename {
                    from,
                    to: place,
                    exchange: false,
                });
                world.end_step();
            }
        }
        Kind::RenameForEver => {
            for name in [b"one", b"two"] {
                let file = create(world, name);
                write(world, &mut random, file, 0, 9000);
            }
            for step in 0..steps {
                let (from, to): (&[u8], &[u8]) = if step % 2 == 0 {
                    (b"one", b"other")
                } else {
                    (b"other", b"one")
                };
                let [from, to] = [from, to].map(|name| Place {
                    parent: Fnode::ROOT,
                    name,
                });
                world.mutate(&Mutation::Rename {
                    from,
                    to,
                    exchange: false,
                });
                world.end_step();
            }
        }
    }
}

fn create(world: &mut World, name: &[u8]) -> Fnode {
    let inode = Inode {
        mode: 0o644,
        mtime: world.now(),
        ..Inode::default()
    };
    let at = Some(Place {
        parent: Fnode::ROOT,
        name,
    });
    world
        .mutate(&Mutation::Create { at, inode: &inode })
        .unwrap()
}

fn preallocated(world: &mut World, name: &[u8], pages: u64) -> Fnode {
    let file = create(world, name);
    resize(world, file, SizeChange::Truncate { size: pages * 4096 });
    file
}

fn write(world: &mut World, random: &mut Random, fnode: Fnode, offset: u64, length: u64) {
    let (data, mtime) = (random.data(length), world.now());
    world.mutate(&Mutation::Write {
        fnode,
        offset,
        data: &data,
        mtime,
    });
}

fn resize(world: &mut World, fnode: Fnode, change: SizeChange) {
    let mtime = world.now();
    world.mutate(&Mutation::Size {
        fnode,
        change,
        mtime,
    });
}

fn anything(world: &mut World, random: &mut Random) {
    let tree = world.writer.tree();
    let of_kind = |kind: FileKind| -> Vec<Fnode> {
        let fnodes = tree.fnodes();
        fnodes
            .filter(|fnode| tree.kind(*fnode) == Some(kind))
            .collect()
    };
    let regular = of_kind(FileKind::Regular);
    let directories = of_kind(FileKind::Directory);
    let all: Vec<Fnode> = tree.fnodes().collect();
    let (directory, other) = (
        random.pick(&directories).unwrap(),
        random.pick(&directories).unwrap(),
    );
    let (name, new) = (random.pick(&NAMES).unwrap(), random.pick(&NAMES).unwrap());
    let place = Place {
        parent: directory,
        name,
    };
    let to = Place {
        parent: other,
        name: new,
    };
    let file = random.pick(&regular);
    let any = random.pick(&all).unwrap();
    match random.below(40) {
        0..=5 => {
            let kinds = [
                FileKind::Regular,
                FileKind::Regular,
                FileKind::Regular,
                FileKind::Directory,
                FileKind::Symlink,
                FileKind::Fifo,
            ];
            let kind = random.pick(&kinds).unwrap();
            let inode = Inode {
                kind,
                mode: random.below(0o1000) as u32,
                uid: random.below(3) as u32,
                target: if kind == FileKind::Symlink {
                    "there".into()
                } else {
                    "".into()
                },
                mtime: world.now(),
                ..Inode::default()
            };
            let unnamed = kind == FileKind::Regular && random.below(8) == 0;
            let at = (!unnamed).then_some(place);
            world.mutate(&Mutation::Create { at, inode: &inode });
        }
        6..=18 => {
            let Some(file) = file else { return };
            let size = world.size(file);
            let offset = match random.below(4) {
                0 => size,
                1 => random.below(30_000),
                2 => random.below(7) * 4096,
                _ => random.below(size + 1),
            };
            let length = match random.below(3) {
                0 => 4096 * (1 + random.below(3)),
                1 => 1 + random.below(200),
                _ => 1 + random.below(9000),
            };
            write(world, random, file, offset, length);
        }
        19..=24 => {
            let Some(file) = file else { return };
            let (size, offset) = (world.size(file), random.below(30_000));
            let length = 1 + random.below(12_000);
            let change = pick_size_change(random.below(6), size, offset, length);
            resize(world, file, change);
        }
        25 | 26 => {
            world.mutate(&Mutation::Link { fnode: any, at: to });
        }
        27..=29 => {
            world.mutate(&Mutation::Unlink { at: place });
        }
        30..=33 => {
            let exchange = random.below(3) == 0;
            let exists = |at: Place<'_>| tree.lookup(at.parent, at.name);
            // As file systems have it: a directory replaces directories only.
            let fits = match (exists(place), exists(to)) {
                (Some(from), Some(to)) => {
                    exchange
                        || (tree.kind(from) == Some(FileKind::Directory))
                            == (tree.kind(to) == Some(FileKind::Directory))
                }
                _ => true,
            };
            if fits && place != to {
                world.mutate(&Mutation::Rename {
                    from: place,
                    to,
                    exchange,
                });
            }
        }
        34 | 35 => {
            let change = AttributeChange {
                mode: (random.below(2) == 0).then(|| random.below(0o1000) as u32),
                uid: (random.below(2) == 0).then(|| random.below(9) as u32),
                gid: (random.below(3) == 0).then(|| random.below(9) as u32),
                atime: (random.below(3) == 0).then(|| world.now()),
                mtime: (random.below(3) == 0).then(|| world.now()),
            };
            world.mutate(&Mutation::Attributes { fnode: any, change });
        }
        36 | 37 => {
            let value = random.data(5);
            world.mutate(&Mutation::SetXattr {
                fnode: any,
                name: new,
                value: &value,
            });
        }
        38 => {
            world.mutate(&Mutation::RemoveXattr {
                fnode: any,
                name: new,
            });
        }
        _ => {
            let unnamed: Vec<Fnode> = tree.unnamed().collect();
            if let Some(fnode) = random.pick(&unnamed) {
                world.mutate(&Mutation::Release { fnode });
            }
        }
    }
}
