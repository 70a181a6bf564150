//! Taking messages: as many as there are slots for, and no more (rules R1 to R4).

use std::time::Duration;

use leasehold::{
    Shutdown,
    guard::Status,
    testing::{Failure, Fault, TestBed},
};
use tokio::{runtime::Handle, time::sleep};

use crate::bench::{Book, worker};

fn bed() -> (TestBed, Book) {
    (TestBed::new(&["jobs"]), Book::new())
}

fn after(secs: u64) -> Shutdown {
    Shutdown::when(sleep(Duration::from_secs(secs)))
}

fn send(bed: &TestBed, count: usize, millis: u64) {
    for id in 0..count {
        bed.send("jobs", format!(r#"{{"id":"{id}","millis":{millis}}}"#));
    }
}

#[tokio::test(start_paused = true)]
async fn r1_no_more_is_received_than_there_are_slots_for() {
    let (bed, book) = bed();
    send(&bed, 40, 1_000_000);
    let look = {
        let queue = bed.queue("jobs");
        async move {
            sleep(Duration::from_secs(100)).await;
            queue.in_flight()
        }
    };
    let vars = [("LEASEHOLD_CONCURRENCY", "7"), ("LEASEHOLD_HANDLER_TIMEOUT", "1h")];
    let (_, in_flight) = tokio::join!(worker(&bed, &book, &vars).run(after(110)), look);
    assert_eq!(in_flight, 7);
}

#[tokio::test(start_paused = true)]
async fn r1_one_slow_handler_does_not_stop_polling_while_slots_are_free() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"slow","millis":200000}"#);
    send(&bed, 50, 100);
    let look = {
        let book = book.clone();
        async move {
            sleep(Duration::from_secs(60)).await;
            book.completed().len()
        }
    };
    let vars = [("LEASEHOLD_CONCURRENCY", "2")];
    let (_, completed) = tokio::join!(worker(&bed, &book, &vars).run(bed.until_idle()), look);
    assert_eq!(completed, 50);
}

#[tokio::test(start_paused = true)]
async fn r1_at_saturation_messages_are_not_asked_for_one_at_a_time() {
    let (bed, book) = bed();
    send(&bed, 400, 250);
    worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "10")]).run(bed.until_idle()).await.unwrap();
    let receives = bed.queue("jobs").calls()["receive"];
    assert!(receives.calls <= 400 / 5 + 10, "{receives:?}");
}

#[tokio::test(start_paused = true)]
async fn r1_pollers_take_turns_so_that_slots_which_come_free_one_by_one_make_full_receives() {
    let (bed, book) = bed();
    // Handlers that take from 10 ms to 1 s, so that about eighty slots come free in a second, one at a time.
    for id in 0..800 {
        bed.send("jobs", format!(r#"{{"id":"{id}","millis":{}}}"#, 10 + id * 7919 % 991));
    }
    worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "40")]).run(bed.until_idle()).await.unwrap();
    let receives = bed.queue("jobs").calls()["receive"].calls;
    assert!(receives <= 110, "{receives} receives brought 800 messages");
}

#[tokio::test(start_paused = true)]
async fn full_batches_cost_two_writes_and_a_tenth_of_a_receive_for_each_message() {
    let (bed, book) = bed();
    send(&bed, 1000, 0);
    worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "20")]).run(bed.until_idle()).await.unwrap();
    let receives = bed.queue("jobs").calls()["receive"];
    assert!(receives.calls <= 105, "{receives:?}");
    let writes: u64 = bed
        .guard
        .calls()
        .iter()
        .filter(|(what, _)| !matches!(**what, "facts" | "control"))
        .map(|(_, calls)| calls)
        .sum();
    assert_eq!(writes, 2000);
    assert!(!bed.queue("jobs").calls().contains_key("change_visibility"));
}

#[tokio::test(start_paused = true)]
async fn r2_a_delivery_whose_lease_is_over_on_arrival_is_not_run() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    bed.queue_faults("jobs").next("receive", Fault::DelayReply(Duration::from_secs(40)));
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.left, report.done), (1, 1));
    assert_eq!(book.runs("a").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r4_failed_polls_back_off_never_end_the_worker_and_heal() {
    let failures = [Failure::Denied, Failure::Missing, Failure::Unavailable, Failure::Throttled, Failure::NoAnswer];
    for failure in failures {
        let (bed, book) = bed();
        bed.send("jobs", r#"{"id":"a"}"#);
        let faults = bed.queue_faults("jobs");
        faults.always("receive", Fault::Fail(failure));
        let worker = worker(&bed, &book, &[]);
        let health = worker.health();
        let healing = {
            let faults = faults.clone();
            async move {
                sleep(Duration::from_secs(3600)).await;
                let sick = health.status();
                faults.clear();
                let polls = faults.calls()["receive"];
                sleep(Duration::from_secs(21)).await;
                (polls, sick, health.status())
            }
        };
        let (report, (polls, sick, healed)) = tokio::join!(worker.run(after(3630)), healing);
        assert_eq!(report.unwrap().done, 1, "{failure:?}");
        assert!(sick.is_live() && !sick.is_ready() && healed.is_ready(), "{failure:?}: {sick:?} {healed:?}");
        assert!((200..=2000).contains(&polls), "{failure:?}: {polls} polls in an hour");
    }
}

#[tokio::test(start_paused = true)]
async fn r4_a_poll_that_never_answers_does_not_stop_the_others() {
    let (bed, book) = bed();
    bed.queue_faults("jobs").next("receive", Fault::Hang);
    send(&bed, 30, 0);
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 30);
    let began: Vec<_> = (0..30).map(|id| book.began(&id.to_string())[0]).collect();
    // A second after its wait time; the adapter gives it up four seconds later.
    assert!(began.iter().all(|at| *at == 11), "another poll takes the place of the one that hangs: {began:?}");
}

#[tokio::test(start_paused = true)]
async fn l4_one_message_whose_calls_all_fail_harms_no_other() {
    let (bed, book) = bed();
    send(&bed, 10, 40_000);
    bed.guard_faults.decide_with(|call| {
        (call.subject == "jobs#3" && call.operation == "renew").then_some(Fault::Fail(Failure::Unavailable))
    });
    worker(&bed, &book, &[]).run(after(45)).await.unwrap();
    let done = bed.guard.records().into_iter().filter(|record| record.status == Status::Done).count();
    assert_eq!(done, 9);
}

#[tokio::test(start_paused = true)]
async fn r4_polls_without_a_wait_time_do_not_spin_on_an_empty_queue() {
    for short in [("LEASEHOLD_WAIT_TIME", "0s"), ("LEASEHOLD_VISIBILITY_TIMEOUT", "1s")] {
        let (bed, book) = bed();
        let faults = bed.queue_faults("jobs");
        // A poll that spins would keep paused time from moving.
        faults.decide_with(|call| (call.number > 1000).then_some(Fault::Hang));
        worker(&bed, &book, &[short, ("LEASEHOLD_CANCEL_GRACE", "200ms")]).run(after(60)).await.unwrap();
        let polls = faults.calls()["receive"];
        assert!(polls <= 130, "{short:?}: {polls} polls in a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn r1_a_slow_delete_keeps_no_slot_from_the_next_handler() {
    let (bed, book) = bed();
    send(&bed, 5, 100);
    bed.queue_faults("jobs").always("delete", Fault::DelayReply(Duration::from_secs(4)));
    let report = worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "1")]).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 5);
    assert!((0..5).all(|id| book.began(&id.to_string()) == [0]), "all within a second");
}

#[tokio::test(start_paused = true)]
async fn r4_thousands_of_failed_polls_leave_no_task_behind() {
    let (bed, book) = bed();
    let faults = bed.queue_faults("jobs");
    faults.decide_with(|call| {
        let failure = if call.number % 2 == 0 { Failure::NoAnswer } else { Failure::Unavailable };
        (call.operation == "receive").then_some(Fault::Fail(failure))
    });
    let alive_after = async |polls| {
        while faults.calls().get("receive").is_none_or(|calls| *calls < polls) {
            sleep(Duration::from_secs(60)).await;
        }
        Handle::current().metrics().num_alive_tasks()
    };
    let looks = async { (alive_after(100).await, alive_after(3_000).await) };
    let shutdown = Shutdown::new();
    let worker = worker(&bed, &book, &[]).run(shutdown.clone());
    let (_, (first, last)) = tokio::join!(worker, async {
        let seen = looks.await;
        shutdown.drain();
        seen
    });
    assert!(last <= first + 1, "{first} tasks after a hundred polls, {last} after three thousand");
}
