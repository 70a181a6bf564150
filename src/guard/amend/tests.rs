use super::*;
use crate::{
    clock::Clock,
    guard::{Claim, Failure, Fence, TakeOver, TakeOverKind, Undoing},
};

const NOW: Millis = Millis(2_000_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

fn operator() -> Operator {
    Operator { owner: Owner(Clock::system().token()), now: NOW, name: "ann@laptop".into() }
}

fn step(state: StepState, generation: u32) -> Step {
    Step { state, generation, result: (state == StepState::Done).then(|| "1".into()), at: Millis(7) }
}

/// Of a worker that died a day ago.
fn seen(status: Status) -> Record {
    let began = Millis(NOW.0 - 86_400_000);
    let claim = Claim {
        pk: Pk("payments#p1".into()),
        owner: Owner("worker".into()),
        now: began,
        lease_until: began + Duration::from_secs(30),
        fingerprint: Some("f".into()),
        source: Source { queue: "payments".into(), worker: "w".into(), ..Source::default() },
    };
    let steps = [("charge", step(StepState::Done, 1)), ("mail", step(StepState::Started, 1))];
    Record {
        status,
        not_before: Some(NOW + DAY),
        failures: 3,
        takeovers: 2,
        last_error: Some(Failure::new("http_422", "no")),
        failure_id: Some("f1".into()),
        dead_at: Some(began),
        copied: true,
        undo: Some(Undoing::default()),
        steps: steps.map(|(name, step)| (name.to_owned(), step)).into(),
        expires_at: (NOW + DAY).seconds(),
        ..claim.record()
    }
}

fn said(seen: &Record, name: &str, word: &StepWord) -> Option<Record> {
    let amend = Amend::step(seen, name, word, &operator())?;
    amend.check().expect("may be written");
    assert_eq!((amend.seen.as_deref(), amend.record.status, amend.record.failures), (Some(seen), seen.status, 3));
    Some(amend.record)
}

fn done(result: &str) -> StepWord {
    StepWord::Done(result.to_owned())
}

/// The state, the generation and the result of a step.
fn stands(record: &Record, name: &str) -> Option<(StepState, u32, Option<String>)> {
    record.steps.get(name).map(|step| (step.state, step.generation, step.result.clone()))
}

#[test]
fn a_reset_forgets_what_was_tried_and_keeps_finished_steps() {
    for status in [Status::Running, Status::Released, Status::Failed, Status::Done, Status::Dead] {
        let (seen, by) = (seen(status), operator());
        let amend = Amend::reset(&seen, FinishedSteps::Keep, NotBefore::Clear, &by);
        amend.check().expect("may be written");
        let expected = Record {
            status: Status::Released,
            owner: by.owner,
            fence: Fence(NOW.0),
            lease_until: NOW,
            not_before: None,
            failures: 0,
            takeovers: 0,
            last_error: None,
            failure_id: None,
            dead_at: None,
            copied: false,
            undo: None,
            fingerprint: None,
            source: Source { worker: "ann@laptop".into(), ..seen.source.clone() },
            updated_at: NOW,
            expires_at: (NOW + UNFINISHED_TTL).seconds(),
            ..seen.clone()
        };
        assert_eq!(amend.record, expected, "{status:?}");
    }
}

#[test]
fn s1_a_reset_with_all_steps_begins_a_new_generation_and_leaves_doubt_in_doubt() {
    let record = Amend::reset(&seen(Status::Done), FinishedSteps::Repeat, NotBefore::Clear, &operator()).record;
    assert_eq!(stands(&record, "charge"), Some((StepState::Undone, 1, None)));
    assert_eq!(stands(&record, "mail"), Some((StepState::Started, 1, None)));
}

#[test]
fn s3_a_reset_of_what_was_undone_does_its_steps_again() {
    let mut seen = seen(Status::Dead);
    seen.undo = Some(Undoing { answer: Some(UndoAnswer::Undone), ..Undoing::default() });
    let record = Amend::reset(&seen, FinishedSteps::Keep, NotBefore::Clear, &operator()).record;
    assert_eq!((stands(&record, "charge"), record.undo), (Some((StepState::Undone, 1, None)), None));
}

#[test]
fn d2_a_reset_waits_for_what_may_still_run_unless_that_is_cleared() {
    for status in [Status::Running, Status::Released, Status::Failed, Status::Done, Status::Dead] {
        let seen = seen(status);
        let waits = matches!(status, Status::Released | Status::Failed).then_some(NOW + DAY);
        assert_eq!(seen.waits_until(NOW), waits, "{status:?}");
        assert_eq!(seen.waits_until(NOW + DAY), None, "it is over");
        for (not_before, kept) in [(NotBefore::Keep, waits), (NotBefore::Clear, None)] {
            let amend = Amend::reset(&seen, FinishedSteps::Repeat, not_before, &operator());
            assert_eq!(amend.record.not_before, kept, "{status:?} {not_before:?}");
        }
    }
    let record = said(&seen(Status::Released), "charge", &StepWord::Again).expect("a change");
    assert_eq!(record.not_before, Some(NOW + DAY), "nor does a word on a step start a run");
}

#[test]
fn s3_a_step_of_undone_work_that_is_done_by_somebodys_word_stays_done() {
    let mut seen = seen(Status::Dead);
    seen.undo = Some(Undoing { failures: 1, answer: Some(UndoAnswer::Undone), ..Undoing::default() });
    let record = said(&seen, "mail", &done("7")).expect("a change");
    assert_eq!(record.undo, Some(Undoing { failures: 1, ..Undoing::default() }));
    let stand = [stands(&record, "charge"), stands(&record, "mail")];
    let expected = [Some((StepState::Undone, 1, None)), Some((StepState::Done, 1, Some("7".into())))];
    assert_eq!(stand, expected);
    let again = said(&seen, "charge", &done("8")).expect("a change");
    assert_eq!(stands(&again, "charge"), Some((StepState::Done, 2, Some("8".into()))), "of the next generation");
    assert_eq!(said(&seen, "charge", &StepWord::Again), None, "it runs again anyway");

    let reset = Amend::reset(&record, FinishedSteps::Keep, NotBefore::Keep, &operator()).record;
    let claim = Claim {
        pk: seen.pk.clone(),
        owner: Owner("next".into()),
        now: NOW,
        lease_until: NOW + DAY,
        fingerprint: None,
        source: Source::default(),
    };
    let redrive = TakeOver { claim, seen: Box::new(record.clone()), kind: TakeOverKind::Anew };
    redrive.check().expect("a redrive");
    let mut redriven = record.clone();
    redrive.apply(&mut redriven);
    for after in [reset, redriven] {
        assert_eq!([stands(&after, "charge"), stands(&after, "mail")], expected);
    }
}

#[test]
fn g2_the_new_fence_is_past_the_old_one_also_of_a_clock_that_was_ahead() {
    let mut seen = seen(Status::Done);
    seen.fence = Fence(NOW.0 + 5);
    assert_eq!(Amend::reset(&seen, FinishedSteps::Keep, NotBefore::Clear, &operator()).record.fence, Fence(NOW.0 + 6));
}

#[test]
fn s2_a_step_in_doubt_is_done_or_runs_again_under_the_same_downstream_key() {
    let mut seen = seen(Status::Dead);
    let record = said(&seen, "mail", &done("{}")).expect("a change");
    assert_eq!(stands(&record, "mail"), Some((StepState::Done, 1, Some("{}".into()))));
    assert_eq!(stands(&said(&seen, "mail", &StepWord::Again).expect("a change"), "mail"), None);
    // After the undone generation 2 comes 3 again.
    seen.steps.insert("mail".into(), step(StepState::Started, 3));
    let record = said(&seen, "mail", &StepWord::Again).expect("a change");
    assert_eq!(stands(&record, "mail"), Some((StepState::Undone, 2, None)));
    assert_eq!(stands(&record, "charge"), stands(&seen, "charge"));
}

#[test]
fn s1_a_step_that_is_done_runs_again_in_a_new_generation() {
    let record = said(&seen(Status::Released), "charge", &StepWord::Again).expect("a change");
    assert_eq!(stands(&record, "charge"), Some((StepState::Undone, 1, None)));
}

#[test]
fn a_step_done_by_hand_is_the_one_that_a_run_would_have_done() {
    let mut seen = seen(Status::Released);
    let record = said(&seen, "refund", &done("null")).expect("a change");
    assert_eq!(stands(&record, "refund"), Some((StepState::Done, 1, Some("null".into()))));
    seen.steps.insert("refund".into(), step(StepState::Undone, 1));
    let record = said(&seen, "refund", &done("7")).expect("a change");
    assert_eq!(stands(&record, "refund"), Some((StepState::Done, 2, Some("7".into()))));
    // It was said wrong.
    seen.steps.insert("refund".into(), step(StepState::Done, 2));
    let record = said(&seen, "refund", &done("7")).expect("a change");
    assert_eq!(stands(&record, "refund"), Some((StepState::Done, 2, Some("7".into()))));
    // Its result was too large to be kept: here is one.
    seen.steps.insert("refund".into(), Step { result: None, ..step(StepState::Done, 4) });
    let record = said(&seen, "refund", &done("7")).expect("a change");
    assert_eq!(stands(&record, "refund"), Some((StepState::Done, 4, Some("7".into()))));
}

#[test]
fn a_word_that_a_run_would_not_notice_is_none() {
    let mut seen = seen(Status::Released);
    seen.steps.insert("undone".into(), step(StepState::Undone, 1));
    assert_eq!(said(&seen, "charge", &done("1")), None);
    assert_eq!(said(&seen, "undone", &StepWord::Again), None);
    assert_eq!(said(&seen, "absent", &StepWord::Again), None);
}

#[test]
fn g4_what_is_finished_is_remembered_no_longer_for_a_word_on_its_step() {
    for (status, expires_at) in [
        (Status::Done, NOW + DAY),
        (Status::Dead, NOW + DAY),
        (Status::Released, NOW + UNFINISHED_TTL),
        (Status::Running, NOW + UNFINISHED_TTL),
    ] {
        let record = said(&seen(status), "mail", &StepWord::Again).expect("a change");
        assert_eq!(record.expires_at, expires_at.seconds(), "{status:?}");
    }
}

#[test]
fn done_by_hand_is_done_and_no_longer_dead() {
    let (seen, expires_at) = (seen(Status::Dead), (NOW + DAY * 9).seconds());
    let amend = Amend::done(&seen.pk, Some(&seen), "other", expires_at, &operator());
    amend.check().expect("may be written");
    let record = amend.record;
    assert_eq!((record.status, record.expires_at, record.lease_until), (Status::Done, expires_at, NOW));
    assert_eq!((record.failure_id, record.dead_at, record.copied, record.not_before), (None, None, false, None));
    assert_eq!(
        (record.fingerprint, record.steps.len(), record.source.queue.as_str()),
        (seen.fingerprint, 2, "payments")
    );
}

#[test]
fn done_by_hand_needs_no_record_and_takes_nothing_from_one_that_has_expired() {
    let pk = Pk("payments#p1".into());
    let none = Amend::done(&pk, None, "payments", Seconds(9), &operator());
    none.check().expect("may be written");
    assert_eq!((none.record.status, none.record.created_at, none.seen), (Status::Done, NOW, None));
    let mut expired = seen(Status::Done);
    (expired.expires_at, expired.fence) = (NOW.seconds(), Fence(NOW.0 + 5));
    let amend = Amend::done(&pk, Some(&expired), "payments", Seconds(9), &operator());
    amend.check().expect("may be written");
    assert_eq!((amend.record.fence, amend.record.steps.len()), (Fence(NOW.0 + 6), 0));
    assert!(amend.applies_to(Some(&expired)));
}

#[test]
fn g2_nothing_is_written_over_an_owner_who_runs_it() {
    for status in [Status::Running, Status::Failed] {
        let mut seen = seen(status);
        seen.lease_until = NOW + Duration::from_millis(1);
        let amend = Amend::reset(&seen, FinishedSteps::Keep, NotBefore::Clear, &operator());
        assert!(matches!(amend.check(), Err(GuardError::Refused(_))), "{status:?}");
    }
    let mut seen = seen(Status::Released);
    seen.lease_until = NOW + DAY;
    Amend::reset(&seen, FinishedSteps::Keep, NotBefore::Clear, &operator()).check().expect("nobody runs it");
}

#[test]
fn g2_an_amendment_that_a_former_owner_could_follow_is_refused() {
    let good = Amend::reset(&seen(Status::Done), FinishedSteps::Keep, NotBefore::Clear, &operator());
    let mut same_owner = good.clone();
    same_owner.record.owner = Owner("worker".into());
    let mut same_fence = good.clone();
    same_fence.record.fence = seen(Status::Done).fence;
    let mut other_key = good;
    other_key.record.pk = Pk("payments#p2".into());
    for amend in [same_owner, same_fence, other_key] {
        assert!(matches!(amend.check(), Err(GuardError::Refused(_))), "{amend:?}");
    }
}

#[test]
fn g4_a_record_is_held_to_the_end_of_its_lease_and_the_skew() {
    let skew = Duration::from_secs(2);
    for (status, held) in [(Status::Running, true), (Status::Failed, true), (Status::Done, false)] {
        let record = seen(status);
        assert_eq!(record.held_until(skew), held.then(|| record.lease_until + skew));
    }
}
