//! Specs of journals as YAML, the form that operators write.
//!
//! Reading is strict: an unknown key, a key given twice, or a value of another kind is an
//! error that tells its line. What is zero is not written.

mod fields;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use fields::{CodecField, DurationField, FlagField, LevelField};

use crate::{JournalSpec, Label, LabelSet, journal_spec};

/// A text that is not the YAML of what was asked for, or a value that has none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{cause}", if *.line == 0 { String::new() } else { format!("line {line}, column {column}: ") })]
pub struct YamlError {
    /// Line, counted from one. Zero if the error is nowhere in particular.
    pub line: u64,
    /// Column, counted from one.
    pub column: u64,
    /// What is wrong there.
    pub cause: String,
}

impl YamlError {
    /// Tells the error with the name of the file that it is in, as compilers do.
    pub fn in_file(&self, file: &str) -> String {
        match self.line {
            0 => format!("{file}: {}", self.cause),
            line => format!("{file}:{line}:{}: {}", self.column, self.cause),
        }
    }
}

/// Reads one document.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let (line, column) = error
            .location()
            .map_or((0, 0), |at| (at.line(), at.column()));
        YamlError {
            line,
            column,
            cause: cause_of(&error),
        }
    })
}

/// Writes one document, as people like to read and edit it.
pub fn print<T: Serialize>(value: &T) -> Result<String, YamlError> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        indent_step: 2,
        prefer_block_scalars: false,
    };
    let printed = serde_saphyr::to_string_with_options(value, options);
    printed.map_err(|error| YamlError {
        line: 0,
        column: 0,
        cause: error.to_string(),
    })
}

/// Reads a spec.
pub fn parse_spec(text: &str) -> Result<JournalSpec, YamlError> {
    Ok(parse::<SpecYaml>(text)?.into())
}

/// Writes a spec.
pub fn print_spec(spec: &JournalSpec) -> Result<String, YamlError> {
    print(&SpecYaml::from(spec))
}

/// The message without its position, which is told beside it, and without advice that is
/// for programmers.
fn cause_of(error: &serde_saphyr::Error) -> String {
    let plain = error.without_snippet().to_string();
    let cause = plain
        .rsplit_once(" at line ")
        .map_or(plain.as_str(), |(cause, _)| cause);
    match cause.strip_suffix(", set DuplicateKeyPolicy in Options if acceptable") {
        Some(cause) => cause.to_owned(),
        None if cause.starts_with("multiple YAML documents") => {
            "there is more than one document; write one".to_owned()
        }
        None => cause.to_owned(),
    }
}

/// A spec, with its labels inline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename = "JournalSpec")]
struct SpecYaml {
    #[serde(skip_serializing_if = "is_zero")]
    name: String,
    #[serde(skip_serializing_if = "is_zero")]
    replication: i32,
    #[serde(skip_serializing_if = "is_zero")]
    labels: Vec<LabelYaml>,
    #[serde(skip_serializing_if = "is_zero")]
    fragment: FragmentYaml,
    #[serde(skip_serializing_if = "is_zero")]
    flags: FlagField,
    #[serde(skip_serializing_if = "is_zero")]
    max_append_rate: i64,
    #[serde(skip_serializing_if = "is_zero")]
    suspend: Option<SuspendYaml>,
}

/// A label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename = "Label")]
pub struct LabelYaml {
    name: String,
    value: String,
    #[serde(skip_serializing_if = "is_zero")]
    prefix: bool,
}

/// The fragments of a spec.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename = "Fragment")]
pub struct FragmentYaml {
    #[serde(skip_serializing_if = "is_zero")]
    length: i64,
    #[serde(skip_serializing_if = "is_zero")]
    compression_codec: CodecField,
    /// An empty list is not the same as none to whoever inherits another.
    #[serde(skip_serializing_if = "is_zero")]
    stores: Option<Vec<String>>,
    #[serde(skip_serializing_if = "is_zero")]
    refresh_interval: DurationField,
    #[serde(skip_serializing_if = "is_zero")]
    retention: DurationField,
    #[serde(skip_serializing_if = "is_zero")]
    flush_interval: DurationField,
    #[serde(skip_serializing_if = "is_zero")]
    path_postfix_template: String,
}

impl FragmentYaml {
    /// Whether it says that there are no stores, which is more than to say none.
    pub fn has_empty_stores(&self) -> bool {
        self.stores.as_ref().is_some_and(Vec::is_empty)
    }
}

/// The suspension of a spec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename = "Suspend")]
pub struct SuspendYaml {
    #[serde(skip_serializing_if = "is_zero")]
    level: LevelField,
    #[serde(skip_serializing_if = "is_zero")]
    offset: i64,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl From<SpecYaml> for JournalSpec {
    fn from(yaml: SpecYaml) -> Self {
        Self {
            name: yaml.name,
            replication: yaml.replication,
            labels: LabelSet {
                labels: yaml.labels.into_iter().map(Label::from).collect(),
            },
            fragment: yaml.fragment.into(),
            flags: yaml.flags.0,
            max_append_rate: yaml.max_append_rate,
            suspend: yaml.suspend.map(journal_spec::Suspend::from),
        }
    }
}

impl From<&JournalSpec> for SpecYaml {
    fn from(spec: &JournalSpec) -> Self {
        Self {
            name: spec.name.clone(),
            replication: spec.replication,
            labels: spec.labels.labels.iter().map(LabelYaml::from).collect(),
            fragment: FragmentYaml::from(&spec.fragment),
            flags: FlagField(spec.flags),
            max_append_rate: spec.max_append_rate,
            suspend: spec.suspend.as_ref().map(SuspendYaml::from),
        }
    }
}

impl From<LabelYaml> for Label {
    fn from(yaml: LabelYaml) -> Self {
        Self {
            name: yaml.name,
            value: yaml.value,
            prefix: yaml.prefix,
        }
    }
}

impl From<&Label> for LabelYaml {
    fn from(label: &Label) -> Self {
        Self {
            name: label.name.clone(),
            value: label.value.clone(),
            prefix: label.prefix,
        }
    }
}

impl From<FragmentYaml> for journal_spec::Fragment {
    fn from(yaml: FragmentYaml) -> Self {
        Self {
            length: yaml.length,
            compression_codec: yaml.compression_codec.0,
            stores: yaml.stores.unwrap_or_default(),
            refresh_interval: yaml.refresh_interval.0,
            retention: yaml.retention.0,
            flush_interval: yaml.flush_interval.0,
            path_postfix_template: yaml.path_postfix_template,
        }
    }
}

impl From<&journal_spec::Fragment> for FragmentYaml {
    fn from(fragment: &journal_spec::Fragment) -> Self {
        Self {
            length: fragment.length,
            compression_codec: CodecField(fragment.compression_codec),
            stores: (!fragment.stores.is_empty()).then(|| fragment.stores.clone()),
            refresh_interval: DurationField(fragment.refresh_interval),
            retention: DurationField(fragment.retention),
            flush_interval: DurationField(fragment.flush_interval),
            path_postfix_template: fragment.path_postfix_template.clone(),
        }
    }
}

impl From<SuspendYaml> for journal_spec::Suspend {
    fn from(yaml: SuspendYaml) -> Self {
        Self {
            level: yaml.level.0,
            offset: yaml.offset,
        }
    }
}

impl From<&journal_spec::Suspend> for SuspendYaml {
    fn from(suspend: &journal_spec::Suspend) -> Self {
        Self {
            level: LevelField(suspend.level),
            offset: suspend.offset,
        }
    }
}

#[cfg(test)]
mod tests;
