//! Processes of a cluster.

use std::fmt;

use crate::{
    BrokerSpec, ProcessSpec, Validate, ValidationError, endpoint,
    process_spec::Id,
    validation::{ValidationCause, Within, require, tokens},
};

const MAX_ZONE: usize = 32;
const MIN_SUFFIX: usize = 4;
const MAX_SUFFIX: usize = 128;

/// Most journals that a broker may offer to hold.
pub const MAX_JOURNAL_LIMIT: u32 = 1 << 17;

impl Id {
    /// The process `suffix` of `zone`.
    pub fn new(zone: impl Into<String>, suffix: impl Into<String>) -> Self {
        Self {
            zone: zone.into(),
            suffix: suffix.into(),
        }
    }

    /// Whether no process is named. A header without one addresses any process.
    pub fn is_empty(&self) -> bool {
        self.zone.is_empty() && self.suffix.is_empty()
    }
}

/// `zone/suffix`, for people.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.zone, self.suffix)
    }
}

impl Validate for Id {
    fn validate(&self) -> Result<(), ValidationError> {
        tokens::token(&self.zone, 1, MAX_ZONE).within("Zone")?;
        tokens::token(&self.suffix, MIN_SUFFIX, MAX_SUFFIX).within("Suffix")
    }
}

impl Validate for ProcessSpec {
    fn validate(&self) -> Result<(), ValidationError> {
        self.id.validate().within("Id")?;
        endpoint::validate(&self.endpoint).within("Endpoint")
    }
}

impl Validate for BrokerSpec {
    fn validate(&self) -> Result<(), ValidationError> {
        self.process_spec.validate()?;
        require(self.journal_limit <= MAX_JOURNAL_LIMIT, || {
            let expected = format!("at most {MAX_JOURNAL_LIMIT}");
            ValidationCause::out_of_range("JournalLimit", self.journal_limit, expected)
        })
    }
}
