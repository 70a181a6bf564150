//! Attribute values as DynamoDB has them, made from the values of Rust and of JSON.
//!
//! Owns how large they are, as far as it can be told from here. A number stays the text that it is.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, de::DeserializeOwned};

/// An item, or the key of one: attributes by their names.
pub type Item = BTreeMap<String, Value>;

/// The value of an attribute, by DynamoDB's own names of its types.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_AttributeValue.html>
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A text.
    S(String),
    /// A number, as its text: up to 38 digits.
    N(String),
    /// Bytes.
    B(Vec<u8>),
    /// True or false.
    Bool(bool),
    /// No value.
    Null,
    /// A list.
    L(Vec<Value>),
    /// A map.
    M(Item),
    /// A set of texts, which DynamoDB wants to have at least one.
    Ss(BTreeSet<String>),
    /// A set of numbers, likewise.
    Ns(BTreeSet<String>),
    /// A set of bytes, likewise.
    Bs(BTreeSet<Vec<u8>>),
}

/// Whatever serializes to a JSON object, as an item: `item(&grant)?`. Of JSON come `S`, `N`, `Bool`, `Null`, `L` and `M`;
/// bytes and sets are given as [`Value`]s.
///
/// # Errors
/// It does not serialize, or to something that is no object.
pub fn item<T: Serialize + ?Sized>(from: &T) -> serde_json::Result<Item> {
    use serde::ser::Error;
    match serde_json::to_value(from)? {
        serde_json::Value::Object(object) => Ok(object.into_iter().map(|(name, value)| (name, value.into())).collect()),
        _ => Err(serde_json::Error::custom("an item is made of a struct or a map with names, and this is neither")),
    }
}

/// An item as a type of yours: what [`item`] made comes back, and items that something else wrote, as far as the type
/// fits. Bytes are lists of numbers here, and sets are lists.
///
/// # Errors
/// The item is not one of `T`; the text says what is wrong.
pub fn from_item<T: DeserializeOwned>(item: &Item) -> serde_json::Result<T> {
    serde_json::from_value(json_of(item))
}

fn json_of(item: &Item) -> serde_json::Value {
    item.iter().map(|(name, value)| (name.clone(), json(value))).collect()
}

fn json(value: &Value) -> serde_json::Value {
    use serde_json::Value as Json;
    // What is no number to JSON stays the text that it is.
    let number = |text: &String| serde_json::from_str(text).map_or_else(|_| Json::from(text.as_str()), Json::Number);
    match value {
        Value::S(text) => Json::from(text.as_str()),
        Value::N(text) => number(text),
        Value::B(bytes) => Json::from(bytes.as_slice()),
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Null => Json::Null,
        Value::L(values) => values.iter().map(json).collect(),
        Value::M(values) => json_of(values),
        Value::Ss(texts) => texts.iter().map(String::as_str).collect(),
        Value::Ns(numbers) => numbers.iter().map(number).collect(),
        Value::Bs(many) => many.iter().map(|bytes| Json::from(bytes.as_slice())).collect(),
    }
}

impl From<serde_json::Value> for Value {
    fn from(json: serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(flag) => Self::Bool(flag),
            serde_json::Value::Number(number) => Self::N(number.to_string()),
            serde_json::Value::String(text) => Self::S(text),
            serde_json::Value::Array(values) => Self::L(values.into_iter().map(Self::from).collect()),
            serde_json::Value::Object(values) => {
                Self::M(values.into_iter().map(|(name, value)| (name, value.into())).collect())
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::S(text.to_owned())
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::S(text.clone())
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident,)*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}

from! {
    String => S,
    Vec<u8> => B,
    bool => Bool,
    Vec<Value> => L,
    Item => M,
}

macro_rules! from_numbers {
    ($($type:ty)*) => {$(
        impl From<$type> for Value {
            fn from(number: $type) -> Self {
                Self::N(number.to_string())
            }
        }
    )*};
}

// No floats: NaN and the infinities are no numbers to DynamoDB. `Value::N(float.to_string())` says it.
from_numbers!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize);

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// About how many bytes an item takes in DynamoDB, rather too few than too many: whoever refuses by it must be right.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>
pub(super) fn size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value.size()).sum()
}

impl Value {
    fn size(&self) -> usize {
        match self {
            Self::S(text) => text.len(),
            // Two digits in a byte, and zeros at either end may take none.
            Self::N(_) | Self::Bool(_) | Self::Null => 1,
            Self::B(bytes) => bytes.len(),
            Self::L(values) => values.iter().map(Self::size).sum(),
            Self::M(values) => size(values),
            Self::Ss(texts) => texts.iter().map(String::len).sum(),
            Self::Ns(numbers) => numbers.len(),
            Self::Bs(many) => many.iter().map(Vec::len).sum(),
        }
    }
}
