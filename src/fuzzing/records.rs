//! Items of the guard's table, written as DynamoDB's JSON: `{"pk": {"S": "q#k"}, "fence": {"N": "7"}}`.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::Value;

use crate::{
    clock::Millis,
    guard::{
        ControlKey,
        dynamodb::{control, record},
    },
};

/// What is read is written as it was, and nothing that stands in a table is a panic.
pub fn records(data: &[u8]) {
    let Ok(Value::Object(members)) = serde_json::from_slice(data) else { return };
    let item: BTreeMap<_, _> = members.iter().filter_map(|(name, json)| Some((name.clone(), value(json)?))).collect();
    match record::from_item(item.clone()) {
        Ok(found) => {
            assert_eq!(record::from_item(record::to_item(&found)).ok().as_ref(), Some(&found));
            let _ = (found.size(), found.is_expired(Millis(u64::MAX)), found.is_expired(Millis(0)));
        }
        Err(error) => drop(error.to_string()),
    }
    let key = ControlKey::new(Some("n"), "q");
    if let Ok(found) = control::from_item(&key, item) {
        assert_eq!(control::from_item(&key, control::to_item(&key, &found)).ok(), Some(found));
    }
}

fn value(json: &Value) -> Option<AttributeValue> {
    let (kind, inner) = json.as_object()?.iter().next()?;
    Some(match (kind.as_str(), inner) {
        ("S", Value::String(text)) => AttributeValue::S(text.clone()),
        ("N", Value::String(number)) => AttributeValue::N(number.clone()),
        ("BOOL", Value::Bool(flag)) => AttributeValue::Bool(*flag),
        ("M", Value::Object(members)) => {
            let members = members.iter().filter_map(|(name, json)| Some((name.clone(), value(json)?)));
            AttributeValue::M(members.collect())
        }
        ("L", Value::Array(items)) => AttributeValue::L(items.iter().filter_map(value).collect()),
        _ => AttributeValue::Null(true),
    })
}
