//! Values of templates, with the fields and methods that the reference gives them.

use time::OffsetDateTime;

use super::{PostfixContext, go_time};
use crate::{
    Fragment, JournalSpec, Label, LabelSet, Sha1Sum, duration, go_duration,
    journal_spec::{self, Suspend},
};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    Nil,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    /// A number that has a name.
    Enum {
        name: String,
        number: i64,
    },
    Time(OffsetDateTime),
    /// Nanoseconds.
    Duration(i64),
    List(Vec<Self>),
    Object(Object<'a>),
}

/// A structure, by reference.
#[derive(Debug, Clone, Copy)]
pub(super) enum Object<'a> {
    Root(Data<'a>),
    Spool(Data<'a>),
    Spec(&'a JournalSpec),
    SpecFragment(&'a journal_spec::Fragment),
    Suspend(&'a Suspend),
    Fragment(&'a Fragment),
    Labels(&'a LabelSet),
    Label(&'a Label),
    Sum(&'a Sha1Sum),
}

/// Objects are looked into, and never compared.
impl PartialEq for Object<'_> {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

/// The context, with its time as a date.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) context: PostfixContext<'a>,
    pub(super) time: OffsetDateTime,
}

impl<'a> Value<'a> {
    /// The items of a list.
    pub(super) fn items(&self) -> Option<&[Self]> {
        if let Self::List(items) = self {
            Some(items)
        } else {
            None
        }
    }

    /// The items to loop over. Nil has none.
    pub(super) fn into_items(self) -> Option<Vec<Self>> {
        match self {
            Self::List(items) => Some(items),
            Self::Nil => Some(Vec::new()),
            Self::Bool(_)
            | Self::Integer(_)
            | Self::Float(_)
            | Self::Text(_)
            | Self::Enum { .. }
            | Self::Time(_)
            | Self::Duration(_)
            | Self::Object(_) => None,
        }
    }

    fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    fn integer(number: impl Into<i128>) -> Self {
        Self::Integer(number.into())
    }

    fn number_of(enumeration: Option<&str>, number: i64) -> Self {
        let name = enumeration.map_or_else(|| number.to_string(), str::to_owned);
        Self::Enum { name, number }
    }

    fn duration_of(value: &prost_types::Duration) -> Self {
        Self::Duration(duration::to_nanos(value).unwrap_or_default())
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a text",
            Self::Enum { .. } => "a named number",
            Self::Time(_) => "a time",
            Self::Duration(_) => "a duration",
            Self::List(_) => "a list",
            Self::Object(object) => object.kind(),
        }
    }

    /// Whether the value is not its zero value.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Integer(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Enum { number, .. } => *number != 0,
            Self::Duration(nanos) => *nanos != 0,
            Self::List(values) => !values.is_empty(),
            Self::Time(_) | Self::Object(_) => true,
        }
    }

    /// The number that the value is, whatever its name.
    pub(super) fn as_integer(&self) -> Option<i128> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Enum { number, .. } => Some((*number).into()),
            Self::Duration(nanos) => Some((*nanos).into()),
            Self::Nil
            | Self::Bool(_)
            | Self::Float(_)
            | Self::Text(_)
            | Self::Time(_)
            | Self::List(_)
            | Self::Object(_) => None,
        }
    }

    /// The value as text. `None` if the reference prints a memory address in it.
    pub(super) fn print(&self) -> Option<String> {
        Some(match self {
            Self::Nil => "<no value>".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Enum { name, .. } => name.clone(),
            Self::Time(time) => go_time::format(*time, go_time::STRING),
            Self::Duration(nanos) => go_duration::format(*nanos),
            Self::List(values) => format!("[{}]", print_all(values)?),
            Self::Object(object) => format!("{{{}}}", print_all(&object.values()?)?),
        })
    }

    /// A field, or the result of a method without arguments.
    pub(super) fn field(&self, name: &str) -> Option<Self> {
        match self {
            Self::Object(object) => object.field(name),
            Self::Time(time) => go_time::field(*time, name),
            Self::Enum { name: own, .. } if name == "String" => Some(Self::text(own)),
            Self::Duration(nanos) => match name {
                "String" => Some(Self::Text(go_duration::format(*nanos))),
                "Nanoseconds" => Some(Self::integer(*nanos)),
                "Microseconds" => Some(Self::integer(nanos / 1_000)),
                "Milliseconds" => Some(Self::integer(nanos / 1_000_000)),
                _ => None,
            },
            Self::Nil
            | Self::Bool(_)
            | Self::Integer(_)
            | Self::Float(_)
            | Self::Text(_)
            | Self::Enum { .. }
            | Self::List(_) => None,
        }
    }

    /// The result of a method with one text as its argument.
    pub(super) fn call(&self, method: &str, argument: &str) -> Option<Self> {
        if let Self::Time(time) = self {
            let format = || Self::Text(go_time::format(*time, argument));
            return (method == "Format").then(format);
        }
        let set = self.label_set()?;
        match method {
            "ValueOf" => Some(Self::text(set.value_of(argument).unwrap_or_default())),
            "ValuesOf" => Some(Self::List(
                set.values_of(argument).map(Self::text).collect(),
            )),
            _ => None,
        }
    }

    /// Whether the value has a method of this name that takes one text.
    pub(super) fn has_method(&self, name: &str) -> bool {
        match name {
            "Format" => matches!(self, Self::Time(_)),
            "ValueOf" | "ValuesOf" => self.label_set().is_some(),
            _ => false,
        }
    }

    fn label_set(&self) -> Option<&'a LabelSet> {
        if let Self::Object(object) = self {
            object.label_set()
        } else {
            None
        }
    }
}

fn print_all(values: &[Value<'_>]) -> Option<String> {
    let texts: Option<Vec<String>> = values.iter().map(Value::print).collect();
    Some(texts?.join(" "))
}

impl<'a> Object<'a> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Root(_) => "the template's data",
            Self::Spool(_) => "the spool",
            Self::Spec(_) => "the spec",
            Self::SpecFragment(_) => "the fragment of the spec",
            Self::Suspend(_) => "the suspension of the spec",
            Self::Fragment(_) => "a fragment",
            Self::Labels(_) => "a set of labels",
            Self::Label(_) => "a label",
            Self::Sum(_) => "a sum",
        }
    }

    /// The set whose methods the object has, because it is one or embeds one.
    fn label_set(self) -> Option<&'a LabelSet> {
        match self {
            Self::Labels(set) => Some(set),
            Self::Spec(spec) => Some(&spec.labels),
            Self::Root(data) => Some(&data.context.spec.labels),
            Self::Spool(_)
            | Self::SpecFragment(_)
            | Self::Suspend(_)
            | Self::Fragment(_)
            | Self::Label(_)
            | Self::Sum(_) => None,
        }
    }

    /// The values of the object's fields, in order; `None` where one of them is a pointer.
    fn values(self) -> Option<Vec<Value<'a>>> {
        let names: &[&str] = match self {
            Self::Root(_) | Self::Spec(_) | Self::Suspend(_) => return None,
            Self::Spool(_) => &["Fragment", "FirstAppendTime", "Registers"],
            Self::SpecFragment(_) => &[
                "Length",
                "CompressionCodec",
                "Stores",
                "RefreshInterval",
                "Retention",
                "FlushInterval",
                "PathPostfixTemplate",
            ],
            Self::Fragment(_) => &[
                "Journal",
                "Begin",
                "End",
                "Sum",
                "CompressionCodec",
                "BackingStore",
                "ModTime",
                "PathPostfix",
            ],
            Self::Labels(_) => &["Labels"],
            Self::Label(_) => &["Name", "Value", "Prefix"],
            Self::Sum(_) => &["Part1", "Part2", "Part3"],
        };
        names.iter().map(|name| self.field(name)).collect()
    }

    fn field(self, name: &str) -> Option<Value<'a>> {
        match self {
            Self::Root(data) => match name {
                "Spool" => Some(Value::Object(Self::Spool(data))),
                "JournalSpec" => Some(Value::Object(Self::Spec(data.context.spec))),
                _ => Self::Spec(data.context.spec).field(name),
            },
            Self::Spool(data) => match name {
                "Fragment" => Some(Value::Object(Self::Fragment(data.context.fragment))),
                "FirstAppendTime" => Some(Value::Time(data.time)),
                "Registers" => Some(Value::Object(Self::Labels(data.context.registers))),
                _ => Self::Fragment(data.context.fragment).field(name),
            },
            Self::Spec(spec) => spec_field(spec, name),
            Self::SpecFragment(fragment) => spec_fragment_field(fragment, name),
            Self::Suspend(suspend) => match name {
                "Level" => {
                    let known = journal_spec::suspend::Level::try_from(suspend.level).ok();
                    let known = known.map(|level| level.as_str_name());
                    Some(Value::number_of(known, suspend.level.into()))
                }
                "Offset" => Some(Value::integer(suspend.offset)),
                _ => None,
            },
            Self::Fragment(fragment) => fragment_field(fragment, name),
            Self::Labels(set) => match name {
                "Labels" => {
                    let labels = set.labels.iter();
                    Some(Value::List(
                        labels.map(|l| Value::Object(Self::Label(l))).collect(),
                    ))
                }
                _ => None,
            },
            Self::Label(label) => match name {
                "Name" => Some(Value::text(&label.name)),
                "Value" => Some(Value::text(&label.value)),
                "Prefix" => Some(Value::Bool(label.prefix)),
                _ => None,
            },
            Self::Sum(sum) => match name {
                "Part1" => Some(Value::integer(sum.part1)),
                "Part2" => Some(Value::integer(sum.part2)),
                "Part3" => Some(Value::integer(sum.part3)),
                "IsZero" => Some(Value::Bool(sum.is_zero())),
                _ => None,
            },
        }
    }
}

fn codec(number: i32) -> Value<'static> {
    let known = crate::CompressionCodec::try_from(number).ok();
    Value::number_of(known.map(|codec| codec.as_str_name()), number.into())
}

fn fragment_field<'a>(fragment: &'a Fragment, name: &str) -> Option<Value<'a>> {
    Some(match name {
        "Journal" => Value::text(&fragment.journal),
        "Begin" => Value::integer(fragment.begin),
        "End" => Value::integer(fragment.end),
        "Sum" => Value::Object(Object::Sum(&fragment.sum)),
        "CompressionCodec" => codec(fragment.compression_codec),
        "BackingStore" => Value::text(&fragment.backing_store),
        "ModTime" => Value::integer(fragment.mod_time),
        "PathPostfix" => Value::text(&fragment.path_postfix),
        _ => return None,
    })
}

fn spec_field<'a>(spec: &'a JournalSpec, name: &str) -> Option<Value<'a>> {
    Some(match name {
        "Name" => Value::text(&spec.name),
        "Replication" => Value::integer(spec.replication),
        "LabelSet" => Value::Object(Object::Labels(&spec.labels)),
        "Fragment" => Value::Object(Object::SpecFragment(&spec.fragment)),
        "Flags" => {
            let known = spec.flag().map(|flag| flag.as_str_name());
            Value::number_of(known, spec.flags.into())
        }
        "MaxAppendRate" => Value::integer(spec.max_append_rate),
        "Suspend" => match &spec.suspend {
            Some(suspend) => Value::Object(Object::Suspend(suspend)),
            None => Value::Nil,
        },
        _ => return Object::Labels(&spec.labels).field(name),
    })
}

fn spec_fragment_field<'a>(fragment: &'a journal_spec::Fragment, name: &str) -> Option<Value<'a>> {
    Some(match name {
        "Length" => Value::integer(fragment.length),
        "CompressionCodec" => codec(fragment.compression_codec),
        "Stores" => Value::List(
            fragment
                .stores
                .iter()
                .map(|store| Value::text(store))
                .collect(),
        ),
        "RefreshInterval" => Value::duration_of(&fragment.refresh_interval),
        "Retention" => Value::duration_of(&fragment.retention),
        "FlushInterval" => Value::duration_of(&fragment.flush_interval),
        "PathPostfixTemplate" => Value::text(&fragment.path_postfix_template),
        _ => return None,
    })
}
