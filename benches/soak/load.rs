//! What is sent: fast, slow, failing and poisonous work, bodies that nobody can read, and all of it now and then twice.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use leasehold::{
    aws::Aws,
    embedded::Engine,
    queue::{Broker, Outgoing, Queue, QueueAddress},
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::{QUEUES, depth};

/// What becomes of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Fast,
    /// Takes longer than the visibility timeout.
    Slow,
    /// Fails once.
    Failing,
    /// Never succeeds.
    Poison,
}

/// A body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// Of FIFO work, its group and its place in that.
    pub(crate) place: Option<(u64, u64)>,
}

/// Work that was sent, by queue and id.
pub(crate) type Sent = BTreeMap<(usize, u64), Work>;

pub(crate) struct Load {
    queues: Vec<Arc<dyn Queue>>,
    chance: fastrand::Rng,
    pub(crate) sent: Sent,
    /// Bodies without a key, one each.
    pub(crate) unreadable: Vec<String>,
    pub(crate) messages: u64,
    places: BTreeMap<u64, u64>,
}

/// With more messages than this in the queues sending pauses: what is soaked is the worker, not the engine.
const DEEPEST: u64 = 300;

/// Messages that are sent together, and the pause between two such bursts.
const BURST: usize = 8;
const PAUSE: Duration = Duration::from_millis(150);

const GROUPS: u64 = 6;

impl Load {
    pub(crate) async fn open(aws: &Aws, seed: u64) -> anyhow::Result<Self> {
        let mut queues = Vec::new();
        for name in QUEUES {
            queues.push(aws.sqs().open(&QueueAddress::Name(name.to_owned())).await?);
        }
        let chance = fastrand::Rng::with_seed(seed);
        Ok(Self { queues, chance, sent: Sent::new(), unreadable: Vec::new(), messages: 0, places: BTreeMap::new() })
    }

    pub(crate) async fn send(&mut self, engine: &Engine, ends_at: Instant) -> anyhow::Result<()> {
        while Instant::now() < ends_at {
            if depth(engine).await? < DEEPEST {
                let burst = (0..BURST).map(|_| self.next()).collect::<anyhow::Result<Vec<_>>>()?;
                let (ordered, others): (Vec<_>, Vec<_>) = burst.into_iter().partition(|(_, out)| out.group.is_some());
                let send = async |(queue, out): &(usize, Outgoing)| self.queues[*queue].send(out).await;
                let in_order = async {
                    for one in &ordered {
                        send(one).await?;
                    }
                    Ok(())
                };
                tokio::try_join!(in_order, try_join_all(others.iter().map(send)))?;
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    fn next(&mut self) -> anyhow::Result<(usize, Outgoing)> {
        // Programs cost a process each.
        let queue = [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2][self.chance.usize(..12)];
        let percent = self.chance.u64(..100);
        let id = self.messages;
        if percent == 0 && queue == 0 {
            let body = format!("no JSON at all: {id}");
            self.unreadable.push(body.clone());
            return Ok(self.outgoing(queue, body, None));
        }
        let group = (queue == 1).then(|| self.chance.u64(..GROUPS));
        let again = self.sent.range((queue, 0)..(queue + 1, 0)).next_back().filter(|_| percent < 10);
        let work = match again {
            // Sent twice, as by a producer that heard no answer.
            Some((_, work)) => work.clone(),
            None => {
                let kind = match percent {
                    94.. if queue == 2 => Kind::Failing,
                    98.. => Kind::Poison,
                    94.. => Kind::Failing,
                    91.. if queue != 2 => Kind::Slow,
                    90 if queue == 2 => Kind::Poison,
                    _ => Kind::Fast,
                };
                let mut next = |group| {
                    let place = self.places.entry(group).or_default();
                    *place += 1;
                    (group, *place)
                };
                Work { id, kind, place: group.map(&mut next) }
            }
        };
        let body = serde_json::to_string(&work)?;
        let group = work.place.map(|(group, _)| group);
        self.sent.insert((queue, work.id), work);
        Ok(self.outgoing(queue, body, group))
    }

    fn outgoing(&mut self, queue: usize, body: String, group: Option<u64>) -> (usize, Outgoing) {
        self.messages += 1;
        let group = group.map(|group| format!("g{group}"));
        let deduplication_id = group.is_some().then(|| self.messages.to_string());
        (queue, Outgoing { body, group, deduplication_id, ..Outgoing::default() })
    }
}
