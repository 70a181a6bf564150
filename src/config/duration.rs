//! How durations and ranges of them are written.
//!
//! Whole numbers with one unit, nothing else: what cannot be misread need not be documented. No value overflows, here or
//! on a clock that it is added to.

use std::{fmt, str::FromStr, time::Duration};

use super::{Backoff, ValueError, VisibilityTimeout};

/// A duration as settings have it: a whole number and one of `ms`, `s`, `m`, `h`, `d`. What is less than a millisecond
/// is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationText(pub Duration);

/// Units and their milliseconds, the largest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// No setting means more than a century, and no clock overflows on it.
const LONGEST: Duration = Duration::from_secs(36_500 * 86_400);

impl FromStr for DurationText {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(ValueError::new(
                format!("{text:?} is no duration: a whole number and ms, s, m, h or d"),
                "30s",
            ));
        }
        if unit.is_empty() {
            return Err(ValueError::new(format!("{text:?} has no unit: ms, s, m, h or d"), format!("{number}s")));
        }
        let Some((_, factor)) = UNITS.into_iter().find(|(name, _)| *name == unit) else {
            let what = format!("{text:?} is no duration: after the whole number stands {unit:?}, not ms, s, m, h or d");
            let meant = nearest_unit(unit).map_or_else(|| "30s".to_owned(), |unit| format!("{number}{unit}"));
            return Err(ValueError::new(what, meant));
        };
        let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        match millis.map(Duration::from_millis).filter(|duration| *duration <= LONGEST) {
            Some(duration) => Ok(Self(duration)),
            None => Err(ValueError::new(format!("{text:?} is longer than a century"), "30d")),
        }
    }
}

/// What was meant by `minutes`, ` hrs`, `S` or `.5h`: never another order of magnitude.
fn nearest_unit(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    let text = text.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit() || c.is_whitespace());
    if text.starts_with("mil") {
        return Some("ms");
    }
    let units = UNITS.into_iter().map(|(name, _)| name).filter(|name| text.starts_with(name));
    units.max_by_key(|name| name.len()).filter(|_| !text.starts_with("mo"))
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let fitting = UNITS.into_iter().find(|(_, factor)| millis > 0 && millis.is_multiple_of(u128::from(*factor)));
        let (unit, factor) = fitting.unwrap_or(("s", 1000));
        write!(f, "{}{unit}", millis / u128::from(factor))
    }
}

/// `30s..2m`, or one duration for both ends.
fn range(text: &str) -> Result<(Duration, Duration), ValueError> {
    let Some((low, high)) = text.split_once("..") else {
        let DurationText(both) = text.parse().map_err(|error| with_dots(text, error))?;
        return Ok((both, both));
    };
    let end = |text: &str| text.trim().parse::<DurationText>();
    match (end(low), end(high)) {
        (Ok(low), Ok(high)) => Ok((low.0, high.0)),
        (Err(error), high) => {
            let high = high.unwrap_or(DurationText(Duration::from_secs(120)));
            Err(ValueError::new(error.what, format!("{}..{high}", error.instead)))
        }
        (Ok(low), Err(error)) => Err(ValueError::new(error.what, format!("{low}..{}", error.instead))),
    }
}

/// `30s-2m` is a range.
fn with_dots(text: &str, error: ValueError) -> ValueError {
    let dotted = text.replacen('-', "..", 1);
    if text.contains('-') && range(&dotted).is_ok() {
        return ValueError::new(format!("{text:?} is no range: two dots stand between its ends"), dotted);
    }
    error
}

fn write_range(f: &mut fmt::Formatter<'_>, low: Duration, high: Duration) -> fmt::Result {
    let low_text = DurationText(low);
    if low == high { write!(f, "{low_text}") } else { write!(f, "{low_text}..{}", DurationText(high)) }
}

impl FromStr for VisibilityTimeout {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        range(text).map(|(floor, ceiling)| Self { floor, ceiling })
    }
}

impl fmt::Display for VisibilityTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_range(f, self.floor, self.ceiling)
    }
}

impl FromStr for Backoff {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        range(text).map(|(base, cap)| Self { base, cap })
    }
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_range(f, self.base, self.cap)
    }
}
