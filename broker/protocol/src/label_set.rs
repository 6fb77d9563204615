//! Sets of labels, which also are the registers of a journal.

use crate::{
    Label, LabelSet, Validate, ValidationError, labels,
    validation::{ValidationCause, Within, require, tokens},
};

const MIN_NAME: usize = 2;
const MAX_NAME: usize = 64;
const MAX_VALUE: usize = 1024;

impl Label {
    /// A label.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
            prefix: false,
        }
    }

    fn validate_in(&self, allow_prefix: bool) -> Result<(), ValidationError> {
        tokens::token(&self.name, MIN_NAME, MAX_NAME).within("Name")?;
        tokens::path_token(&self.value, 0, MAX_VALUE).within("Value")?;
        require(allow_prefix || !self.prefix, || {
            ValidationCause::Unexpected {
                field: "Prefix",
                condition: "outside of a selector",
            }
        })
    }

    /// The name and value, which order the labels of a set.
    pub(crate) fn key(&self) -> (&str, &str) {
        (&self.name, &self.value)
    }
}

impl LabelSet {
    /// A set of these names and values, in whatever order they come.
    pub fn from_pairs<N, V>(pairs: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<String>,
        V: Into<String>,
    {
        let mut set = Self::default();
        for (name, value) in pairs {
            set.insert(Label::new(name, value));
        }
        set
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The first value of label `name`.
    pub fn value_of(&self, name: &str) -> Option<&str> {
        self.values_of(name).next()
    }

    /// The values of label `name`, in order.
    pub fn values_of<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.range_of(name).iter().map(|label| label.value.as_str())
    }

    /// Gives label `name` this value, in place of any others.
    pub fn set_value(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let name = name.into();
        self.remove(&name);
        self.insert(Label::new(name, value));
    }

    /// Gives label `name` this value too.
    pub fn add_value(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.insert(Label::new(name, value));
    }

    /// Removes label `name`, with all its values.
    pub fn remove(&mut self, name: &str) {
        self.labels.retain(|label| label.name != name);
    }

    /// Adds a label at its place. A label of the same name and value becomes a prefix if
    /// either of them is one: the values of a selector are alternatives.
    pub(crate) fn insert(&mut self, label: Label) {
        match self
            .labels
            .binary_search_by(|other| other.key().cmp(&label.key()))
        {
            Ok(at) => self.labels[at].prefix |= label.prefix,
            Err(at) => self.labels.insert(at, label),
        }
    }

    /// The labels of either set. Where both have a label, all its values are those of `lhs`.
    #[must_use]
    pub fn union(lhs: &Self, rhs: &Self) -> Self {
        let added = rhs
            .labels
            .iter()
            .filter(|label| lhs.range_of(&label.name).is_empty());
        let mut labels: Vec<Label> = lhs.labels.iter().chain(added).cloned().collect();
        labels.sort_by(|a, b| a.key().cmp(&b.key()));
        Self { labels }
    }

    /// The labels that have exactly the same values in both sets.
    #[must_use]
    pub fn intersect(lhs: &Self, rhs: &Self) -> Self {
        lhs.filtered(|label| rhs.has_same_values(lhs, &label.name))
    }

    /// The labels of `lhs` without those that have exactly the same values in `rhs`.
    #[must_use]
    pub fn subtract(lhs: &Self, rhs: &Self) -> Self {
        lhs.filtered(|label| !rhs.has_same_values(lhs, &label.name))
    }

    fn filtered(&self, keep: impl Fn(&Label) -> bool) -> Self {
        Self {
            labels: self
                .labels
                .iter()
                .filter(|label| keep(label))
                .cloned()
                .collect(),
        }
    }

    fn has_same_values(&self, other: &Self, name: &str) -> bool {
        let key = |label: &Label| (label.value.clone(), label.prefix);
        self.range_of(name)
            .iter()
            .map(key)
            .eq(other.range_of(name).iter().map(key))
    }

    fn range_of(&self, name: &str) -> &[Label] {
        let begin = self
            .labels
            .partition_point(|label| label.name.as_str() < name);
        let count = self.labels[begin..].partition_point(|label| label.name == name);
        &self.labels[begin..begin + count]
    }

    /// Checks the set as [`Validate`] does, with prefixes allowed.
    pub(crate) fn validate_in_selector(&self) -> Result<(), ValidationError> {
        self.validate_labels(true)
    }

    fn validate_labels(&self, allow_prefix: bool) -> Result<(), ValidationError> {
        let mut previous: Option<&Label> = None;
        for (index, label) in self.labels.iter().enumerate() {
            label
                .validate_in(allow_prefix)
                .within_entry("Labels", index)?;
            if let Some(previous) = previous {
                require(previous.key() < label.key(), || ValidationCause::Unsorted {
                    what: "labels",
                    index,
                    previous: format!("{}={}", previous.name, previous.value),
                    next: format!("{}={}", label.name, label.value),
                })?;
                let same_name = previous.name == label.name;
                require(!(same_name && previous.value.is_empty()), || {
                    ValidationCause::EmptyAndOtherValues {
                        name: label.name.clone(),
                        value: label.value.clone(),
                        index,
                    }
                })?;
            }
            previous = Some(label);
        }
        Ok(())
    }

    /// Checks that the labels of [`labels::SINGLE_VALUED`] have one value at most.
    pub(crate) fn validate_single_valued(&self) -> Result<(), ValidationError> {
        for (index, pair) in self.labels.windows(2).enumerate() {
            let name = &pair[1].name;
            let repeated = pair[0].name == *name;
            require(
                !(repeated && labels::SINGLE_VALUED.contains(&name.as_str())),
                || ValidationCause::ManyValues {
                    name: name.clone(),
                    value: pair[1].value.clone(),
                    index: index + 1,
                },
            )?;
        }
        Ok(())
    }
}

impl FromIterator<Label> for LabelSet {
    fn from_iter<I: IntoIterator<Item = Label>>(labels: I) -> Self {
        let mut set = Self::default();
        labels.into_iter().for_each(|label| set.insert(label));
        set
    }
}

impl Validate for Label {
    fn validate(&self) -> Result<(), ValidationError> {
        self.validate_in(false)
    }
}

impl Validate for LabelSet {
    fn validate(&self) -> Result<(), ValidationError> {
        self.validate_labels(false)
    }
}
