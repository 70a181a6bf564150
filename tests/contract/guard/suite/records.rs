//! Records as they are kept, and the table as a whole.

use futures_util::future::join_all;
use leasehold::guard::{Replication, TableFacts, TableKey};

use super::*;

pub(crate) async fn every_attribute_comes_back_as_it_was(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    bring_to(&key, "one", Status::Running).await;
    let park = TakeOverKind::Park { not_before: after(70) };
    key.take("two", park).await;
    key.take("three", TakeOverKind::Resume).await;
    key.make(fail("three")).await;
    key.make(give_undo_back("three", Undoing { failures: 1, takeovers: 2, answer: None })).await;
    key.make(bury("three", Some(UndoAnswer::Kept))).await;
    let record = key.make(copied("failure-1")).await;
    let undo = Some(Undoing { failures: 1, takeovers: 0, answer: Some(UndoAnswer::Kept) });
    let expected = Record {
        pk: key.pk.clone(),
        status: Status::Dead,
        owner: Owner("three".into()),
        fence: leasehold::guard::Fence(after(60).0 + 1),
        lease_until: after(6),
        not_before: Some(after(20)),
        failures: 3,
        takeovers: 1,
        last_error: Some(declined()),
        failure_id: Some("failure-1".into()),
        dead_at: Some(after(7)),
        copied: true,
        undo,
        fingerprint: Some("fingerprint of one".into()),
        source: key.claim_at("three", 60).source,
        created_at: NOW,
        updated_at: after(8),
        steps: [("charge".to_owned(), done("1"))].into(),
        expires_at: after(100).seconds(),
    };
    assert_eq!(record, expected);
}

pub(crate) async fn an_absent_record_reads_as_none(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    assert_eq!(key.read().await, None);
}

/// Each write would be made, were it not for the version.
pub(crate) async fn g1_a_record_of_a_later_version_is_no_verdict(fixture: &impl GuardFixture) {
    for status in EVERY_STATUS {
        let key = Key::named(fixture, &format!("ns/op#{}", status.as_str()));
        let seen = Box::new(bring_to(&key, "one", status).await);
        fixture.make_foreign(&key.pk).await;
        let claim = key.claim_at("two", 200);
        let kind = if seen.is_expired(claim.now) { TakeOverKind::Fresh } else { TakeOverKind::AfterLapse };
        let take_over = TakeOver { claim: claim.clone(), seen, kind };
        let mut told = vec![
            key.guard.claim(&claim).await.map(drop),
            key.guard.take_over(&take_over).await.map(drop),
            key.guard.read(&key.pk).await.map(drop),
        ];
        for change in every_change_by("one").into_iter().chain([copied("failure-1")]) {
            told.push(key.guard.write(&key.pk, &change).await.map(drop));
        }
        for result in told {
            assert!(matches!(&result, Err(GuardError::Foreign(what)) if what.contains(&key.pk.0)), "{result:?}");
        }
    }
}

pub(crate) async fn g8_a_probe_can_be_repeated_and_leaves_other_keys_alone(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let record = key.claimed_by("one").await;
    for _ in 0..2 {
        answered(key.guard.probe().await);
    }
    for probed in join_all((0..8).map(|_| key.guard.probe())).await {
        answered(probed);
    }
    assert_eq!(key.record().await, record);
}

pub(crate) async fn r5_the_facts_are_those_of_the_table(fixture: &impl GuardFixture) {
    let key = TableKey { hash: "pk".into(), is_string: true, range: None };
    let facts = answered(fixture.guard().facts().await);
    assert!(facts.arn.starts_with("arn:aws:dynamodb:") && facts.arn.contains(":table/"), "{}", facts.arn);
    let replication = Replication::Alone;
    assert_eq!(facts, TableFacts { arn: facts.arn.clone(), key, ttl: Ok(Some("expires_at".into())), replication });
}
