//! How a rate is written: `50`, or `0.5` for one in two seconds.
//!
//! Kept as a whole number of thousandths, so that reading and writing are inverse.

use std::{fmt, str::FromStr, time::Duration};

use super::ValueError;

/// Messages in a second; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    thousandths: u32,
}

/// More in a second than any queue of SQS hands to one process.
const MOST: u32 = 1_000_000;

impl Rate {
    /// So many in a second: from a thousandth to a million. `None` for anything else.
    #[must_use]
    pub fn per_second(number: f64) -> Option<Self> {
        let thousandths = (number * 1000.0).round();
        // Within the bounds it is a whole number that fits.
        let fits = (1.0..=f64::from(MOST) * 1000.0).contains(&thousandths);
        fits.then_some(Self { thousandths: thousandths as u32 })
    }

    /// The time from one message to the next.
    #[must_use]
    pub fn interval(self) -> Duration {
        Duration::from_secs(1000) / self.thousandths
    }
}

impl FromStr for Rate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let fine = text.split_once('.').is_none_or(|(_, after)| (1..=3).contains(&after.len()));
        text.parse().ok().filter(|_| plain && fine).and_then(Self::per_second).ok_or_else(|| {
            let what = format!("{text:?} is no number of messages in a second, such as 50 or 0.5, from 0.001");
            ValueError::new(what, "50")
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.thousandths / 1000, self.thousandths % 1000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{part:03}").trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_they_are_written() {
        for (text, interval) in [("50", 20), ("0.5", 2_000), ("0.001", 1_000_000), ("12.5", 80)] {
            let rate: Rate = text.parse().expect(text);
            assert_eq!((rate.to_string().as_str(), rate.interval()), (text, Duration::from_millis(interval)));
        }
        for text in ["", "0", "0.0001", "-1", "1e3", "inf", "NaN", "5/s", "1000001", "1.", "."] {
            assert!(text.parse::<Rate>().is_err_and(|error| error.instead.parse::<Rate>().is_ok()), "{text}");
        }
    }
}
