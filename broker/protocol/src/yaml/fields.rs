//! Values that YAML spells otherwise than the wire does.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, Visitor},
    ser::Error as _,
};

use crate::{
    CompressionCodec, duration, go_duration,
    journal_spec::{Flag, suspend::Level},
};

/// A duration as Go prints it, or a number of nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DurationField(pub prost_types::Duration);

/// The number of a codec, which is written as its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CodecField(pub i32);

/// The number of a flag, which is written as its name if it has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlagField(pub u32);

/// The number of a level of suspension, which is written as its name if it has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelField(pub i32);

impl Serialize for DurationField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nanos = duration::to_nanos(&self.0).map_err(S::Error::custom)?;
        serializer.serialize_str(&go_duration::format(nanos))
    }
}

impl<'de> Deserialize<'de> for DurationField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Scalar::deserialize(deserializer)?.0;
        let nanos = match text.parse() {
            Ok(nanos) => nanos,
            Err(_) => go_duration::parse(&text).map_err(D::Error::custom)?,
        };
        Ok(Self(duration::from_nanos(nanos)))
    }
}

impl Serialize for CodecField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = CompressionCodec::try_from(self.0)
            .ok()
            .map(|codec| codec.as_str_name());
        name_or_number(serializer, name, self.0)
    }
}

impl<'de> Deserialize<'de> for CodecField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Scalar::deserialize(deserializer)?.0;
        let codec = CompressionCodec::from_str_name(&text);
        codec.map(|codec| Self(codec.into())).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is no compression codec; write NONE, GZIP, ZSTANDARD, SNAPPY or \
                 GZIP_OFFLOAD_DECOMPRESSION"
            ))
        })
    }
}

impl Serialize for FlagField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let known = i32::try_from(self.0)
            .ok()
            .and_then(|number| Flag::try_from(number).ok());
        name_or_number(serializer, known.map(|flag| flag.as_str_name()), self.0)
    }
}

impl<'de> Deserialize<'de> for FlagField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Scalar::deserialize(deserializer)?.0;
        let named = || Flag::from_str_name(&text).and_then(|flag| u32::try_from(flag as i32).ok());
        let number = text.parse().ok().or_else(named).map(Self);
        number.ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is no flag; write O_RDONLY, O_WRONLY or O_RDWR"
            ))
        })
    }
}

impl Serialize for LevelField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = Level::try_from(self.0)
            .ok()
            .map(|level| level.as_str_name());
        name_or_number(serializer, name, self.0)
    }
}

impl<'de> Deserialize<'de> for LevelField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Scalar::deserialize(deserializer)?.0;
        let named = || Level::from_str_name(&text).map(i32::from);
        text.parse().ok().or_else(named).map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is no level of suspension; write NONE, PARTIAL or FULL"
            ))
        })
    }
}

fn name_or_number<S: Serializer>(
    serializer: S,
    name: Option<&str>,
    number: impl Into<i64>,
) -> Result<S::Ok, S::Error> {
    match name {
        Some(name) => serializer.serialize_str(name),
        None => serializer.serialize_i64(number.into()),
    }
}

/// A string, or a number as its text.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a number")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }
        }

        deserializer.deserialize_str(Text)
    }
}
