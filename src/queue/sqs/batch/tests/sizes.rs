//! How messages of any size are cut into batches.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{message::Attribute, queue::Outgoing};

/// An API that takes every batch, of entries that are a number and a size.
#[derive(Default)]
struct Scales(Arc<Mutex<Vec<Vec<Weight>>>>);

type Weight = (usize, usize);

#[async_trait]
impl BatchCall for Scales {
    type Entry = Weight;
    const TRIES: u32 = 1;

    fn size(entry: &Weight) -> usize {
        entry.1
    }

    async fn batch(&self, entries: &[(String, Weight)]) -> Result<Listed, Fault> {
        lock(&self.0).push(entries.iter().map(|(_, weight)| *weight).collect());
        sleep(TRIP).await;
        Ok(Listed { successful: entries.iter().map(|(id, _)| id.clone()).collect(), failed: Vec::new() })
    }

    async fn single(&self, entry: &Weight) -> Verdict {
        lock(&self.0).push(vec![*entry]);
        sleep(TRIP).await;
        Ok(())
    }
}

/// The batches that calls of these sizes go out in, made one after the other in one moment, by the first entry of each.
fn batches(sizes: &[usize]) -> Vec<Vec<Weight>> {
    let scales = Scales::default();
    let log = Arc::clone(&scales.0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let batcher = Batcher::new(scales, Clock::simulated(1, 0));
        let calls = sizes.iter().copied().enumerate().map(|entry| batcher.call(entry));
        assert!(join_all(calls).await.iter().all(Result::is_ok));
    });
    let mut batches = std::mem::take(&mut *lock(&log));
    batches.sort_unstable_by_key(|batch| batch[0].0);
    batches
}

fn total(batch: &[Weight]) -> usize {
    batch.iter().map(|(_, size)| size).sum()
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![
        4 => 1..2048_usize,
        3 => LARGEST_MESSAGE / 12..LARGEST_MESSAGE / 2,
        2 => LARGEST_MESSAGE / 2 - 2..=LARGEST_MESSAGE / 2 + 2,
        1 => LARGEST_MESSAGE - 2..=LARGEST_MESSAGE,
    ];
    vec(size, 1..60)
}

proptest! {
    #[test]
    fn t1_any_messages_are_cut_into_batches_of_ten_and_a_mebibyte_in_order_and_none_is_lost(sizes in sizes()) {
        let batches = batches(&sizes);
        for batch in &batches {
            prop_assert!(batch.len() <= BATCH && total(batch) <= LARGEST_MESSAGE, "{batch:?}");
        }
        // None is sent in two that would have gone in one.
        for pair in batches.windows(2) {
            let next = pair[1][0].1;
            prop_assert!(pair[0].len() == BATCH || total(&pair[0]) + next > LARGEST_MESSAGE, "{pair:?}");
        }
        let sent: Vec<_> = batches.concat();
        prop_assert_eq!(sent, sizes.into_iter().enumerate().collect::<Vec<_>>());
    }
}

#[test]
fn t1_a_batch_may_be_a_mebibyte_and_not_a_byte_more() {
    let half = LARGEST_MESSAGE / 2;
    assert_eq!(batches(&[half, half]).len(), 1);
    assert_eq!(batches(&[half, half + 1]).len(), 2);
    assert_eq!(batches(&[LARGEST_MESSAGE, 1]).len(), 2);
    assert_eq!(batches(&[LARGEST_MESSAGE / 10; 10]).len(), 1);
}

#[test]
fn a_message_counts_by_its_bytes_with_the_names_types_and_values_of_its_attributes() {
    let text = |body: &str| Outgoing { body: body.into(), ..Outgoing::default() };
    assert_eq!(text("naïve 世界 🦀").size(), "naïve 世界 🦀".len());
    assert_eq!(text("世").size(), 3);
    let binary =
        Attribute { data_type: "Binary.png".into(), value: crate::message::AttributeValue::Binary(vec![0; 5]) };
    let attributes = [("a".to_owned(), Attribute::text("世")), ("picture".to_owned(), binary)];
    let message = Outgoing {
        attributes: attributes.into(),
        // None of these counts.
        group: Some("g".into()),
        deduplication_id: Some("d".into()),
        trace_header: Some("Root=1".into()),
        ..text("xy")
    };
    assert_eq!(message.size(), 2 + (1 + 6 + 3) + (7 + 10 + 5));
}
