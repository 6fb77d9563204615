//! The next steps of one item.

use std::cmp::Reverse;

use bytes::Bytes;
use gazette_coordination::{Compare, Op};
use gazette_protocol::process_spec::Id;

use super::{Loads, batch::Batcher};
use crate::{
    Schema, State,
    state::{AssignmentEntry, ItemEntry},
};

/// Changes of one item, which are applied together.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) compares: Vec<Compare>,
    pub(super) ops: Vec<Op>,
    /// A member had no room.
    pub(super) is_blocked: bool,
}

struct Current<'a, S: Schema> {
    entry: AssignmentEntry<'a, S>,
    is_consistent: bool,
}

/// Plans what can be done now for `item` to have the members `desired`.
pub(super) fn plan<S: Schema>(
    state: State<'_, S>,
    item: ItemEntry<'_, S>,
    desired: &[Id],
    loads: &mut Loads,
) -> Steps {
    let current = current(state, &item.decoded.id);
    let is_held = |id: &&Id| current.iter().any(|held| held.entry.member == **id);
    let adds: Vec<_> = desired.iter().filter(|id| !is_held(id)).collect();
    let removes: Vec<_> = current
        .iter()
        .filter(|held| !desired.contains(&held.entry.member))
        .collect();

    let mut steps = Steps::default();
    if adds.is_empty() && removes.is_empty() {
        if current.iter().any(|held| held.entry.slot == 0) {
            pack(state, &current, &mut steps);
        } else {
            promote(state, current.iter().collect(), desired, loads, &mut steps);
        }
        return steps;
    }
    let removed = constrain(removes, &current, S::replication(&item.spec), loads);
    if !removed.is_empty() {
        steps.compares.push(Compare::mod_revision(
            item.raw().key.clone(),
            item.mod_revision(),
        ));
    }
    for gone in &removed {
        let raw = gone.entry.raw();
        steps
            .compares
            .push(Compare::mod_revision(raw.key.clone(), raw.mod_revision));
        steps.ops.push(Op::delete(raw.key.clone()));
    }
    let kept: Vec<_> = current
        .iter()
        .filter(|held| {
            !removed
                .iter()
                .any(|gone| gone.entry.member == held.entry.member)
        })
        .collect();
    if !kept.iter().any(|held| held.entry.slot == 0) {
        promote(state, kept, desired, loads, &mut steps);
    }
    let mut slot = current
        .iter()
        .map(|held| held.entry.slot + 1)
        .max()
        .unwrap_or(0);
    for id in adds {
        if add(state, &item.decoded.id, id, slot, loads, &mut steps) {
            slot += 1;
        }
    }
    steps
}

/// Deletes the assignments of an item that is gone.
pub(super) fn remove_dead<S: Schema>(state: State<'_, S>, id: &str, batcher: &mut Batcher) {
    let raw: Vec<_> = state.assignments_of(id).map(|entry| entry.raw()).collect();
    for raw in raw.chunks(batcher.room().saturating_sub(1).max(1)) {
        let mut compares = vec![Compare::create_revision(state.keys().item(id), 0)];
        compares.extend(
            raw.iter()
                .map(|kv| Compare::mod_revision(kv.key.clone(), kv.mod_revision)),
        );
        let ops = raw.iter().map(|kv| Op::delete(kv.key.clone())).collect();
        batcher.push(id, compares, ops);
    }
}

fn current<'a, S: Schema>(state: State<'a, S>, item: &str) -> Vec<Current<'a, S>> {
    let entries: Vec<_> = state.assignments_of(item).collect();
    let all: Vec<_> = entries.iter().map(|entry| entry.decoded).collect();
    entries
        .iter()
        .map(|&entry| Current {
            entry,
            is_consistent: S::is_consistent(entry.decoded, &all),
        })
        .collect()
}

/// Chooses what may be removed now: from the most loaded members, and so that as many consistent
/// assignments remain as the item has replicas.
fn constrain<'c, 'a, S: Schema>(
    mut removes: Vec<&'c Current<'a, S>>,
    current: &[Current<'a, S>],
    replication: usize,
    loads: &Loads,
) -> Vec<&'c Current<'a, S>> {
    removes.sort_by_key(|held| Reverse(loads.assigned(&held.entry.decoded.member)));
    let mut consistent = current.iter().filter(|held| held.is_consistent).count();
    let mut removed = Vec::new();
    for held in removes {
        let remaining = consistent - usize::from(held.is_consistent);
        if remaining >= replication {
            consistent = remaining;
            removed.push(held);
        }
    }
    removed
}

/// Makes one of `kept`, which have no primary, the primary.
fn promote<S: Schema>(
    state: State<'_, S>,
    kept: Vec<&Current<'_, S>>,
    desired: &[Id],
    loads: &mut Loads,
    steps: &mut Steps,
) {
    let chosen = kept.into_iter().min_by_key(|held| {
        let member = &held.entry.decoded.member;
        (
            !held.is_consistent,
            !desired.contains(member),
            loads.primary(member),
        )
    });
    if let Some(chosen) = chosen {
        move_to(state, chosen, 0, steps);
        loads.add_primary(&chosen.entry.decoded.member);
    }
}

/// Closes the first gap of the slots.
fn pack<S: Schema>(state: State<'_, S>, current: &[Current<'_, S>], steps: &mut Steps) {
    let mut by_slot: Vec<_> = current.iter().collect();
    by_slot.sort_by_key(|held| held.entry.slot);
    let gap = (0..)
        .zip(by_slot)
        .find(|(rank, held)| held.entry.slot != *rank);
    if let Some((rank, held)) = gap {
        move_to(state, held, rank, steps);
    }
}

fn move_to<S: Schema>(state: State<'_, S>, held: &Current<'_, S>, slot: u32, steps: &mut Steps) {
    let raw = held.entry.raw();
    let key = state
        .keys()
        .assignment(&held.entry.item, &held.entry.member, slot);
    steps
        .compares
        .push(Compare::mod_revision(raw.key.clone(), raw.mod_revision));
    steps.ops.push(Op::delete(raw.key.clone()));
    steps
        .ops
        .push(Op::put_with_lease(key, raw.value.clone(), raw.lease));
}

/// Adds an assignment, under the lease of its member. Returns false if there is no room.
fn add<S: Schema>(
    state: State<'_, S>,
    item: &str,
    id: &Id,
    slot: u32,
    loads: &mut Loads,
    steps: &mut Steps,
) -> bool {
    let Some(member) = state.member(id).filter(|_| loads.has_room(id)) else {
        steps.is_blocked = true;
        return false;
    };
    let raw = member.raw();
    let key = state.keys().assignment(item, id, slot);
    steps
        .compares
        .push(Compare::mod_revision(raw.key.clone(), raw.mod_revision));
    steps
        .ops
        .push(Op::put_with_lease(key, Bytes::new(), raw.lease));
    loads.add(id);
    if slot == 0 {
        loads.add_primary(id);
    }
    true
}
