use proptest::prelude::*;

use super::*;
use crate::{
    clock::{Seconds, backoff},
    guard::{Claim, Owner, Pk, Source, Undoing},
    message::Note,
};

const NOW: Millis = Millis(1_800_000_000_000);
const SKEW: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(30);

fn before(time: Duration) -> Millis {
    Millis(NOW.0 - u64::try_from(time.as_millis()).expect("little"))
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A record that was claimed and last written a minute ago, and is not looked at for its fingerprint.
fn record(status: Status) -> Record {
    let claim = Claim {
        pk: Pk("q#k".into()),
        owner: Owner("them".into()),
        now: before(secs(60)),
        lease_until: before(secs(30)),
        fingerprint: Some("same".into()),
        source: Source::default(),
    };
    Record { status, ..claim.record() }
}

/// A message that was sent this long before now.
fn sent(ago: Duration) -> Message {
    Message { sent_at: Some(before(ago)), ..Message::default() }
}

fn view<'a>(message: &'a Message, fingerprint: &'a str) -> View<'a> {
    View {
        message,
        fingerprint: Some(fingerprint),
        now: NOW,
        skew: SKEW,
        max_takeovers: 3,
        unchanged_for: Duration::ZERO,
        lease: LEASE,
        park: secs(7),
    }
}

fn look(record: &Record, message: &Message, fingerprint: &str) -> Found {
    found(record, &view(message, fingerprint))
}

fn old(record: &Record) -> Found {
    look(record, &sent(secs(600)), "same")
}

#[test]
fn g4_a_running_claim_is_held_to_the_end_of_its_lease_and_the_skew() {
    let mut running = record(Status::Running);
    for (ends, held) in [(NOW + secs(9), true), (before(secs(1)), true), (before(SKEW), false)] {
        running.lease_until = ends;
        let found = old(&running);
        let expected = if held {
            Found::Held { until: ends + SKEW, why: Held::Running }
        } else {
            Found::TakeOver(TakeOverKind::AfterLapse)
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn g4_a_lease_that_no_clock_within_the_skew_can_have_written_is_taken_over_once_it_stays_for_a_whole_lease() {
    let farthest = NOW + LONGEST_VISIBILITY + SKEW * 2;
    let absurd = farthest + Duration::from_millis(1);
    let instant = Duration::from_millis(1);
    let seen = |lease_until, unchanged_for| {
        let running = Record { lease_until, ..record(Status::Running) };
        found(&running, &View { unchanged_for, ..view(&sent(secs(600)), "same") })
    };
    let held = |until| Found::Held { until, why: Held::Running };
    assert_eq!(seen(farthest, LEASE * 2), held(farthest + SKEW), "it can be one of ours");
    assert_eq!(seen(absurd, LEASE - instant), held(NOW + LEASE));
    for unchanged_for in [LEASE, LEASE + instant] {
        assert_eq!(seen(absurd, unchanged_for), Found::TakeOver(TakeOverKind::AfterLapse));
    }
}

#[test]
fn g6_the_first_takeover_runs_the_next_are_parked_and_past_the_limit_it_is_claimed_to_be_buried() {
    let mut running = record(Status::Running);
    let kinds = [0, 1, 2, 3, 4].map(|takeovers| {
        running.takeovers = takeovers;
        old(&running)
    });
    let parked = Found::TakeOver(TakeOverKind::Park { not_before: NOW + secs(7) });
    let lapsed = Found::TakeOver(TakeOverKind::AfterLapse);
    assert_eq!(kinds, [lapsed, parked, parked, lapsed, lapsed]);
    running.takeovers = 4;
    assert!(spent(&running, 5, 3).is_some_and(|failure| failure.code == "takeovers"));
}

#[test]
fn g6_work_is_spent_at_its_last_failure_and_past_its_last_takeover() {
    let spent = |failures, takeovers| {
        let claimed = Record { failures, takeovers, ..record(Status::Running) };
        spent(&claimed, 5, 3).map(|failure| failure.code)
    };
    assert_eq!([spent(0, 0), spent(4, 3)], [None, None]);
    assert_eq!(spent(5, 0).as_deref(), Some("error"));
    assert_eq!(spent(6, 0).as_deref(), Some("error"));
    assert_eq!(spent(0, 4).as_deref(), Some("takeovers"));
}

#[test]
fn t2_nobody_claims_a_released_record_before_its_time_however_new_the_message() {
    let mut released = record(Status::Released);
    released.not_before = Some(NOW + secs(1));
    for message in [sent(secs(600)), sent(Duration::ZERO)] {
        let held = Found::Held { until: NOW + secs(1), why: Held::BackingOff };
        assert_eq!(look(&released, &message, "same"), held);
    }
    released.not_before = Some(NOW);
    assert_eq!(old(&released), Found::TakeOver(TakeOverKind::Resume));
}

#[test]
fn g11_what_was_sent_after_the_last_write_and_the_skew_begins_anew_whatever_its_payload() {
    for status in [Status::Released, Status::Running] {
        let record = record(status);
        assert_eq!(look(&record, &sent(secs(57)), "other"), Found::TakeOver(TakeOverKind::Anew), "{status:?}");
        for ago in [58, 59] {
            assert_eq!(look(&record, &sent(secs(ago)), "other"), Found::OtherPayload, "{status:?}: within the skew");
        }
    }
    let mut running = record(Status::Running);
    running.lease_until = NOW + secs(5);
    assert_eq!(look(&running, &sent(secs(1)), "other"), Found::OtherPayload, "it has not lapsed");
}

#[test]
fn g11_dead_work_begins_anew_by_its_failure_id_or_when_sent_after_it_died() {
    let mut dead = record(Status::Dead);
    dead.failure_id = Some("f1".into());
    dead.dead_at = Some(before(secs(20)));
    dead.expires_at = (NOW + secs(1000)).seconds();
    let redriven = |id: &str| {
        let note = Note { failure_id: id.into(), ..Note::default() };
        Message { dead_letter: Some(note), ..sent(secs(600)) }
    };
    assert_eq!(look(&dead, &redriven("f1"), "other"), Found::TakeOver(TakeOverKind::Anew));
    assert_eq!(look(&dead, &redriven("f0"), "same"), Found::Dead);
    assert_eq!(look(&dead, &sent(secs(17)), "other"), Found::TakeOver(TakeOverKind::Anew));
    assert_eq!(look(&dead, &sent(secs(18)), "same"), Found::Dead, "within the skew, to its end");
    assert_eq!(look(&dead, &sent(secs(19)), "same"), Found::Dead, "within the skew");
    assert_eq!(look(&dead, &sent(secs(19)), "other"), Found::OtherPayload);
}

#[test]
fn g9_the_payload_is_compared_on_every_status_unless_one_side_has_no_fingerprint() {
    for status in [Status::Running, Status::Released, Status::Failed, Status::Done, Status::Dead] {
        let mut record = record(status);
        record.expires_at = (NOW + secs(1000)).seconds();
        record.dead_at = Some(NOW);
        assert_eq!(look(&record, &sent(secs(600)), "other"), Found::OtherPayload, "{status:?}");
        record.fingerprint = None;
        assert_ne!(look(&record, &sent(secs(600)), "other"), Found::OtherPayload, "{status:?}");
    }
}

#[test]
fn g4_expired_is_absent_whether_swept_or_not() {
    for status in [Status::Done, Status::Dead] {
        let mut record = record(status);
        record.expires_at = Seconds(NOW.0 / 1000);
        assert_eq!(look(&record, &sent(secs(600)), "other"), Found::TakeOver(TakeOverKind::Fresh));
    }
}

#[test]
fn s3_failed_work_that_was_given_back_goes_on_and_counts_no_takeover() {
    let mut failed = record(Status::Failed);
    failed.not_before = Some(before(secs(1)));
    assert_eq!(old(&failed), Found::TakeOver(TakeOverKind::Resume));
    failed.not_before = None;
    assert_eq!(old(&failed), Found::TakeOver(TakeOverKind::AfterLapse));
}

#[test]
fn s3_a_lapsed_undo_has_takeovers_of_its_own() {
    let undo = Undoing { takeovers: 1, ..Undoing::default() };
    let failed = Record { takeovers: 3, undo: Some(undo), ..record(Status::Failed) };
    assert_eq!(old(&failed), Found::TakeOver(TakeOverKind::Park { not_before: NOW + secs(7) }));
    let failed = Record { takeovers: 1, undo: None, ..failed };
    assert_eq!(old(&failed), Found::TakeOver(TakeOverKind::AfterLapse));
}

#[test]
fn t6_on_its_last_receive_or_its_last_attempt_a_failure_is_final() {
    let limits = |attempt, is_last| Limits { attempt, max_attempts: 3, is_last, own_absence: false };
    let failed = || Ended::Returned(Err(HandlerError::new("no")));
    assert!(matches!(next(failed(), limits(2, false)), Next::Retry { .. }));
    assert!(matches!(next(failed(), limits(3, false)), Next::Bury(_)));
    assert!(matches!(next(failed(), limits(1, true)), Next::Bury(_)));
    let running = || Ended::TimedOut { still_running: true };
    assert!(
        matches!(next(running(), limits(3, true)), Next::StillRunning(Some(_))),
        "what may still run is no copy yet"
    );
}

#[test]
fn g6_not_yet_and_a_handler_that_is_not_there_use_no_attempt_not_even_the_last() {
    let last = Limits { attempt: 3, max_attempts: 3, is_last: true, own_absence: false };
    let next = |error| next(Ended::Returned(Err(error)), last);
    assert!(matches!(next(HandlerError::new("later").not_yet(LEASE)), Next::NotYet(LEASE)));
    assert!(matches!(next(HandlerError::new("away").unavailable()), Next::Unavailable(None)));
}

#[test]
fn g6_an_absence_that_is_the_keys_own_is_its_failure_and_told_as_one() {
    let limits = |attempt| Limits { attempt, max_attempts: 3, is_last: false, own_absence: true };
    let away = |limits| next(Ended::Returned(Err(HandlerError::new("away").unavailable().reason("refused"))), limits);
    let Next::Retry { failure, delay: None } = away(limits(2)) else { panic!("{:?}", away(limits(2))) };
    assert_eq!((&*failure.code, &*failure.text), ("unavailable", "away"));
    assert!(matches!(away(limits(3)), Next::Bury(failure) if failure.code == "unavailable"));
}

#[test]
fn d2_what_may_still_run_is_never_a_copy_and_counts_unless_it_was_told_to_stop() {
    let limits = |attempt, is_last| Limits { attempt, max_attempts: 3, is_last, own_absence: false };
    for limits in [limits(1, false), limits(3, false), limits(1, true)] {
        let next = |ended| match next(ended, limits) {
            Next::StillRunning(failure) => failure.map(|failure| failure.code),
            other => panic!("{other:?}"),
        };
        assert_eq!(next(Ended::Unanswered(Failure::new("no_reply", ""))).as_deref(), Some("no_reply"));
        assert_eq!(next(Ended::TimedOut { still_running: true }).as_deref(), Some("timed_out"));
        assert_eq!(next(Ended::Interrupted { still_running: true }), None);
    }
}

proptest! {
    #[test]
    fn t2_a_back_off_grows_stays_under_its_cap_and_keeps_its_lower_half(
        base in 1_u64..100_000, cap in 1_u64..50_000_000, n in 0_u32..200, part in 0.0_f64..=1.0,
    ) {
        let (base, cap) = (Duration::from_millis(base), Duration::from_millis(cap));
        let draw = |most: Duration| most.mul_f64(part);
        let wait = backoff(base, cap, n, draw);
        prop_assert!(wait <= cap);
        prop_assert!(wait >= base.min(cap) / 2);
        prop_assert!(backoff(base, cap, n + 1, draw) >= wait);
    }

    #[test]
    fn g1_done_is_done_for_everyone_while_its_record_lasts(ago in 0_u64..10_000_000, redriven: bool) {
        let mut done = record(Status::Done);
        done.expires_at = (NOW + secs(1000)).seconds();
        let dead_letter = redriven.then(Note::default);
        let message = Message { dead_letter, ..sent(Duration::from_millis(ago)) };
        prop_assert_eq!(look(&done, &message, "same"), Found::Done);
    }
}
