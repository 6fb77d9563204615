//! The input of the solver.

use gazette_protocol::process_spec::Id;

use crate::{Schema, State};

/// Items, members and how they are assigned now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// Members, ascending on id.
    pub members: Vec<ProblemMember>,
    /// Items, ascending on name.
    pub items: Vec<ProblemItem>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemMember {
    /// Its identity.
    pub id: Id,
    /// Most assignments that it may have now: its limit, less what it may shed to leave.
    pub limit: usize,
}

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemItem {
    /// Its name.
    pub id: String,
    /// Number of members that it wants.
    pub replication: usize,
    /// Members that it has, ascending on slot, as indices.
    pub current: Vec<usize>,
}

impl Problem {
    /// The problem that a state poses.
    pub fn of<S: Schema>(state: State<'_, S>) -> Self {
        let mut items = Vec::new();
        let mut assignments = state.assignments().peekable();
        let ids: Vec<_> = state.members().map(|member| &member.decoded.id).collect();
        for item in state.items() {
            let id = item.decoded.id.as_str();
            let mut current = Vec::new();
            // Both ascend on the item's name. Assignments of names in between are of no item.
            while let Some(assignment) = assignments.next_if(|next| *next.item <= *id) {
                if assignment.item == id
                    && let Ok(member) = ids.binary_search(&&assignment.decoded.member)
                {
                    current.push((assignment.slot, member));
                }
            }
            current.sort_unstable();
            items.push(ProblemItem {
                id: id.to_owned(),
                replication: S::replication(&item.spec),
                current: current.into_iter().map(|(_, member)| member).collect(),
            });
        }
        let members = limits(state, &items);
        Self { members, items }
    }
}

/// The members with what they may hold now.
///
/// A member that wants to leave is granted to shed what the others have room for: it then holds
/// less, down to nothing. The oldest are granted first, and never so many members at once that
/// the rest could not hold all replicas of an item.
fn limits<S: Schema>(state: State<'_, S>, items: &[ProblemItem]) -> Vec<ProblemMember> {
    let mut members: Vec<_> = state
        .members()
        .map(|member| ProblemMember {
            id: member.decoded.id.clone(),
            limit: S::limit(&member.decoded.spec),
        })
        .collect();
    let slots = members
        .iter()
        .fold(0, |sum: usize, member| sum.saturating_add(member.limit));
    let wanted: usize = items.iter().map(|item| item.replication).sum();
    let most = items.iter().map(|item| item.replication).max().unwrap_or(0);

    let mut exiting: Vec<_> = state
        .members()
        .enumerate()
        .filter(|(_, member)| S::is_exiting(&member.decoded.spec))
        .map(|(index, member)| (member.raw().create_revision, index))
        .collect();
    exiting.sort_unstable();
    exiting.truncate(members.len().saturating_sub(most));
    let mut excess = slots.saturating_sub(wanted);
    for (_, index) in exiting {
        let shed = members[index].limit.min(excess);
        members[index].limit -= shed;
        excess -= shed;
    }
    members
}
