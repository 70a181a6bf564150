//! What operators say of a queue, heard by its worker: `leasehold pause` and `leasehold resume`.
//!
//! Looks at the queue's item in the table now and then, and opens or closes the circuit that stands for their word. What
//! cannot be heard changes nothing: a pause holds, and a queue that is not paused goes on.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    causes::in_full,
    clock::Millis,
    guard::{Control, ControlKey, Guard, GuardError, Paused},
};

use super::hall::Hall;

/// How long a word takes to be heard: short for a person who waits for it, and twelve half-priced reads a minute.
pub(crate) const LOOK: Duration = Duration::from_secs(5);

/// Where the word on one queue stands, and what was heard of it.
#[derive(Debug)]
pub(crate) struct Word {
    guard: Arc<dyn Guard>,
    key: ControlKey,
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    /// The latest resume that was seen. Reads may go back in time.
    resumed_at: Option<Millis>,
    /// The last look found no pause, but nothing else either that was not there before the pause.
    doubted: bool,
    /// A first look tells what was said before this worker, which is no news to it.
    before: bool,
    /// That nothing can be heard was told.
    told: bool,
}

impl Word {
    pub(super) fn new(guard: Arc<dyn Guard>, key: ControlKey) -> Self {
        Self { guard, key, heard: Mutex::default() }
    }

    /// Looks, and does what is said.
    ///
    /// # Cancel safety
    /// Dropped, it has only looked.
    pub(super) async fn heed(&self, hall: &Hall) {
        match self.guard.control(&self.key).await {
            Ok(control) => {
                match &control.paused {
                    Some(paused) => {
                        self.heard().doubted = false;
                        hall.paused.open(&said(paused), None);
                    }
                    None if hall.paused.is_open() && !self.may_be_old(&control) => hall.paused.resume(),
                    None => {}
                }
                if self.is_resumed(&control) {
                    hall.brake.release();
                }
            }
            Err(error) => self.cannot_hear(&hall.jobs.name, &error),
        }
    }

    /// Held for single look-ups.
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this may be read from before the pause, for reads may go back in time: a resume leaves a mark. Seen twice in
    /// a row it is believed, for the item may be gone.
    fn may_be_old(&self, control: &Control) -> bool {
        let mut heard = self.heard();
        heard.doubted = !heard.doubted && control.resumed_at <= heard.resumed_at;
        heard.doubted
    }

    /// Whether somebody has said since the last look that the queue goes on.
    fn is_resumed(&self, control: &Control) -> bool {
        let mut heard = self.heard();
        let news = heard.before && control.resumed_at > heard.resumed_at;
        heard.resumed_at = heard.resumed_at.max(control.resumed_at);
        (heard.before, heard.told) = (true, false);
        news
    }

    fn cannot_hear(&self, queue: &str, error: &GuardError) {
        let mut heard = self.heard();
        if !heard.told {
            heard.told = true;
            let needs = if matches!(error, GuardError::Denied(_)) { "; it needs dynamodb:GetItem" } else { "" };
            tracing::warn!(
                queue,
                error = in_full(error),
                "`leasehold pause` and `resume` are not heard at the moment{needs}"
            );
        }
    }
}

fn said(paused: &Paused) -> String {
    let why = paused.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("paused by {} since {}{why}", paused.by, paused.at.utc())
}
