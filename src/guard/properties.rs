//! What holds for every history of one record: drawn at random, with crashes, late duplicates and contenders in it.
//!
//! The histories are played on the guard in memory, which carries out the pure code to the letter, so what is proved
//! here is proved of `claim.rs` and `change.rs`.

use futures_util::FutureExt;
use proptest::{collection::vec, prelude::*, sample::select};

use super::{memory::MemoryGuard, *};
use crate::clock::{Millis, Seconds};

const START: u64 = 1_800_000_000_000;

fn pk() -> Pk {
    Pk("ns/op#k".into())
}

/// One thing that may happen to a record.
#[derive(Debug, Clone)]
enum Event {
    Claim(Claim),
    /// Of the record as it then is.
    TakeOver(Claim, TakeOverKind),
    Change(Change),
    /// A write that was sent before arrives once more.
    Late(usize),
}

/// A write as it was sent.
#[derive(Debug, Clone)]
enum Sent {
    Claim(Claim),
    TakeOver(TakeOver),
    Change(Change),
}

fn owner() -> impl Strategy<Value = Owner> + Clone {
    select(vec!["a", "b", "c"]).prop_map(|owner| Owner(owner.into()))
}

fn time() -> impl Strategy<Value = Millis> + Clone {
    (0..40_u64).prop_map(|seconds| Millis(START + seconds * 1000))
}

fn expiry() -> impl Strategy<Value = Seconds> + Clone {
    time().prop_map(Millis::seconds)
}

fn failure_id() -> impl Strategy<Value = String> + Clone {
    select(vec!["f1", "f2"]).prop_map(Into::into)
}

fn failure() -> impl Strategy<Value = Failure> + Clone {
    select(vec!["declined", "timeout"]).prop_map(|code| Failure::new(code, "why"))
}

fn undoing() -> impl Strategy<Value = Undoing> + Clone {
    let answer = select(vec![None, Some(UndoAnswer::Kept), Some(UndoAnswer::Undone)]);
    (0..3_u32, 0..3_u32, answer).prop_map(|(failures, takeovers, answer)| Undoing { failures, takeovers, answer })
}

fn step() -> impl Strategy<Value = Step> + Clone {
    (select(StepState::ALL.to_vec()), 1..3_u32, proptest::option::of("[0-9]"), time())
        .prop_map(|(state, generation, result, at)| Step { state, generation, result, at })
}

/// A claim's owner is a new token each time; the place in the history makes it so.
fn claim() -> impl Strategy<Value = Claim> + Clone {
    (time(), 1..20_u64, proptest::option::of(select(vec!["p1", "p2"]))).prop_map(|(now, seconds, fingerprint)| Claim {
        pk: pk(),
        owner: Owner(String::new()),
        now,
        lease_until: now + Duration::from_secs(seconds),
        fingerprint: fingerprint.map(Into::into),
        source: Source::default(),
    })
}

fn kind() -> impl Strategy<Value = TakeOverKind> + Clone {
    prop_oneof![
        Just(TakeOverKind::Resume),
        Just(TakeOverKind::AfterLapse),
        time().prop_map(|not_before| TakeOverKind::Park { not_before }),
        Just(TakeOverKind::Anew),
        Just(TakeOverKind::Fresh),
    ]
}

fn change(owner: impl Strategy<Value = Owner> + Clone + 'static) -> impl Strategy<Value = Change> {
    let by = (owner, time());
    let released = (by.clone(), proptest::option::of(time()), 0..4_u32, proptest::option::of(failure()));
    let failed = (by.clone(), 0..4_u32, failure(), failure_id());
    prop_oneof![
        3 => (by.clone(), time()).prop_map(|((owner, now), lease_until)| Change::Renew { owner, now, lease_until }),
        5 => (by.clone(), select(vec!["x", "y"]), step()).prop_map(|((owner, now), name, step)| Change::Step {
            owner,
            now,
            name: name.into(),
            step
        }),
        1 => (by, expiry()).prop_map(|((owner, now), expires_at)| Change::Confirm { owner, now, expires_at }),
        2 => (released, proptest::option::of(undoing())).prop_map(
            |(((owner, now), not_before, failures, error), undo)| {
                Change::Release { owner, now, not_before, failures, error, undo }
            }
        ),
        2 => failed.clone().prop_map(|((owner, now), failures, error, failure_id)| Change::Fail {
            owner,
            now,
            failures,
            error,
            failure_id
        }),
        1 => (failed, proptest::option::of(undoing()), expiry()).prop_map(
            |(((owner, now), failures, error, failure_id), undo, expires_at)| {
                Change::Bury { owner, now, failures, error, failure_id, undo, expires_at }
            }
        ),
        1 => (failure_id(), time()).prop_map(|(failure_id, now)| Change::Copied { failure_id, now }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => claim().prop_map(Event::Claim),
        3 => (claim(), kind()).prop_map(|(claim, kind)| Event::TakeOver(claim, kind)),
        // By the owner of one of the first claims, so that owners write, and former owners do.
        6 => change((0..6_usize).prop_map(|n| Owner(n.to_string()))).prop_map(Event::Change),
        2 => any::<usize>().prop_map(Event::Late),
    ]
}

/// Turns events into the writes that are sent, and plays them. Owners are numbered in the order of their claims.
struct History {
    guard: MemoryGuard,
    sent: Vec<Sent>,
    owners: usize,
}

impl History {
    fn send(&mut self, event: Event) -> Option<Sent> {
        let sent = match event {
            Event::Claim(claim) => Sent::Claim(self.with_new_owner(claim)),
            Event::TakeOver(claim, kind) => {
                let seen = Box::new(self.guard.record(&pk())?);
                Sent::TakeOver(TakeOver { claim: self.with_new_owner(claim), seen, kind })
            }
            Event::Change(change) => Sent::Change(change),
            Event::Late(which) => self.sent.get(which.checked_rem(self.sent.len())?)?.clone(),
        };
        self.sent.push(sent.clone());
        Some(sent)
    }

    fn with_new_owner(&mut self, claim: Claim) -> Claim {
        self.owners += 1;
        Claim { owner: Owner((self.owners - 1).to_string()), ..claim }
    }

    /// Whether the write was answered as a success.
    fn play(&self, sent: &Sent) -> bool {
        let answered = |claimed| matches!(claimed, Some(Ok(Claimed::Mine(_))));
        match sent {
            Sent::Claim(claim) => answered(self.guard.claim(claim).now_or_never()),
            Sent::TakeOver(take_over) => answered(self.guard.take_over(take_over).now_or_never()),
            Sent::Change(change) => {
                matches!(self.guard.write(&pk(), change).now_or_never(), Some(Ok(Written::Applied)))
            }
        }
    }
}

/// What must hold of one record before and after one write.
fn check(before: &Record, after: &Record, sent: &Sent) -> Result<(), TestCaseError> {
    let new_owner = before.owner != after.owner;
    prop_assert!(!new_owner || after.fence > before.fence, "a claim without a higher fence");
    prop_assert!(new_owner || after.fence == before.fence, "a fence that changed without a claim");
    if let Sent::Change(change) = sent {
        prop_assert!(!new_owner, "a change of owner without a claim");
        prop_assert!(change.owner().is_none_or(|owner| *owner == before.owner), "a former owner's write");
        if !matches!(change, Change::Release { .. }) {
            prop_assert!(after.lease_until >= before.lease_until, "a lease that was shortened");
        }
    }
    let replaced = match sent {
        Sent::Claim(claim) => before.is_expired(claim.now),
        Sent::TakeOver(take_over) => take_over.kind == TakeOverKind::Fresh && before.is_expired(take_over.claim.now),
        Sent::Change(_) => false,
    };
    if replaced {
        return Ok(());
    }
    let anew = matches!(sent, Sent::TakeOver(TakeOver { kind: TakeOverKind::Anew, .. }));
    match before.status {
        Status::Done => prop_assert_eq!(after, before, "done was undone"),
        Status::Dead => prop_assert!(anew || after.status == Status::Dead, "dead was undone"),
        Status::Failed => prop_assert!(matches!(after.status, Status::Failed | Status::Dead), "a verdict was undone"),
        Status::Running | Status::Released => {}
    }
    for (name, step) in &before.steps {
        let now = after.steps.get(name);
        prop_assert!(now.is_some_and(|now| now.follows(step)), "a step went back: {step:?} to {now:?}");
    }
    Ok(())
}

/// Enough for the rare histories. A fault that is found becomes a named test instead of a file of seeds.
fn many() -> ProptestConfig {
    ProptestConfig { cases: 2_000, failure_persistence: None, max_global_rejects: 100_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn g2_g4_s1_no_history_lets_a_former_owner_write_or_undoes_what_is_finished(events in vec(event(), 1..40)) {
        let mut history = History { guard: MemoryGuard::default(), sent: Vec::new(), owners: 0 };
        for event in events {
            let Some(sent) = history.send(event) else { continue };
            let before = history.guard.record(&pk());
            let success = history.play(&sent);
            let after = history.guard.record(&pk());
            match (&before, &after) {
                (Some(before), Some(after)) if before != after => check(before, after, &sent)?,
                _ => {}
            }
            prop_assert!(success || before == after, "a write that was refused changed the record");
            if success {
                // G3: the same write again, because its reply was lost, is a success and changes nothing.
                prop_assert!(history.play(&sent), "sent again, refused");
                prop_assert_eq!(history.guard.record(&pk()), after);
            }
        }
    }

    #[test]
    fn g3_every_change_that_was_made_is_recognised_and_made_only_once(
        change in change(owner()), claim in claim(), owner in owner(), failed in any::<bool>(), undo in undoing(),
    ) {
        let mut record = Claim { owner, ..claim }.record();
        if failed {
            record.status = Status::Failed;
            record.failure_id = Some("f1".into());
            record.undo = Some(undo);
        }
        if matches!(change, Change::Copied { .. }) {
            record.status = Status::Dead;
        }
        prop_assume!(change.applies_to(&record));
        change.apply(&mut record);
        prop_assert!(change.is_made_in(&record));
        let once = record.clone();
        change.apply(&mut record);
        prop_assert_eq!(once, record);
    }

    #[test]
    fn g6_g11_a_takeover_keeps_what_its_kind_says(claim in claim(), kind in kind(), steps in vec(step(), 0..3)) {
        let mut seen = Claim { owner: Owner("former".into()), ..claim.clone() }.record();
        seen.steps = steps.into_iter().enumerate().map(|(i, step)| (format!("s{i}"), step)).collect();
        (seen.failures, seen.takeovers, seen.fingerprint) = (2, 1, Some("old".into()));
        let mut record = seen.clone();
        let take_over = TakeOver { claim: claim.clone(), seen: Box::new(seen.clone()), kind };
        prop_assume!(take_over.check().is_ok());
        take_over.apply(&mut record);
        prop_assert!(!take_over.applies_to(&record), "a takeover that could be made twice");
        prop_assert_eq!(&record.steps, &seen.steps);
        let counts = (record.failures, record.takeovers);
        match kind {
            TakeOverKind::Resume => prop_assert_eq!(counts, (2, 1)),
            TakeOverKind::AfterLapse | TakeOverKind::Park { .. } => prop_assert_eq!(counts, (2, 2)),
            TakeOverKind::Anew | TakeOverKind::Fresh => prop_assert_eq!(counts, (0, 0)),
        }
        let fingerprint = if kind == TakeOverKind::Anew { claim.fingerprint } else { seen.fingerprint };
        prop_assert_eq!(record.fingerprint, fingerprint);
    }
}

fn dead(undo: Option<UndoAnswer>) -> Record {
    let claim = Claim {
        pk: pk(),
        owner: Owner("former".into()),
        now: Millis(START),
        lease_until: Millis(START + 1),
        fingerprint: None,
        source: Source::default(),
    };
    let mut record = claim.record();
    record.status = Status::Dead;
    record.undo = undo.map(|answer| Undoing { answer: Some(answer), ..Undoing::default() });
    for (name, state) in [("charge", StepState::Done), ("mail", StepState::Started)] {
        let step = Step { state, generation: 1, result: Some("7".into()), at: Millis(START) };
        record.steps.insert(name.into(), step);
    }
    record
}

fn anew(seen: &Record) -> Record {
    let claim = Claim { owner: Owner("next".into()), ..claim_of(seen) };
    let take_over = TakeOver { claim, seen: Box::new(seen.clone()), kind: TakeOverKind::Anew };
    let mut record = seen.clone();
    take_over.apply(&mut record);
    record
}

fn claim_of(record: &Record) -> Claim {
    Claim {
        pk: record.pk.clone(),
        owner: record.owner.clone(),
        now: Millis(START + 5_000),
        lease_until: Millis(START + 9_000),
        fingerprint: None,
        source: Source::default(),
    }
}

#[test]
fn s3_work_that_was_undone_begins_anew_with_its_steps_undone_and_doubt_left_in_doubt() {
    let states = |record: &Record| record.steps.values().map(|step| step.state).collect::<Vec<_>>();
    assert_eq!(states(&anew(&dead(Some(UndoAnswer::Undone)))), [StepState::Undone, StepState::Started]);
    for kept in [None, Some(UndoAnswer::Kept)] {
        assert_eq!(states(&anew(&dead(kept))), [StepState::Done, StepState::Started]);
    }
}

#[test]
fn g2_no_takeover_of_what_is_finished_but_the_ones_that_begin_anew() {
    let allowed = |status, kind, expired: bool| {
        let mut seen = Record { status, ..dead(None) };
        seen.expires_at = if expired { Seconds(1) } else { Seconds(u64::MAX / 1000) };
        TakeOver { claim: claim_of(&seen), seen: Box::new(seen), kind }.check().is_ok()
    };
    for kind in [TakeOverKind::Resume, TakeOverKind::AfterLapse, TakeOverKind::Park { not_before: Millis(0) }] {
        assert!(!allowed(Status::Done, kind, true) && !allowed(Status::Dead, kind, true));
        assert!(allowed(Status::Failed, kind, false) && allowed(Status::Running, kind, false));
    }
    assert!(!allowed(Status::Failed, TakeOverKind::Anew, false) && !allowed(Status::Done, TakeOverKind::Anew, true));
    assert!(allowed(Status::Dead, TakeOverKind::Anew, false));
    assert!(allowed(Status::Done, TakeOverKind::Fresh, true) && !allowed(Status::Done, TakeOverKind::Fresh, false));
    assert!(!allowed(Status::Running, TakeOverKind::Fresh, true));
}

#[test]
fn a_failure_keeps_only_the_beginning_of_a_long_text_and_never_half_a_character() {
    let failure = Failure::new("x".repeat(500), "ß".repeat(500));
    assert!(failure.code.len() < 70 && failure.text.len() < 260);
    assert!(failure.text.ends_with("ß…"));
}
