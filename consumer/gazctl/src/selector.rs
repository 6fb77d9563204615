//! The argument that selects journals.

use std::{fmt, str::FromStr};

use clap::Args;
use gazette_client::{Client, Listing};
use gazette_protocol::{LabelSelector, SelectorError};

/// A parsed selector, as clap reads it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Selector(pub(crate) LabelSelector);

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        LabelSelector::parse(text).map(Self)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `-l`, if every journal is meant without it.
#[derive(Debug, Clone, Args)]
pub(crate) struct OptionalSelector {
    /// Journals to take: labels with `=`, `!=`, `in (...)`, `notin (...)`, and the labels `name` and
    /// `prefix`; all journals if not given
    #[arg(
        short = 'l',
        long = "selector",
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) selector: Selector,
}

/// `-l`, if it must be given.
#[derive(Debug, Clone, Args)]
pub(crate) struct RequiredSelector {
    /// Journals to take: labels with `=`, `!=`, `in (...)`, `notin (...)`, and the labels `name` and
    /// `prefix`
    #[arg(short = 'l', long = "selector", value_name = "SELECTOR")]
    pub(crate) selector: Selector,
}

impl RequiredSelector {
    /// Lists the journals. That there are none is worth a warning.
    pub(crate) async fn list(&self, client: &Client) -> anyhow::Result<Listing> {
        let listing = client.list(self.selector.0.clone()).await?;
        if listing.journals.is_empty() {
            tracing::warn!(selector = %self.selector, "no journals match the selector");
        }
        Ok(listing)
    }
}

/// What all commands say about selectors.
pub(crate) const SELECTOR_HELP: &str = "\
Selectors:
  name=app/log               the journal with this name
  prefix=app/                all journals below app/ (the slash belongs to it)
  tag=blue                   the label tag has the value blue
  tag in (blue, green)       it has one of these
  tag                        it is there, with any value
  !tag  or  tag notin (red)  it is not there, or has none of these
Several are joined by commas, and all of them must hold.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_help_are_selectors() {
        let mut parsed = 0;
        for line in SELECTOR_HELP
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
        {
            let (examples, _) = line.split_at(27.min(line.len()));
            for example in examples.split("  or  ") {
                let selector: Selector = example.trim().parse().unwrap();
                assert!(!selector.0.is_empty(), "{example}");
                parsed += 1;
            }
        }
        assert_eq!(parsed, 7);
    }
}
