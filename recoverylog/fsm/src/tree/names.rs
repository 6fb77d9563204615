//! Names that a log may use, and those that are reserved.

use bytes::Bytes;

use crate::op::LinkName;
use crate::{Fnode, Mode};

/// Most bytes of a name, as Linux has it.
const NAME_BYTES_MAX: usize = 255;

/// In a `compat` log the file that stands for its directory.
pub(crate) const DIRECTORY_FILE: &[u8] = b".gzdir";

/// In a `compat` log the beginning of the names, in the root directory, of files that have no name.
const HIDDEN_PREFIX: &[u8] = b".gztmp.";

/// The folder in which the reference's player stages files: a live file of that name breaks it.
const STAGING: &[u8] = b".fnodes";

/// Why a name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is no name of a file: empty, `.`, `..`, or with `/` or NUL, or too long.
    #[error("it is no name of a file")]
    Invalid,
    /// It leads out of the directory.
    #[error("it leads out of the directory")]
    Escapes,
    /// Logs use it for themselves.
    #[error("it is reserved")]
    Reserved,
}

pub(crate) fn check_name(name: &[u8]) -> Result<(), NameError> {
    match name {
        b".." => Err(NameError::Escapes),
        b"" | b"." => Err(NameError::Invalid),
        _ if name.len() > NAME_BYTES_MAX => Err(NameError::Invalid),
        _ if name.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(NameError::Invalid),
        _ => Ok(()),
    }
}

/// Checks a name that a program wants to use.
pub(crate) fn check_new_name(mode: Mode, parent: Fnode, name: &[u8]) -> Result<(), NameError> {
    check_name(name)?;
    let reserved = match mode {
        Mode::Native => false,
        Mode::Compat => {
            name == DIRECTORY_FILE
                || parent == Fnode::ROOT && (name == STAGING || name.starts_with(HIDDEN_PREFIX))
        }
    };
    if reserved {
        Err(NameError::Reserved)
    } else {
        Ok(())
    }
}

/// Where an op's link leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A name in a directory, which a native log gives by its fnode.
    Name(Fnode, Bytes),
    /// Names from the root directory on; at least one.
    Path(Vec<Bytes>),
    /// Out of sight: the root directory itself, or a file that has no name.
    Hidden(Bytes),
}

pub(super) fn parse(mode: Mode, at: &LinkName) -> Result<Target, NameError> {
    match mode {
        Mode::Native => {
            if at.parent == Fnode::ROOT
                && let Some(number) = at.path.strip_prefix(b"/")
                && number.iter().all(u8::is_ascii_digit)
            {
                return Ok(Target::Hidden(at.path.clone()));
            }
            check_name(&at.path)?;
            Ok(Target::Name(at.parent, at.path.clone()))
        }
        Mode::Compat => {
            let mut names = Vec::new();
            for name in at.path.split(|byte| *byte == b'/') {
                if name.is_empty() || name == b"." {
                    continue;
                }
                check_name(name)?;
                names.push(at.path.slice_ref(name));
            }
            match names.first() {
                None => Err(NameError::Invalid),
                Some(first) if first.starts_with(HIDDEN_PREFIX) => {
                    Ok(Target::Hidden(at.path.clone()))
                }
                Some(_) => Ok(Target::Path(names)),
            }
        }
    }
}

/// Name of a file that has no name, by the sequence number of an op.
pub(crate) fn hidden(mode: Mode, seq_no: i64) -> LinkName {
    let path = match mode {
        Mode::Native => format!("/{seq_no}"),
        Mode::Compat => format!("/{}{seq_no}", String::from_utf8_lossy(HIDDEN_PREFIX)),
    };
    LinkName {
        parent: Fnode::ROOT,
        path: path.into(),
    }
}

/// Name of the root directory's own inode.
pub(crate) fn root(mode: Mode) -> LinkName {
    let path: &'static [u8] = match mode {
        Mode::Native => b"/",
        Mode::Compat => b"/.gzdir",
    };
    LinkName {
        parent: Fnode::ROOT,
        path: Bytes::from_static(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(parent: i64, path: &'static str) -> LinkName {
        LinkName {
            parent: Fnode(parent),
            path: path.into(),
        }
    }

    #[test]
    fn names_that_escape_are_refused() {
        for name in ["..", ".", "", "a/b", "a\0b", "/a", "/1x", "//"] {
            assert!(parse(Mode::Native, &link(0, name)).is_err(), "{name:?}");
        }
        for path in ["/../x", "..", "/a/../../x", "", "/", "/a\0b"] {
            assert!(parse(Mode::Compat, &link(0, path)).is_err(), "{path:?}");
        }
        assert!(
            parse(Mode::Native, &link(5, "/")).is_err(),
            "only the root directory hides names"
        );
    }

    #[test]
    fn paths_of_the_reference_are_cleaned() {
        for path in ["/a/b", "a/b", "//a/./b/"] {
            let names = vec!["a".into(), "b".into()];
            assert_eq!(parse(Mode::Compat, &link(0, path)), Ok(Target::Path(names)));
        }
    }

    #[test]
    fn hidden_places_are_out_of_sight() {
        for mode in [Mode::Native, Mode::Compat] {
            let at = hidden(mode, 12);
            assert_eq!(parse(mode, &at), Ok(Target::Hidden(at.path.clone())));
        }
        assert!(matches!(
            parse(Mode::Native, &root(Mode::Native)),
            Ok(Target::Hidden(_))
        ));
    }

    #[test]
    fn reserved_names_are_reserved_in_compat_only() {
        for name in [".gzdir", ".gztmp.5", ".fnodes"] {
            assert!(check_new_name(Mode::Native, Fnode::ROOT, name.as_bytes()).is_ok());
            let refused = check_new_name(Mode::Compat, Fnode::ROOT, name.as_bytes());
            assert_eq!(refused, Err(NameError::Reserved));
        }
        assert!(check_new_name(Mode::Compat, Fnode(4), b".fnodes").is_ok());
    }
}
