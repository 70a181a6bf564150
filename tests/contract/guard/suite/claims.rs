//! Claims (rules G1, G3, G4).

use futures_util::future::join_all;
use leasehold::guard::Fence;

use super::*;

pub(crate) async fn g1_a_claim_of_an_absent_key_makes_a_new_record(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let claim = key.claim_at("one", 0);
    assert_eq!(mine(key.claim(&claim).await), claim.record());
    assert_eq!(key.record().await, claim.record());
}

pub(crate) async fn g1_a_held_record_refuses_and_comes_back_with_the_refusal(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    key.claimed_by("one").await;
    let held = key.make(step("one", "charge", done("1"))).await;
    assert_eq!(shown(key.claim(&key.claim_at("two", 60)).await), held);
    assert_eq!(key.record().await, held);
}

pub(crate) async fn g1_a_record_refuses_in_every_state_while_it_lasts(fixture: &impl GuardFixture) {
    for status in EVERY_STATUS {
        let key = Key::named(fixture, status.as_str());
        let found = bring_to(&key, "one", status).await;
        assert_eq!(found.status, status);
        assert_eq!(shown(key.claim(&key.claim_at("two", 60)).await), found);
    }
}

pub(crate) async fn g1_an_expired_done_or_dead_record_is_replaced_whole(fixture: &impl GuardFixture) {
    for status in [Status::Done, Status::Dead] {
        let key = Key::named(fixture, status.as_str());
        bring_to(&key, "one", status).await;
        let claim = key.claim_at("two", 101);
        assert_eq!(mine(key.claim(&claim).await), claim.record());
        assert_eq!(key.record().await, claim.record());
    }
}

pub(crate) async fn g1_an_expired_record_with_a_higher_fence_refuses(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    // Claimed by a worker whose clock is ahead by more than "done" is remembered.
    mine(key.claim(&key.claim_at("ahead", 500)).await);
    let found = key.make(confirm("ahead")).await;
    let claim = key.claim_at("two", 200);
    assert!(found.is_expired(claim.now) && found.fence > claim.record().fence);
    assert_eq!(shown(key.claim(&claim).await), found);
    let taken = key.take_seen(&found, TakeOverKind::Fresh, claim).await;
    assert_eq!(taken.fence, Fence(found.fence.0 + 1));
}

async fn race(fixture: &impl GuardFixture, contenders: usize) {
    for round in 0..5 {
        let key = Key::named(fixture, &format!("round {round}"));
        let claims: Vec<_> = (0..contenders).map(|n| key.claim_at(&format!("owner {n}"), 0)).collect();
        let claimed = join_all(claims.iter().map(|claim| key.guard.claim(claim))).await;
        let (won, lost): (Vec<_>, Vec<_>) =
            claimed.into_iter().map(answered).partition(|claimed| matches!(claimed, Claimed::Mine(_)));
        let winner = key.record().await;
        assert_eq!(won, [Claimed::Mine(Box::new(winner.clone()))]);
        assert!(lost.into_iter().map(shown).all(|found| found == winner));
    }
}

pub(crate) async fn g1_of_two_claims_at_once_one_wins(fixture: &impl GuardFixture) {
    race(fixture, 2).await;
}

pub(crate) async fn g1_of_sixteen_claims_at_once_one_wins(fixture: &impl GuardFixture) {
    race(fixture, 16).await;
}

pub(crate) async fn g3_a_claim_sent_twice_is_ours_and_as_it_now_is(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let record = key.claimed_by("one").await;
    assert_eq!(mine(key.claim(&key.claim_at("one", 0)).await), record);
    let record = key.make(step("one", "charge", done("1"))).await;
    assert_eq!(mine(key.claim(&key.claim_at("one", 0)).await), record);
    assert_eq!(key.record().await, record);
}

pub(crate) async fn g4_a_record_expires_at_its_second_and_not_before(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let found = bring_to(&key, "one", Status::Done).await;
    let early = Claim { now: Millis(at(found.expires_at).0 - 1), ..key.claim_at("two", 0) };
    assert_eq!(shown(key.claim(&early).await), found);
    let in_time = Claim { now: at(found.expires_at), ..key.claim_at("two", 0) };
    assert_eq!(mine(key.claim(&in_time).await), in_time.record());
}

pub(crate) async fn g4_only_done_and_dead_records_expire(fixture: &impl GuardFixture) {
    for status in [Status::Running, Status::Released, Status::Failed] {
        let key = Key::named(fixture, status.as_str());
        let found = bring_to(&key, "one", status).await;
        let late = Claim { now: at(found.expires_at) + LEASE, ..key.claim_at("two", 0) };
        assert_eq!(shown(key.claim(&late).await), found);
    }
}
