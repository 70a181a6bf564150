use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::{Instant, advance, timeout};

use super::*;
use crate::{
    clock::{Millis, Seconds},
    guard::{
        Amend, Change, Claim, Claimed, Control, ControlKey, Guard, GuardError, Owner, Pk, Record, Source, TableFacts,
        TakeOver, Written,
    },
    message::ReceiptHandle,
    queue::{
        Broker, Outgoing, Queue, QueueAddress, QueueError, Receive, Received,
        memory::{MemoryBroker, MemoryQueue, MemoryQueueSettings},
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// A queue in memory with one message in flight, the wrapper around it, and the message's handle.
async fn faulty() -> (Arc<MemoryQueue>, FaultyQueue, Faults, ReceiptHandle) {
    let memory = MemoryBroker::default().create("q", MemoryQueueSettings::default());
    memory.put(Outgoing { body: "x".to_owned(), ..Outgoing::default() });
    let faults = Faults::default();
    let queue = FaultyQueue::new(Arc::clone(&memory) as Arc<dyn Queue>, faults.clone()).named("q");
    let handle = receive(&queue).await.unwrap().pop().expect("a message").handle;
    (memory, queue, faults, handle)
}

async fn receive(queue: &dyn Queue) -> Result<Vec<Received>, QueueError> {
    queue.receive(&Receive { max: 1, wait: 2 * SECOND, visibility: 600 * SECOND, attempt_id: None }).await
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_fault_passes_unchanged_and_is_logged() {
    let (memory, queue, faults, handle) = faulty().await;
    queue.delete(&handle).await.unwrap();
    assert!(memory.is_empty());
    let call = |operation, subject: &str| Call { operation, subject: subject.to_owned(), number: 1 };
    assert_eq!(faults.log(), [call("receive", "q"), call("delete", handle.as_str())]);
    assert_eq!(faults.calls(), [("delete".to_owned(), 1), ("receive".to_owned(), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_fails_at_once_and_does_nothing() {
    let (memory, queue, faults, handle) = faulty().await;
    faults.next("delete", Fault::Fail(Failure::Throttled));
    let begun = Instant::now();
    let failed = queue.delete(&handle).await;
    assert!(matches!(failed, Err(QueueError::Throttled(Some(_)))), "{failed:?}");
    assert_eq!((begun.elapsed(), memory.len()), (Duration::ZERO, 1));
    queue.delete(&handle).await.expect("the next call has no fault");
}

#[tokio::test(start_paused = true)]
async fn a_delay_comes_before_the_effect_and_a_late_reply_after_it() {
    for (fault, left) in [(Fault::Delay(3 * SECOND), 1), (Fault::DelayReply(3 * SECOND), 0)] {
        let (memory, queue, faults, handle) = faulty().await;
        faults.next("delete", fault);
        let begun = Instant::now();
        let look = async {
            advance(2 * SECOND).await;
            memory.len()
        };
        let (deleted, meanwhile) = tokio::join!(queue.delete(&handle), look);
        deleted.unwrap();
        assert_eq!((begun.elapsed(), meanwhile, memory.len()), (3 * SECOND, left, 0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_leaves_the_effect_and_a_hang_does_not_and_both_end_at_the_call_timeout() {
    for (fault, left) in [(Fault::LoseReply, 0), (Fault::Hang, 1)] {
        let (memory, queue, faults, handle) = faulty().await;
        faults.next("delete", fault);
        let begun = Instant::now();
        let deleted = queue.delete(&handle).await;
        assert!(matches!(deleted, Err(QueueError::NoAnswer(_))), "{deleted:?}");
        assert_eq!((begun.elapsed(), memory.len()), (CALL_TIMEOUT, left), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_receive_is_waited_for_beyond_its_wait_time() {
    let (_, queue, faults, _) = faulty().await;
    faults.next("receive", Fault::Hang);
    let begun = Instant::now();
    assert!(matches!(receive(&queue).await, Err(QueueError::NoAnswer(_))));
    assert_eq!(begun.elapsed(), 2 * SECOND + CALL_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_request_lands_after_its_caller_has_given_up_and_even_if_the_caller_is_gone() {
    for caller_waits in [true, false] {
        let (memory, queue, faults, handle) = faulty().await;
        faults.next("delete", Fault::HangThenApply(8 * SECOND));
        let patience = if caller_waits { CALL_TIMEOUT } else { SECOND };
        let begun = Instant::now();
        let answer = timeout(patience + Duration::from_millis(1), queue.delete(&handle)).await;
        assert_eq!(matches!(answer, Ok(Err(QueueError::NoAnswer(_)))), caller_waits, "{answer:?}");
        assert_eq!(memory.len(), 1);
        faults.landed().await;
        assert_eq!((begun.elapsed(), memory.len()), (8 * SECOND, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_call_never_returns_and_has_its_effect_if_asked_for() {
    for (applied, left) in [(true, 0), (false, 1)] {
        let (memory, queue, faults, handle) = faulty().await;
        faults.next("delete", Fault::Stop { applied });
        timeout(3600 * SECOND, queue.delete(&handle)).await.expect_err("no answer");
        assert_eq!(memory.len(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn the_script_goes_before_the_rule_and_the_rule_before_what_always_holds() {
    let (_, queue, faults, handle) = faulty().await;
    faults.always("delete", Fault::Fail(Failure::Denied));
    let looks_at_the_log = faults.clone();
    faults.decide_with(move |call| {
        assert_eq!(looks_at_the_log.log().last(), Some(call));
        (call.operation == "delete" && call.number == 2).then_some(Fault::Fail(Failure::HandleLost))
    });
    faults.next("delete", Fault::Fail(Failure::Missing));
    assert_eq!(faults.pending(), 1);
    assert!(matches!(queue.delete(&handle).await, Err(QueueError::Missing)));
    assert_eq!(faults.pending(), 0);
    assert!(matches!(queue.delete(&handle).await, Err(QueueError::HandleLost)));
    assert!(matches!(queue.delete(&handle).await, Err(QueueError::Denied(_))));
    faults.next("delete", Fault::Hang);
    faults.clear();
    queue.delete(&handle).await.unwrap();
    assert_eq!(faults.calls()["delete"], 4);
}

#[tokio::test(start_paused = true)]
async fn a_broker_wraps_what_it_opens_with_the_faults_of_that_name() {
    let memory = MemoryBroker::default();
    memory.create("p", MemoryQueueSettings::default());
    memory.create("q", MemoryQueueSettings::default());
    let broker = FaultyBroker::new(Arc::new(memory));
    broker.faults("p").always("facts", Fault::Fail(Failure::Denied));
    broker.faults("q").next("open", Fault::Fail(Failure::Unavailable));
    let address = |name: &str| QueueAddress::Name(name.to_owned());
    let arn = QueueAddress::Arn("arn:aws:sqs:us-east-1:000000000000:p".to_owned());
    let p = broker.open(&arn).await.unwrap();
    assert!(matches!(p.facts().await, Err(QueueError::Denied(_))));
    let q = broker.open(&address("q")).await;
    assert!(matches!(q, Err(QueueError::Unavailable(_))), "{q:?}");
    broker.open(&address("q")).await.unwrap().facts().await.unwrap();
}

/// A guard that answers everything with success and knows nothing.
#[derive(Debug)]
struct Yes;

#[async_trait]
impl Guard for Yes {
    async fn claim(&self, _: &Claim) -> Result<Claimed, GuardError> {
        Ok(Claimed::Refused(None))
    }
    async fn take_over(&self, _: &TakeOver) -> Result<Claimed, GuardError> {
        Ok(Claimed::Refused(None))
    }
    async fn write(&self, _: &Pk, _: &Change) -> Result<Written, GuardError> {
        Ok(Written::Applied)
    }
    async fn amend(&self, _: &Amend) -> Result<Written, GuardError> {
        Ok(Written::Applied)
    }
    async fn read(&self, _: &Pk) -> Result<Option<Record>, GuardError> {
        Ok(None)
    }
    async fn probe(&self) -> Result<(), GuardError> {
        Ok(())
    }
    async fn control(&self, _: &ControlKey) -> Result<Control, GuardError> {
        Ok(Control::default())
    }
    async fn set_control(&self, _: &ControlKey, _: &Control) -> Result<(), GuardError> {
        Ok(())
    }
    async fn facts(&self) -> Result<TableFacts, GuardError> {
        Err(GuardError::Missing)
    }
}

fn claim() -> Claim {
    Claim {
        pk: Pk("k".to_owned()),
        owner: Owner("o".to_owned()),
        now: Millis(1),
        lease_until: Millis(2),
        fingerprint: None,
        source: Source::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_guards_writes_are_told_apart_by_their_change() {
    let faults = Faults::default();
    let guard = FaultyGuard::new(Arc::new(Yes), faults.clone());
    let pk = Pk("k".to_owned());
    let owner = Owner("o".to_owned());
    let confirm = Change::Confirm { owner: owner.clone(), now: Millis(1), expires_at: Seconds(9) };
    let renew = Change::Renew { owner, now: Millis(1), lease_until: Millis(3) };
    faults.next("confirm", Fault::Fail(Failure::Conflict));
    guard.write(&pk, &renew).await.unwrap();
    let confirmed = guard.write(&pk, &confirm).await;
    assert!(matches!(confirmed, Err(GuardError::Conflict)), "{confirmed:?}");
    guard.claim(&claim()).await.unwrap();
    guard.read(&pk).await.unwrap();
    guard.probe().await.unwrap();
    let key = ControlKey::new(None, "q");
    faults.next("set_control", Fault::Fail(Failure::Denied));
    guard.control(&key).await.unwrap();
    let said = guard.set_control(&key, &Control::default()).await;
    assert!(matches!(said, Err(GuardError::Denied(_))), "{said:?}");
    guard.facts().await.unwrap_err();
    let told: Vec<_> = faults.log().into_iter().map(|call| (call.operation, call.subject)).collect();
    let expected = [
        ("renew", "k"),
        ("confirm", "k"),
        ("claim", "k"),
        ("read", "k"),
        ("probe", ""),
        ("control", "#control#q"),
        ("set_control", "#control#q"),
        ("facts", ""),
    ];
    assert_eq!(told, expected.map(|(operation, subject)| (operation, subject.to_owned())));
}
