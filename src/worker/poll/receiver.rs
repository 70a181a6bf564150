//! One poller's receives: sent, awaited however long they take, and on a FIFO queue asked for again.
//!
//! Owns from when the leases of what came count. Knows nothing of slots: how many messages may come is said to it.

use std::{pin::pin, time::Duration};

use tokio::{
    sync::mpsc::UnboundedSender,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{Polled, Poller, RETRY, SHORTEST_POLL, unless_draining};
use crate::{
    causes::in_full,
    clock::{Millis, Moment},
    queue::{QueueError, Receive, Received},
    seldom::seldom,
    worker::{hall::Hall, pace::Booking, pulse::Pulse},
};

/// A lease counts from the reply's arrival less this: the reply took its time to come.
const ALLOWANCE: Duration = Duration::from_millis(500);

/// A poll that took longer than its wait time by this much was not simply a long poll.
const LATE: Duration = Duration::from_secs(1);

/// So long SQS knows an attempt id
/// ([ReceiveMessage](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html)).
const ATTEMPT: Duration = Duration::from_secs(5 * 60);

/// What sends a poller's receives.
pub(super) struct Receiver<'a> {
    pub(super) hall: &'a Hall,
    pub(super) pulse: &'a Pulse,
    pub(super) polled: &'a UnboundedSender<Polled>,
    pub(super) poller: Poller,
    /// A receive should have come back before it did: another poller has taken this one's place.
    pub(super) is_late: bool,
    /// In a row.
    pub(super) failures: u32,
}

/// What a receive brought.
pub(super) struct Answered {
    pub(super) received: Vec<Received>,
    /// From when the leases count, and how long they are.
    pub(super) lease: (Moment, Duration),
    pub(super) took: Duration,
}

impl Receiver<'_> {
    /// One long poll for up to `max` messages. On a FIFO queue one that was not answered is asked for again under the same
    /// attempt id: SQS then hands out the same messages, which else would block their groups for a whole timeout (rule R4).
    /// An error comes as a text, for all that is done with it is to tell it.
    pub(super) async fn receive(&mut self, max: usize, booking: &mut Option<Booking<'_>>) -> Result<Answered, String> {
        let hall = self.hall;
        let wait = if self.poller == Poller::Extra { hall.wait_time().min(SHORTEST_POLL) } else { hall.wait_time() };
        let attempt_id = hall.fifo.then(|| hall.jobs.clock.token());
        let ask = Receive { max, wait, visibility: hall.jobs.visibility.in_force(), attempt_id };
        let known_until = Instant::now() + ask.visibility.min(ATTEMPT);
        loop {
            let out = hall.polls.sent(wait);
            let error = match self.ask(&ask, booking).await {
                Ok(answered) => {
                    out.answered();
                    self.failures = 0;
                    return Ok(answered);
                }
                Err(error) => error,
            };
            let text = in_full(&error);
            out.failed(text.clone());
            self.failures += 1;
            let is_lost = ask.attempt_id.is_some() && matches!(error, QueueError::NoAnswer(_));
            // Later they are visible again by themselves, as are those of any other queue.
            if !is_lost {
                return Err(text);
            }
            let pause = async {
                sleep(self.pause()).await;
                // No longer than that is of use: the slots that this poll holds are wanted by what is in hand.
                let _ = timeout_at(known_until, hall.may_receive()).await;
            };
            unless_draining(hall, pause).await;
            if hall.drain.is_cancelled() || known_until <= Instant::now() {
                return Err(text);
            }
            let (queue, error) = (&*hall.jobs.name, text);
            seldom!(
                hall.jobs.seldom,
                "poll",
                warn,
                queue,
                error,
                "the poll was not answered; asked for the same again"
            );
        }
    }

    /// The pause after so many failed polls in a row.
    pub(super) fn pause(&self) -> Duration {
        self.hall.jobs.clock.part_of(RETRY.0.saturating_mul(1 << self.failures.min(16)).min(RETRY.1))
    }

    /// Sends one receive, and lets another poller begin if it does not come back in time.
    async fn ask(&mut self, ask: &Receive, booking: &mut Option<Booking<'_>>) -> Result<Answered, QueueError> {
        let clock = &self.hall.jobs.clock;
        let (sent, stalls) = (clock.now(), self.pulse.stalls());
        let mut receive = pin!(self.hall.desk.queue.receive(ask));
        let answer = match timeout(ask.wait + LATE, &mut receive).await {
            Ok(answer) => answer,
            Err(_) => {
                booking.iter_mut().for_each(Booking::give_up);
                // An extra one has no place that must be filled: the constant one goes on.
                if self.poller == Poller::Constant && !self.is_late {
                    // The receiver lives as long as any poller does.
                    let _ = self.polled.send(Polled::Late);
                }
                self.is_late = true;
                receive.await
            }
        };
        let start = counted_from(sent, clock.now(), ask.wait, self.pulse.stood_still_since(stalls));
        Ok(Answered { received: answer?, lease: (start, ask.visibility), took: sent.instant.elapsed() })
    }
}

/// From when a delivery's lease counts (rule R2): the reply's arrival less an allowance; the sending, if the reply may
/// have lain somewhere meanwhile.
fn counted_from(sent: Moment, arrived: Moment, wait: Duration, stood_still: bool) -> Moment {
    let took = arrived.since(sent);
    if stood_still || took > wait + LATE || took < ALLOWANCE {
        return sent;
    }
    let wall = Millis(arrived.wall.0.saturating_sub(ALLOWANCE.as_millis().try_into().unwrap_or(0)));
    Moment { instant: arrived.instant - ALLOWANCE, wall }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn r2_a_lease_counts_from_the_sending_where_the_machine_was_suspended_meanwhile() {
        let clock = Clock::simulated(1, 0);
        let sent = clock.now();
        tokio::time::advance(Duration::from_secs(3)).await;
        let wait = Duration::from_secs(10);
        let arrived = clock.now();
        assert_eq!(counted_from(sent, arrived, wait, false).instant, arrived.instant - ALLOWANCE);
        assert_eq!(counted_from(sent, arrived, wait, true).instant, sent.instant);
        // Suspended: the monotonic clock stood still, the wall clock did not.
        let arrived = clock.skewed(1, 60_000).now();
        assert_eq!(counted_from(sent, arrived, wait, false).instant, sent.instant);
    }
}
