//! Messages as trees of fields, for the forms that do not know each message by name.

use std::sync::LazyLock;

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, ReflectMessage as _, Value,
};

use crate::always_written::ALWAYS_WRITTEN;

/// Fields from this number on are extensions of this project. Printed forms leave them out
/// unless they are set, so that they do not differ from those of Gazette.
const FIRST_EXTENSION: u32 = 100;

const DURATION: &str = "google.protobuf.Duration";

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let descriptors = include_bytes!(concat!(env!("OUT_DIR"), "/protocol.descriptors"));
    DescriptorPool::decode(descriptors.as_slice()).expect("the build script wrote descriptors")
});

/// A message of this crate, which can be printed and read in all its forms.
pub trait WireMessage: prost::Message + prost::Name + Default {}

impl<M: prost::Message + prost::Name + Default> WireMessage for M {}

pub(crate) fn descriptor<M: WireMessage>() -> MessageDescriptor {
    POOL.get_message_by_name(&M::full_name())
        .expect("the message is one of this crate")
}

/// The message as a tree. Messages that are always written are present in it.
pub(crate) fn to_tree<M: WireMessage>(message: &M) -> DynamicMessage {
    let mut tree = DynamicMessage::new(descriptor::<M>());
    tree.transcode_from(message)
        .expect("a message decodes as itself");
    tree
}

/// The message of a tree. Messages that are always written may be absent from it.
pub(crate) fn from_tree<M: WireMessage>(tree: &DynamicMessage) -> M {
    tree.transcode_to().expect("a message decodes as itself")
}

/// A field of a message and its value, if that is present.
pub(crate) type Field<'a> = (FieldDescriptor, Option<std::borrow::Cow<'a, Value>>);

/// The fields of a message, in the order of their declaration. A field that has no presence
/// of its own is absent if it has its default value.
pub(crate) fn fields(message: &DynamicMessage) -> Vec<Field<'_>> {
    let descriptor = message.descriptor();
    let declared = descriptor.descriptor_proto().field.iter();
    let fields = declared.filter_map(|field| descriptor.get_field_by_name(field.name()));
    let with_values = fields.map(|field| {
        let value = message.has_field(&field).then(|| message.get_field(&field));
        (field, value)
    });
    with_values.collect()
}

/// Whether printed forms leave the field out if it is not set.
pub(crate) fn is_extension(field: &FieldDescriptor) -> bool {
    field.number() >= FIRST_EXTENSION
}

/// Whether a peer writes this message even if it is empty.
pub(crate) fn is_always_written(field: &FieldDescriptor) -> bool {
    let parent = field.parent_message();
    let name = parent
        .full_name()
        .strip_prefix("protocol.")
        .unwrap_or_default();
    ALWAYS_WRITTEN
        .iter()
        .any(|(message, fields)| *message == name && fields.contains(&field.name()))
}

/// The duration that this message is, if it is one.
pub(crate) fn as_duration(message: &DynamicMessage) -> Option<prost_types::Duration> {
    is_duration(&message.descriptor()).then(|| from_tree(message))
}

/// Whether this is the message of durations.
pub(crate) fn is_duration(message: &MessageDescriptor) -> bool {
    message.full_name() == DURATION
}
