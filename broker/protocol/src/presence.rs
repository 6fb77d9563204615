//! Messages where a field that is present but empty differs from one that is absent.
//!
//! A peer takes an absent message for none at all, and some of them do not look twice.

use crate::{
    AppendRequest, AppendResponse, Fragment, Header, LabelSet, ReplicateRequest, ReplicateResponse,
    Status,
};

impl AppendRequest {
    /// Whether this is the first message of an append, which names the journal.
    pub fn is_first(&self) -> bool {
        !self.journal.is_empty()
    }

    /// Whether this ends the content: the append is to be committed.
    pub fn is_commit(&self) -> bool {
        !self.is_first() && self.content.is_empty()
    }

    /// Whether the append asks to change the registers, be it by an empty set. One that does
    /// may not be without content.
    pub fn changes_registers(&self) -> bool {
        self.union_registers.is_some() || self.subtract_registers.is_some()
    }
}

impl AppendResponse {
    /// The append was committed as `commit`. The registers are present even if empty.
    pub fn committed(header: Header, commit: Fragment, registers: LabelSet) -> Self {
        Self {
            header,
            commit: Some(commit),
            registers: Some(registers),
            ..Self::default()
        }
    }

    /// The registers did not match. They are told, even if empty.
    pub fn register_mismatch(header: Header, registers: LabelSet) -> Self {
        let status = Status::RegisterMismatch.into();
        Self {
            status,
            header,
            registers: Some(registers),
            ..Self::default()
        }
    }

    /// Nothing was appended, for another reason.
    pub fn refused(status: Status, header: Header) -> Self {
        Self {
            status: status.into(),
            header,
            ..Self::default()
        }
    }
}

impl ReplicateRequest {
    /// Registers of the proposal. Absent registers are empty ones.
    pub fn take_registers(&mut self) -> LabelSet {
        self.registers.take().unwrap_or_default()
    }
}

impl ReplicateResponse {
    /// The proposal does not fit. Primaries expect both fields to be present.
    pub fn proposal_mismatch(fragment: Fragment, registers: LabelSet) -> Self {
        Self {
            status: Status::ProposalMismatch.into(),
            header: None,
            fragment: Some(fragment),
            registers: Some(registers),
        }
    }
}
