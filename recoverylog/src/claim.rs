//! Who owns a journal: the author register, and what an append asks of it.

use bytes::Bytes;
use gazette_client::{AppendError, Client};
use gazette_protocol::{AppendRequest, AppendResponse, Label, LabelSelector, LabelSet};
use gazette_recoverylog_fsm::Author;

use crate::recorder::Register;

/// Name of the register that holds the author.
pub const AUTHOR_REGISTER: &str = "author";

/// Digits of the register's value.
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Returns an author as the register has it: in base 32, without leading zeros.
pub fn author_value(author: Author) -> String {
    let mut number = author.get();
    let mut digits = Vec::new();
    while number > 0 {
        digits.push(char::from(DIGITS[(number % 32) as usize]));
        number /= 32;
    }
    digits.into_iter().rev().collect()
}

/// Reads an author out of a register's value.
pub fn author_of_value(value: &str) -> Option<Author> {
    if value.is_empty() || value.len() > 7 {
        return None;
    }
    let number = value.bytes().try_fold(0_u64, |number, digit| {
        let digit = DIGITS.iter().position(|other| *other == digit)?;
        Some(number * 32 + digit as u64)
    })?;
    Author::new(u32::try_from(number).ok()?)
}

/// Returns the registers that make an author the owner.
pub(crate) fn registers_of(author: Author) -> LabelSet {
    LabelSet::from_pairs([(AUTHOR_REGISTER, author_value(author))])
}

/// Selects registers of which the author is `value`, or that have none if that is `None`. Empty registers
/// match either.
pub(crate) fn owned_by(value: Option<&str>) -> LabelSelector {
    let label = |value: &str| LabelSet {
        labels: vec![Label::new(AUTHOR_REGISTER, value)],
    };
    match value {
        Some(value) => LabelSelector {
            include: label(value),
            ..LabelSelector::default()
        },
        // An empty value stands for any.
        None => LabelSelector {
            exclude: label(""),
            ..LabelSelector::default()
        },
    }
}

/// Reads the author register out of registers that a broker told.
pub(crate) fn register_of(registers: Option<&LabelSet>) -> Register {
    let Some(registers) = registers else {
        return Register::Unknown;
    };
    match registers.value_of(AUTHOR_REGISTER) {
        None => Register::Empty,
        Some(value) => author_of_value(value).map_or(Register::Unknown, Register::Author),
    }
}

/// Where a journal ends, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// Offset at which the next append begins.
    pub(crate) head: i64,
    /// Value of the author register.
    pub(crate) value: Option<String>,
    /// The author that it names.
    pub(crate) register: Register,
}

impl Ownership {
    fn of_response(response: &AppendResponse) -> Self {
        let registers = response.registers.as_ref();
        let value = registers.and_then(|registers| registers.value_of(AUTHOR_REGISTER));
        Self {
            head: response.commit.as_ref().map_or(0, |commit| commit.end),
            value: value.map(ToOwned::to_owned),
            register: register_of(registers),
        }
    }
}

/// Asks where a journal ends and whose it is, with an empty append: so everything that the primary was
/// busy with before is done.
pub(crate) async fn ownership(client: &Client, journal: &str) -> Result<Ownership, AppendError> {
    let barrier = AppendRequest {
        journal: journal.to_owned(),
        ..AppendRequest::default()
    };
    let response = client.append(barrier, Bytes::new()).await?;
    Ok(Ownership::of_response(&response))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authors_have_the_reference_s_digits() {
        for (number, value) in [(1234, "16i"), (u32::MAX, "3vvvvvv"), (1, "1"), (32, "10")] {
            let author = Author::new(number).unwrap();
            assert_eq!(author_value(author), value);
            assert_eq!(author_of_value(value), Some(author));
        }
        for value in ["", "0", "w", "4000000", "16I", "00000000001"] {
            assert_eq!(author_of_value(value), None, "{value}");
        }
    }

    #[test]
    fn a_check_for_nobody_passes_without_an_author_only() {
        let mine = registers_of(Author::new(7).unwrap());
        let other = LabelSet::from_pairs([("other", "x")]);
        assert!(owned_by(Some("7")).matches(&mine));
        assert!(!owned_by(Some("8")).matches(&mine));
        assert!(!owned_by(None).matches(&mine));
        assert!(owned_by(None).matches(&other));
    }
}
