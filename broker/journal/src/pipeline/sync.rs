//! What the answers to a proposal mean.

use gazette_protocol::{Fragment, Header, LabelSet, ReplicateResponse, Status, process_spec};

use super::PipelineError;

/// How a round ended that did not fail.
#[derive(Debug, Clone, PartialEq)]
pub enum SyncOutcome {
    /// Every replica has the proposed fragment and registers.
    Agreed,
    /// The replicas must begin a new fragment at `offset` to agree. That comes before a route
    /// that is newer, if there is one too.
    RollTo {
        /// The greatest end of any replica.
        offset: i64,
        /// Registers of the replica that is ahead. None if none is: then ours stay.
        registers: Option<LabelSet>,
    },
    /// A peer knows another route, at a later revision.
    NewerRoute {
        /// The greatest such revision.
        revision: i64,
    },
}

/// Whether an answer has what its status needs.
pub(super) fn makes_sense(reply: &ReplicateResponse) -> bool {
    match Status::try_from(reply.status) {
        Ok(Status::ProposalMismatch) => reply.fragment.is_some(),
        Ok(Status::WrongRoute) => reply.header.is_some(),
        Ok(_) => true,
        Err(_) => false,
    }
}

/// Whether every peer agreed.
pub(super) fn all_ok<'a>(
    replies: impl Iterator<Item = (&'a process_spec::Id, &'a ReplicateResponse)>,
) -> Result<(), PipelineError> {
    for (peer, reply) in replies {
        if reply.status() != Status::Ok {
            return Err(refused(peer, reply));
        }
    }
    Ok(())
}

/// What the answers to a synchronisation ask for.
///
/// A peer that is ahead has the greatest offset, and its registers are the newest. One that is
/// level with us but holds nothing has just joined: it cannot extend content that it lacks, so
/// all begin a new fragment there.
pub(super) fn gather<'a>(
    header: &Header,
    proposal: &Fragment,
    replies: impl Iterator<Item = (&'a process_spec::Id, &'a ReplicateResponse)>,
) -> Result<SyncOutcome, PipelineError> {
    let mut roll: Option<(i64, Option<LabelSet>)> = None;
    let mut newer_revision = None;

    for (peer, reply) in replies {
        match (reply.status(), &reply.fragment, &reply.header) {
            (Status::Ok, ..) => {}
            (Status::WrongRoute, _, Some(theirs))
                if !theirs.route.is_equivalent(&header.route)
                    && theirs.etcd.revision > header.etcd.revision =>
            {
                newer_revision = newer_revision.max(Some(theirs.etcd.revision));
            }
            (Status::ProposalMismatch, Some(theirs), _) if theirs.end > proposal.end => {
                if roll.as_ref().is_none_or(|(end, _)| *end < theirs.end) {
                    roll = Some((
                        theirs.end,
                        Some(reply.registers.clone().unwrap_or_default()),
                    ));
                }
            }
            (Status::ProposalMismatch, Some(theirs), _)
                if theirs.end == proposal.end && theirs.begin == theirs.end =>
            {
                roll = roll.or(Some((proposal.end, None)));
            }
            _ => return Err(refused(peer, reply)),
        }
    }
    Ok(match (roll, newer_revision) {
        (Some((offset, registers)), _) => SyncOutcome::RollTo { offset, registers },
        (None, Some(revision)) => SyncOutcome::NewerRoute { revision },
        (None, None) => SyncOutcome::Agreed,
    })
}

fn refused(peer: &process_spec::Id, reply: &ReplicateResponse) -> PipelineError {
    PipelineError::Refused {
        peer: peer.clone(),
        status: reply.status(),
    }
}
