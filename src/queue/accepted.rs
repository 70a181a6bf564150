//! Which message attributes SQS takes.
//!
//! Pure, and stricter than some services that speak its protocol: what is asked here comes back as it was sent, from SQS.
//! <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>

use crate::message::{Attribute, AttributeValue};

/// The longest name of an attribute, and the longest type, in characters.
const LONGEST_NAME: usize = 256;

/// What names must not begin with, in any case: AWS keeps them for itself.
const RESERVED: [&str; 2] = ["aws.", "amazon."];

/// Why SQS would not take this attribute, as what is said of it; `None` if it would.
#[must_use]
pub fn attribute_problem(name: &str, attribute: &Attribute) -> Option<&'static str> {
    name_problem(name).or_else(|| type_problem(attribute)).or_else(|| value_problem(attribute))
}

fn name_problem(name: &str) -> Option<&'static str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let lower = name.to_ascii_lowercase();
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_allowed) {
        Some("is no name of an attribute: letters, digits, _, - and ., at most 256")
    } else if name.starts_with('.') || name.ends_with('.') || name.contains("..") {
        Some("is no name of an attribute: a dot stands between others, and alone")
    } else if RESERVED.iter().any(|reserved| lower.starts_with(reserved)) {
        Some("is no name of an attribute: AWS. and Amazon. are reserved")
    } else {
        None
    }
}

fn type_problem(Attribute { data_type, value }: &Attribute) -> Option<&'static str> {
    let kind = data_type.split('.').next().unwrap_or_default();
    let fits = match value {
        AttributeValue::Text(_) => matches!(kind, "String" | "Number"),
        AttributeValue::Binary(_) => kind == "Binary",
    };
    if !fits {
        Some("has a type that is not that of its value: String, Number or Binary, with or without a label")
    } else if data_type.chars().count() > LONGEST_NAME || !data_type.chars().all(is_allowed) {
        Some("has a type that is too long, or has characters that SQS does not take")
    } else {
        None
    }
}

fn value_problem(attribute: &Attribute) -> Option<&'static str> {
    let is_number = |text: &str| text.parse::<f64>().is_ok_and(f64::is_finite);
    match &attribute.value {
        AttributeValue::Text(text) if text.is_empty() => Some("is empty, and SQS takes no empty attribute"),
        AttributeValue::Binary(bytes) if bytes.is_empty() => Some("is empty, and SQS takes no empty attribute"),
        AttributeValue::Text(text) if !text.chars().all(is_allowed) => {
            Some("has characters that SQS does not take: control characters, U+FFFE, U+FFFF")
        }
        AttributeValue::Text(text) if attribute.data_type.starts_with("Number") && !is_number(text) => {
            Some("is a Number, and its value is none")
        }
        _ => None,
    }
}

/// The characters that a body or a text may have: those of XML.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
pub(super) fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(data_type: &str, text: &str) -> Attribute {
        Attribute { data_type: data_type.into(), value: AttributeValue::Text(text.into()) }
    }

    fn binary(data_type: &str, bytes: &[u8]) -> Attribute {
        Attribute { data_type: data_type.into(), value: AttributeValue::Binary(bytes.into()) }
    }

    #[test]
    fn names_types_and_values_that_sqs_takes_have_no_problem() {
        for name in ["a", "a.b-c_D.9", &"n".repeat(256), "awsome", "AWS", "leasehold"] {
            assert_eq!(attribute_problem(name, &Attribute::text("x")), None, "{name}");
        }
        for attribute in [
            typed("String.custom.x", "\t\u{fffd}\u{10ffff}"),
            typed("Number.int", "-1.5e3"),
            binary("Binary.png", &[0, 255]),
            typed(&format!("String.{}", "x".repeat(249)), "x"),
        ] {
            assert_eq!(attribute_problem("a", &attribute), None, "{attribute:?}");
        }
    }

    #[test]
    fn others_are_told_with_why() {
        for name in ["", "a b", "ä", ".a", "a.", "a..b", "AWS.x", "amazon.x", &"n".repeat(257)] {
            assert!(
                attribute_problem(name, &Attribute::text("x")).is_some_and(|why| why.contains("no name")),
                "{name}"
            );
        }
        for (attribute, told) in [
            (Attribute::text(""), "is empty"),
            (binary("Binary", &[]), "is empty"),
            (Attribute::text("\0\u{fffe}"), "characters"),
            (typed("Number", "seven"), "a Number"),
            (typed("Number", "inf"), "a Number"),
            (typed("Binary", "x"), "not that of its value"),
            (binary("String", &[1]), "not that of its value"),
            (typed("", "x"), "not that of its value"),
            (typed("Strings", "x"), "not that of its value"),
            (typed(&format!("String.{}", "x".repeat(250)), "x"), "too long"),
        ] {
            let problem = attribute_problem("a", &attribute).unwrap_or_default();
            assert!(problem.contains(told), "{attribute:?}: {problem}");
        }
    }
}
