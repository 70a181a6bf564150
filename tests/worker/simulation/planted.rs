//! The simulation finds faults: each that is planted turns it red within a stated number of seeds, and by the invariant
//! that it breaks. What needs a thread that ignores its cancellation cannot be simulated, and is in `sequences.rs`.

use leasehold::testing::{Planted, plant};

use super::world;

/// A fault of this thread; taken out when it goes.
pub(crate) struct Plant;

impl Plant {
    pub(crate) fn of(fault: Planted) -> Self {
        plant(Some(fault));
        Self
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        plant(None);
    }
}

/// Runs seeds until one breaks the promise in that way.
#[track_caller]
fn found_within(seeds: u64, unconditional_confirm: bool, breaks: &str) {
    let broken = |seed: &u64| world::run(*seed, unconditional_confirm).violations.iter().any(|v| v.contains(breaks));
    let found = (0..seeds).find(broken);
    assert!(found.is_some(), "{seeds} seeds, and none breaks {breaks:?}");
    println!("found by seed {found:?}");
}

#[test]
fn confirm_after_delete_is_found() {
    let _plant = Plant::of(Planted::ConfirmAfterDelete);
    found_within(5, false, "was deleted, and its work is neither done nor dead-lettered");
}

#[test]
fn unconditional_confirm_is_found() {
    found_within(300, true, "a former owner's confirm changed");
}

#[test]
fn beat_that_is_not_awaited_before_a_delay_is_found() {
    let _plant = Plant::of(Planted::BeatNotAwaited);
    found_within(300, false, "while another is on the wire");
}

#[test]
fn followers_that_run_ahead_are_found() {
    let _plant = Plant::of(Planted::FollowersRunAhead);
    found_within(200, false, "before it is still open");
}

#[test]
fn undeleted_head_that_frees_its_group_is_found() {
    let _plant = Plant::of(Planted::UndeletedHeadFreesGroup);
    found_within(300, false, "behind it has begun");
}

#[test]
fn group_in_pieces_is_found() {
    let _plant = Plant::of(Planted::GroupInPieces);
    found_within(200, false, "before it is still open");
}

#[test]
fn head_that_does_not_rest_is_found() {
    let _plant = Plant::of(Planted::HeadDoesNotRest);
    found_within(100, false, "invariant 10");
}

#[test]
fn one_attempt_more_is_found() {
    let _plant = Plant::of(Planted::OneAttemptMore);
    found_within(100, false, "invariant 7");
}

#[test]
fn not_yet_that_counts_is_found() {
    let _plant = Plant::of(Planted::NotYetCounts);
    found_within(300, false, "invariant 7");
}

#[test]
fn run_that_outlives_its_lease_is_found() {
    let _plant = Plant::of(Planted::RunOutlivesLease);
    found_within(100, false, "after its lease had ended");
}

#[test]
fn held_message_that_is_deleted_is_found() {
    let _plant = Plant::of(Planted::HeldIsDeleted);
    found_within(100, false, "was deleted, and its work is neither done nor dead-lettered");
}

#[test]
fn forgotten_steps_are_found() {
    let _plant = Plant::of(Planted::StepsForgotten);
    found_within(100, false, "is recorded and runs again");
}

#[test]
fn step_key_of_the_claim_is_found() {
    let _plant = Plant::of(Planted::StepKeyOfTheClaim);
    found_within(100, false, "invariant 5");
}

#[test]
fn step_once_without_a_start_is_found() {
    let _plant = Plant::of(Planted::OnceWithoutStart);
    found_within(100, false, "invariant 11");
}

#[test]
fn commit_without_its_writes_is_found() {
    let _plant = Plant::of(Planted::CommitWithoutWrites);
    found_within(20, false, "invariant 13");
}

#[test]
fn undo_without_a_verdict_is_found() {
    let _plant = Plant::of(Planted::UndoneWithoutVerdict);
    found_within(5, false, "invariant 12");
}

#[test]
fn delete_without_a_copy_is_found() {
    let _plant = Plant::of(Planted::DeletedWithoutCopy);
    found_within(100, false, "was deleted, and its work is neither done nor dead-lettered");
}

#[test]
fn duplicate_that_begins_dead_work_anew_is_found() {
    let _plant = Plant::of(Planted::DuplicateBeginsAnew);
    found_within(100, false, "is DEAD and was taken over");
}

#[test]
fn key_of_the_message_is_found() {
    let _plant = Plant::of(Planted::KeyedByMessage);
    found_within(100, false, "was deleted, and its work is neither done nor dead-lettered");
}

#[test]
fn fence_that_stands_still_is_found() {
    let _plant = Plant::of(Planted::FenceStandsStill);
    found_within(100, false, "invariant 6: the fence of");
}

#[test]
fn takeover_without_the_skew_is_found() {
    let _plant = Plant::of(Planted::TakeoverWithoutSkew);
    found_within(300, false, "before its owner's lease ended");
}

#[test]
fn dead_without_its_copy_flag_is_found() {
    let _plant = Plant::of(Planted::DeadWithoutCopyFlag);
    found_within(5, false, "says that its copy is sent, and there is none");
    found_within(300, false, "was deleted, and its work is neither done nor dead-lettered");
}
