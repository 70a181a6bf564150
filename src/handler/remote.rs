//! What does the work outside of this process asks about its run: its steps, its time, whether it is still its own.
//!
//! [`Runs`] knows every run that can be asked, under a name and a token of its own, for as long as it lasts. A question is
//! handed to the run, which answers it in its own task ([`answering`]): so nothing is recorded outside of a run, and a run's
//! answers come one after the other. How questions come in and what answers look like is for `serve` to say.
#![cfg_attr(not(feature = "serve"), expect(dead_code, reason = "there is nowhere to ask"))]

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

use super::{HandlerError, error::Verdict, steps::Kind};
use crate::key::sha256;
#[cfg(any(unix, feature = "http"))]
pub(super) use run::{Askable, answering};

#[cfg(any(unix, feature = "http"))]
mod run;

/// The largest result of a step, as JSON: no record has room for more.
pub(crate) const LARGEST_RESULT: usize = crate::guard::LARGEST_RECORD;

/// Questions that may wait for a run's answer. A client asks one at a time, and again when a reply was lost.
const WAITING: usize = 16;

/// The runs of this process that can be asked.
pub(crate) struct Runs {
    /// Where they can be asked: `http://host:port`.
    base: String,
    /// What names and tokens are made of, together with the number of the run. Nobody else knows it.
    secret: [u8; 32],
    listed: Mutex<Listed>,
}

#[derive(Default)]
struct Listed {
    runs: BTreeMap<String, Entry>,
    count: u64,
}

struct Entry {
    token: String,
    asks: mpsc::Sender<Asked>,
}

/// A question, and where its answer goes.
struct Asked {
    ask: Ask,
    answer: oneshot::Sender<Answer>,
}

/// A question about a run.
#[derive(Debug, PartialEq)]
pub(crate) enum Ask {
    /// How it is, and whether it may go on.
    Facts,
    /// A step is to begin.
    Begin {
        /// Its name.
        step: String,
        /// Whether it may run again while nobody knows how it ended.
        kind: Kind,
        /// What the client calls this use of the name, so that it can ask again. Without it nobody can.
        call: Option<String>,
    },
    /// A step took effect.
    Done {
        /// Its name.
        step: String,
        /// JSON; `None` where it is larger than anything that can be kept, or no JSON.
        result: Option<String>,
    },
    /// A step failed.
    Failed {
        /// Its name.
        step: String,
        /// What is known of it.
        how: Failure,
    },
    /// So much time has to be left from now on. Asked again, it makes hardly a difference.
    TimeLeft {
        /// No less than this.
        at_least: Duration,
    },
}

/// What is known of a step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It may have taken effect.
    Unknown,
    /// It took none, and is refused for good under its key.
    Refused,
    /// It was not even begun.
    NotBegun,
}

/// JSON, or nothing but that it is so.
pub(crate) type Answer = Result<Option<String>, Refusal>;

/// Why not.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) code: Cow<'static, str>,
    pub(crate) what: String,
    pub(crate) mend: &'static str,
    pub(crate) follows: Follows,
}

/// What follows from a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follows {
    /// The run has to end; it comes again, and uses no attempt.
    Interruption,
    /// The work fails for good.
    Failure,
    /// It does, because a result could not be kept.
    NotKept,
    /// The question makes no sense: the client is at fault.
    Nothing,
}

/// Why a run cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotHere {
    /// It is over, or was never here.
    Gone,
    /// That is not its token.
    Stranger,
}

impl Runs {
    /// None yet. They can be asked at `base`; `secret` is random.
    pub(crate) fn new(base: String, secret: [u8; 32]) -> Arc<Self> {
        Arc::new(Self { base, secret, listed: Mutex::default() })
    }

    /// Finds a run by its name, for whoever has its token.
    pub(crate) fn find(&self, name: &str, token: &str) -> Result<Line, NotHere> {
        let listed = self.listed();
        let entry = listed.runs.get(name).ok_or(NotHere::Gone)?;
        if is_same(&entry.token, token) { Ok(Line(entry.asks.clone())) } else { Err(NotHere::Stranger) }
    }

    /// Lists a run that can be asked from now on, until its place is dropped.
    fn list(self: &Arc<Self>) -> (Place, mpsc::Receiver<Asked>) {
        let (asks, asked) = mpsc::channel(WAITING);
        let mut listed = self.listed();
        listed.count += 1;
        let text = sha256([self.secret.as_slice(), &listed.count.to_be_bytes()]);
        // Half of it is the name, which others may see; the rest cannot be told from that.
        let (name, token) = text.split_at(text.len() / 2);
        listed.runs.insert(name.to_owned(), Entry { token: token.to_owned(), asks });
        drop(listed);
        let place = Place {
            runs: Arc::clone(self),
            url: format!("{}/jobs/{name}", self.base),
            name: name.to_owned(),
            token: token.to_owned(),
        };
        (place, asked)
    }

    /// Held for a few straight lines, never across an await.
    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens are secret.
impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs").field("base", &self.base).finish_non_exhaustive()
    }
}

/// Takes as long whatever differs.
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// A run's place in the list. Dropped, it takes the run out, whichever way that ends.
struct Place {
    runs: Arc<Runs>,
    name: String,
    url: String,
    token: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.runs.listed().runs.remove(&self.name);
    }
}

/// The way to a run.
#[derive(Clone)]
pub(crate) struct Line(mpsc::Sender<Asked>);

impl Line {
    /// Asks, and waits for the answer. `None` when the run is over.
    ///
    /// # Cancel safety
    /// Dropped, what was asked is done or not.
    pub(crate) async fn ask(&self, ask: Ask) -> Option<Answer> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Asked { ask, answer }).await.ok()?;
        answered.await.ok()
    }
}

/// What a handler elsewhere is told, so that it can ask.
pub(crate) struct Told {
    pub(crate) url: String,
    pub(crate) token: String,
    /// The results of all steps that are recorded, as a JSON object by their names.
    pub(crate) steps: String,
}

impl Refusal {
    fn mistake(code: &'static str, what: String, mend: &'static str) -> Self {
        Self { code: code.into(), what, mend, follows: Follows::Nothing }
    }

    /// The work fails for good.
    fn failure(code: impl Into<Cow<'static, str>>, what: String) -> Self {
        const MEND: &str = "answer with any failure: the message is then dead-lettered, with this as its reason";
        Self { code: code.into(), what, mend: MEND, follows: Follows::Failure }
    }

    /// The run has to end.
    fn interruption(code: impl Into<Cow<'static, str>>, what: String) -> Self {
        const MEND: &str = "stop and answer with any failure: the work comes again, and uses no attempt";
        Self { code: code.into(), what, mend: MEND, follows: Follows::Interruption }
    }

    /// What a recorder has said no for.
    fn of(error: &HandlerError) -> Self {
        let what = error.to_string();
        if error.verdict == Verdict::Permanent {
            Self::failure(error.code().to_owned(), what)
        } else {
            Self::interruption(error.code().to_owned(), what)
        }
    }

    /// As the failure of a run that can do no more.
    fn into_error(self) -> HandlerError {
        match self.follows {
            Follows::Failure | Follows::NotKept => HandlerError::new(self.what).permanent().reason(self.code),
            Follows::Interruption | Follows::Nothing => HandlerError::interrupted(self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_names_and_tokens_of_their_own_that_nobody_sees_and_that_end_with_them() {
        let runs = Runs::new("http://127.0.0.1:9465".to_owned(), [7; 32]);
        let ((one, _asked), (two, _)) = (runs.list(), runs.list());
        assert!(one.name != two.name && one.token != two.token && one.token.len() == 32, "128 bits each");
        assert_eq!(one.url, format!("http://127.0.0.1:9465/jobs/{}", one.name));
        assert!(runs.find(&one.name, &one.token).is_ok());
        for token in ["", &one.token[1..], &two.token] {
            assert_eq!(runs.find(&one.name, token).err(), Some(NotHere::Stranger), "{token}");
        }
        let elsewhere = Runs::new("http://127.0.0.1:9465".to_owned(), [8; 32]);
        assert_eq!(elsewhere.find(&one.name, &one.token).err(), Some(NotHere::Gone), "of a worker that is gone");
        let (name, shown) = (one.name.clone(), format!("{runs:?}"));
        assert!(!shown.contains(&one.token));
        drop(one);
        assert_eq!(runs.find(&name, "").err(), Some(NotHere::Gone));
        assert!(runs.find(&two.name, &two.token).is_ok());
    }
}
