//! The queue port: what every adapter must answer, one test for each behaviour and adapter.
//!
//! An adapter joins with a [`QueueFixture`] and one line, `queue_contract!(name, fixture)`. The suite waits by long
//! polls only, so that it runs the same on a paused clock and on a real service, and times nothing tighter than a
//! second.
#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use leasehold::{
    message::{Attribute, AttributeValue},
    queue::{Broker, LARGEST_MESSAGE, Outgoing, Queue, Receive, Received},
};
use tokio::time::Instant;

pub(crate) mod behaviours;
mod fifo;
mod tools;

/// Makes queues of one adapter, and says what is different there.
#[async_trait]
pub(crate) trait QueueFixture: Send + Sync {
    /// What the service behind the adapter does differently from AWS.
    fn differences(&self) -> Differences {
        Differences::default()
    }

    /// Where the queues below can be opened.
    fn broker(&self) -> &dyn Broker;

    /// A standard queue, fresh and empty, with settings as AWS has them by default.
    async fn standard(&self) -> Arc<dyn Queue>;

    /// A FIFO queue, fresh and empty, with content-based deduplication.
    async fn fifo(&self) -> Arc<dyn Queue>;

    /// A FIFO queue for high throughput: it deduplicates inside groups, and not by content.
    async fn fifo_by_group(&self) -> Arc<dyn Queue>;

    /// A standard queue with a redrive policy, and its dead-letter queue.
    async fn with_dead_letters(&self, max_receive_count: u32) -> (Arc<dyn Queue>, Arc<dyn Queue>);

    /// The same of FIFO queues with content-based deduplication.
    async fn fifo_with_dead_letters(&self, max_receive_count: u32) -> (Arc<dyn Queue>, Arc<dyn Queue>);
}

/// What a service does differently from AWS. The default is AWS. The behaviours assert a difference too, so that one
/// that has gone away is noticed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Differences {
    /// The largest message it takes, in bytes.
    pub(crate) largest_message: usize,
    /// On a standard queue it deletes the message although the handle was superseded by a later receive.
    pub(crate) deletes_with_a_superseded_handle: bool,
    /// On a standard queue it answers `Ok` to a delete after the timeout has ended, and keeps the message.
    pub(crate) ignores_late_delete_on_standard: bool,
    /// On a standard queue it refuses a visibility change with a superseded handle, instead of changing the timeout of
    /// the later receive.
    pub(crate) refuses_change_with_a_superseded_handle: bool,
    /// It answers `Ok` to a delete with a handle that was never given out.
    pub(crate) accepts_delete_with_a_made_up_handle: bool,
    /// On a FIFO queue it accepts a delete after the timeout has ended.
    pub(crate) accepts_late_delete_on_fifo: bool,
    /// It takes no message group on a standard queue.
    pub(crate) refuses_group_on_standard: bool,
    /// On a FIFO queue it takes visibility changes with handles that are late or superseded.
    pub(crate) takes_changes_with_old_handles_on_fifo: bool,
    /// A message of a FIFO group that is given back comes again although one before it is in flight.
    pub(crate) hands_followers_out_beside_their_head: bool,
    /// It does not know `ReceiveRequestAttemptId`: the same one again is a receive like any other.
    pub(crate) ignores_attempt_ids: bool,
    /// A receive brings at most one message of a FIFO group.
    pub(crate) one_message_per_group: bool,
    /// A message that the redrive policy moves gets a new id.
    pub(crate) redrive_changes_the_id: bool,
    /// It has no tasks that move messages.
    pub(crate) moves_nothing: bool,
    /// It tells of no queue that its dead-letter queue is another's.
    pub(crate) tells_no_sources: bool,
    /// It loses the trace header.
    pub(crate) drops_the_trace_header: bool,
    /// The longest name of an attribute that it takes, in characters.
    pub(crate) longest_attribute_name: usize,
    /// Attributes that it takes although AWS does not.
    pub(crate) takes_attributes: &'static [&'static str],
}

impl Default for Differences {
    fn default() -> Self {
        Self {
            largest_message: LARGEST_MESSAGE,
            deletes_with_a_superseded_handle: false,
            ignores_late_delete_on_standard: false,
            refuses_change_with_a_superseded_handle: false,
            accepts_delete_with_a_made_up_handle: false,
            accepts_late_delete_on_fifo: false,
            refuses_group_on_standard: false,
            takes_changes_with_old_handles_on_fifo: false,
            hands_followers_out_beside_their_head: false,
            ignores_attempt_ids: false,
            one_message_per_group: false,
            redrive_changes_the_id: false,
            moves_nothing: false,
            tells_no_sources: false,
            drops_the_trace_header: false,
            longest_attribute_name: 256,
            takes_attributes: &[],
        }
    }
}

/// Makes a module with one test for each behaviour. The fixture's expression is evaluated inside each test, may await,
/// and may `return` where its service is not there. What follows it are options for `#[tokio::test]`.
macro_rules! queue_contract {
    ($module:ident, $fixture:expr $(, $option:ident = $value:expr)*) => {
        $crate::queue::queue_contract! {
            @each $module, $fixture, [$($option = $value),*],
            attributes_and_body_come_back_as_they_were_sent,
            attributes_of_every_kind_come_back,
            attributes_that_sqs_does_not_take_are_refused,
            system_attributes_are_told,
            a_dead_letter_note_is_unpacked,
            the_largest_message_passes_and_a_larger_one_is_refused,
            a_standard_queue_carries_a_message_group,
            an_empty_queue_answers_with_nothing_after_the_wait,
            r1_a_long_poll_wakes_when_a_message_arrives,
            a_delayed_message_is_hidden_at_first,
            r2_what_was_received_is_hidden_for_the_asked_time_and_comes_back_with_a_new_handle,
            l4_a_longer_visibility_keeps_a_message_hidden,
            d1_visibility_zero_gives_a_message_back_at_once,
            t1_a_deleted_message_never_comes_back,
            t1_deleting_twice_is_ok,
            t1_deleting_after_the_timeout_deletes,
            t1_deleting_with_a_superseded_handle_answers_ok_and_deletes_nothing,
            l6_an_old_handle_shortens_the_timeout_of_a_later_receive,
            l4_changing_a_deleted_message_tells_that_the_handle_is_lost,
            a_handle_that_was_never_given_out_is_refused,
            l4_calls_that_come_together_are_answered_one_by_one,
            t5_a_fifo_group_comes_in_order,
            t5_a_fifo_group_is_blocked_while_a_message_of_it_is_in_flight_and_others_are_not,
            t5_a_given_back_head_comes_again_before_its_followers,
            t1_a_late_delete_on_fifo_is_refused,
            t5_several_groups_come_side_by_side_each_in_order,
            t5_a_follower_that_is_given_back_waits_for_its_head,
            t5_a_group_that_is_given_back_comes_again_in_order,
            t5_a_head_that_moves_to_the_dead_letter_queue_frees_its_group,
            l6_a_late_change_on_fifo_is_refused,
            l6_an_old_handle_on_fifo_changes_nothing,
            r4_the_same_attempt_brings_the_same_messages_and_is_not_counted_again,
            r4_an_attempt_is_not_repeated_once_a_message_of_it_has_changed,
            a_fifo_queue_drops_what_it_was_sent_before,
            a_fifo_queue_drops_duplicates_in_other_groups_too,
            a_fifo_queue_drops_duplicates_in_their_group_only_where_that_is_its_scope,
            a_fifo_queue_without_content_based_deduplication_wants_an_id,
            r5_facts_tell_how_a_fifo_queue_deduplicates,
            t6_a_message_moves_to_the_dead_letter_queue_at_the_receive_after_its_last,
            r5_facts_tell_the_settings,
            r5_a_queue_that_is_not_there_is_missing,
            depth_tells_what_is_visible_and_what_is_in_flight,
            what_sqs_moved_tells_from_where_and_what_was_sent_does_not,
            a_move_takes_all_of_a_dead_letter_queue_to_where_it_is_told,
            a_move_to_a_queue_that_is_not_there_is_refused,
            a_move_from_what_is_nobodys_dead_letter_queue_is_refused,
            a_dead_letter_queue_tells_whose_it_is,
        }
    };
    (@each $module:ident, $fixture:expr, $options:tt, $($behaviour:ident,)*) => {
        mod $module {
            use super::*;
            $($crate::queue::queue_contract!(@test $options $behaviour, $fixture);)*
        }
    };
    (@test [$($option:ident = $value:expr),*] $behaviour:ident, $fixture:expr) => {
        #[tokio::test($($option = $value),*)]
        async fn $behaviour() {
            $crate::queue::behaviours::$behaviour(&$fixture).await;
        }
    };
}
pub(crate) use queue_contract;

/// For how long a test waits for what must come, and does not come by itself in that time if it must not.
const SOON: Duration = Duration::from_secs(10);

/// The shortest visibility timeout that is not zero.
const SHORT: Duration = Duration::from_secs(1);

/// Longer than any test runs.
const LONG: Duration = Duration::from_secs(300);

/// The wait time of one long poll.
const POLL: Duration = Duration::from_secs(1);

fn body(body: &str) -> Outgoing {
    Outgoing { body: body.to_owned(), ..Outgoing::default() }
}

fn in_group(group: &str, body_: &str) -> Outgoing {
    Outgoing { group: Some(group.to_owned()), ..body(body_) }
}

fn binary(bytes: &[u8]) -> Attribute {
    Attribute { data_type: "Binary".to_owned(), value: AttributeValue::Binary(bytes.to_vec()) }
}

fn bodies(received: &[Received]) -> Vec<&str> {
    received.iter().map(|received| received.message.body.as_str()).collect()
}

/// One long poll.
async fn poll(queue: &dyn Queue, max: usize, visibility: Duration) -> Vec<Received> {
    queue.receive(&Receive { max, wait: POLL, visibility, attempt_id: None }).await.expect("a receive")
}

/// The next message, soon.
async fn next(queue: &dyn Queue, visibility: Duration) -> Received {
    let end = Instant::now() + SOON;
    while Instant::now() < end {
        if let Some(received) = poll(queue, 1, visibility).await.pop() {
            return received;
        }
    }
    panic!("no message within {SOON:?}");
}

/// Proves that nothing comes for about this long, by polling all the while.
async fn nothing_for(queue: &dyn Queue, quiet: Duration) {
    let end = Instant::now() + quiet;
    while Instant::now() < end {
        let received = poll(queue, 10, LONG).await;
        assert!(received.is_empty(), "received {:?}", bodies(&received));
    }
}
