//! Selectors of labels: matching and rendering. The text form is parsed in `grammar`.

mod grammar;

use std::{collections::BTreeMap, fmt};

pub use grammar::SelectorError;

use crate::{
    Label, LabelSelector, LabelSet, Validate, ValidationError, labels, validation::Within,
};

impl LabelSelector {
    /// Parses the text form: `foo=bar,baz in (a,b),!quux`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        grammar::parse(text)
    }

    /// A selector of the sets that have this label with this value.
    pub fn equal(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            include: LabelSet::from_pairs([(name, value)]),
            exclude: LabelSet::default(),
        }
    }

    /// A selector of one journal, by its name.
    pub fn journal(name: impl Into<String>) -> Self {
        Self::equal(labels::META_NAME, name)
    }

    /// Whether the selector selects every set.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether the selector selects `set`.
    ///
    /// The order of the selector's labels does not matter. Gazette walks them in order and
    /// mistakes those that are not sorted, which only selectors inside of tokens can be.
    pub fn matches(&self, set: &LabelSet) -> bool {
        let matches_set = |label: &Label| set.values_of(&label.name).any(|v| label.admits(v));
        if self.exclude.labels.iter().any(matches_set) {
            return false;
        }
        let includes = &self.include.labels;
        let name_matches = |name: &str| {
            includes
                .iter()
                .filter(|label| label.name == name)
                .any(matches_set)
        };
        includes
            .iter()
            .all(|label| matches_set(label) || name_matches(&label.name))
    }

    /// The same selector, with each `prefix=folder/` in terms of the label `name`. Listing
    /// does this to the selectors of the request and of the claims; nothing else does.
    #[must_use]
    pub fn with_prefixes_as_names(&self) -> Self {
        let rewrite = |set: &LabelSet| {
            let rewritten = set.labels.iter().map(|label| match label.name.as_str() {
                labels::META_PREFIX => Label {
                    name: labels::META_NAME.to_owned(),
                    value: label.value.clone(),
                    prefix: true,
                },
                _ => label.clone(),
            });
            rewritten.collect()
        };
        Self {
            include: rewrite(&self.include),
            exclude: rewrite(&self.exclude),
        }
    }
}

impl Label {
    /// Whether this label of a selector admits `value`.
    fn admits(&self, value: &str) -> bool {
        match self.prefix {
            _ if self.value.is_empty() => true,
            true => value.starts_with(&self.value),
            false => self.value == value,
        }
    }
}

impl Validate for LabelSelector {
    fn validate(&self) -> Result<(), ValidationError> {
        self.include.validate_in_selector().within("Include")?;
        self.exclude.validate_in_selector().within("Exclude")
    }
}

/// The canonical text form. A value that begins with `=` is written after `==`, so that the
/// text parses to the same selector; Gazette prints one `=` and loses the second.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (set, negated) in [(&self.include, false), (&self.exclude, true)] {
            let mut values: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for label in &set.labels {
                let suffix = if label.prefix {
                    grammar::PREFIX_SUFFIX
                } else {
                    ""
                };
                values
                    .entry(format!("{}{suffix}", label.name))
                    .or_default()
                    .push(&label.value);
            }
            for (name, values) in values {
                f.write_str(comma)?;
                comma = ",";
                match (values.as_slice(), negated) {
                    ([""], false) => f.write_str(&name)?,
                    ([""], true) => write!(f, "!{name}")?,
                    ([value], false) if value.starts_with('=') => write!(f, "{name}=={value}")?,
                    ([value], false) => write!(f, "{name}={value}")?,
                    ([value], true) => write!(f, "{name}!={value}")?,
                    (values, false) => write!(f, "{name} in ({})", values.join(","))?,
                    (values, true) => write!(f, "{name} notin ({})", values.join(","))?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_a_list_request_become_names() {
        let selector =
            LabelSelector::parse("prefix=acme/,name=zz/one,!prefix,prefix!=b/").unwrap_err();
        assert!(matches!(selector, SelectorError::Invalid(_)));
        let selector = LabelSelector::parse("prefix=acme/,name=zz/one,prefix!=acme/old/").unwrap();
        let rewritten = selector.with_prefixes_as_names();
        assert_eq!(
            rewritten.to_string(),
            "name=zz/one,name:prefix=acme/,name:prefix!=acme/old/"
        );
        let selects = |name: &str| rewritten.matches(&LabelSet::from_pairs([("name", name)]));
        assert!(selects("acme/new") && selects("zz/one"));
        assert!(!selects("acme/old/one") && !selects("zz/two"));
    }

    #[test]
    fn a_selector_of_one_journal_selects_only_it() {
        let selector = LabelSelector::journal("a/b");
        assert!(selector.matches(&LabelSet::from_pairs([("name", "a/b"), ("tag", "x")])));
        assert!(!selector.matches(&LabelSet::from_pairs([("name", "a/b/c")])));
        assert!(LabelSelector::default().is_empty() && !selector.is_empty());
    }
}
