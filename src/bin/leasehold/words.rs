//! Words that several commands share: ages, text from outside, lines of a page, a question.
//!
//! Pure, but for the question. What comes from outside passes [`plain`] before a terminal sees it.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    time::Duration,
};

use leasehold::clock::Millis;

use crate::{Ended, exit};

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

/// Text from outside for a terminal: characters that could steer it, or turn its line around, are made visible.
pub(crate) fn plain(text: &str) -> String {
    let steers = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut seen = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { seen.extend(c.escape_default()) } else { seen.push(c) }
    }
    seen
}

/// As much of a text as fits so many characters, with `…` for the rest.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().nth(width).is_none() {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A line of a page: its name, and what there is to say.
pub(crate) fn row(name: &str, words: &str) -> String {
    format!("  {}\n", format!("{name:<10}  {words}").trim_end())
}

/// Asks on the terminal; anything but `y` or `yes` is no. Blocks its thread while somebody thinks.
///
/// # Errors
/// [`exit::USAGE`] where there is no terminal to ask on: `--yes` answers beforehand.
pub(crate) fn confirm(question: &str) -> anyhow::Result<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let told = "there is no terminal to ask on: --yes answers the question, --dry-run only shows".to_owned();
        return Err(Ended { code: exit::USAGE, told }.into());
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
