//! Keys of items, members and assignments.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use gazette_protocol::{clean_path, process_spec::Id};

/// Separates the parts of a key. Every byte of a name must sort after it, so that the order of
/// keys is the order of their parts.
pub const SEPARATOR: u8 = b'#';

/// Builds and takes apart the keys under a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    root: String,
}

/// A key in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// Key of an item.
    Item {
        /// Name of the item.
        id: &'a str,
    },
    /// Key of a member.
    Member {
        /// Its identity.
        id: Id,
    },
    /// Key of an assignment.
    Assignment {
        /// Name of the item.
        item: &'a str,
        /// The member that it is assigned to.
        member: Id,
        /// Zero for the primary.
        slot: u32,
    },
}

/// A key that is none of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The root has superfluous parts, or ends with a slash.
    #[error("root {root:?} is not the shortest form of a path; next: use {clean:?}")]
    UncleanRoot {
        /// What was given.
        root: String,
        /// Its shortest form.
        clean: String,
    },
    /// The key is not under `items/`, `members/` or `assign/` of the root.
    #[error("key is not of an item, a member or an assignment")]
    Foreign,
    /// The key has too few or too many parts.
    #[error("key has {found} parts, expected {expected}")]
    Parts {
        /// Parts of the key.
        found: usize,
        /// Parts of a key of its kind.
        expected: usize,
    },
    /// A part is empty, or has a byte that sorts before the separator.
    #[error("part {part:?} of the key is empty or has a character that sorts before '#'")]
    Part {
        /// The part.
        part: String,
    },
    /// The slot is not a number.
    #[error("slot {slot:?} is not a number")]
    Slot {
        /// The last part of the key.
        slot: String,
    },
}

impl Keys {
    /// Returns the keys under `root`, such as `/gazette/cluster`.
    pub fn new(root: impl Into<String>) -> Result<Self, KeyError> {
        let root = root.into();
        if clean_path::is_clean(&root) && root != "/" {
            return Ok(Self { root });
        }
        let clean = clean_path::clean(&root);
        Err(KeyError::UncleanRoot { root, clean })
    }

    /// The root, which is also the prefix to mirror.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Key of an item.
    pub fn item(&self, id: &str) -> Bytes {
        format!("{}/{ITEMS}/{id}", self.root).into()
    }

    /// Key of a member.
    pub fn member(&self, id: &Id) -> Bytes {
        format!("{}/{MEMBERS}/{}#{}", self.root, id.zone, id.suffix).into()
    }

    /// Key of an assignment.
    pub fn assignment(&self, item: &str, member: &Id, slot: u32) -> Bytes {
        format!(
            "{}/{ASSIGN}/{item}#{}#{}#{slot}",
            self.root, member.zone, member.suffix
        )
        .into()
    }

    /// Prefix of all items, or of those whose names begin with `names`.
    pub fn items(&self, names: &str) -> Bytes {
        format!("{}/{ITEMS}/{names}", self.root).into()
    }

    /// Prefix of all members.
    pub fn members(&self) -> Bytes {
        format!("{}/{MEMBERS}/", self.root).into()
    }

    /// Prefix of all assignments.
    pub fn assignments(&self) -> Bytes {
        format!("{}/{ASSIGN}/", self.root).into()
    }

    /// Prefix of the assignments of an item.
    pub fn assignments_of(&self, item: &str) -> Bytes {
        format!("{}/{ASSIGN}/{item}#", self.root).into()
    }

    /// Takes a key apart.
    pub fn parse<'a>(&self, key: &'a [u8]) -> Result<Key<'a>, KeyError> {
        let key = str::from_utf8(key).map_err(|_| KeyError::Foreign)?;
        let path = key
            .strip_prefix(&self.root)
            .and_then(|path| path.strip_prefix('/'));
        let (kind, rest) = path
            .and_then(|path| path.split_once('/'))
            .ok_or(KeyError::Foreign)?;
        match kind {
            ITEMS => {
                let [id] = parts(rest)?;
                Ok(Key::Item { id })
            }
            MEMBERS => {
                let [zone, suffix] = parts(rest)?;
                Ok(Key::Member {
                    id: Id::new(zone, suffix),
                })
            }
            ASSIGN => {
                let [item, zone, suffix, slot] = parts(rest)?;
                let number = slot.parse().ok().filter(|_| !slot.starts_with('+'));
                let slot = number.ok_or_else(|| KeyError::Slot {
                    slot: slot.to_owned(),
                })?;
                Ok(Key::Assignment {
                    item,
                    member: Id::new(zone, suffix),
                    slot,
                })
            }
            _ => Err(KeyError::Foreign),
        }
    }
}

fn parts<const N: usize>(key: &str) -> Result<[&str; N], KeyError> {
    let parts: Vec<_> = key.split(char::from(SEPARATOR)).collect();
    let bad = |part: &&&str| part.is_empty() || part.bytes().any(|byte| byte <= SEPARATOR);
    if let Some(part) = parts.iter().find(bad) {
        return Err(KeyError::Part {
            part: (*part).to_owned(),
        });
    }
    let found = parts.len();
    parts
        .try_into()
        .map_err(|_| KeyError::Parts { found, expected: N })
}

const ITEMS: &str = "items";
const MEMBERS: &str = "members";
const ASSIGN: &str = "assign";
