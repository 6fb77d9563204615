//! What a loss of power left, and its way to and from a folder of a real file system.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::content::Content;
use super::model::{Ino, Meta, Model, ModelError, New, ROOT};

/// The tree that is there after a loss of power.
#[derive(Debug, Clone, Default)]
pub struct Survivors {
    inodes: BTreeMap<Ino, (u32, Survivor)>,
}

/// One file, folder or link of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Survivor {
    /// A file.
    File(Content),
    /// A folder.
    Folder(BTreeMap<OsString, Ino>),
    /// A symbolic link.
    Link(OsString),
}

impl Survivors {
    /// Adds one, of which nothing is known yet about where it is.
    pub fn insert(&mut self, ino: Ino, mode: u32, survivor: Survivor) {
        self.inodes.insert(ino, (mode, survivor));
    }

    /// Returns all that can be reached from the top, each before what is in it.
    pub fn walk(&self) -> Vec<(PathBuf, Ino, &Survivor)> {
        let mut found = Vec::new();
        let mut pending = vec![(PathBuf::new(), ROOT)];
        while let Some((path, ino)) = pending.pop() {
            let Some((_, survivor)) = self.inodes.get(&ino) else {
                continue;
            };
            if let Survivor::Folder(names) = survivor {
                pending.extend(names.iter().map(|(name, ino)| (path.join(name), *ino)));
            }
            found.push((path, ino, survivor));
        }
        found.sort_by(|left, right| left.0.cmp(&right.0));
        found
    }

    /// Returns the content of all files.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for (path, _, survivor) in self.walk() {
            if let Survivor::File(content) = survivor {
                let size = usize::try_from(content.size()).unwrap_or(usize::MAX);
                files.insert(path, content.read(0, size));
            }
        }
        files
    }

    /// Writes the tree into `folder`, which exists and is empty.
    pub fn write_to(&self, folder: &Path) -> io::Result<()> {
        let mut written: BTreeMap<Ino, PathBuf> = BTreeMap::new();
        for (path, ino, survivor) in self.walk() {
            let path = folder.join(path);
            let mode = self.inodes.get(&ino).map_or(0, |(mode, _)| mode & 0o7777);
            match survivor {
                Survivor::Folder(_) if ino == ROOT => {}
                Survivor::Folder(_) => {
                    fs::create_dir(&path)?;
                    fs::set_permissions(&path, Permissions::from_mode(mode))?;
                }
                Survivor::Link(target) => symlink(target, &path)?,
                Survivor::File(content) => {
                    if let Some(first) = written.get(&ino) {
                        fs::hard_link(first, &path)?;
                    } else {
                        write_file(&path, mode, content)?;
                        written.insert(ino, path);
                    }
                }
            }
        }
        Ok(())
    }
}

fn write_file(path: &Path, mode: u32, content: &Content) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    for (offset, bytes) in content
        .pages()
        .filter(|(offset, _)| *offset < content.size())
    {
        file.write_all_at(bytes, offset)?;
    }
    file.set_len(content.size())
}

/// Reads a folder of a real file system into a new model, where all of it is durable.
pub fn load(folder: &Path) -> io::Result<Model> {
    let mut model = Model::new(meta_of(&fs::metadata(folder)?)?);
    let mut pending = vec![(folder.to_owned(), ROOT)];
    while let Some((folder, ino)) = pending.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let metadata = entry.metadata()?;
            let new = if metadata.is_dir() {
                New::Folder
            } else if metadata.is_symlink() {
                New::Link(fs::read_link(&path)?.into_os_string())
            } else if metadata.is_file() {
                New::File
            } else {
                continue;
            };
            let made = model.create(ino, &name, new.clone(), meta_of(&metadata)?);
            let made = made.map_err(unexpected)?;
            match new {
                New::Folder => pending.push((path, made)),
                New::File => {
                    let bytes = fs::read(&path)?;
                    model.file_mut(made).map_err(unexpected)?.write(0, &bytes);
                }
                New::Link(_) | New::Special => {}
            }
        }
    }
    model.sync_all();
    Ok(model)
}

fn meta_of(metadata: &fs::Metadata) -> io::Result<Meta> {
    Ok(Meta {
        mode: metadata.mode(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        atime: metadata.accessed()?,
        mtime: metadata.modified()?,
        ctime: metadata.modified()?,
    })
}

fn unexpected(error: ModelError) -> io::Error {
    io::Error::other(format!("load a file: {error:?}"))
}
