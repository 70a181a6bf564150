//! Words that several commands share: ages, text from outside, lines of a page, a question.
//!
//! Pure, but for the question. What comes from outside passes [`plain`] before a terminal sees it.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    time::Duration,
};

use leasehold::clock::Millis;

use crate::usage;

/// How long, in the largest unit of which there are at least two: `90 s`, `3 hours`. Rounded down.
pub(crate) fn age(time: Duration) -> String {
    const UNITS: [(u64, &str); 3] = [(24 * 60 * 60, "days"), (60 * 60, "hours"), (60, "minutes")];
    let seconds = time.as_secs();
    if seconds == 0 {
        return "less than 1 s".to_owned();
    }
    let unit = UNITS.into_iter().find(|(length, _)| seconds >= 2 * length);
    unit.map_or_else(|| format!("{seconds} s"), |(length, name)| format!("{} {name}", seconds / length))
}

/// How long ago, or how far ahead: `3 hours ago`, `in 26 s`.
pub(crate) fn ago(now: Millis, at: Millis) -> String {
    if at > now { format!("in {}", age(at.since(now))) } else { format!("{} ago", age(now.since(at))) }
}

/// Text from outside for a terminal: characters that could steer it, turn its line around or hide in it are made visible.
pub(crate) fn plain(text: &str) -> String {
    let mut seen = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { seen.extend(c.escape_default()) } else { seen.push(c) }
    }
    seen
}

/// The same, but for its line breaks.
pub(crate) fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// JSON for a terminal, meaning the same: of what could steer one, JSON itself leaves some characters as they are.
pub(crate) fn json(text: &str) -> String {
    let mut seen = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) && !c.is_ascii_whitespace() {
            // It stands in a string, for nothing else outside of ASCII is JSON.
            seen.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            seen.push(c);
        }
    }
    seen
}

/// Controls, and format characters that change the direction of a line, break it, or are not seen.
/// <https://www.unicode.org/reports/tr9/>, <https://www.unicode.org/reports/tr36/>
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// As much of a text as fits so many characters, with `…` for the rest.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().nth(width).is_none() {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// What mends a call that was refused for want of credentials, or else for this right.
pub(crate) fn access(lacks_credentials: bool, right: &str) -> String {
    if lacks_credentials {
        "aws sso login, or AWS_PROFILE=<one whose credentials hold>".to_owned()
    } else {
        format!("AWS_PROFILE=<one that may {right}; OperatorPolicy in infra/queue.yaml>")
    }
}

/// A line of a page: its name, and what there is to say.
pub(crate) fn row(name: &str, words: &str) -> String {
    format!("  {}\n", format!("{name:<10}  {words}").trim_end())
}

/// Asks on the terminal; anything but `y` or `yes` is no. Blocks its thread while somebody thinks.
///
/// # Errors
/// As [`usage`] where there is no terminal to ask on: `--yes` answers beforehand.
pub(crate) fn confirm(question: &str) -> anyhow::Result<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(usage("there is no terminal to ask on: --yes answers the question, --dry-run only shows"));
    }
    Ok(answer(question, io::stdin().lock(), io::stderr())?)
}

fn answer(question: &str, mut input: impl BufRead, mut output: impl Write) -> io::Result<bool> {
    write!(output, "{question} [y/N] ")?;
    output.flush()?;
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_the_largest_unit_of_which_there_are_two() {
        for (seconds, told) in [
            (0, "less than 1 s"),
            (1, "1 s"),
            (119, "119 s"),
            (120, "2 minutes"),
            (7_199, "119 minutes"),
            (7_200, "2 hours"),
            (172_799, "47 hours"),
            (172_800, "2 days"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), told);
        }
        assert_eq!(ago(Millis(10_000), Millis(7_000)), "3 s ago");
        assert_eq!(ago(Millis(7_000), Millis(10_000)), "in 3 s");
    }

    #[test]
    fn what_could_steer_a_terminal_is_made_visible_and_the_rest_is_left() {
        assert_eq!(plain("a\u{1b}[2J\n\u{202e}ü"), "a\\u{1b}[2J\\n\\u{202e}ü");
        assert_eq!(plain_lines("a\r\nb\u{9b}2J"), "a\\r\nb\\u{9b}2J");
        for hidden in ['\u{61c}', '\u{200b}', '\u{2066}', '\u{feff}', '\u{e0041}'] {
            assert_eq!(plain(&hidden.to_string()), hidden.escape_default().to_string());
        }
    }

    #[test]
    fn json_is_the_same_without_what_could_steer_a_terminal() {
        let value = serde_json::json!({ "a\u{9b}": ["\u{7f}\u{85}\u{1b}", "\u{202e}ü\u{e0041}\n"] });
        for text in [value.to_string(), serde_json::to_string_pretty(&value).expect("is JSON")] {
            let told = json(&text);
            assert!(!told.contains(|c: char| c != '\n' && steers(c)) && told.contains('ü'), "{told}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&told).expect(&told), value);
        }
    }

    #[test]
    fn a_text_that_fits_is_whole() {
        assert_eq!((cut("äöü", 3).as_str(), cut("äöüß", 3).as_str()), ("äöü", "äö…"));
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        for (said, meant) in [("y\n", true), ("Yes\n", true), ("\n", false), ("yeah\n", false), ("", false)] {
            let mut asked = Vec::new();
            assert_eq!(answer("Go on?", said.as_bytes(), &mut asked).expect("is read"), meant, "{said:?}");
            assert_eq!(asked, b"Go on? [y/N] ");
        }
    }
}
