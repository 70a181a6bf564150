//! The word of operators as a DynamoDB item, and back.
//!
//! Owns the names of its attributes: `pk`, `v`, `paused` (`at`, `by`, `why`), `resumed_at`, and `expires_at` while it does
//! not pause. As for records, an item that cannot be read is foreign: it must never be taken for "not paused".

use super::{
    super::{
        GuardError,
        control::{Control, ControlKey, Paused, VERSION},
    },
    record::{Item, Map, map_of, number, text, to_map},
};
use crate::clock::Millis;

/// The item of a queue's control.
pub(crate) fn to_item(key: &ControlKey, control: &Control) -> Item {
    let paused = control.paused.as_ref().map(|Paused { at, by, why }| {
        to_map([("at", Some(number(at.0))), ("by", Some(text(by))), ("why", why.as_ref().map(text))])
    });
    map_of([
        ("pk", Some(text(&key.pk().0))),
        ("v", Some(number(VERSION))),
        ("paused", paused),
        ("resumed_at", control.resumed_at.map(|at| number(at.0))),
        ("expires_at", control.expires_at().map(|at| number(at.0))),
    ])
}

/// The control that an item is.
pub(crate) fn from_item(key: &ControlKey, item: Item) -> Result<Control, GuardError> {
    let mut item = Map::at(&key.pk().0, item);
    item.version(VERSION)?;
    Ok(Control {
        paused: item.optional("paused", paused)?,
        resumed_at: item.optional("resumed_at", Map::number)?.map(Millis),
    })
}

fn paused(item: &mut Map, name: &str) -> Result<Paused, GuardError> {
    let mut map = item.map(name)?;
    Ok(Paused { at: Millis(map.number("at")?), by: map.text("by")?, why: map.optional("why", Map::text)? })
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue;

    use super::*;

    fn key() -> ControlKey {
        ControlKey::new(Some("ns"), "payments")
    }

    fn control() -> Control {
        let paused = Paused { at: Millis(1), by: "ann@laptop".into(), why: Some("bank".into()) };
        Control { paused: Some(paused), resumed_at: Some(Millis(2)) }
    }

    #[test]
    fn an_attribute_of_another_shape_is_foreign_and_says_where() {
        let odd: [(&str, AttributeValue, &str); 5] = [
            ("v", text("1"), "v is not"),
            ("v", number(2_u32), "version 2"),
            ("paused", AttributeValue::Bool(false), "paused is not a map"),
            ("paused", to_map([("at", Some(number(1_u32)))]), "paused: by is missing"),
            ("resumed_at", text("now"), "resumed_at is not"),
        ];
        for (name, value, told) in odd {
            let mut item = to_item(&key(), &control());
            item.insert(name.to_owned(), value);
            let read = from_item(&key(), item);
            assert!(
                matches!(&read, Err(GuardError::Foreign(what)) if what.contains(told) && what.contains("#control#ns")),
                "{read:?}"
            );
        }
        let mut item = to_item(&key(), &control());
        item.remove("v");
        assert!(matches!(from_item(&key(), item), Err(GuardError::Foreign(_))));
    }

    #[test]
    fn an_attribute_of_a_friend_is_left_alone() {
        let mut item = to_item(&key(), &control());
        item.insert("ticket".to_owned(), text("OPS-7"));
        assert_eq!(from_item(&key(), item).unwrap(), control());
    }
}
