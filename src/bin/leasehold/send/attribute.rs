//! A message attribute on the command line: `name=text`, or with its type, `name:Number=7`, `name:Binary.png=89504e47`.
//!
//! Pure. Binary values are in hexadecimal, as handlers are told them.

use std::str::FromStr;

use leasehold::{
    message::{Attribute, AttributeValue},
    queue::attribute_problem,
};

/// One attribute, with what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedAttribute {
    pub(super) name: String,
    pub(super) attribute: Attribute,
}

impl FromStr for NamedAttribute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (named, value) = text.split_once('=').ok_or("it is written name=value")?;
        // No name has a colon.
        let (name, data_type) = named.split_once(':').unwrap_or((named, "String"));
        let value = match data_type.split('.').next() {
            Some("Binary") => AttributeValue::Binary(bytes(value).ok_or_else(|| {
                format!(
                    "{name} is binary, and {value:?} is not hexadecimal, two digits a byte: {name}:{data_type}=00ff"
                )
            })?),
            _ => AttributeValue::Text(value.to_owned()),
        };
        let attribute = Attribute { data_type: data_type.to_owned(), value };
        match attribute_problem(name, &attribute) {
            None => Ok(Self { name: name.to_owned(), attribute }),
            Some(problem) => Err(format!("{name:?} {problem}")),
        }
    }
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits = hexadecimal.chars().map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect::<Option<Vec<_>>>()?;
    let pairs = digits.chunks_exact(2);
    pairs
        .remainder()
        .is_empty()
        .then(|| pairs.map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(data_type: &str, value: AttributeValue) -> Attribute {
        Attribute { data_type: data_type.into(), value }
    }

    #[test]
    fn attributes_have_names_types_and_values_and_values_have_what_they_like() {
        let text = |text: &str| AttributeValue::Text(text.into());
        for (line, name, attribute) in [
            ("a.b=c=d:e", "a.b", Attribute::text("c=d:e")),
            ("n:Number.int=-7", "n", typed("Number.int", text("-7"))),
            ("s:String.custom=x", "s", typed("String.custom", text("x"))),
            ("b:Binary.png=00fF10", "b", typed("Binary.png", AttributeValue::Binary(vec![0, 255, 16]))),
        ] {
            assert_eq!(line.parse(), Ok(NamedAttribute { name: name.into(), attribute }), "{line}");
        }
    }

    #[test]
    fn what_sqs_would_not_take_is_told_with_why() {
        for (line, told) in [
            ("a", "name=value"),
            ("=b", "no name"),
            ("a=", "is empty"),
            ("a b=c", "no name"),
            ("ä=b", "no name"),
            ("AWS.a=b", "reserved"),
            ("a:Number=seven", "a Number"),
            ("a:Text=b", "a type"),
            ("a:Binary=", "is empty"),
            ("a:Binary=0", "a:Binary=00ff"),
            ("a:Binary=0g", "not hexadecimal"),
        ] {
            let problem = line.parse::<NamedAttribute>().expect_err(line);
            assert!(problem.contains(told), "{line}: {problem}");
        }
    }
}
