//! The YAML form of a tree.
//!
//! Reading is strict: an unknown key, a key given twice and a value of the wrong kind are errors
//! that say where they are. Writing gives the keys in a fixed order and leaves out what is zero.

use gazette_protocol::{
    JournalSpec, Label, LabelSet, journal_spec,
    yaml::{self, CodecField, DurationField, FlagField, SuspendYaml, YamlError},
};
use serde::{Deserialize, Serialize};

use super::Node;

/// Reads a tree. Its shape is not checked yet: see [`Node::validate`].
pub(crate) fn parse(text: &str) -> Result<Node, YamlError> {
    yaml::parse::<NodeYaml>(text).map(Node::from)
}

/// Writes a tree, as people like to read and edit it.
pub(crate) fn print(node: &Node) -> Result<String, YamlError> {
    yaml::print(&NodeYaml::from(node))
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
    flags: FlagField,
    #[serde(skip_serializing_if = "is_zero")]
    max_append_rate: i64,
    #[serde(skip_serializing_if = "is_zero")]
    suspend: Option<SuspendYaml>,
    #[serde(skip_serializing_if = "is_zero")]
    revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    children: Vec<Self>,
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
    compression_codec: CodecField,
    /// An empty list is not the same as none.
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

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
            no_stores: fragment.stores.as_ref().is_some_and(Vec::is_empty),
            spec: JournalSpec {
                name: yaml.name,
                replication: yaml.replication,
                labels: LabelSet {
                    labels: yaml.labels.into_iter().map(label).collect(),
                },
                fragment: journal_spec::Fragment {
                    length: fragment.length,
                    compression_codec: fragment.compression_codec.0,
                    stores: fragment.stores.unwrap_or_default(),
                    refresh_interval: fragment.refresh_interval.0,
                    retention: fragment.retention.0,
                    flush_interval: fragment.flush_interval.0,
                    path_postfix_template: fragment.path_postfix_template,
                },
                flags: yaml.flags.0,
                max_append_rate: yaml.max_append_rate,
                suspend: yaml.suspend.map(journal_spec::Suspend::from),
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
                compression_codec: CodecField(fragment.compression_codec),
                stores: (!fragment.stores.is_empty()).then(|| fragment.stores.clone()),
                refresh_interval: DurationField(fragment.refresh_interval),
                retention: DurationField(fragment.retention),
                flush_interval: DurationField(fragment.flush_interval),
                path_postfix_template: fragment.path_postfix_template.clone(),
            },
            flags: FlagField(spec.flags),
            max_append_rate: spec.max_append_rate,
            suspend: spec.suspend.as_ref().map(SuspendYaml::from),
            revision: node.revision,
            children: node.children.iter().map(Self::from).collect(),
        }
    }
}
