//! How pauses end, and how that is told to a person.
//!
//! Words and a choice; what follows from it is the circuit's.

/// A pause, for those who ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) what: String,
    pub(crate) cause: String,
    pub(crate) ends: String,
}

/// How a pause ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// By a probe, which proves that work will pass.
    Probe,
    /// By work: what a probe lets through, a little at a time, has to succeed.
    Work,
    /// By work or by an operator's `resume`.
    WorkOrResume,
    /// By an operator's `resume` alone.
    Resume,
}

impl Ends {
    pub(super) fn told(self) -> &'static str {
        match self {
            Self::Probe => "a probe that passes ends this, tried again at least every 30 s",
            Self::Work => "then a message is let through now and then, and one that succeeds ends this",
            Self::WorkOrResume => {
                "then a message is let through now and then, and one that succeeds ends this, or `leasehold resume`"
            }
            Self::Resume => "`leasehold resume` ends this",
        }
    }
}
