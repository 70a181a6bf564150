//! A confirm and business writes in one (rules G3, G12).

use leasehold::{
    clock::Clock,
    guard::{Commit, Committed, ItemWrite, Value},
};

use super::*;

const NEW: &str = "attribute_not_exists(id)";

fn put(table: &str, id: &str, what: &str) -> ItemWrite {
    ItemWrite::put(table, [("id", id), ("what", what)])
}

fn row(id: &str, what: &str) -> Item {
    Item::from([("id".to_owned(), Value::from(id)), ("what".to_owned(), Value::from(what))])
}

/// Backends are shared, and a token names one request of all.
fn token() -> String {
    Clock::system().token()
}

impl Key<'_> {
    fn commit(&self, owner: &str, writes: Vec<ItemWrite>) -> Commit {
        Commit { pk: self.pk.clone(), confirm: confirm(owner), writes, token: token() }
    }

    async fn commits(&self, commit: &Commit) -> Committed {
        answered(self.guard.confirm_with(commit).await)
    }

    /// What is told of a commit that no store takes.
    async fn refuses(&self, commit: &Commit) -> String {
        match self.guard.confirm_with(commit).await {
            Err(GuardError::Refused(what)) => what,
            answer => panic!("{answer:?}"),
        }
    }
}

pub(crate) async fn g12_the_record_is_done_and_everything_is_written(fixture: &impl GuardFixture) {
    let (key, table) = (Key::of(fixture), fixture.business_table().await);
    let mut expected = key.claimed_by("one").await;
    fixture.put_item(&table, row("old", "gone")).await;
    fixture.put_item(&table, row("seen", "kept")).await;
    let commit = key.commit(
        "one",
        vec![
            put(&table, "new", "made").when(NEW),
            ItemWrite::delete(&table, [("id", "old")]).when("attribute_exists(#w)").name("#w", "what"),
            ItemWrite::check(&table, [("id", "seen")], "attribute_exists(id)"),
            put(&table, "any", "put"),
        ],
    );
    assert_eq!(key.commits(&commit).await, Committed::Applied);
    commit.confirm.apply(&mut expected);
    assert_eq!(key.record().await, expected);
    assert_eq!(expected.status, Status::Done);
    assert_eq!(fixture.item(&table, "new").await, Some(row("new", "made")));
    assert_eq!(fixture.item(&table, "old").await, None);
    assert_eq!(fixture.item(&table, "seen").await, Some(row("seen", "kept")));
    assert_eq!(fixture.item(&table, "any").await, Some(row("any", "put")));
}

pub(crate) async fn g12_without_writes_it_is_a_confirm(fixture: &impl GuardFixture) {
    let key = Key::of(fixture);
    let mut expected = key.claimed_by("one").await;
    assert_eq!(key.commits(&key.commit("one", vec![])).await, Committed::Applied);
    confirm("one").apply(&mut expected);
    assert_eq!(key.record().await, expected);
}

pub(crate) async fn g12_a_former_owner_writes_nothing(fixture: &impl GuardFixture) {
    let table = fixture.business_table().await;
    for (status, kind) in [
        (Status::Running, TakeOverKind::AfterLapse),
        (Status::Released, TakeOverKind::Resume),
        (Status::Dead, TakeOverKind::Anew),
    ] {
        let key = Key::named(fixture, &format!("{status:?}"));
        bring_to(&key, "former", status).await;
        let next = key.take("next", kind).await;
        let refused = key.commits(&key.commit("former", vec![put(&table, "x", "never").when(NEW)])).await;
        assert_eq!(refused, Committed::Refused(Some(Box::new(next.clone()))), "{status:?}");
        assert_eq!((key.record().await, fixture.item(&table, "x").await), (next, None), "{status:?}");
    }
}

pub(crate) async fn g12_only_what_runs_is_committed(fixture: &impl GuardFixture) {
    let table = fixture.business_table().await;
    for status in [Status::Released, Status::Failed, Status::Dead] {
        let key = Key::named(fixture, &format!("{status:?}"));
        let record = bring_to(&key, "one", status).await;
        let refused = key.commits(&key.commit("one", vec![put(&table, "x", "never")])).await;
        assert_eq!(refused, Committed::Refused(Some(Box::new(record.clone()))), "{status:?}");
        assert_eq!((key.record().await, fixture.item(&table, "x").await), (record, None), "{status:?}");
    }
    let key = Key::named(fixture, "absent");
    assert_eq!(key.commits(&key.commit("one", vec![put(&table, "x", "never")])).await, Committed::Refused(None));
    assert_eq!((key.read().await, fixture.item(&table, "x").await), (None, None));
}

pub(crate) async fn g12_a_condition_that_fails_leaves_everything_as_it_is(fixture: &impl GuardFixture) {
    let (key, table) = (Key::of(fixture), fixture.business_table().await);
    let running = key.claimed_by("one").await;
    fixture.put_item(&table, row("there", "before")).await;
    let taken = key.commit("one", vec![put(&table, "x", "never"), put(&table, "there", "again").when(NEW)]);
    let there = Committed::Condition { index: 1, item: Some(row("there", "before")) };
    assert_eq!(key.commits(&taken).await, there);
    let absent = ItemWrite::check(&table, [("id", "absent")], "attribute_exists(id)");
    let missing = key.commit("one", vec![absent, put(&table, "x", "never")]);
    assert_eq!(key.commits(&missing).await, Committed::Condition { index: 0, item: None });
    assert_eq!(fixture.item(&table, "there").await, Some(row("there", "before")));
    assert_eq!((key.record().await, fixture.item(&table, "x").await), (running, None));
    // It is still ours, and something else can be committed.
    let other = key.commit("one", vec![put(&table, "x", "made")]);
    assert_eq!(key.commits(&other).await, Committed::Applied);
    assert_eq!(fixture.item(&table, "x").await, Some(row("x", "made")));
}

pub(crate) async fn g12_of_a_lost_claim_and_a_condition_the_claim_is_told(fixture: &impl GuardFixture) {
    let (key, table) = (Key::of(fixture), fixture.business_table().await);
    key.claimed_by("former").await;
    fixture.put_item(&table, row("there", "before")).await;
    let next = key.take("next", TakeOverKind::AfterLapse).await;
    let refused = key.commits(&key.commit("former", vec![put(&table, "there", "again").when(NEW)])).await;
    assert_eq!(refused, Committed::Refused(Some(Box::new(next))));
}

pub(crate) async fn g3_a_commit_sent_twice_is_made_once(fixture: &impl GuardFixture) {
    let (key, table) = (Key::of(fixture), fixture.business_table().await);
    key.claimed_by("one").await;
    let commit = key.commit("one", vec![put(&table, "new", "made").when(NEW)]);
    assert_eq!(key.commits(&commit).await, Committed::Applied);
    let done = key.record().await;
    assert_eq!(key.commits(&commit).await, Committed::Applied);
    // Also when it is so late that its token is forgotten: the record tells.
    let late = Commit { token: token(), ..commit };
    assert_eq!(key.commits(&late).await, Committed::Applied);
    assert_eq!(key.record().await, done);
}

pub(crate) async fn g2_what_is_committed_is_never_undone(fixture: &impl GuardFixture) {
    let (key, table) = (Key::of(fixture), fixture.business_table().await);
    key.claimed_by("one").await;
    assert_eq!(key.commits(&key.commit("one", vec![put(&table, "new", "made")])).await, Committed::Applied);
    for change in every_change_by("one").into_iter().filter(|change| *change != confirm("one")) {
        key.refuse(change).await;
    }
    let refused = key.commits(&key.commit("two", vec![put(&table, "new", "never")])).await;
    assert!(matches!(refused, Committed::Refused(Some(_))), "{refused:?}");
    assert_eq!(fixture.item(&table, "new").await, Some(row("new", "made")));
}

pub(crate) async fn g12_what_no_store_takes_writes_nothing(fixture: &impl GuardFixture) {
    let (key, table) = (Key::of(fixture), fixture.business_table().await);
    let running = key.claimed_by("one").await;
    let own = answered(fixture.guard().facts().await);
    let renew = Commit { confirm: renew("one", 90), ..key.commit("one", vec![put(&table, "x", "never")]) };
    assert!(key.refuses(&renew).await.contains("renew"));
    for write in [
        put(own.name(), "pk", "never"),
        put(&own.arn, "pk", "never"),
        ItemWrite::delete(own.name(), [("pk", key.pk.0.as_str())]),
        put(&table, "x", "twice"),
        put(&table, "there", "odd").when("no expression at all ("),
        ItemWrite::put(&table, [("what", "no key")]),
    ] {
        key.refuses(&key.commit("one", vec![put(&table, "x", "never"), write])).await;
    }
    assert_eq!((key.record().await, fixture.item(&table, "x").await), (running, None));
}

pub(crate) async fn g12_a_record_that_is_full_is_committed(fixture: &impl GuardFixture) {
    let (key, table) = (Key::of(fixture), fixture.business_table().await);
    let record = key.claimed_by("one").await;
    let room = leasehold::guard::LARGEST_RECORD - record.size() - 200;
    key.make(step("one", "large", done(&"x".repeat(room)))).await;
    let full = ItemWrite::put(&table, [("id", "full".to_owned()), ("what", "x".repeat(400 * 1024 - 10))]);
    assert_eq!(key.commits(&key.commit("one", vec![full])).await, Committed::Applied);
    assert_eq!(key.record().await.status, Status::Done);
    assert!(fixture.item(&table, "full").await.is_some());
}
