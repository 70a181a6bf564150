//! What is recorded of steps (rule S1).

use futures_util::future::join_all;
use leasehold::guard::LARGEST_RECORD;

use super::*;

fn of(generation: u32, state: StepState) -> Step {
    Step { state, generation, ..done("1") }
}

pub(crate) async fn s1_steps_do_not_overwrite_one_another(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    key.claimed_by("one").await;
    let changes: Vec<_> = (0..8).map(|n| step("one", &format!("step {n}"), done(&n.to_string()))).collect();
    let written = join_all(changes.iter().map(|change| key.guard.write(&key.pk, change))).await;
    assert!(written.into_iter().all(|written| answered(written) == Written::Applied));
    let steps = key.record().await.steps;
    assert_eq!(steps, (0..8).map(|n| (format!("step {n}"), done(&n.to_string()))).collect());
}

pub(crate) async fn s1_a_late_step_never_goes_back(fixture: &impl GuardFixture) {
    use StepState::{Done, Started, Undone};
    let key = Key::of(fixture);
    key.claimed_by("one").await;
    let mut latest = None;
    for now in [of(1, Started), of(1, Done), of(1, Undone), of(2, Started), of(2, Done), of(3, Undone)] {
        for generation in 1..=3 {
            for state in [Started, Done, Undone] {
                if latest.as_ref().is_some_and(|(g, s)| (generation, state) < (*g, *s)) {
                    key.refuse(step("one", "charge", of(generation, state))).await;
                }
            }
        }
        latest = Some((now.generation, now.state));
        key.make(step("one", "charge", now)).await;
    }
}

pub(crate) async fn s1_steps_and_keys_may_have_any_name(fixture: &impl GuardFixture) {
    let names = ["a.b", "#name", ":value", "two words", "naïve ✓ 支払い", "steps", "[0]", "\"quoted\" \\", "\n", "0"];
    for pk in ["ns/op#a.b", "ns/op#%23#x", "ns/op#支払い ✓", &format!("ns/op#{}", "k".repeat(2000))] {
        let key = Key::named(fixture, pk);
        key.claimed_by("one").await;
        for name in names {
            key.make(step("one", name, done(name))).await;
        }
        let taken = key.take("two", TakeOverKind::AfterLapse).await;
        assert_eq!(taken.steps.len(), names.len());
        assert!(names.into_iter().all(|name| taken.steps.get(name) == Some(&done(name))));
    }
}

pub(crate) async fn s1_a_step_without_a_name_is_refused(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let record = key.claimed_by("one").await;
    let written = key.guard.write(&key.pk, &step("one", "", done("1"))).await;
    assert!(matches!(written, Err(GuardError::Refused(_))), "{written:?}");
    assert_eq!(key.record().await, record);
}

pub(crate) async fn s1_a_record_may_fill_its_400_kb_and_no_more(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    key.claimed_by("one").await;
    let record = key.make(step("one", "first", done("1"))).await;
    let name = "the rest";
    let room = LARGEST_RECORD - record.size() - name.len() - Step { result: None, ..done("") }.size();
    let record = key.make(step("one", name, done(&"x".repeat(room)))).await;
    // The estimate errs on the large side, and here by less than this.
    let too_much = step("one", "one more", done(&"y".repeat(2000)));
    assert!(matches!(key.guard.write(&key.pk, &too_much).await, Err(GuardError::TooLarge)));
    assert_eq!(key.record().await, record);
    // What is full can still be finished, and for whatever reason.
    key.make(renew("one", 90)).await;
    let (error, failure_id) = (Failure::new("c".repeat(100), "t".repeat(1000)), "f".repeat(64));
    let (owner, now) = (Owner("one".into()), after(5));
    key.make(Change::Fail { owner, now, failures: 3, error: error.clone(), failure_id: failure_id.clone() }).await;
    key.make(give_undo_back("one", Undoing { failures: 1, takeovers: 1, answer: None })).await;
    let taken = key.take("two", TakeOverKind::Resume).await;
    let undo = Some(Undoing { failures: 2, takeovers: 1, answer: Some(UndoAnswer::Undone) });
    let (owner, now, expires_at) = (taken.owner, after(70), after(100).seconds());
    key.make(Change::Bury { owner, now, failures: 3, error, failure_id, undo, expires_at }).await;
}
