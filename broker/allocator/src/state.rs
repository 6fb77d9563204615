//! Items, members and assignments of a key space, joined.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use gazette_coordination::KeyValue;
use gazette_keyspace::KeySpace;
use gazette_protocol::{Route, process_spec::Id};

use crate::{Assignment, Decoded, Item, Keys, Member, Schema};

/// Looks at a key space as items, members and assignments. Making one costs nothing.
#[derive(Debug)]
pub struct State<'a, S: Schema> {
    keys: &'a Keys,
    space: &'a KeySpace<Decoded<S>>,
}

/// An entry of a known kind.
#[derive(Debug)]
pub struct Entry<'a, S: Schema, T> {
    /// The entry, which can be kept beyond the lock of the key space.
    pub entry: &'a Arc<gazette_keyspace::Entry<Decoded<S>>>,
    /// What it decodes to.
    pub decoded: &'a T,
}

impl<'a, S: Schema, T> Entry<'a, S, T> {
    /// The key as stored.
    pub fn raw(&self) -> &'a KeyValue {
        &self.entry.raw
    }

    /// Revision of the latest change.
    pub fn mod_revision(&self) -> i64 {
        self.entry.raw.mod_revision
    }
}

impl<S: Schema, T> std::ops::Deref for Entry<'_, S, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.decoded
    }
}

impl<S: Schema, T> Clone for Entry<'_, S, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Schema, T> Copy for Entry<'_, S, T> {}

impl<S: Schema> Clone for State<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Schema> Copy for State<'_, S> {}

/// Entry of an item.
pub type ItemEntry<'a, S> = Entry<'a, S, Item<<S as Schema>::Item>>;
/// Entry of a member.
pub type MemberEntry<'a, S> = Entry<'a, S, Member<<S as Schema>::Member>>;
/// Entry of an assignment.
pub type AssignmentEntry<'a, S> = Entry<'a, S, Assignment<<S as Schema>::Assignment>>;

impl<'a, S: Schema> State<'a, S> {
    /// Looks at `space`, which mirrors the root of `keys`.
    pub fn new(keys: &'a Keys, space: &'a KeySpace<Decoded<S>>) -> Self {
        Self { keys, space }
    }

    /// The keys of the root.
    pub fn keys(&self) -> &'a Keys {
        self.keys
    }

    /// The key space.
    pub fn space(&self) -> &'a KeySpace<Decoded<S>> {
        self.space
    }

    /// Items, ascending.
    pub fn items(&self) -> impl Iterator<Item = ItemEntry<'a, S>> + use<'a, S> {
        self.items_with_prefix("")
    }

    /// Items whose names begin with `names`, ascending.
    pub fn items_with_prefix(
        &self,
        names: &str,
    ) -> impl Iterator<Item = ItemEntry<'a, S>> + use<'a, S> {
        self.space
            .prefixed(self.keys.items(names))
            .filter_map(as_item)
    }

    /// The item of a name.
    pub fn item(&self, id: &str) -> Option<ItemEntry<'a, S>> {
        self.space.get(&self.keys.item(id)).and_then(as_item)
    }

    /// Members, ascending.
    pub fn members(&self) -> impl Iterator<Item = MemberEntry<'a, S>> + use<'a, S> {
        self.space
            .prefixed(self.keys.members())
            .filter_map(as_member)
    }

    /// The member of an identity.
    pub fn member(&self, id: &Id) -> Option<MemberEntry<'a, S>> {
        self.space.get(&self.keys.member(id)).and_then(as_member)
    }

    /// All assignments, ascending.
    pub fn assignments(&self) -> impl Iterator<Item = AssignmentEntry<'a, S>> + use<'a, S> {
        self.space
            .prefixed(self.keys.assignments())
            .filter_map(as_assignment)
    }

    /// Assignments of an item, ascending on member. The item need not exist.
    pub fn assignments_of(
        &self,
        item: &str,
    ) -> impl Iterator<Item = AssignmentEntry<'a, S>> + use<'a, S> {
        self.space
            .prefixed(self.keys.assignments_of(item))
            .filter_map(as_assignment)
    }

    /// Assignments of a member, ascending on item. Looks at all assignments.
    pub fn assignments_to<'m>(
        &self,
        member: &'m Id,
    ) -> impl Iterator<Item = AssignmentEntry<'a, S>> + use<'a, 'm, S> {
        self.assignments()
            .filter(move |assignment| assignment.member == *member)
    }

    /// Who holds an item, with endpoints where their members are known.
    pub fn route(&self, item: &str) -> Route {
        let mut route = Route::unrouted();
        for assignment in self.assignments_of(item) {
            if assignment.slot == 0 {
                route.primary = i32::try_from(route.members.len()).unwrap_or(-1);
            }
            let member = self.member(&assignment.member);
            let endpoint = member.map_or("", |member| S::endpoint(&member.decoded.spec));
            route.endpoints.push(endpoint.to_owned());
            route.members.push(assignment.member.clone());
        }
        route
    }

    /// Whether all assignments of an item have caught up. An item without any has.
    pub fn is_consistent(&self, item: &str) -> bool {
        let entries: Vec<_> = self
            .assignments_of(item)
            .map(|entry| entry.decoded)
            .collect();
        entries.iter().all(|one| S::is_consistent(one, &entries))
    }

    /// The member that allocates: the one which came first.
    pub fn leader(&self) -> Option<MemberEntry<'a, S>> {
        self.members()
            .min_by_key(|member| member.entry.raw.create_revision)
    }
}

fn as_item<S: Schema>(
    entry: &Arc<gazette_keyspace::Entry<Decoded<S>>>,
) -> Option<ItemEntry<'_, S>> {
    match &entry.decoded {
        Decoded::Item(decoded) => Some(Entry { entry, decoded }),
        Decoded::Member(_) | Decoded::Assignment(_) => None,
    }
}

fn as_member<S: Schema>(
    entry: &Arc<gazette_keyspace::Entry<Decoded<S>>>,
) -> Option<MemberEntry<'_, S>> {
    match &entry.decoded {
        Decoded::Member(decoded) => Some(Entry { entry, decoded }),
        Decoded::Item(_) | Decoded::Assignment(_) => None,
    }
}

fn as_assignment<S: Schema>(
    entry: &Arc<gazette_keyspace::Entry<Decoded<S>>>,
) -> Option<AssignmentEntry<'_, S>> {
    match &entry.decoded {
        Decoded::Assignment(decoded) => Some(Entry { entry, decoded }),
        Decoded::Item(_) | Decoded::Member(_) => None,
    }
}
