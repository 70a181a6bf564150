//! What operators write (rules G2, G3, S1, S2).

use leasehold::guard::{Amend, FinishedSteps, LARGEST_RECORD, NotBefore, Operator, StepWord};

use super::*;

/// An operator at work a minute later, when every lease has ended.
fn operator(name: &str) -> Operator {
    Operator { owner: Owner(format!("token of {name}")), now: after(60), name: name.into() }
}

fn reset(seen: &Record, name: &str) -> Amend {
    Amend::reset(seen, FinishedSteps::Keep, NotBefore::Keep, &operator(name))
}

async fn amend(key: &Key<'_>, amend: &Amend) -> Written {
    answered(key.guard.amend(amend).await)
}

/// Amends a step, which must change something.
async fn made_of_step(key: &Key<'_>, seen: &Record, name: &str, word: &StepWord, by: &Operator) -> Record {
    let Some(wanted) = Amend::step(seen, name, word, by) else { panic!("{word:?} changes nothing of {name}") };
    made(key, wanted).await
}

/// Amends the record, which must work, and make just that record.
async fn made(key: &Key<'_>, wanted: Amend) -> Record {
    assert_eq!(amend(key, &wanted).await, Written::Applied, "{wanted:?}");
    let record = key.record().await;
    assert_eq!(record, wanted.record);
    record
}

/// Amends a record that is another by now.
async fn refused(key: &Key<'_>, wanted: &Amend) {
    let now = key.read().await;
    assert_eq!(amend(key, wanted).await, Written::Refused(now.clone().map(Box::new)), "{wanted:?}");
    assert_eq!(key.read().await, now, "{wanted:?}");
}

pub(crate) async fn a_record_in_any_state_is_replaced_whole(fixture: &impl GuardFixture) {
    for status in EVERY_STATUS {
        let key = Key::named(fixture, &format!("{status:?}"));
        let seen = bring_to(&key, "one", status).await;
        made(&key, reset(&seen, "ann")).await;
    }
    // With all that a record may say.
    let key = Key::named(fixture, "full");
    bring_to(&key, "one", Status::Failed).await;
    key.make(give_undo_back("one", Undoing { failures: 1, takeovers: 2, answer: None })).await;
    key.make(bury("one", Some(UndoAnswer::Undone))).await;
    let seen = key.make(copied("failure-1")).await;
    let record = made(&key, Amend::reset(&seen, FinishedSteps::Repeat, NotBefore::Keep, &operator("ann"))).await;
    assert_eq!(record.steps["charge"].state, StepState::Undone);
}

pub(crate) async fn a_record_is_made_where_there_is_none_and_only_there(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let first = Amend::done(&key.pk, None, "payments", after(900).seconds(), &operator("ann"));
    let second = Amend::done(&key.pk, None, "payments", after(900).seconds(), &operator("bob"));
    made(&key, first).await;
    refused(&key, &second).await;
}

pub(crate) async fn g2_nothing_is_written_over_a_record_that_is_another_by_now(fixture: &impl GuardFixture) {
    let key = Key::named(fixture, "renewed");
    let seen = bring_to(&key, "one", Status::Running).await;
    key.make(renew("one", 90)).await;
    refused(&key, &reset(&seen, "ann")).await;

    // A step of the same moment as the last write.
    let key = Key::named(fixture, "grown");
    let seen = bring_to(&key, "one", Status::Running).await;
    key.make(step("one", "mail", done("1"))).await;
    refused(&key, &reset(&seen, "ann")).await;

    // A step that went on in that moment.
    let key = Key::named(fixture, "in another state");
    bring_to(&key, "one", Status::Running).await;
    let seen = key.make(step("one", "mail", Step { state: StepState::Started, result: None, ..done("") })).await;
    key.make(step("one", "mail", done("1"))).await;
    refused(&key, &reset(&seen, "ann")).await;

    let key = Key::named(fixture, "copied");
    let seen = bring_to(&key, "one", Status::Dead).await;
    key.make(copied("failure-1")).await;
    refused(&key, &reset(&seen, "ann")).await;

    let key = Key::named(fixture, "taken over");
    let seen = bring_to(&key, "one", Status::Running).await;
    key.take("two", TakeOverKind::AfterLapse).await;
    refused(&key, &reset(&seen, "ann")).await;

    let key = Key::named(fixture, "amended");
    let seen = bring_to(&key, "one", Status::Done).await;
    made(&key, reset(&seen, "ann")).await;
    refused(&key, &reset(&seen, "bob")).await;

    let key = Key::named(fixture, "there is none");
    refused(
        &key,
        &Amend {
            record: Record { pk: key.pk.clone(), ..reset(&seen, "ann").record },
            seen: Some(Box::new(Record { pk: key.pk.clone(), ..seen })),
        },
    )
    .await;
}

pub(crate) async fn g2_a_former_owner_changes_nothing_of_an_amended_record(fixture: &impl GuardFixture) {
    for status in EVERY_STATUS {
        let key = Key::named(fixture, &format!("{status:?}"));
        let seen = bring_to(&key, "former", status).await;
        made(&key, reset(&seen, "ann")).await;
        for change in every_change_by("former").into_iter().chain([copied("failure-1")]) {
            key.refuse(change).await;
        }
        // Only a step is amended: the status is still one that an owner could go on from.
        let key = Key::named(fixture, &format!("a step, {status:?}"));
        let seen = bring_to(&key, "former", status).await;
        made_of_step(&key, &seen, "mail", &StepWord::Done("1".into()), &operator("ann")).await;
        for change in every_change_by("former") {
            key.refuse(change).await;
        }
    }
}

pub(crate) async fn g2_what_may_not_be_written_is_not(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let seen = bring_to(&key, "one", Status::Running).await;
    let early = Operator { now: after(29), ..operator("ann") };
    let answer = key.guard.amend(&Amend::reset(&seen, FinishedSteps::Keep, NotBefore::Keep, &early)).await;
    assert!(matches!(answer, Err(GuardError::Refused(_))), "{answer:?}");
    assert_eq!(key.record().await, seen);
}

pub(crate) async fn g3_an_amendment_sent_twice_is_made_once(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let seen = bring_to(&key, "one", Status::Dead).await;
    let wanted = reset(&seen, "ann");
    let record = made(&key, wanted.clone()).await;
    assert_eq!(amend(&key, &wanted).await, Written::Applied);
    assert_eq!(key.record().await, record);
    // Its reply was lost, and somebody has claimed the key since: what was made is no more.
    key.take_seen(&record, TakeOverKind::Resume, key.claim_at("two", 70)).await;
    refused(&key, &wanted).await;
}

pub(crate) async fn s2_steps_are_amended_one_by_one(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    key.claimed_by("one").await;
    key.make(step("one", "in doubt", Step { state: StepState::Started, result: None, ..done("") })).await;
    let seen = key.make(step("one", "charge", done("1"))).await;
    let word = StepWord::Done("\"by hand\"".into());
    let seen = made_of_step(&key, &seen, "in doubt", &word, &operator("ann")).await;
    let next = Operator { now: after(61), ..operator("bob") };
    let record = made_of_step(&key, &seen, "charge", &StepWord::Again, &next).await;
    let states: Vec<_> = record.steps.values().map(|step| step.state).collect();
    assert_eq!(states, [StepState::Undone, StepState::Done]);
}

pub(crate) async fn s1_a_record_with_many_steps_is_amended_too(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let first = Amend::done(&key.pk, None, "payments", after(900).seconds(), &operator("ann"));
    let mut record = first.record.clone();
    record.steps = (0..1000).map(|n| (format!("a step with a # and a name, {n}"), done(r#"{"id":1}"#))).collect();
    let seen = made(&key, Amend { record, ..first }).await;
    let bob = Operator { now: after(61), ..operator("bob") };
    let seen = made_of_step(&key, &seen, "a step with a # and a name, 7", &StepWord::Again, &bob).await;
    let cat = Operator { now: after(62), ..operator("cat") };
    let record = made(&key, Amend::reset(&seen, FinishedSteps::Repeat, NotBefore::Keep, &cat)).await;
    assert!(record.steps.len() == 1000 && record.steps.values().all(|step| step.state == StepState::Undone));
    refused(
        &key,
        &Amend::reset(
            &seen,
            FinishedSteps::Keep,
            NotBefore::Keep,
            &Operator { owner: Owner("token of dan".into()), ..cat },
        ),
    )
    .await;
}

pub(crate) async fn s1_what_would_be_too_large_is_not_written(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let seen = bring_to(&key, "one", Status::Dead).await;
    for (bytes, fits) in [(LARGEST_RECORD, false), (LARGEST_RECORD - 4000, true)] {
        let word = StepWord::Done(format!("\"{}\"", "x".repeat(bytes)));
        let Some(wanted) = Amend::step(&seen, "mail", &word, &operator("ann")) else { panic!("it changes nothing") };
        let answer = key.guard.amend(&wanted).await;
        assert_eq!(matches!(answer, Ok(Written::Applied)), fits, "{answer:?}");
        assert_eq!(matches!(answer, Err(GuardError::TooLarge)), !fits, "{answer:?}");
        assert_eq!(key.record().await == seen, !fits);
    }
}

pub(crate) async fn g9_after_a_reset_the_key_stands_for_the_next_payload(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let seen = bring_to(&key, "one", Status::Done).await;
    let record = made(&key, reset(&seen, "ann")).await;
    assert_eq!(record.fingerprint, None);
    let taken = key.take_seen(&record, TakeOverKind::Resume, key.claim_at("two", 70)).await;
    assert_eq!(taken.fingerprint.as_deref(), Some("fingerprint of two"));
}

pub(crate) async fn g1_a_record_of_a_later_version_is_not_amended(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let seen = bring_to(&key, "one", Status::Done).await;
    fixture.make_foreign(&key.pk).await;
    let none = Amend::done(&key.pk, None, "payments", after(900).seconds(), &operator("ann"));
    for wanted in [reset(&seen, "ann"), none] {
        let answer = key.guard.amend(&wanted).await;
        assert!(matches!(&answer, Err(GuardError::Foreign(what)) if what.contains(&key.pk.0)), "{answer:?}");
    }
}
