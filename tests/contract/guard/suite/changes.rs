//! An owner's writes (rules G2, G3, L5, S3, T3).

use super::*;

pub(crate) async fn g2_each_change_makes_what_the_rules_say(fixture: &impl GuardFixture) {
    let key = Key::named(fixture, "done");
    key.claimed_by("one").await;
    key.make(renew("one", 90)).await;
    key.make(step("one", "charge", Step { state: StepState::Started, result: None, ..done("") })).await;
    key.make(step("one", "charge", done("1"))).await;
    let record = key.make(confirm("one")).await;
    assert_eq!((record.status, record.expires_at), (Status::Done, after(100).seconds()));

    let key = Key::named(fixture, "released");
    key.claimed_by("one").await;
    let record = key.make(release("one", Some(after(50)), Some(declined()))).await;
    assert_eq!((record.status, record.failures, record.not_before), (Status::Released, 1, Some(after(50))));
    key.take("two", TakeOverKind::Resume).await;
    // Given back at once, for no fault of its own: the reason of the latest failure stays.
    let record = key.make(release("two", None, None)).await;
    assert_eq!((record.not_before, record.last_error), (None, Some(declined())));

    let key = Key::named(fixture, "dead");
    key.claimed_by("one").await;
    key.make(fail("one")).await;
    key.make(renew("one", 90)).await;
    key.make(step("one", "refund", done("1"))).await;
    let record = key.make(bury("one", Some(UndoAnswer::Undone))).await;
    assert_eq!((record.status, record.copied, record.dead_at), (Status::Dead, false, Some(after(7))));
    assert_eq!(record.undo.and_then(|undo| undo.answer), Some(UndoAnswer::Undone));
    assert!(key.make(copied("failure-1")).await.copied);

    let key = Key::named(fixture, "dead at once");
    key.claimed_by("one").await;
    key.make(bury("one", None)).await;
}

pub(crate) async fn g2_a_former_owner_changes_nothing(fixture: &impl GuardFixture) {
    for (status, kind) in [
        (Status::Running, TakeOverKind::AfterLapse),
        (Status::Running, TakeOverKind::Park { not_before: after(70) }),
        (Status::Released, TakeOverKind::Resume),
        (Status::Failed, TakeOverKind::AfterLapse),
        (Status::Dead, TakeOverKind::Anew),
    ] {
        let key = Key::named(fixture, &format!("{status:?} {kind:?}"));
        bring_to(&key, "former", status).await;
        key.take("next", kind).await;
        for change in every_change_by("former") {
            key.refuse(change).await;
        }
    }
}

pub(crate) async fn g2_done_is_never_undone(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    bring_to(&key, "one", Status::Done).await;
    for change in every_change_by("one").into_iter().filter(|change| *change != confirm("one")) {
        key.refuse(change).await;
    }
    key.refuse(copied("failure-1")).await;
}

pub(crate) async fn g2_dead_is_never_undone(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    bring_to(&key, "one", Status::Dead).await;
    let made_before = [bury("one", None), fail("one")];
    for change in every_change_by("one").into_iter().filter(|change| !made_before.contains(change)) {
        key.refuse(change).await;
    }
    let other_failure = Change::Bury {
        owner: Owner("one".into()),
        now: after(9),
        failures: 9,
        error: declined(),
        failure_id: "failure-2".into(),
        undo: None,
        expires_at: after(900).seconds(),
    };
    key.refuse(other_failure).await;
}

pub(crate) async fn g2_what_is_being_undone_is_never_done_nor_released(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    bring_to(&key, "one", Status::Failed).await;
    key.refuse(confirm("one")).await;
    key.refuse(release("one", None, None)).await;
}

pub(crate) async fn g2_a_change_makes_no_record_where_there_is_none(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    for change in every_change_by("one").into_iter().chain([copied("failure-1")]) {
        assert_eq!(key.write(&change).await, Written::Refused(None), "{change:?}");
        assert_eq!(key.read().await, None, "{change:?}");
    }
}

pub(crate) async fn g3_every_change_sent_twice_is_made_once(fixture: &impl GuardFixture) {
    let undoing = Undoing { failures: 1, takeovers: 2, answer: None };
    for (name, changes) in [
        ("confirmed", vec![renew("one", 90), step("one", "charge", done("1")), confirm("one")]),
        ("released", vec![release("one", Some(after(50)), Some(declined()))]),
        ("undone", vec![fail("one"), step("one", "refund", done("1")), give_undo_back("one", undoing)]),
        ("dead", vec![fail("one"), bury("one", Some(UndoAnswer::Kept)), copied("failure-1")]),
    ] {
        let key = Key::named(fixture, name);
        key.claimed_by("one").await;
        for change in changes {
            let made = key.make(change.clone()).await;
            assert_eq!(key.write(&change).await, Written::Applied, "{change:?}");
            assert_eq!(key.record().await, made, "{change:?}");
        }
    }
}

pub(crate) async fn g3_done_by_our_own_owner_is_shown_to_whoever_wanted_something_else(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let record = bring_to(&key, "one", Status::Done).await;
    let written = key.write(&release("one", None, None)).await;
    assert_eq!(written, Written::Refused(Some(Box::new(record.clone()))));
    assert_eq!((record.status, record.owner.0.as_str()), (Status::Done, "one"));
}

pub(crate) async fn l5_a_late_renewal_never_shortens_the_lease(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    key.claimed_by("one").await;
    let record = key.make(renew("one", 90)).await;
    // It was stuck on its way, and arrives after a later one: what it wanted holds, and it changes nothing.
    assert_eq!(key.write(&renew("one", 60)).await, Written::Applied);
    assert_eq!(key.record().await, record);
    assert_eq!(record.lease_until, after(90));
}

pub(crate) async fn s3_failed_stays_failed_when_it_is_given_back(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let failed = bring_to(&key, "one", Status::Failed).await;
    let undoing = Undoing { failures: 1, takeovers: 0, answer: None };
    let record = key.make(give_undo_back("one", undoing.clone())).await;
    assert_eq!((record.status, record.undo, record.failures), (Status::Failed, Some(undoing), failed.failures));
    assert_eq!((record.lease_until, record.not_before), (after(6), Some(after(20))));
    assert_eq!(record.last_error, failed.last_error);
    let at_once = Change::Release {
        owner: Owner("one".into()),
        now: after(9),
        not_before: None,
        failures: 3,
        error: Some(declined()),
        undo: Some(Undoing { failures: 2, takeovers: 0, answer: None }),
    };
    assert_eq!(key.make(at_once).await.not_before, None);
    let taken = key.take("two", TakeOverKind::Resume).await;
    assert_eq!((taken.status, taken.lease_until), (Status::Failed, after(60) + LEASE));
    // Undo is never given back of what still runs.
    let key = Key::named(fixture, "running");
    bring_to(&key, "one", Status::Running).await;
    key.refuse(give_undo_back("one", Undoing::default())).await;
}

pub(crate) async fn t3_only_the_same_failure_is_marked_as_copied(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    bring_to(&key, "one", Status::Failed).await;
    key.refuse(copied("failure-1")).await;
    key.make(bury("one", None)).await;
    key.refuse(copied("failure-2")).await;
    assert!(key.make(copied("failure-1")).await.copied);
    let taken = key.take("two", TakeOverKind::Anew).await;
    assert!(!taken.copied);
    key.refuse(copied("failure-1")).await;
}
