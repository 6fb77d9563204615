//! Clusters of brokers: journals are assigned to brokers, and routes say how far they got.

#[cfg(test)]
mod tests;

use gazette_keyspace::DecodeError;
use gazette_protocol::{
    BrokerSpec, JournalSpec, MAX_REPLICATION, Route, Validate, process_spec::Id,
};
use prost::Message;

use crate::{Assignment, Schema};

/// Items are [`JournalSpec`]s, members [`BrokerSpec`]s, and assignments hold the [`Route`] that
/// their broker has agreed on with its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brokers;

impl Schema for Brokers {
    type Item = JournalSpec;
    type Member = BrokerSpec;
    type Assignment = Route;

    fn decode_item(id: &str, value: &[u8]) -> Result<JournalSpec, DecodeError> {
        let spec: JournalSpec = decode(value)?;
        if spec.name != id {
            return Err(DecodeError::new(format_args!(
                "journal spec is named {:?}, and its key {id:?}",
                spec.name
            )));
        }
        Ok(spec)
    }

    fn decode_member(id: &Id, value: &[u8]) -> Result<BrokerSpec, DecodeError> {
        let spec: BrokerSpec = decode(value)?;
        if spec.process_spec.id != *id {
            return Err(DecodeError::new(format_args!(
                "broker spec is of {}, and its key of {id}",
                spec.process_spec.id
            )));
        }
        Ok(spec)
    }

    fn decode_assignment(
        _item: &str,
        _member: &Id,
        _slot: u32,
        value: &[u8],
    ) -> Result<Route, DecodeError> {
        if value.is_empty() {
            Ok(Route::unrouted())
        } else {
            decode(value)
        }
    }

    fn replication(item: &JournalSpec) -> usize {
        usize::try_from(item.desired_replication(MAX_REPLICATION)).unwrap_or(0)
    }

    fn limit(member: &BrokerSpec) -> usize {
        usize::try_from(member.journal_limit).unwrap_or(usize::MAX)
    }

    fn is_exiting(member: &BrokerSpec) -> bool {
        member.exiting
    }

    fn endpoint(member: &BrokerSpec) -> &str {
        &member.process_spec.endpoint
    }

    /// A journal is consistent as a whole: every assignment must hold the route that the present
    /// assignments make.
    fn is_consistent(_one: &Assignment<Route>, all: &[&Assignment<Route>]) -> bool {
        let members = all.iter().map(|assignment| &assignment.member);
        let primary = all.iter().position(|assignment| assignment.slot == 0);
        all.iter().all(|assignment| {
            usize::try_from(assignment.value.primary).ok() == primary
                && assignment.value.members.iter().eq(members.clone())
        })
    }
}

fn decode<M: Message + Default + Validate>(value: &[u8]) -> Result<M, DecodeError> {
    let message = M::decode(value).map_err(DecodeError::new)?;
    message.validate().map_err(DecodeError::new)?;
    Ok(message)
}
