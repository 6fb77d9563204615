//! What items, members and assignments are, for one kind of cluster.

use std::{fmt::Debug, sync::Arc};

use gazette_coordination::KeyValue;
use gazette_keyspace::{DecodeError, Decoder};
use gazette_protocol::process_spec::Id;

use crate::{Key, Keys};

/// A kind of cluster: how its values are encoded, and what the allocator must know of them.
pub trait Schema: Debug + Send + Sync + Sized + 'static {
    /// Value of an item.
    type Item: Debug + Send + Sync + 'static;
    /// Value of a member.
    type Member: Debug + Send + Sync + 'static;
    /// Value of an assignment.
    type Assignment: Debug + Send + Sync + 'static;

    /// Decodes and validates the value of item `id`, and checks that it names itself so.
    fn decode_item(id: &str, value: &[u8]) -> Result<Self::Item, DecodeError>;

    /// Decodes and validates the value of member `id`, and checks that it names itself so.
    fn decode_member(id: &Id, value: &[u8]) -> Result<Self::Member, DecodeError>;

    /// Decodes and validates the value of an assignment. A new one is empty.
    fn decode_assignment(
        item: &str,
        member: &Id,
        slot: u32,
        value: &[u8],
    ) -> Result<Self::Assignment, DecodeError>;

    /// Number of members that the item wants to be assigned to.
    fn replication(item: &Self::Item) -> usize;

    /// Number of assignments that the member may have.
    fn limit(member: &Self::Member) -> usize;

    /// Whether the member asked to leave.
    fn is_exiting(member: &Self::Member) -> bool;

    /// Where the member listens.
    fn endpoint(member: &Self::Member) -> &str;

    /// Whether `one`, which is among `all` assignments of its item, has caught up.
    fn is_consistent(
        one: &Assignment<Self::Assignment>,
        all: &[&Assignment<Self::Assignment>],
    ) -> bool;

    /// The decoder of a key space under `keys`.
    fn decoder(keys: Keys) -> Decoder<Decoded<Self>> {
        Arc::new(move |kv| decode(&keys, kv))
    }
}

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<T> {
    /// Its name.
    pub id: String,
    /// Its value.
    pub spec: T,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<T> {
    /// Its zone and suffix.
    pub id: Id,
    /// Its value.
    pub spec: T,
}

/// An item that is assigned to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment<T> {
    /// Name of the item.
    pub item: String,
    /// The member.
    pub member: Id,
    /// Zero for the primary.
    pub slot: u32,
    /// Its value.
    pub value: T,
}

/// A decoded key and value.
#[derive(Clone, Debug)]
pub enum Decoded<S: Schema> {
    /// An item.
    Item(Item<S::Item>),
    /// A member.
    Member(Member<S::Member>),
    /// An assignment.
    Assignment(Assignment<S::Assignment>),
}

fn decode<S: Schema>(keys: &Keys, kv: &KeyValue) -> Result<Decoded<S>, DecodeError> {
    match keys.parse(&kv.key).map_err(DecodeError::new)? {
        Key::Item { id } => {
            let spec = S::decode_item(id, &kv.value)?;
            Ok(Decoded::Item(Item {
                id: id.to_owned(),
                spec,
            }))
        }
        Key::Member { id } => {
            let spec = S::decode_member(&id, &kv.value)?;
            Ok(Decoded::Member(Member { id, spec }))
        }
        Key::Assignment { item, member, slot } => {
            let value = S::decode_assignment(item, &member, slot, &kv.value)?;
            Ok(Decoded::Assignment(Assignment {
                item: item.to_owned(),
                member,
                slot,
                value,
            }))
        }
    }
}
