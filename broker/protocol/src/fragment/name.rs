//! Names and paths under which stores keep fragments.

use crate::{
    CompressionCodec, Fragment, Sha1Sum, Validate, ValidationError, clean_path,
    sha1_sum::Sha1SumError, validation::ValidationCause,
};

/// A fragment that a store listed, and where the store keeps it.
///
/// The path need not be the one that the fragment would be written to: other writers may
/// have spelled its extension or its numbers differently. Read it from here.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredFragment {
    /// The fragment that the name tells.
    pub fragment: Fragment,
    /// Path below the folder of the journal, as it was listed.
    pub relative_path: String,
}

impl StoredFragment {
    /// Reads the fragment from its path below the folder of `journal`.
    pub fn parse(journal: &str, relative_path: &str) -> Result<Self, FragmentNameError> {
        let fragment = parse(journal, relative_path)?;
        Ok(Self {
            fragment,
            relative_path: relative_path.to_owned(),
        })
    }

    /// Path below the root of the store.
    pub fn path(&self) -> String {
        format!("{}/{}", self.fragment.journal, self.relative_path)
    }

    /// Whether the fragment would be written to the same path.
    pub fn is_canonical(&self) -> bool {
        self.path() == self.fragment.content_path()
    }
}

/// Why a path is not that of a fragment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FragmentNameError {
    /// The extension names no codec.
    #[error("{extension:?} is not the extension of a compression codec")]
    Extension {
        /// The extension.
        extension: String,
    },
    /// The name is not begin, end and sum.
    #[error("{name:?} is not of the form BEGIN-END-SUM")]
    Fields {
        /// The name without its extension.
        name: String,
    },
    /// The begin or the end is not a hexadecimal offset.
    #[error("{field} {text:?} is not a hexadecimal offset of at most 2^63-1")]
    Offset {
        /// `Begin` or `End`.
        field: &'static str,
        /// The text in its place.
        text: String,
    },
    /// The sum is no digest.
    #[error("sum: {0}")]
    Sum(#[from] Sha1SumError),
    /// The fragment that the path tells breaks a rule.
    #[error(transparent)]
    Invalid(#[from] ValidationError),
}

impl Fragment {
    /// Name of the fragment's file: its offsets, its sum, and the extension of its codec.
    pub fn content_name(&self) -> String {
        let (begin, end, sum) = (self.begin, self.end, self.sum.to_hex());
        let extension = self.compression_codec().extension();
        format!("{}-{}-{sum}{extension}", hex_offset(begin), hex_offset(end))
    }

    /// Path of the fragment's file below the root of its store.
    pub fn content_path(&self) -> String {
        clean_path::join(&[&self.journal, &self.path_postfix, &self.content_name()])
    }

    /// The fragment of `journal` that a store keeps at this path below the journal's folder.
    /// See [`StoredFragment`] for reading it.
    pub fn parse_relative(journal: &str, path: &str) -> Result<Self, FragmentNameError> {
        parse(journal, path)
    }
}

/// Sixteen digits. A negative offset, which no real fragment has, keeps its sign.
fn hex_offset(offset: i64) -> String {
    let sign = if offset < 0 { "-" } else { "" };
    let width = 16 - sign.len();
    format!("{sign}{:0width$x}", offset.unsigned_abs())
}

fn parse(journal: &str, path: &str) -> Result<Fragment, FragmentNameError> {
    // A slash at the start belongs to the postfix, which it then makes invalid.
    let (postfix, base) = match path.rfind('/') {
        Some(0) => ("/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => ("", path),
    };
    let (name, extension) = base.split_at(base.rfind('.').unwrap_or(base.len()));
    let fields: Vec<&str> = name.split('-').collect();
    let [begin, end, sum] = fields[..] else {
        return Err(FragmentNameError::Fields {
            name: name.to_owned(),
        });
    };
    let fragment = Fragment {
        journal: journal.to_owned(),
        begin: parse_offset("Begin", begin)?,
        end: parse_offset("End", end)?,
        sum: Sha1Sum::from_hex(sum)?,
        compression_codec: parse_extension(extension)?.into(),
        backing_store: String::new(),
        mod_time: 0,
        path_postfix: postfix.to_owned(),
    };
    fragment.validate()?;
    // A postfix of one dot is clean, but not the path that the fragment would be written to.
    if postfix == "." {
        let cause = ValidationCause::UncleanPath {
            path: path.to_owned(),
            clean: base.to_owned(),
        };
        return Err(ValidationError::from(cause).within("PathPostfix").into());
    }
    Ok(fragment)
}

fn parse_offset(field: &'static str, text: &str) -> Result<i64, FragmentNameError> {
    let error = || FragmentNameError::Offset {
        field,
        text: text.to_owned(),
    };
    i64::from_str_radix(text, 16).map_err(|_| error())
}

fn parse_extension(extension: &str) -> Result<CompressionCodec, FragmentNameError> {
    CompressionCodec::from_extension(extension).ok_or_else(|| FragmentNameError::Extension {
        extension: extension.to_owned(),
    })
}
