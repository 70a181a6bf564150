//! What is wrong with the configuration, as it is told: what, and the line that mends it.

use std::fmt;

/// One thing that is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// What is wrong, naming the settings.
    pub what: String,
    /// What would mend it: a line to copy.
    pub mend: String,
}

impl Problem {
    /// What is wrong, and a line to copy that would mend it.
    #[must_use]
    pub fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what: what.into(), mend: mend.into() }
    }
}

/// Two lines: what is wrong, and what would mend it.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n    {}", self.what, self.mend)
    }
}

/// All problems, for whoever asked for something that they keep from being done.
pub(crate) fn told(problems: &[Problem]) -> String {
    let mut text = match problems.len() {
        1 => "there is a problem with the configuration:".to_owned(),
        n => format!("there are {n} problems with the configuration:"),
    };
    for problem in problems {
        text.push_str(&format!("\n- {problem}"));
    }
    text
}
