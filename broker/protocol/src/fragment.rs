//! Fragments of journals.

mod name;

pub use name::{FragmentNameError, StoredFragment};

use crate::{
    CompressionCodec, Fragment, Validate, ValidationError, journal_name,
    validation::{ValidationCause, Within, require, tokens},
};

const MAX_POSTFIX: usize = 512;

impl Fragment {
    /// Bytes of content, before compression. Zero if the fragment is malformed.
    pub fn content_length(&self) -> i64 {
        self.end.saturating_sub(self.begin).max(0)
    }

    /// Whether only a broker holds the fragment, and no store.
    pub fn is_local(&self) -> bool {
        self.backing_store.is_empty()
    }

    /// Whether `offset` is inside the fragment.
    pub fn contains(&self, offset: i64) -> bool {
        self.begin <= offset && offset < self.end
    }
}

/// Checks the number of a codec.
pub(crate) fn validate_codec(codec: i32) -> Result<CompressionCodec, ValidationCause> {
    let invalid = |value: String| ValidationCause::Variant {
        what: "compression codec",
        value,
    };
    match CompressionCodec::try_from(codec) {
        Ok(CompressionCodec::Invalid) => Err(invalid("INVALID".to_owned())),
        Ok(codec) => Ok(codec),
        Err(_) => Err(invalid(codec.to_string())),
    }
}

impl Validate for Fragment {
    fn validate(&self) -> Result<(), ValidationError> {
        journal_name::validate_with_meta(&self.journal).within("Journal")?;
        require(self.begin <= self.end, || ValidationCause::Mismatch {
            left: "Begin",
            left_value: self.begin.to_string(),
            right: "End",
            right_value: self.end.to_string(),
        })?;
        validate_codec(self.compression_codec)
            .map(drop)
            .within("CompressionCodec")?;
        tokens::path_component(&self.path_postfix, 0, MAX_POSTFIX).within("PathPostfix")
    }
}
