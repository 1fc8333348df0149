//! From TOML to a program's types, with errors that name the key, the bound and the value.
//!
//! A type that reads itself from text states in its error what the text must be: "a number and ms,
//! s or m". The key and the value are added here.

use std::fmt;

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Value;

use crate::ConfigError;
use crate::error::one_of;

pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, ConfigError> {
    T::deserialize(Reader(value)).map_err(|refusal| {
        let Refusal { key, bound, value, is_type } = refusal;
        let value = value.unwrap_or_default();
        match is_type {
            true => {
                ConfigError::WrongType { origin: String::new(), key, expected: bound, found: value }
            }
            false => ConfigError::out_of_bounds(&key, bound, value),
        }
    })
}

/// Reads a whole number from `LEAST` to `MOST`: for serde's `deserialize_with`.
pub fn within<'de, const LEAST: i64, const MOST: i64, T: TryFrom<i64>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value = i64::deserialize(deserializer)?;
    if value < LEAST {
        return Err(D::Error::custom(format!("at least {LEAST}")));
    }
    let known = if value <= MOST { T::try_from(value).ok() } else { None };
    known.ok_or_else(|| D::Error::custom(format!("at most {MOST}")))
}

/// Reads a number between 0 and 1: for serde's `deserialize_with`.
pub fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    let is_share = (0.0..=1.0).contains(&value);
    if is_share { Ok(value) } else { Err(D::Error::custom("between 0 and 1")) }
}

/// A value that can't be read. Its key grows from the inside out.
#[derive(Debug)]
struct Refusal {
    key: String,
    bound: String,
    value: Option<String>,
    is_type: bool,
}

impl Refusal {
    fn new(bound: String, is_type: bool) -> Self {
        Self { key: String::new(), bound, value: None, is_type }
    }

    /// The same, seen from the table that has `value` under `key`.
    fn under(mut self, key: &str, value: &Value) -> Self {
        self.key = if self.key.is_empty() { key.to_owned() } else { format!("{key}.{}", self.key) };
        self.value.get_or_insert_with(|| value.to_string());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.bound)
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(bound: T) -> Self {
        Self::new(bound.to_string(), false)
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(type_in_words(&expected.to_string()), true)
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let is_count = matches!(expected.to_string().as_str(), "usize" | "u64");
        let bound = if is_count { "at least 0".to_owned() } else { expected.to_string() };
        Self::new(bound, false)
    }

    fn invalid_length(_: usize, expected: &dyn de::Expected) -> Self {
        Self::new(expected.to_string(), true)
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self::new(one_of(name, known), false)
    }
}

/// A type that serde expects, in words for people.
fn type_in_words(expected: &str) -> String {
    let words = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        other => other,
    };
    words.to_owned()
}

struct Reader<'a>(&'a Value);

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.0 {
            Value::String(text) => visitor.visit_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(flag) => visitor.visit_bool(*flag),
            Value::Datetime(date) => visitor.visit_string(date.to_string()),
            Value::Array(items) => visitor.visit_seq(Items(items.iter())),
            Value::Table(table) => visitor.visit_map(Entries { rest: table.iter(), next: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => Err(Refusal::new("a string".to_owned(), true)),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items<'a>(std::slice::Iter<'a, Value>);

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Refusal;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Refusal> {
        let item = |value: &Value| {
            let read = seed.deserialize(Reader(value));
            read.map_err(|mut refusal| {
                refusal.value.get_or_insert_with(|| value.to_string());
                refusal
            })
        };
        self.0.next().map(item).transpose()
    }
}

struct Entries<'a> {
    rest: toml::map::Iter<'a, String, Value>,
    next: Option<(&'a String, &'a Value)>,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = Refusal;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refusal> {
        self.next = self.rest.next();
        let read = |(key, _): (&String, _)| seed.deserialize(StrDeserializer::<Refusal>::new(key));
        self.next.map(read).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refusal> {
        let Some((key, value)) = self.next.take() else {
            return Err(Refusal::custom("a value"));
        };
        seed.deserialize(Reader(value)).map_err(|refusal| refusal.under(key, value))
    }
}
