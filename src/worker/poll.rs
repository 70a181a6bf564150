//! Polling: slots first, then a long poll, then lanes.
//!
//! One poll is parked on an idle queue; while receives come back full there are more, as far as slots can use them (rule
//! R6). A poll that was sent is always awaited, whatever happens meanwhile: messages that SQS hands to an aborted one stay
//! hidden for a whole timeout.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32},
    },
    time::Duration,
};

use tokio::{
    sync::mpsc::UnboundedSender,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    clock::Moment,
    guard::outage::Circuit,
    job::Slot,
    lease::{Deadline, Lease, Term},
    message::Delivery,
    queue::{LARGEST_MESSAGE, LONGEST_VISIBILITY, Received},
    seldom::seldom,
    telemetry,
    testing::{Planted, planted},
};

use super::{hall::Hall, pace::Booking, pulse::Pulse};
use receiver::{Answered, Receiver};

mod receiver;

/// What a poller tells who owns it.
#[derive(Debug)]
pub(super) enum Polled {
    /// A lane is to begin.
    Lane(VecDeque<Delivery>, Slot),
    /// A receive came back full: there is more, and another poller may fetch it.
    Full,
    /// The constant poller's receive should have come back by now: another takes its place.
    Late,
}

/// Whether a poller goes on when there is little to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Poller {
    /// The one that is parked on an idle queue.
    Constant,
    /// One of those beside it, while receives come back full.
    Extra,
}

/// At saturation a poller waits this long for more slots to come free, rather than ask for one message at a time.
const GATHER: Duration = Duration::from_millis(100);

/// It does not wait for more than this part of all slots: those that are free meanwhile do nothing.
const WORTH_A_RECEIVE: usize = 3;

/// Kept clear of SQS's 12 hours, for clocks and calls take time.
pub(crate) const CAP_MARGIN: Duration = Duration::from_secs(60);

/// How long a poller waits for the outcome of the work that it brought for a trial.
const TRIAL: Duration = Duration::from_secs(10);

/// An empty answer that came sooner, for there was no wait time, is followed by a pause: idle polling must not spin. Also
/// how long an extra poll is parked: it holds slots that the constant one could use.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

/// Pauses after failed polls: the first, and the longest.
pub(super) const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(20));

/// A receive that brings so many bytes takes its time on the wire, not in waiting: more of them at once would bring no
/// more in the same time, could all be cut off by their timeouts, and would each hold its reply in memory twice.
const LARGE: usize = 2 * LARGEST_MESSAGE;

fn size(received: &[Received]) -> usize {
    received.iter().map(|received| received.message.body.len()).sum()
}

/// Polls until the worker drains, or for an extra poller until a receive does not come back full, or is large.
///
/// # Cancel safety
/// Dropped, what the poll on the wire brings stays hidden for a whole timeout.
pub(super) async fn poll(hall: Arc<Hall>, pulse: Arc<Pulse>, polled: UnboundedSender<Polled>, poller: Poller) {
    let mut receiver = Receiver { hall: &hall, pulse: &pulse, polled: &polled, poller, is_late: false, failures: 0 };
    loop {
        let sendable = tokio::select! {
            // No receive is sent once the worker drains; slots that were gathered are given back.
            biased;
            () = hall.drain.cancelled() => return,
            sendable = ready(&hall, poller) => sendable,
        };
        let Some((slots, mut booking)) = sendable else { return };
        let answer = receiver.receive(slots.len(), &mut booking).await;
        let brought = answer.as_ref().map_or(0, |answered| answered.received.len());
        hall.jobs.meters.polled(match (&answer, brought) {
            (Err(_), _) => telemetry::Polled::Error,
            (Ok(_), 0) => telemetry::Polled::Empty,
            (Ok(_), brought) if brought >= slots.len() => telemetry::Polled::Full,
            (Ok(_), _) => telemetry::Polled::Partial,
        });
        let is_large = answer.as_ref().is_ok_and(|answered| size(&answered.received) > LARGE);
        if let Some(booking) = booking {
            booking.begin(brought);
        }
        match answer {
            Ok(Answered { received, lease, took }) => {
                begin(&hall, received, lease, slots, &polled);
                if receiver.is_late {
                    return;
                }
                if brought >= hall.portion && !is_large {
                    let _ = polled.send(Polled::Full);
                } else if poller == Poller::Extra {
                    return;
                }
                if brought > 0 {
                    verdict(&hall).await;
                } else {
                    unless_draining(&hall, sleep(SHORTEST_POLL.saturating_sub(took))).await;
                }
            }
            // The constant one meets the same, and tells it.
            Err(_) if poller == Poller::Extra => return,
            Err(error) => {
                drop(slots);
                if receiver.is_late {
                    let queue = &*hall.jobs.name;
                    seldom!(
                        hall.jobs.seldom,
                        "poll",
                        warn,
                        queue,
                        error,
                        "the poll failed; another has taken its place"
                    );
                    return;
                }
                let pause = receiver.pause();
                let (queue, failures) = (&*hall.jobs.name, receiver.failures);
                seldom!(hall.jobs.seldom, "poll", warn, queue, error, failures, "the poll failed; again in {pause:?}");
                unless_draining(&hall, sleep(pause)).await;
            }
        }
    }
}

/// A poller that has brought work for a trial waits for its outcome, so that a trickle stays one; but not for ever, for
/// that work may take long, or have been a duplicate that shows nothing.
async fn verdict(hall: &Hall) {
    if let Some(circuit) = hall.on_trial() {
        unless_draining(hall, async { drop(timeout(TRIAL, circuit.tried()).await) }).await;
    }
}

async fn unless_draining(hall: &Hall, pause: impl Future<Output = ()>) {
    tokio::select! {
        // Nothing is lost with a pause.
        biased;
        () = hall.drain.cancelled() => {}
        () = pause => {}
    }
}

/// Waits until messages may be received, there are slots for them (rule R1), and the pace lets them begin. `None` tells an
/// extra poller that this is no time for more than one: several would make a crowd of a trial's few messages.
async fn ready(hall: &Hall, poller: Poller) -> Option<(Vec<Slot>, Option<Booking<'_>>)> {
    let is_too_many = || poller == Poller::Extra && !hall.circuits().all(Circuit::is_closed);
    loop {
        if is_too_many() {
            return None;
        }
        hall.may_receive().await;
        let _turn = hall.gathering.lock().await;
        if let Some(pace) = &hall.pace {
            // Before it takes slots, which others could use meanwhile.
            pace.ready(hall.most()).await;
        }
        let mut slots = gather(hall, hall.most()).await;
        let booking = match &hall.pace {
            None => None,
            Some(pace) => {
                let Some(booking) = pace.book(slots.len()) else { continue };
                slots.truncate(booking.starts());
                Some(booking)
            }
        };
        // Waiting took time; it may be that nothing should be received by now.
        if hall.most() >= slots.len() && hall.open_circuit().is_none() && !is_too_many() {
            return Some((slots, booking));
        }
    }
}

/// Waits for a first slot, a short while for as many as are worth a receive, and takes what is free beside them.
async fn gather(hall: &Hall, wanted: usize) -> Vec<Slot> {
    let mut slots = Vec::with_capacity(wanted);
    let enough = (hall.jobs.config.concurrency / WORTH_A_RECEIVE).clamp(1, wanted.max(1));
    slots.extend(hall.slots.take().await);
    let until = Instant::now() + GATHER;
    while slots.len() < enough {
        match timeout_at(until, hall.slots.take()).await {
            Ok(Some(slot)) => slots.push(slot),
            Ok(None) | Err(_) => break,
        }
    }
    while slots.len() < wanted {
        let Some(slot) = hall.slots.try_take() else { break };
        slots.push(slot);
    }
    slots
}

/// Makes lanes of what was received: a lane for each message, or on a FIFO queue for each group, in order.
fn begin(
    hall: &Hall,
    received: Vec<Received>,
    lease: (Moment, Duration),
    mut slots: Vec<Slot>,
    polled: &UnboundedSender<Polled>,
) {
    let mut begun: Vec<(Option<String>, VecDeque<Delivery>)> = Vec::new();
    for received in received {
        let group = received.message.group.clone().filter(|_| hall.fifo && !planted(Planted::GroupInPieces));
        let delivery = delivery(hall, received, leased(hall, lease), hall.term.clone());
        match begun.iter_mut().find(|(of, _)| group.is_some() && *of == group) {
            Some((_, lane)) => lane.push_back(delivery),
            None => begun.push((group, VecDeque::from([delivery]))),
        }
    }
    for (_, lane) in begun {
        let Some(slot) = slots.pop() else {
            tracing::error!(
                queue = &*hall.jobs.name,
                "the queue handed out more than was asked for; left to its timeout"
            );
            return;
        };
        // The receiver lives as long as any poller does.
        let _ = polled.send(Polled::Lane(lane, slot));
    }
}

/// The lease of what comes with such a receive.
fn leased(hall: &Hall, (start, length): (Moment, Duration)) -> Lease {
    Lease::new(hall.jobs.clock.clone(), start, length).capped(Deadline::after(start, LONGEST_VISIBILITY - CAP_MARGIN))
}

/// What was received, from now on in hand.
pub(crate) fn delivery(hall: &Hall, received: Received, lease: Lease, term: Term) -> Delivery {
    let is_last = hall.max_receive_count.is_some_and(|most| received.message.receive_count >= most);
    let now = hall.jobs.clock.wall();
    let in_hand = hall.jobs.meters.receives(received.message.sent_at.map(|sent| now.since(sent)));
    Delivery {
        message: Arc::new(received.message),
        handle: received.handle,
        lease,
        term,
        is_last,
        about: Mutex::default(),
        failed: AtomicU32::new(0),
        fetched: Mutex::default(),
        received: Instant::now(),
        begun: AtomicBool::new(false),
        in_hand,
    }
}
