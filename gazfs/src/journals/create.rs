//! The spec of journals that are made by making a file.

use gazette_protocol::{
    CompressionCodec, JournalSpec, Validate, ValidationError,
    duration::from_seconds,
    journal_spec,
    yaml::{YamlError, parse_spec},
};
use thiserror::Error;

/// What a new journal is, but for its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    spec: JournalSpec,
}

/// Why a text is no template.
#[derive(Debug, Error)]
pub enum TemplateError {
    /// It is no spec in YAML.
    #[error("{0}")]
    Parse(YamlError),
    /// A journal cannot be like that.
    #[error("{0}")]
    Invalid(ValidationError),
}

impl Template {
    /// Reads a template from a spec in YAML, of which the name, if there is one, is left out.
    pub fn from_yaml(text: &str) -> Result<Self, TemplateError> {
        let spec: JournalSpec = parse_spec(text).map_err(TemplateError::Parse)?;
        let template = Self { spec };
        template
            .spec_of(ANY_NAME)
            .validate()
            .map_err(TemplateError::Invalid)?;
        Ok(template)
    }

    /// Returns what recovery logs are: their fragments are smaller, as a part of one that is needed keeps all of it.
    pub fn of_logs() -> Self {
        let mut template = Self::default();
        template.spec.fragment.length = LOG_FRAGMENT_BYTES;
        template
    }

    /// Returns the spec of a journal of this name.
    pub fn spec_of(&self, name: &str) -> JournalSpec {
        JournalSpec {
            name: name.to_owned(),
            suspend: None,
            ..self.spec.clone()
        }
    }
}

impl Default for Template {
    /// One replica, uncompressed fragments of 256 MiB in the broker's own folder, closed at least
    /// once a day and kept for ever.
    fn default() -> Self {
        let fragment = journal_spec::Fragment {
            length: FRAGMENT_BYTES,
            compression_codec: CompressionCodec::None.into(),
            stores: vec!["file:///".to_owned()],
            refresh_interval: from_seconds(REFRESH_SECS),
            retention: from_seconds(0),
            flush_interval: from_seconds(FLUSH_SECS),
            path_postfix_template: String::new(),
        };
        let spec = JournalSpec {
            replication: 1,
            fragment,
            flags: journal_spec::Flag::ORdwr as u32,
            ..JournalSpec::default()
        };
        Self { spec }
    }
}

/// Content that is lost from the store's point of view if the broker's disk is: a day's at most.
const FLUSH_SECS: i64 = 24 * 3600;
const FRAGMENT_BYTES: i64 = 256 << 20;
const LOG_FRAGMENT_BYTES: i64 = 16 << 20;
/// Fragments come into the store by the broker that serves them, so listing it is only for those
/// that others put or pruned there.
const REFRESH_SECS: i64 = 300;
/// Only to check a template.
const ANY_NAME: &str = "some/journal";
