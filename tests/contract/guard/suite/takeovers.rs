//! Takeovers (rules G1, G2, G3, G4, G6, G11, S3).

use futures_util::future::join_all;

use super::*;

fn take_over(claim: Claim, seen: &Record, kind: TakeOverKind) -> TakeOver {
    TakeOver { claim, seen: Box::new(seen.clone()), kind }
}

pub(crate) async fn g1_a_takeover_takes_the_record_that_was_seen(fixture: &impl GuardFixture) {
    for (status, kind) in [
        (Status::Running, TakeOverKind::AfterLapse),
        (Status::Running, TakeOverKind::Anew),
        (Status::Released, TakeOverKind::Resume),
        (Status::Released, TakeOverKind::Anew),
        (Status::Failed, TakeOverKind::Resume),
        (Status::Failed, TakeOverKind::AfterLapse),
        (Status::Failed, TakeOverKind::Park { not_before: after(70) }),
        (Status::Dead, TakeOverKind::Anew),
    ] {
        let key = Key::named(fixture, &format!("{status:?} {kind:?}"));
        let seen = bring_to(&key, "former", status).await;
        let taken = key.take("next", kind).await;
        assert_eq!((taken.owner.0.as_str(), taken.steps), ("next", seen.steps));
        assert!(taken.fence > seen.fence);
    }
}

pub(crate) async fn g1_of_sixteen_takeovers_at_once_one_wins(fixture: &impl GuardFixture) {
    for round in 0..5 {
        let key = Key::named(fixture, &format!("round {round}"));
        let seen = key.claimed_by("former").await;
        let contender = |n| take_over(key.claim_at(&format!("owner {n}"), 60), &seen, TakeOverKind::AfterLapse);
        let contenders: Vec<_> = (0..16).map(contender).collect();
        let claimed = join_all(contenders.iter().map(|one| key.guard.take_over(one))).await;
        let won = claimed.into_iter().filter(|claimed| matches!(claimed, Ok(Claimed::Mine(_)))).count();
        assert_eq!((won, key.record().await.takeovers), (1, 1));
    }
}

pub(crate) async fn g1_a_takeover_makes_no_record_where_there_is_none(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let seen = key.claim_at("former", 0).record();
    let take_over = take_over(key.claim_at("next", 60), &seen, TakeOverKind::AfterLapse);
    assert_eq!(key.take_over(&take_over).await, Claimed::Refused(None));
    assert_eq!(key.read().await, None);
}

pub(crate) async fn g2_no_takeover_of_what_is_finished(fixture: &impl GuardFixture) {
    let park = TakeOverKind::Park { not_before: after(70) };
    for (status, kinds) in [
        (Status::Done, vec![TakeOverKind::Resume, TakeOverKind::AfterLapse, park, TakeOverKind::Anew]),
        (Status::Dead, vec![TakeOverKind::Resume, TakeOverKind::AfterLapse, park]),
        (Status::Failed, vec![TakeOverKind::Anew]),
        (Status::Running, vec![TakeOverKind::Fresh]),
    ] {
        let key = Key::named(fixture, status.as_str());
        let seen = bring_to(&key, "one", status).await;
        for kind in kinds.into_iter().chain([TakeOverKind::Fresh]) {
            let take_over = take_over(key.claim_at("two", 60), &seen, kind);
            assert!(
                matches!(key.guard.take_over(&take_over).await, Err(GuardError::Refused(_))),
                "{status:?} {kind:?}"
            );
            assert_eq!(key.record().await, seen);
        }
    }
}

pub(crate) async fn g3_a_takeover_sent_twice_is_ours(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let seen = key.claimed_by("former").await;
    let take_over = take_over(key.claim_at("next", 60), &seen, TakeOverKind::AfterLapse);
    let taken = mine(key.take_over(&take_over).await);
    assert_eq!(mine(key.take_over(&take_over).await), taken);
    assert_eq!(key.record().await.takeovers, 1);
}

pub(crate) async fn g4_a_renewal_in_between_refuses_and_shows_the_new_lease(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let seen = key.claimed_by("former").await;
    let renewed = key.make(renew("former", 90)).await;
    let take_over = take_over(key.claim_at("next", 60), &seen, TakeOverKind::AfterLapse);
    let found = shown(key.take_over(&take_over).await);
    assert_eq!((found.lease_until, &found), (after(90), &renewed));
    assert_eq!(key.record().await, renewed);
}

pub(crate) async fn g4_a_record_that_is_another_by_now_refuses(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let record = key.claimed_by("former").await;
    for seen in [
        Record { owner: Owner("another".into()), ..record.clone() },
        Record { fence: leasehold::guard::Fence(record.fence.0 - 1), ..record.clone() },
        Record { status: Status::Released, ..record.clone() },
        Record { lease_until: after(29), ..record.clone() },
    ] {
        let take_over = take_over(key.claim_at("next", 60), &seen, TakeOverKind::AfterLapse);
        assert_eq!(shown(key.take_over(&take_over).await), record, "{seen:?}");
    }
}

pub(crate) async fn g4_a_step_recorded_in_between_comes_along(fixture: &impl GuardFixture) {
    let park = TakeOverKind::Park { not_before: after(70) };
    for kind in [TakeOverKind::AfterLapse, TakeOverKind::Anew, park] {
        let key = Key::named(fixture, &format!("{kind:?}"));
        let seen = key.claimed_by("former").await;
        key.make(step("former", "charge", done("1"))).await;
        let taken = key.take_seen(&seen, kind, key.claim_at("next", 60)).await;
        assert_eq!(taken.steps.get("charge"), Some(&done("1")));
    }
}

pub(crate) async fn g6_a_parked_record_is_released_and_counted(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let seen = bring_to(&key, "former", Status::Running).await;
    let parked = key.take("next", TakeOverKind::Park { not_before: after(70) }).await;
    assert_eq!((parked.status, parked.takeovers, parked.failures), (Status::Released, 1, seen.failures));
    assert_eq!((parked.not_before, parked.lease_until), (Some(after(70)), after(60)));
    let resumed = key.take("third", TakeOverKind::Resume).await;
    assert_eq!((resumed.status, resumed.takeovers, resumed.not_before), (Status::Running, 1, None));
}

pub(crate) async fn g6_a_takeover_of_what_is_being_undone_counts_apart(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    bring_to(&key, "former", Status::Failed).await;
    let taken = key.take("next", TakeOverKind::AfterLapse).await;
    assert_eq!((taken.status, taken.takeovers), (Status::Failed, 0));
    assert_eq!(taken.undo, Some(Undoing { failures: 0, takeovers: 1, answer: None }));
}

pub(crate) async fn g11_anew_begins_at_zero_and_keeps_the_steps(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    bring_to(&key, "former", Status::Failed).await;
    key.make(bury("former", Some(UndoAnswer::Kept))).await;
    let seen = key.make(copied("failure-1")).await;
    let taken = key.take("next", TakeOverKind::Anew).await;
    assert_eq!((taken.failures, taken.takeovers, taken.undo, taken.copied), (0, 0, None, false));
    assert_eq!((taken.last_error, taken.failure_id, taken.dead_at), (None, None, None));
    assert_eq!(taken.fingerprint.as_deref(), Some("fingerprint of next"));
    assert_eq!((taken.steps, taken.created_at), (seen.steps, seen.created_at));
}

pub(crate) async fn s3_work_that_is_half_undone_goes_on_being_undone_when_it_begins_anew(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    bring_to(&key, "former", Status::Failed).await;
    let Change::Bury { owner, now, failures, error, failure_id, expires_at, .. } = bury("former", None) else { return };
    let undo = Some(Undoing { failures: 3, takeovers: 1, answer: None });
    let seen = key.make(Change::Bury { owner, now, failures, error, failure_id, undo, expires_at }).await;
    let taken = key.take("next", TakeOverKind::Anew).await;
    assert_eq!((taken.status, taken.undo, taken.failure_id, taken.copied), (Status::Failed, None, None, false));
    assert_eq!((taken.failures, taken.last_error, taken.steps), (seen.failures, seen.last_error, seen.steps));
}

pub(crate) async fn g11_fresh_keeps_nothing(fixture: &impl GuardFixture) {
    for status in [Status::Done, Status::Dead] {
        let key = Key::named(fixture, status.as_str());
        let seen = bring_to(&key, "former", status).await;
        let claim = key.claim_at("next", 101);
        let taken = key.take_seen(&seen, TakeOverKind::Fresh, claim.clone()).await;
        assert_eq!(taken, Record { fence: taken.fence, ..claim.record() });
    }
}

pub(crate) async fn s3_work_that_was_undone_begins_a_new_generation_of_steps(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    bring_to(&key, "former", Status::Running).await;
    key.make(step("former", "in doubt", Step { state: StepState::Started, result: None, ..done("") })).await;
    key.make(fail("former")).await;
    key.make(bury("former", Some(UndoAnswer::Undone))).await;
    let taken = key.take("next", TakeOverKind::Anew).await;
    let states: Vec<_> = taken.steps.values().map(|step| step.state).collect();
    assert_eq!(states, [StepState::Undone, StepState::Started]);
    key.refuse(step("next", "charge", done("2"))).await;
    key.make(step("next", "charge", Step { generation: 2, ..done("2") })).await;
}
