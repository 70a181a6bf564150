//! Bodies as people read them: JSON with a member or an item a line, and everything else as it is.
//!
//! Re-indents the text token by token, and never reads it into values: those would round numbers, drop members of equal
//! names and sort the rest, and what is shown would not be what was sent.

use serde::de::IgnoredAny;

/// Deeper nesting is not indented: the indentation would outgrow the text.
const DEEPEST: usize = 64;

/// A body in lines; one that is no JSON as it stands.
pub(super) fn lines(body: &str) -> Vec<String> {
    match indented(body) {
        Some(text) => text.lines().map(str::to_owned).collect(),
        None => body.lines().map(str::to_owned).collect(),
    }
}

fn indented(text: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let (mut told, mut depth) = (String::with_capacity(text.len() * 2), 0_usize);
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let token = token(rest);
        rest = rest.get(token.len()..)?.trim_start();
        match first {
            '{' | '[' => {
                told.push(first);
                if let Some(close) = rest.chars().next().filter(|next| matches!(next, '}' | ']')) {
                    told.push(close);
                    rest = rest.get(1..)?.trim_start();
                } else {
                    depth += 1;
                    new_line(&mut told, depth);
                }
            }
            '}' | ']' => {
                depth = depth.checked_sub(1)?;
                new_line(&mut told, depth);
                told.push(first);
            }
            ',' => {
                told.push(',');
                new_line(&mut told, depth);
            }
            ':' => told.push_str(": "),
            _ => told.push_str(token),
        }
        if depth > DEEPEST {
            return None;
        }
    }
    Some(told)
}

fn new_line(told: &mut String, depth: usize) {
    told.push('\n');
    (0..depth).for_each(|_| told.push_str("  "));
}

/// The first token of what is known to be JSON.
fn token(text: &str) -> &str {
    let end = match text.as_bytes().first() {
        Some(b'"') => {
            let mut is_escaped = true;
            let end = text.bytes().position(|byte| {
                let is_end = byte == b'"' && !is_escaped;
                // The quotation mark that begins it counts as escaped.
                is_escaped = byte == b'\\' && !is_escaped;
                is_end
            });
            end.map(|end| end + 1)
        }
        Some(b'{' | b'[' | b'}' | b']' | b',' | b':') => Some(1),
        _ => text.find(|c: char| c.is_ascii_whitespace() || "{}[],:\"".contains(c)),
    };
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_json_is_what_was_sent() {
        let body =
            r#"{"z":12345678901234567890123,"a":1.10,"a":[ ],"t\"{,":"x: \\","o":{},"l":[1,{"b":null}, "\u0061"]}"#;
        let expected = [
            "{",
            r#"  "z": 12345678901234567890123,"#,
            r#"  "a": 1.10,"#,
            r#"  "a": [],"#,
            r#"  "t\"{,": "x: \\","#,
            r#"  "o": {},"#,
            r#"  "l": ["#,
            "    1,",
            "    {",
            r#"      "b": null"#,
            "    },",
            r#"    "\u0061""#,
            "  ]",
            "}",
        ];
        assert_eq!(lines(body), expected);
        assert_eq!(lines(" -1e5 "), ["-1e5"]);
    }

    #[test]
    fn what_is_no_json_or_too_deep_is_shown_as_it_stands() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(lines(&deep), [deep.as_str()]);
        assert_eq!(lines("{\"a\": 1\nnot JSON"), ["{\"a\": 1", "not JSON"]);
        assert!(lines("").is_empty());
    }
}
