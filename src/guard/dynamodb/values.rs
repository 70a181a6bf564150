//! Values and items of handlers in the SDK's types, and back.
//!
//! Owns the one place where both meet; what comes back is what was given.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};

use super::super::{Item, Value};

/// The SDK's own map of an item.
#[expect(clippy::disallowed_types, reason = "the SDK takes nothing else; never iterated by us but into a sorted map")]
pub(super) type Attributes = std::collections::HashMap<String, AttributeValue>;

pub(super) fn attributes(item: &Item) -> Attributes {
    item.iter().map(|(name, value)| (name.clone(), attribute(value))).collect()
}

pub(super) fn attribute(value: &Value) -> AttributeValue {
    match value {
        Value::S(text) => AttributeValue::S(text.clone()),
        Value::N(number) => AttributeValue::N(number.clone()),
        Value::B(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
        Value::Bool(flag) => AttributeValue::Bool(*flag),
        Value::Null => AttributeValue::Null(true),
        Value::L(values) => AttributeValue::L(values.iter().map(attribute).collect()),
        Value::M(values) => AttributeValue::M(attributes(values)),
        Value::Ss(texts) => AttributeValue::Ss(texts.iter().cloned().collect()),
        Value::Ns(numbers) => AttributeValue::Ns(numbers.iter().cloned().collect()),
        Value::Bs(many) => AttributeValue::Bs(many.iter().cloned().map(Blob::new).collect()),
    }
}

/// An item that came back. An attribute of a type that is newer than the SDK is left out.
pub(super) fn item(attributes: &Attributes) -> Item {
    attributes.iter().filter_map(|(name, attribute)| Some((name.clone(), value(attribute)?))).collect()
}

fn value(attribute: &AttributeValue) -> Option<Value> {
    Some(match attribute {
        AttributeValue::S(text) => Value::S(text.clone()),
        AttributeValue::N(number) => Value::N(number.clone()),
        AttributeValue::B(bytes) => Value::B(bytes.as_ref().to_vec()),
        AttributeValue::Bool(flag) => Value::Bool(*flag),
        AttributeValue::Null(_) => Value::Null,
        AttributeValue::L(values) => Value::L(values.iter().filter_map(value).collect()),
        AttributeValue::M(values) => Value::M(item(values)),
        AttributeValue::Ss(texts) => Value::Ss(texts.iter().cloned().collect()),
        AttributeValue::Ns(numbers) => Value::Ns(numbers.iter().cloned().collect()),
        AttributeValue::Bs(many) => Value::Bs(many.iter().map(|bytes| bytes.as_ref().to_vec()).collect()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_value_of_each_type_comes_back_as_it_was() {
        let texts = |words: [&str; 2]| words.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
        let flat = Item::from([
            ("s".to_owned(), Value::from("text")),
            ("n".to_owned(), Value::from(-12_i64)),
            ("b".to_owned(), Value::from(vec![0_u8, 255])),
            ("bool".to_owned(), Value::from(true)),
            ("null".to_owned(), Value::from(None::<u8>)),
            ("ss".to_owned(), Value::Ss(texts(["a", "b"]))),
            ("ns".to_owned(), Value::Ns(texts(["1", "2"]))),
            ("bs".to_owned(), Value::Bs(BTreeSet::from([vec![1], vec![2, 3]]))),
        ]);
        let mut nested = flat.clone();
        nested.insert("l".to_owned(), Value::from(vec![Value::from(flat.clone()), Value::from(1_u8)]));
        nested.insert("m".to_owned(), Value::from(flat));
        assert_eq!(item(&attributes(&nested)), nested);
    }
}
