//! The rules of registers: labels that travel with each commit, and that an append may
//! check and change.
//!
//! Registers are written as whole labels. Subtracting removes a label only if all its values
//! are named, and happens first; a united label replaces all its values.

use gazette_protocol::{LabelSelector, LabelSet};

/// Whether an append that requires `check` of the registers may go on.
///
/// Registers that are empty pass every check: they are empty too when a journal lost its
/// brokers, and its writers must be able to go on.
pub fn admits(registers: &LabelSet, check: Option<&LabelSelector>) -> bool {
    registers.is_empty() || check.is_none_or(|check| check.matches(registers))
}

/// The registers after a commit of an append with these changes.
#[must_use]
pub fn update(
    registers: &LabelSet,
    subtract: Option<&LabelSet>,
    union: Option<&LabelSet>,
) -> LabelSet {
    let mut updated = match subtract {
        Some(subtract) => LabelSet::subtract(registers, subtract),
        None => registers.clone(),
    };
    if let Some(union) = union {
        updated = LabelSet::union(union, &updated);
    }
    updated
}

/// Whether an append asks for any change of the registers. An append of no bytes must not.
pub fn is_changed_by(subtract: Option<&LabelSet>, union: Option<&LabelSet>) -> bool {
    let names_any = |set: Option<&LabelSet>| set.is_some_and(|set| !set.is_empty());
    names_any(subtract) || names_any(union)
}

#[cfg(test)]
mod tests;
