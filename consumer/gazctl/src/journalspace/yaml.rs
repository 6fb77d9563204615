//! The YAML form of a tree.
//!
//! Reading is strict: an unknown key, a key given twice and a value of the wrong kind are errors
//! that say where they are. Writing gives the keys in a fixed order and leaves out what is zero.

use std::fmt;

use gazette_protocol::{
    CompressionCodec, JournalSpec, Label, LabelSet, duration, go_duration,
    journal_spec::{self, Flag, suspend::Level},
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, Visitor},
};
use thiserror::Error;

use super::Node;

/// A text that is no tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{cause}", position(*line, *column))]
pub(crate) struct YamlError {
    /// Line, counted from one; zero if the error is nowhere in particular.
    pub(crate) line: u64,
    /// Column, counted from one.
    pub(crate) column: u64,
    /// What is wrong there.
    pub(crate) cause: String,
}

fn position(line: u64, column: u64) -> String {
    if line == 0 {
        String::new()
    } else {
        format!("line {line}, column {column}: ")
    }
}

/// Reads a tree. Its shape is not checked yet: see [`Node::validate`].
pub(crate) fn parse(text: &str) -> Result<Node, YamlError> {
    let parsed: NodeYaml = serde_saphyr::from_str(text).map_err(|error| {
        let location = error.location();
        let (line, column) = location.map_or((0, 0), |at| (at.line(), at.column()));
        YamlError {
            line,
            column,
            cause: cause_of(&error),
        }
    })?;
    Ok(parsed.into())
}

/// Returns the message without its position, which is told apart from it.
fn cause_of(error: &serde_saphyr::Error) -> String {
    let plain = error.without_snippet().to_string();
    let cause = plain
        .rsplit_once(" at line ")
        .map_or(plain.as_str(), |(cause, _)| cause);
    match cause.strip_suffix(", set DuplicateKeyPolicy in Options if acceptable") {
        Some(cause) => cause.to_owned(),
        None if cause.starts_with("multiple YAML documents") => {
            "more than one document; write one tree".to_owned()
        }
        None => cause.to_owned(),
    }
}

/// Writes a tree, as people like to read and edit it.
pub(crate) fn print(node: &Node) -> Result<String, serde_saphyr::SerializeError> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        indent_step: 2,
        prefer_block_scalars: false,
    };
    serde_saphyr::to_string_with_options(&NodeYaml::from(node), options)
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NodeYaml {
    #[serde(skip_serializing_if = "is_zero")]
    comment: String,
    #[serde(skip_serializing_if = "is_zero")]
    delete: Option<bool>,
    #[serde(skip_serializing_if = "is_zero")]
    name: String,
    #[serde(skip_serializing_if = "is_zero")]
    replication: i32,
    #[serde(skip_serializing_if = "is_zero")]
    labels: Vec<LabelYaml>,
    #[serde(skip_serializing_if = "is_zero")]
    fragment: FragmentYaml,
    #[serde(skip_serializing_if = "is_zero")]
    flags: FlagYaml,
    #[serde(skip_serializing_if = "is_zero")]
    max_append_rate: i64,
    #[serde(skip_serializing_if = "is_zero")]
    suspend: Option<SuspendYaml>,
    #[serde(skip_serializing_if = "is_zero")]
    revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    children: Vec<NodeYaml>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LabelYaml {
    name: String,
    value: String,
    #[serde(skip_serializing_if = "is_zero")]
    prefix: bool,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FragmentYaml {
    #[serde(skip_serializing_if = "is_zero")]
    length: i64,
    #[serde(skip_serializing_if = "is_zero")]
    compression_codec: CodecYaml,
    #[serde(skip_serializing_if = "is_zero")]
    stores: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    refresh_interval: DurationYaml,
    #[serde(skip_serializing_if = "is_zero")]
    retention: DurationYaml,
    #[serde(skip_serializing_if = "is_zero")]
    flush_interval: DurationYaml,
    #[serde(skip_serializing_if = "is_zero")]
    path_postfix_template: String,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SuspendYaml {
    #[serde(skip_serializing_if = "is_zero")]
    level: LevelYaml,
    #[serde(skip_serializing_if = "is_zero")]
    offset: i64,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A duration as Go prints it, or a number of nanoseconds.
#[derive(Debug, Default, PartialEq)]
struct DurationYaml(prost_types::Duration);

impl Serialize for DurationYaml {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nanos = duration::to_nanos(&self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&go_duration::format(nanos))
    }
}

impl<'de> Deserialize<'de> for DurationYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Scalar::deserialize(deserializer)?.0;
        let nanos = match text.parse::<i64>() {
            Ok(nanos) => nanos,
            Err(_) => go_duration::parse(&text).map_err(D::Error::custom)?,
        };
        Ok(Self(duration::from_nanos(nanos)))
    }
}

/// The name of a codec.
#[derive(Debug, Default, PartialEq)]
struct CodecYaml(i32);

impl Serialize for CodecYaml {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match CompressionCodec::try_from(self.0) {
            Ok(codec) => serializer.serialize_str(codec.as_str_name()),
            Err(_) => serializer.serialize_i32(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for CodecYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Scalar::deserialize(deserializer)?.0;
        match CompressionCodec::from_str_name(&text) {
            Some(codec) => Ok(Self(codec.into())),
            None => Err(D::Error::custom(format!(
                "{text:?} is no compression codec; write NONE, GZIP, ZSTANDARD, SNAPPY or \
                 GZIP_OFFLOAD_DECOMPRESSION"
            ))),
        }
    }
}

/// The name of a flag, or its number.
#[derive(Debug, Default, PartialEq)]
struct FlagYaml(u32);

impl Serialize for FlagYaml {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match i32::try_from(self.0)
            .ok()
            .and_then(|number| Flag::try_from(number).ok())
        {
            Some(flag) => serializer.serialize_str(flag.as_str_name()),
            None => serializer.serialize_u32(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for FlagYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Scalar::deserialize(deserializer)?.0;
        if let Ok(number) = text.parse() {
            return Ok(Self(number));
        }
        match Flag::from_str_name(&text).map(|flag| u32::try_from(i32::from(flag))) {
            Some(Ok(number)) => Ok(Self(number)),
            Some(Err(_)) | None => Err(D::Error::custom(format!(
                "{text:?} is no flag; write O_RDONLY, O_WRONLY or O_RDWR"
            ))),
        }
    }
}

/// The name of a level, or its number.
#[derive(Debug, Default, PartialEq)]
struct LevelYaml(i32);

impl Serialize for LevelYaml {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match Level::try_from(self.0) {
            Ok(level) => serializer.serialize_str(level.as_str_name()),
            Err(_) => serializer.serialize_i32(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for LevelYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Scalar::deserialize(deserializer)?.0;
        if let Ok(number) = text.parse() {
            return Ok(Self(number));
        }
        match Level::from_str_name(&text) {
            Some(level) => Ok(Self(level.into())),
            None => Err(D::Error::custom(format!(
                "{text:?} is no level of suspension; write NONE, PARTIAL or FULL"
            ))),
        }
    }
}

/// A string, or a number as its text.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a number")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl From<NodeYaml> for Node {
    fn from(yaml: NodeYaml) -> Self {
        let fragment = yaml.fragment;
        let label = |label: LabelYaml| Label {
            name: label.name,
            value: label.value,
            prefix: label.prefix,
        };
        Self {
            comment: yaml.comment,
            delete: yaml.delete,
            spec: JournalSpec {
                name: yaml.name,
                replication: yaml.replication,
                labels: LabelSet {
                    labels: yaml.labels.into_iter().map(label).collect(),
                },
                fragment: journal_spec::Fragment {
                    length: fragment.length,
                    compression_codec: fragment.compression_codec.0,
                    stores: fragment.stores,
                    refresh_interval: fragment.refresh_interval.0,
                    retention: fragment.retention.0,
                    flush_interval: fragment.flush_interval.0,
                    path_postfix_template: fragment.path_postfix_template,
                },
                flags: yaml.flags.0,
                max_append_rate: yaml.max_append_rate,
                suspend: yaml.suspend.map(|suspend| journal_spec::Suspend {
                    level: suspend.level.0,
                    offset: suspend.offset,
                }),
            },
            revision: yaml.revision,
            children: yaml.children.into_iter().map(Self::from).collect(),
        }
    }
}

impl From<&Node> for NodeYaml {
    fn from(node: &Node) -> Self {
        let spec = &node.spec;
        let fragment = &spec.fragment;
        let label = |label: &Label| LabelYaml {
            name: label.name.clone(),
            value: label.value.clone(),
            prefix: label.prefix,
        };
        Self {
            comment: node.comment.clone(),
            delete: node.delete,
            name: spec.name.clone(),
            replication: spec.replication,
            labels: spec.labels.labels.iter().map(label).collect(),
            fragment: FragmentYaml {
                length: fragment.length,
                compression_codec: CodecYaml(fragment.compression_codec),
                stores: fragment.stores.clone(),
                refresh_interval: DurationYaml(fragment.refresh_interval),
                retention: DurationYaml(fragment.retention),
                flush_interval: DurationYaml(fragment.flush_interval),
                path_postfix_template: fragment.path_postfix_template.clone(),
            },
            flags: FlagYaml(spec.flags),
            max_append_rate: spec.max_append_rate,
            suspend: spec.suspend.map(|suspend| SuspendYaml {
                level: LevelYaml(suspend.level),
                offset: suspend.offset,
            }),
            revision: node.revision,
            children: node.children.iter().map(Self::from).collect(),
        }
    }
}
