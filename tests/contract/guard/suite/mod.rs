//! What every guard must do, behaviour by behaviour.
//!
//! `guard_contract!(name, fixture)` makes one test of each behaviour for one adapter. A module that uses it has this
//! one beside it under the name `suite`; it is a `mod.rs` so that other test binaries can take it by its path.
//!
//! Each write is compared with the pure code: [`Key::make`] and [`Key::take`] read the record before and after.

use std::time::Duration;

use async_trait::async_trait;
use leasehold::{
    clock::{Millis, Seconds},
    guard::{
        Change, Claim, Claimed, Control, ControlKey, Failure, Guard, GuardError, Item, Owner, Paused, Pk, Record,
        Source, Status, Step, StepState, TakeOver, TakeOverKind, UndoAnswer, Undoing, Written,
    },
};

pub(crate) mod amendments;
pub(crate) mod changes;
pub(crate) mod claims;
pub(crate) mod commits;
pub(crate) mod controls;
pub(crate) mod records;
pub(crate) mod steps;
pub(crate) mod takeovers;

/// One adapter, ready to be used.
#[async_trait]
pub(crate) trait GuardFixture: Sync {
    /// The guard.
    fn guard(&self) -> &dyn Guard;

    /// Makes the record of this key one of a later version, and changes nothing else of it.
    async fn make_foreign(&self, pk: &Pk);

    /// Makes an empty table for a handler's items, with the text `id` as its key, and names it.
    async fn business_table(&self) -> String;

    /// Puts an item into such a table; its attributes are texts.
    async fn put_item(&self, table: &str, item: Item);

    /// The item of this id, whose attributes are texts.
    async fn item(&self, table: &str, id: &str) -> Option<Item>;
}

macro_rules! guard_contract {
    ($adapter:ident, $fixture:expr) => {
        guard_contract!(@tests $adapter, $fixture,
            claims {
                g1_a_claim_of_an_absent_key_makes_a_new_record,
                g1_a_held_record_refuses_and_comes_back_with_the_refusal,
                g1_a_record_refuses_in_every_state_while_it_lasts,
                g1_an_expired_done_or_dead_record_is_replaced_whole,
                g1_an_expired_record_with_a_higher_fence_refuses,
                g1_of_two_claims_at_once_one_wins,
                g1_of_sixteen_claims_at_once_one_wins,
                g3_a_claim_sent_twice_is_ours_and_as_it_now_is,
                g4_a_record_expires_at_its_second_and_not_before,
                g4_only_done_and_dead_records_expire,
            }
            changes {
                g2_each_change_makes_what_the_rules_say,
                g2_a_former_owner_changes_nothing,
                g2_done_is_never_undone,
                g2_dead_is_never_undone,
                g2_what_is_being_undone_is_never_done_nor_released,
                g2_a_change_makes_no_record_where_there_is_none,
                g3_every_change_sent_twice_is_made_once,
                g3_done_by_our_own_owner_is_shown_to_whoever_wanted_something_else,
                l5_a_late_renewal_never_shortens_the_lease,
                s3_failed_stays_failed_when_it_is_given_back,
                t3_only_the_same_failure_is_marked_as_copied,
            }
            commits {
                g12_the_record_is_done_and_everything_is_written,
                g12_without_writes_it_is_a_confirm,
                g12_a_former_owner_writes_nothing,
                g12_only_what_runs_is_committed,
                g12_a_condition_that_fails_leaves_everything_as_it_is,
                g12_of_a_lost_claim_and_a_condition_the_claim_is_told,
                g12_what_no_store_takes_writes_nothing,
                g12_a_record_that_is_full_is_committed,
                g3_a_commit_sent_twice_is_made_once,
                g2_what_is_committed_is_never_undone,
            }
            takeovers {
                g1_a_takeover_takes_the_record_that_was_seen,
                g1_of_sixteen_takeovers_at_once_one_wins,
                g1_a_takeover_makes_no_record_where_there_is_none,
                g2_no_takeover_of_what_is_finished,
                g3_a_takeover_sent_twice_is_ours,
                g4_a_renewal_in_between_refuses_and_shows_the_new_lease,
                g4_a_record_that_is_another_by_now_refuses,
                g4_a_step_recorded_in_between_comes_along,
                g6_a_parked_record_is_released_and_counted,
                g6_a_takeover_of_what_is_being_undone_counts_apart,
                g11_anew_begins_at_zero_and_keeps_the_steps,
            s3_work_that_is_half_undone_goes_on_being_undone_when_it_begins_anew,
                g11_fresh_keeps_nothing,
                s3_work_that_was_undone_begins_a_new_generation_of_steps,
            }
            steps {
                s1_steps_do_not_overwrite_one_another,
                s1_a_late_step_never_goes_back,
                s1_steps_and_keys_may_have_any_name,
                s1_a_step_without_a_name_is_refused,
                s1_a_record_may_fill_its_400_kb_and_no_more,
            }
            records {
                every_attribute_comes_back_as_it_was,
                an_absent_record_reads_as_none,
                g1_a_record_of_a_later_version_is_no_verdict,
                g8_a_probe_can_be_repeated_and_leaves_other_keys_alone,
                r5_the_facts_are_those_of_the_table,
            }
            amendments {
                a_record_in_any_state_is_replaced_whole,
                a_record_is_made_where_there_is_none_and_only_there,
                g2_nothing_is_written_over_a_record_that_is_another_by_now,
                g2_a_former_owner_changes_nothing_of_an_amended_record,
                g2_what_may_not_be_written_is_not,
                g3_an_amendment_sent_twice_is_made_once,
                s2_steps_are_amended_one_by_one,
                s1_a_record_with_many_steps_is_amended_too,
                s1_what_would_be_too_large_is_not_written,
                g9_after_a_reset_the_key_stands_for_the_next_payload,
                g1_a_record_of_a_later_version_is_not_amended,
            }
            controls {
                of_a_queue_nobody_spoke_of_nothing_is_said,
                the_last_word_holds_whole,
                queues_and_namespaces_do_not_meet,
                a_word_on_a_queue_is_no_record_and_leaves_records_alone,
                a_word_of_a_later_version_is_neither_read_nor_replaced,
                a_text_that_is_too_long_is_refused_and_the_last_word_stands,
            }
        );
    };
    (@tests $adapter:ident, $fixture:expr, $($room:ident { $($behaviour:ident,)* })*) => {
        mod $adapter {
            use super::suite;
            $($(
                #[tokio::test]
                async fn $behaviour() {
                    let fixture = $fixture;
                    suite::$room::$behaviour(&fixture).await;
                }
            )*)*
        }
    };
}

/// The moment at which the tests play. It lies in the future, so that no backend sweeps what counts as expired here.
const NOW: Millis = Millis(4_000_000_000_000);

const LEASE: Duration = Duration::from_secs(30);

fn after(seconds: u64) -> Millis {
    NOW + Duration::from_secs(seconds)
}

/// One key of a guard, which nobody else uses.
struct Key<'a> {
    guard: &'a dyn Guard,
    pk: Pk,
}

impl<'a> Key<'a> {
    /// One test has one key, and each fixture is new or has a table of its own.
    fn of(fixture: &'a (impl GuardFixture + ?Sized)) -> Self {
        Self::named(fixture, "ns/op#k")
    }

    fn named(fixture: &'a (impl GuardFixture + ?Sized), pk: &str) -> Self {
        Self { guard: fixture.guard(), pk: Pk(pk.to_owned()) }
    }

    /// A claim that is made this many seconds after [`NOW`].
    fn claim_at(&self, owner: &str, seconds: u64) -> Claim {
        let source = Source {
            queue: "payments".into(),
            message_id: format!("message of {owner}"),
            sent_at: Some(NOW),
            worker: format!("worker of {owner}"),
        };
        Claim {
            pk: self.pk.clone(),
            owner: Owner(owner.into()),
            now: after(seconds),
            lease_until: after(seconds) + LEASE,
            fingerprint: Some(format!("fingerprint of {owner}")),
            source,
        }
    }

    async fn claim(&self, claim: &Claim) -> Claimed {
        answered(self.guard.claim(claim).await)
    }

    async fn take_over(&self, take_over: &TakeOver) -> Claimed {
        answered(self.guard.take_over(take_over).await)
    }

    async fn write(&self, change: &Change) -> Written {
        answered(self.guard.write(&self.pk, change).await)
    }

    async fn read(&self) -> Option<Record> {
        answered(self.guard.read(&self.pk).await)
    }

    /// Claims the key for `owner`, who must get it.
    async fn claimed_by(&self, owner: &str) -> Record {
        mine(self.claim(&self.claim_at(owner, 0)).await)
    }

    async fn record(&self) -> Record {
        self.read().await.unwrap_or_else(|| panic!("there is no record of {}", self.pk))
    }

    /// Makes a change that must be made, and must make what the pure code makes.
    async fn make(&self, change: Change) -> Record {
        let mut expected = self.record().await;
        assert!(change.applies_to(&expected), "{change:?} does not apply to {expected:?}");
        change.apply(&mut expected);
        assert_eq!(self.write(&change).await, Written::Applied, "{change:?}");
        let made = self.record().await;
        assert_eq!(made, expected, "{change:?}");
        made
    }

    /// Tries a change that must be refused, shows the record and leaves it as it is.
    async fn refuse(&self, change: Change) {
        let before = self.record().await;
        assert!(!change.applies_to(&before), "{change:?} does apply to {before:?}");
        let written = self.write(&change).await;
        assert_eq!(written, Written::Refused(Some(Box::new(before.clone()))), "{change:?}");
        assert_eq!(self.record().await, before, "{change:?}");
    }

    /// Takes the record over as it was seen; it must work, and make what the pure code makes of what is there now.
    async fn take_seen(&self, seen: &Record, kind: TakeOverKind, claim: Claim) -> Record {
        let take_over = TakeOver { claim, seen: Box::new(seen.clone()), kind };
        let mut expected = self.record().await;
        take_over.apply(&mut expected);
        let taken = mine(self.take_over(&take_over).await);
        assert_eq!(taken, expected, "{kind:?}");
        assert_eq!(self.record().await, expected, "{kind:?}");
        taken
    }

    /// Takes the record over as it now is, a minute later, when every lease has ended.
    async fn take(&self, owner: &str, kind: TakeOverKind) -> Record {
        let seen = self.record().await;
        self.take_seen(&seen, kind, self.claim_at(owner, 60)).await
    }
}

fn answered<T>(result: Result<T, GuardError>) -> T {
    result.unwrap_or_else(|error| panic!("no verdict: {error:?}"))
}

fn mine(claimed: Claimed) -> Record {
    match claimed {
        Claimed::Mine(record) => *record,
        Claimed::Refused(found) => panic!("refused by {found:?}"),
    }
}

fn shown(claimed: Claimed) -> Record {
    match claimed {
        Claimed::Refused(Some(record)) => *record,
        other => panic!("{other:?}"),
    }
}

fn renew(owner: &str, seconds: u64) -> Change {
    Change::Renew { owner: Owner(owner.into()), now: after(1), lease_until: after(seconds) }
}

fn step(owner: &str, name: &str, step: Step) -> Change {
    Change::Step { owner: Owner(owner.into()), now: after(2), name: name.into(), step }
}

fn done(result: &str) -> Step {
    Step { state: StepState::Done, generation: 1, result: Some(result.into()), at: after(2) }
}

fn confirm(owner: &str) -> Change {
    Change::Confirm { owner: Owner(owner.into()), now: after(3), expires_at: after(100).seconds() }
}

fn release(owner: &str, not_before: Option<Millis>, error: Option<Failure>) -> Change {
    Change::Release { owner: Owner(owner.into()), now: after(4), not_before, failures: 1, error, undo: None }
}

fn give_undo_back(owner: &str, undo: Undoing) -> Change {
    Change::Release {
        owner: Owner(owner.into()),
        now: after(6),
        not_before: Some(after(20)),
        failures: 3,
        error: None,
        undo: Some(undo),
    }
}

fn declined() -> Failure {
    Failure::new("declined", "the bank said no")
}

fn fail(owner: &str) -> Change {
    Change::Fail {
        owner: Owner(owner.into()),
        now: after(5),
        failures: 3,
        error: declined(),
        failure_id: "failure-1".into(),
    }
}

fn bury(owner: &str, undo: Option<UndoAnswer>) -> Change {
    Change::Bury {
        owner: Owner(owner.into()),
        now: after(7),
        failures: 3,
        error: declined(),
        failure_id: "failure-1".into(),
        undo: undo.map(|answer| Undoing { failures: 1, takeovers: 0, answer: Some(answer) }),
        expires_at: after(100).seconds(),
    }
}

fn copied(failure_id: &str) -> Change {
    Change::Copied { failure_id: failure_id.into(), now: after(8) }
}

/// One of each change by `owner`, whether it fits the record or not.
fn every_change_by(owner: &str) -> Vec<Change> {
    vec![
        renew(owner, 90),
        step(owner, "charge", done("2")),
        confirm(owner),
        release(owner, None, None),
        give_undo_back(owner, Undoing::default()),
        fail(owner),
        bury(owner, None),
    ]
}

/// Brings a key that is absent into a state, owned by `owner`.
async fn bring_to(key: &Key<'_>, owner: &str, status: Status) -> Record {
    key.claimed_by(owner).await;
    key.make(step(owner, "charge", done("1"))).await;
    match status {
        Status::Running => key.record().await,
        Status::Released => key.make(release(owner, Some(after(9)), Some(declined()))).await,
        Status::Failed => key.make(fail(owner)).await,
        Status::Done => key.make(confirm(owner)).await,
        Status::Dead => key.make(bury(owner, None)).await,
    }
}

const EVERY_STATUS: [Status; 5] = [Status::Running, Status::Released, Status::Failed, Status::Done, Status::Dead];

fn at(seconds: Seconds) -> Millis {
    Millis(seconds.0 * 1000)
}
