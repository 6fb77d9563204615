//! Specs of journals: what their fields mean, and their rules.

mod media_type;

use crate::{
    CompressionCodec, JournalSpec, LabelSet, Validate, ValidationError, duration,
    fragment::validate_codec,
    go_duration, journal_name,
    journal_spec::{Flag, Fragment, Suspend, suspend::Level},
    labels, postfix, store_url,
    validation::{ValidationCause, Within, require, tokens},
};

/// Most brokers that a spec may ask to hold each append.
pub const MAX_REPLICATION: i32 = 5;
/// Shortest target length of fragments.
pub const MIN_FRAGMENT_LENGTH: i64 = 1 << 10;
/// Longest target length of fragments.
pub const MAX_FRAGMENT_LENGTH: i64 = 1 << 34;

const SECOND: i64 = 1_000_000_000;
const MIN_REFRESH: i64 = SECOND;
const MAX_REFRESH: i64 = 24 * 3600 * SECOND;
const MIN_FLUSH: i64 = 60 * SECOND;

impl JournalSpec {
    /// The labels, and the derived label `name`, which selectors see.
    pub fn label_set_with_meta(&self) -> LabelSet {
        let meta = LabelSet::from_pairs([(labels::META_NAME, self.name.as_str())]);
        LabelSet::union(&meta, &self.labels)
    }

    /// Whether the journal may be read.
    pub fn may_read(&self) -> bool {
        matches!(
            self.flag(),
            Some(Flag::NotSpecified | Flag::ORdonly | Flag::ORdwr)
        )
    }

    /// Whether the journal may be appended to.
    pub fn may_write(&self) -> bool {
        matches!(
            self.flag(),
            Some(Flag::NotSpecified | Flag::OWronly | Flag::ORdwr)
        )
    }

    /// The meaning of `flags`, if it has one.
    pub fn flag(&self) -> Option<Flag> {
        Flag::try_from(i32::try_from(self.flags).ok()?).ok()
    }

    /// How far the journal is suspended. A level that is not known counts as none.
    pub fn suspend_level(&self) -> Level {
        self.suspend.as_ref().map_or(Level::None, Suspend::level)
    }

    /// Lower bound of the offset of the first append after the journal is resumed.
    pub fn suspend_offset(&self) -> i64 {
        self.suspend.as_ref().map_or(0, |suspend| suspend.offset)
    }

    /// How many brokers shall hold the journal now, at most `max`.
    pub fn desired_replication(&self, max: i32) -> i32 {
        let desired = match self.suspend_level() {
            Level::None => self.replication,
            Level::Partial => 1,
            Level::Full => 0,
        };
        desired.min(max)
    }
}

impl Validate for JournalSpec {
    fn validate(&self) -> Result<(), ValidationError> {
        let (name, meta) = journal_name::split_meta(&self.name);
        require(meta.is_none(), || ValidationCause::UnexpectedMeta {
            meta: self.name[name.len()..].to_owned(),
        })?;
        tokens::path_component(name, journal_name::MIN_LENGTH, journal_name::MAX_LENGTH)
            .within("Name")?;
        require((1..=MAX_REPLICATION).contains(&self.replication), || {
            let expected = format!("1 to {MAX_REPLICATION}");
            ValidationCause::out_of_range("Replication", self.replication, expected)
        })?;
        self.labels.validate().within("Labels")?;
        validate_labels(&self.labels)?;
        self.fragment.validate().within("Fragment")?;
        require(self.flag().is_some(), || ValidationCause::Variant {
            what: "set of flags",
            value: self.flags.to_string(),
        })
        .within("Flags")?;
        require(self.max_append_rate >= 0, || {
            ValidationCause::out_of_range("MaxAppendRate", self.max_append_rate, "at least 0")
        })?;
        match &self.suspend {
            Some(suspend) => suspend.validate().within("Suspend"),
            None => Ok(()),
        }
    }
}

/// Rules of the labels of journals, beyond those of all labels.
fn validate_labels(set: &LabelSet) -> Result<(), ValidationError> {
    for name in [labels::META_NAME, labels::META_PREFIX] {
        require(set.value_of(name).is_none(), || {
            ValidationCause::ReservedLabel {
                name: name.to_owned(),
            }
        })?;
    }
    set.validate_single_valued().within("Labels")?;
    if let Some(value) = set.value_of(labels::CONTENT_TYPE) {
        require(media_type::is_valid(value), || ValidationCause::MediaType {
            value: value.to_owned(),
        })
        .within("Labels")?;
    }
    for (name, needs) in [
        (labels::MESSAGE_TYPE, labels::CONTENT_TYPE),
        (labels::MESSAGE_SUBTYPE, labels::MESSAGE_TYPE),
    ] {
        require(
            set.value_of(name).is_none() || set.value_of(needs).is_some(),
            || ValidationCause::MissingLabel { name, needs },
        )
        .within("Labels")?;
    }
    Ok(())
}

impl Validate for Fragment {
    fn validate(&self) -> Result<(), ValidationError> {
        let lengths = MIN_FRAGMENT_LENGTH..=MAX_FRAGMENT_LENGTH;
        require(lengths.contains(&self.length), || {
            let expected = format!("{MIN_FRAGMENT_LENGTH} to {MAX_FRAGMENT_LENGTH}");
            ValidationCause::out_of_range("Length", self.length, expected)
        })?;
        let codec = validate_codec(self.compression_codec);
        let codec =
            codec.map_err(|cause| ValidationError::from(cause).within("CompressionCodec"))?;
        for (index, store) in self.stores.iter().enumerate() {
            let parsed = store_url::parse(store);
            let parsed = parsed.map_err(|error| error.within(format!("Stores[{index}]")))?;
            let unusable = index == 0
                && parsed.scheme == "file"
                && codec == CompressionCodec::GzipOffloadDecompression;
            require(!unusable, || ValidationCause::CodecOfStore {
                codec: codec.as_str_name(),
                store: store.clone(),
            })?;
        }
        let interval = nanos(&self.refresh_interval, "RefreshInterval")?;
        require((MIN_REFRESH..=MAX_REFRESH).contains(&interval), || {
            let value = go_duration::format(interval);
            ValidationCause::out_of_range("RefreshInterval", value, "1s to 24h0m0s")
        })?;
        let interval = nanos(&self.flush_interval, "FlushInterval")?;
        require(interval == 0 || interval >= MIN_FLUSH, || {
            let value = go_duration::format(interval);
            ValidationCause::out_of_range("FlushInterval", value, "0s, or at least 1m0s")
        })?;
        nanos(&self.retention, "Retention")?;
        let template = postfix::validate(&self.path_postfix_template);
        template
            .map_err(ValidationCause::from)
            .within("PathPostfixTemplate")
    }
}

/// Nanoseconds of a duration. One that has none could not even be decoded by Gazette.
fn nanos(interval: &prost_types::Duration, field: &'static str) -> Result<i64, ValidationCause> {
    duration::to_nanos(interval).map_err(|error| {
        let value = format!("{}s and {}ns", error.seconds, error.nanos);
        ValidationCause::out_of_range(field, value, "a well-formed duration of 292 years at most")
    })
}

impl Validate for Suspend {
    fn validate(&self) -> Result<(), ValidationError> {
        require(Level::try_from(self.level).is_ok(), || {
            ValidationCause::Variant {
                what: "level of suspension",
                value: self.level.to_string(),
            }
        })
        .within("Level")?;
        require(self.offset >= 0, || {
            ValidationCause::out_of_range("Offset", self.offset, "at least 0")
        })
        .within("Offset")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspended(level: Level) -> JournalSpec {
        let suspend = Suspend {
            level: level.into(),
            offset: 7,
        };
        JournalSpec {
            replication: 3,
            suspend: Some(suspend),
            ..JournalSpec::default()
        }
    }

    #[test]
    fn suspension_lowers_the_desired_replication() {
        assert_eq!(suspended(Level::None).desired_replication(9), 3);
        assert_eq!(suspended(Level::None).desired_replication(2), 2);
        assert_eq!(suspended(Level::Partial).desired_replication(9), 1);
        assert_eq!(suspended(Level::Full).desired_replication(9), 0);
        assert_eq!(suspended(Level::Full).suspend_offset(), 7);
        let spec = JournalSpec {
            replication: 3,
            ..JournalSpec::default()
        };
        assert_eq!(
            (spec.suspend_level(), spec.suspend_offset()),
            (Level::None, 0)
        );
    }

    #[test]
    fn flags_tell_what_a_journal_is_for() {
        let may = |flags| {
            let spec = JournalSpec {
                flags,
                ..JournalSpec::default()
            };
            (spec.may_read(), spec.may_write())
        };
        assert_eq!(may(0), (true, true));
        assert_eq!(may(1), (true, false));
        assert_eq!(may(2), (false, true));
        assert_eq!(may(4), (true, true));
        assert_eq!(may(3), (false, false));
        assert_eq!(may(u32::MAX), (false, false));
    }

    #[test]
    fn the_derived_label_is_the_name() {
        let labels = LabelSet::from_pairs([("aa", "1"), ("zz", "2")]);
        let spec = JournalSpec {
            name: "a/b".to_owned(),
            labels,
            ..JournalSpec::default()
        };
        let set = spec.label_set_with_meta();
        let expected = LabelSet::from_pairs([("zz", "2"), ("name", "a/b"), ("aa", "1")]);
        assert_eq!(set, expected);
    }

    #[test]
    fn durations_that_have_no_length_are_refused() {
        let mut spec = JournalSpec {
            name: "acme/one".to_owned(),
            replication: 1,
            fragment: Fragment {
                length: 1024,
                compression_codec: CompressionCodec::None.into(),
                refresh_interval: duration::from_seconds(1),
                ..Fragment::default()
            },
            ..JournalSpec::default()
        };
        spec.validate().unwrap();
        spec.fragment.retention = duration::from_seconds(i64::MAX);
        assert_eq!(spec.validate().unwrap_err().path(), "Fragment");
    }
}
