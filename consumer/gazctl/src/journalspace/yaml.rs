//! The YAML form of a tree.
//!
//! Reading is strict: an unknown key, a key given twice and a value of the wrong kind are errors
//! that say where they are. Writing gives the keys in a fixed order and leaves out what is zero.

use gazette_protocol::{
    JournalSpec, Label, LabelSet, journal_spec,
    yaml::{self, FlagField, FragmentYaml, LabelYaml, SuspendYaml, YamlError},
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

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl From<NodeYaml> for Node {
    fn from(yaml: NodeYaml) -> Self {
        Self {
            comment: yaml.comment,
            delete: yaml.delete,
            no_stores: yaml.fragment.has_empty_stores(),
            spec: JournalSpec {
                name: yaml.name,
                replication: yaml.replication,
                labels: LabelSet {
                    labels: yaml.labels.into_iter().map(Label::from).collect(),
                },
                fragment: yaml.fragment.into(),
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
        Self {
            comment: node.comment.clone(),
            delete: node.delete,
            name: spec.name.clone(),
            replication: spec.replication,
            labels: spec.labels.labels.iter().map(LabelYaml::from).collect(),
            fragment: FragmentYaml::from(&spec.fragment),
            flags: FlagField(spec.flags),
            max_append_rate: spec.max_append_rate,
            suspend: spec.suspend.as_ref().map(SuspendYaml::from),
            revision: node.revision,
            children: node.children.iter().map(Self::from).collect(),
        }
    }
}
