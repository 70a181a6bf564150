//! What operators say about queues, which stands beside the records.

use super::*;

fn payments() -> ControlKey {
    ControlKey::new(Some("ns"), "payments")
}

fn pause(by: &str, why: Option<&str>) -> Control {
    let paused = Paused { at: after(1), by: by.to_owned(), why: why.map(str::to_owned) };
    Control { paused: Some(paused), resumed_at: Some(NOW) }
}

async fn said(fixture: &impl GuardFixture, key: &ControlKey) -> Control {
    answered(fixture.guard().control(key).await)
}

pub(crate) async fn of_a_queue_nobody_spoke_of_nothing_is_said(fixture: &impl GuardFixture) {
    assert_eq!(said(fixture, &payments()).await, Control::default());
}

pub(crate) async fn the_last_word_holds_whole(fixture: &impl GuardFixture) {
    let resumed = Control { paused: None, resumed_at: Some(after(9)) };
    let words = [pause("ann@laptop", Some("the bank is down")), pause("bob@ci", None), resumed, Control::default()];
    for word in words {
        for _ in 0..2 {
            answered(fixture.guard().set_control(&payments(), &word).await);
        }
        assert_eq!(said(fixture, &payments()).await, word);
    }
}

pub(crate) async fn queues_and_namespaces_do_not_meet(fixture: &impl GuardFixture) {
    let keys = [
        payments(),
        ControlKey::new(None, "payments"),
        ControlKey::new(None, "ns/payments"),
        ControlKey::new(None, "nspayments"),
        ControlKey::new(Some("ns"), "payments.fifo"),
        ControlKey::new(Some("ns/payments"), "payments"),
    ];
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(said(fixture, key).await, Control::default());
        answered(fixture.guard().set_control(key, &pause(&number.to_string(), None)).await);
    }
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(said(fixture, key).await, pause(&number.to_string(), None));
    }
}

pub(crate) async fn a_word_on_a_queue_is_no_record_and_leaves_records_alone(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let record = key.claimed_by("one").await;
    answered(fixture.guard().set_control(&payments(), &pause("ann", None)).await);
    assert_eq!(key.record().await, record);
    let read = fixture.guard().read(payments().pk()).await;
    assert!(matches!(read, Err(GuardError::Foreign(_))), "{read:?}");
}

pub(crate) async fn a_word_of_a_later_version_is_neither_read_nor_replaced(fixture: &impl GuardFixture) {
    answered(fixture.guard().set_control(&payments(), &pause("ann", None)).await);
    fixture.make_foreign(payments().pk()).await;
    for _ in 0..2 {
        let read = fixture.guard().control(&payments()).await;
        let told =
            |error: &GuardError| matches!(error, GuardError::Foreign(what) if what.contains("#control#ns/payments"));
        assert!(read.as_ref().is_err_and(told), "{read:?}");
        let written = fixture.guard().set_control(&payments(), &Control::default()).await;
        assert!(written.as_ref().is_err_and(told), "{written:?}");
    }
}

pub(crate) async fn a_text_that_is_too_long_is_refused_and_the_last_word_stands(fixture: &impl GuardFixture) {
    let most = "y".repeat(Control::LONGEST_TEXT);
    let fits = pause("ann", Some(&most));
    answered(fixture.guard().set_control(&payments(), &fits).await);
    let refused = fixture.guard().set_control(&payments(), &pause("ann", Some(&format!("{most}y")))).await;
    assert!(matches!(&refused, Err(GuardError::Refused(what)) if what.contains("why")), "{refused:?}");
    assert_eq!(said(fixture, &payments()).await, fits);
}
