//! Who owns a journal: the author register, and what an append asks of it.

use bytes::{Bytes, BytesMut};
use gazette_client::{AppendError, Client};
use gazette_protocol::{AppendRequest, AppendResponse, Label, LabelSelector, LabelSet, Status};
use gazette_recoverylog_fsm::{Author, Fsm, Mode, RecordedOp};

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
    let mut attempts = 1;
    loop {
        match client.append(barrier.clone(), Bytes::new()).await {
            Ok(response) => return Ok(Ownership::of_response(&response)),
            // An empty append does nothing, as often as it is made.
            Err(error) if error.is_ambiguous() && attempts < ASKED_MAX => attempts += 1,
            Err(error) => return Err(error),
        }
    }
}

/// How often a journal is asked whose answers are lost.
const ASKED_MAX: u32 = 4;

/// Takes a log from its owner, who may be at work: from then on he cannot append.
///
/// It appends a claim that goes on from `fsm`, which need not be all of the log: one that does not chain is
/// skipped by whoever plays the log. After it the log grows no more, so that it can be recovered to its end,
/// and [`Recorder::start`](crate::recorder::Recorder::start) succeeds with the same author. Returns where
/// the log ends then.
pub async fn take_over(
    client: &Client,
    log: &str,
    mode: Mode,
    author: Author,
    fsm: &Fsm,
) -> Result<i64, AppendError> {
    let mut frame = BytesMut::new();
    fsm.claim(author, mode).encode_frame(&mut frame);
    let frame = frame.freeze();
    let mut attempts = 0;
    loop {
        let before = ownership(client, log).await?;
        if before.register == Register::Author(author) {
            return Ok(before.head);
        }
        let request = AppendRequest {
            journal: log.to_owned(),
            check_registers: Some(owned_by(before.value.as_deref())),
            union_registers: Some(registers_of(author)),
            ..AppendRequest::default()
        };
        attempts += 1;
        match client.append(request, frame.clone()).await {
            Ok(response) => return Ok(response.commit.unwrap_or_default().end),
            Err(error) if attempts < TAKE_OVERS_MAX && may_be_ours(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// What came of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The log is ours, and ends there.
    Ours {
        /// Behind the claim.
        end: i64,
    },
    /// Another one than was seen owns it.
    Theirs {
        /// Who, if the register says it.
        owner: Option<Author>,
    },
    /// It goes on behind the offset that was asked for, so its owner is at work.
    Moved,
}

/// Claims a log from the owner that was seen, for `author`. Of all who saw the same owner one wins, whatever
/// comes between: the claim compares and sets the author register.
///
/// If `at` is given the log must end there too, so that nothing was recorded since. The claim is what
/// [`Fsm::claim`] makes; if it does not follow upon the end of the log, whoever plays that skips it.
pub async fn claim_from(
    client: &Client,
    log: &str,
    author: Author,
    claim: &RecordedOp,
    seen: Option<Author>,
    at: Option<i64>,
) -> Result<Claimed, AppendError> {
    let mut frame = BytesMut::new();
    claim.encode_frame(&mut frame);
    let frame = frame.freeze();
    let value = seen.map(author_value);
    let mut attempts = 0;
    loop {
        let before = ownership(client, log).await?;
        match before.register {
            // An earlier try, of which the answer was lost.
            Register::Author(owner) if owner == author => {
                return Ok(Claimed::Ours { end: before.head });
            }
            Register::Author(owner) if Some(owner) != seen => {
                return Ok(Claimed::Theirs { owner: Some(owner) });
            }
            // Where brokers lost their registers, what was seen still holds.
            Register::Author(_) | Register::Empty => {}
            Register::Unknown => return Ok(Claimed::Theirs { owner: None }),
        }
        if at.is_some_and(|at| at != before.head) {
            return Ok(Claimed::Moved);
        }
        let request = AppendRequest {
            journal: log.to_owned(),
            offset: at.unwrap_or_default(),
            check_registers: Some(owned_by(value.as_deref())),
            union_registers: Some(registers_of(author)),
            ..AppendRequest::default()
        };
        attempts += 1;
        match client.append(request, frame.clone()).await {
            Ok(response) => {
                let end = response.commit.unwrap_or_default().end;
                return Ok(Claimed::Ours { end });
            }
            // The register tells what it means.
            Err(error)
                if attempts < TAKE_OVERS_MAX
                    && (may_be_ours(&error) || error.is_wrong_append_offset()) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns whose a log is, and where it ends. It asks the broker that takes appends.
pub async fn owner_of(client: &Client, log: &str) -> Result<(Option<Author>, i64), AppendError> {
    let found = ownership(client, log).await?;
    let author = match found.register {
        Register::Author(author) => Some(author),
        Register::Empty | Register::Unknown => None,
    };
    Ok((author, found.head))
}

/// How often a take-over is tried: others may be at it too.
const TAKE_OVERS_MAX: u32 = 8;

/// Whether a failed take-over may have taken place, or may be made anew against another owner.
fn may_be_ours(error: &AppendError) -> bool {
    error.status() == Some(Status::RegisterMismatch) || error.is_ambiguous()
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
