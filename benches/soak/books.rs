//! What was sent beside what came of it: in the table, in the dead-letter queues, in the app's book and in the programs' file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use leasehold::{
    aws::Aws,
    guard::{Guard, Pk, Status, dynamodb::DynamoDbGuard},
    queue::{BATCH, Broker, QueueAddress, Receive},
};

use crate::{
    DEAD_LETTERS, TABLE,
    app::{Book, lock},
    load::{Kind, Load, Work},
    workers::IN_HAND,
};

/// What operations are called, by queue.
const OPERATIONS: [&str; 3] = ["jobs", "orders", "tasks"];

pub(crate) struct Books {
    load: Load,
    book: Arc<Mutex<Book>>,
    /// How often a program has had its effect, by idempotency key.
    effects: BTreeMap<String, u64>,
    records: BTreeMap<String, Status>,
    /// Bodies, with how many copies there are.
    dead_letters: BTreeMap<String, u64>,
    left: u64,
    killed: u64,
}

impl Books {
    pub(crate) async fn drawn_up(
        aws: &Aws,
        load: Load,
        book: Arc<Mutex<Book>>,
        effects: &Path,
        left: u64,
        killed: u64,
    ) -> anyhow::Result<Self> {
        let guard = DynamoDbGuard::new(aws.dynamodb(), TABLE.to_owned());
        // One by one: a scan of so many is too much for the embedded engine.
        let read = load.sent.keys().map(|(queue, id)| async {
            let pk = pk(*queue, *id);
            anyhow::Ok(guard.read(&Pk(pk.clone())).await?.map(|record| (pk, record.status)))
        });
        let records = stream::iter(read).buffered(4).try_filter_map(async |record| Ok(record)).try_collect().await?;
        let mut counted = BTreeMap::new();
        for key in std::fs::read_to_string(effects)?.lines() {
            *counted.entry(key.to_owned()).or_default() += 1;
        }
        Ok(Self { load, book, effects: counted, records, dead_letters: dead_letters(aws).await?, left, killed })
    }

    /// The figures, and what is wrong with them.
    pub(crate) fn told(&self) -> (String, Vec<String>) {
        let mut wrong = Vec::new();
        let book = lock(&self.book);
        let (mut repeated, mut dead) = (0, BTreeSet::new());
        for ((queue, id), work) in &self.load.sent {
            let pk = pk(*queue, *id);
            let done = match queue {
                2 => self.effects.get(&pk).copied().unwrap_or_default(),
                _ => book.calls.get(id).map_or(0, |calls| calls.done),
            };
            let (expected, effects) =
                if work.kind == Kind::Poison { (Status::Dead, done == 0) } else { (Status::Done, done > 0) };
            if self.records.get(&pk) != Some(&expected) || !effects {
                wrong.push(format!("{work:?} is {:?} and took effect {done} times", self.records.get(&pk)));
            }
            repeated += done.saturating_sub(1);
            dead.extend((work.kind == Kind::Poison).then(|| serde_json::to_string(work).unwrap_or_default()));
        }
        dead.extend(self.load.unreadable.iter().cloned());
        for body in dead.symmetric_difference(&self.dead_letters.keys().cloned().collect()) {
            wrong.push(format!("dead-lettered where it must not be, or not where it must: {body}"));
        }
        let is = |what: &str, ids: &BTreeSet<u64>| (!ids.is_empty()).then(|| format!("{what}: {ids:?}"));
        wrong.extend(is("ran twice at once", &book.overlaps));
        wrong.extend(is("ran before what stands before them in their group had ended", &book.too_early));
        if self.left > 0 {
            wrong.push(format!("{} messages are left in the queues", self.left));
        }
        // A worker that dies can have had that many effects that nobody knew of.
        if repeated > self.killed * IN_HAND {
            wrong.push(format!("{repeated} effects were repeated under their key, and {} workers killed", self.killed));
        }
        let copies: u64 = self.dead_letters.values().sum();
        let of = |kind| self.load.sent.values().filter(|work: &&Work| work.kind == kind).count();
        let text = format!(
            "{} messages of {} pieces of work ({} slow, {} failing, {} poison) and {} unreadable; {} workers killed\n\
             {repeated} effects repeated under the same key, {} dead letters in {copies} copies, {} left",
            self.load.messages,
            self.load.sent.len(),
            of(Kind::Slow),
            of(Kind::Failing),
            of(Kind::Poison),
            self.load.unreadable.len(),
            self.killed,
            self.dead_letters.len(),
            self.left,
        );
        (text, wrong)
    }
}

/// The primary key of a piece of work.
fn pk(queue: usize, id: u64) -> String {
    format!("{}#n:{id}", OPERATIONS[queue])
}

/// The bodies of all that is dead-lettered.
async fn dead_letters(aws: &Aws) -> anyhow::Result<BTreeMap<String, u64>> {
    let ask = Receive { max: BATCH, wait: Duration::ZERO, visibility: Duration::from_secs(60 * 60), attempt_id: None };
    let mut bodies = BTreeMap::new();
    for name in DEAD_LETTERS {
        let queue = aws.sqs().open(&QueueAddress::Name(name.to_owned())).await?;
        loop {
            let received = queue.receive(&ask).await?;
            if received.is_empty() {
                break;
            }
            for received in received {
                *bodies.entry(received.message.body).or_default() += 1;
                // What stands behind it in its group comes when it is gone.
                queue.delete(&received.handle).await?;
            }
        }
    }
    Ok(bodies)
}
