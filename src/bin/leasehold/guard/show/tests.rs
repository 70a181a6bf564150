use leasehold::guard::{Claim, Failure, Owner, Source, Undoing};

use super::*;

const NOW: Millis = Millis(1_800_000_000_000);
const VIEW: View = View { now: NOW, skew: Duration::from_secs(2) };

fn before(seconds: u64) -> Millis {
    Millis(NOW.0 - seconds * 1000)
}

/// Claimed 4 s ago, for a message that was sent a minute ago.
fn running() -> Record {
    let claim = Claim {
        pk: Pk("payments#p1".into()),
        owner: Owner("secret".into()),
        now: before(4),
        lease_until: NOW + Duration::from_secs(26),
        fingerprint: Some("f".into()),
        source: Source {
            queue: "payments".into(),
            message_id: "m1".into(),
            sent_at: Some(before(60)),
            worker: "w".into(),
        },
    };
    claim.record()
}

fn record(status: Status) -> Record {
    Record {
        status,
        lease_until: before(3 * 3600),
        updated_at: before(3 * 3600),
        expires_at: (NOW + Duration::from_secs(29 * 86_400 + 5)).seconds(),
        ..running()
    }
}

fn step(state: StepState, generation: u32, result: Option<&str>, seconds: u64) -> Step {
    Step { state, generation, result: result.map(Into::into), at: before(seconds) }
}

#[track_caller]
fn says(record: &Record, status: &str) {
    assert_eq!(VIEW.status(record), status);
}

#[test]
fn a_status_is_told_in_words_and_ages() {
    let utc = |at: Millis| at.utc();
    let soon = NOW + Duration::from_secs(26);
    says(
        &running(),
        &format!("running since 4 s ({}), by worker w; its lease ends in 26 s ({})", utc(before(4)), utc(soon)),
    );
    let hours = before(3 * 3600);
    let gone = format!("not running: its worker died, or lost its lease, which ended 3 hours ago ({})", utc(hours));
    says(&record(Status::Running), &format!("{gone}; the next message takes it over"));
    says(&record(Status::Released), "released: the next message runs it");
    let waits = Record { not_before: Some(soon), ..record(Status::Released) };
    says(&waits, &format!("released, may run again in 26 s ({})", utc(soon)));
    let end = NOW + Duration::from_secs(29 * 86_400 + 5);
    let remembered = format!("remembered for 29 days more (until {})", utc(end));
    says(&record(Status::Done), &format!("done 3 hours ago ({}), {remembered}", utc(hours)));
    let dead = Record { dead_at: Some(before(2 * 86_400)), ..record(Status::Dead) };
    let told = format!("failed for good 2 days ago ({}); its copy", utc(before(2 * 86_400)));
    says(&dead, &format!("{told} is not known to be dead-lettered yet; {remembered}"));
    says(&Record { copied: true, ..dead }, &format!("{told} is dead-lettered; {remembered}"));
    says(&record(Status::Failed), "failed for good, not yet undone");
}

#[test]
fn what_has_expired_counts_as_no_record_and_says_so() {
    let mut done = record(Status::Done);
    done.expires_at = before(20).seconds();
    assert!(
        VIEW.status(&done).ends_with(&format!("and forgotten 20 s ago ({}): it counts as no record", before(20).utc()))
    );
}

#[test]
fn g4_a_lease_that_has_ended_is_a_workers_until_the_skew_is_over() {
    let mut record = running();
    record.lease_until = before(1);
    assert!(VIEW.status(&record).contains("by worker w; its lease ended 1 s ago"));
    record.lease_until = before(2);
    assert!(VIEW.status(&record).starts_with("not running"));
}

#[test]
fn a_claim_after_a_fence_from_the_future_does_not_run_since_then() {
    let mut record = running();
    record.fence.0 = NOW.0 + 1_000_000;
    assert_eq!(VIEW.claimed_at(&record), record.created_at);
}

#[test]
fn steps_stand_in_their_order_with_what_becomes_of_them() {
    let mut record = running();
    let steps = [
        ("refund", step(StepState::Started, 1, None, 1)),
        ("mail", step(StepState::Undone, 1, None, 2)),
        ("charge", step(StepState::Done, 2, Some(&"7".repeat(100)), 3)),
        ("big", step(StepState::Done, 1, None, 4)),
    ];
    record.steps = steps.map(|(name, step)| (name.to_owned(), step)).into();
    let page = page(&record, VIEW);
    let lines: Vec<_> = page.lines().filter_map(|line| line.trim().strip_prefix("step        ")).collect();
    assert!(lines[0].starts_with("big: done 4 s ago") && lines[0].ends_with("could not be kept"), "{lines:?}");
    assert!(lines[1].contains(", generation 2, result 777") && lines[1].ends_with("7…"), "{lines:?}");
    assert!(
        lines[2].starts_with("mail: undone 2 s ago") && lines[2].ends_with("runs again as generation 2"),
        "{lines:?}"
    );
    assert!(lines[3].starts_with("refund: in doubt: started 1 s ago"), "{lines:?}");
}

#[test]
fn what_stands_in_the_table_cannot_steer_a_terminal_and_the_owner_is_not_told() {
    let bad = "\u{1b}[2J\r\u{202e}";
    let mut record = record(Status::Dead);
    record.pk = Pk(bad.into());
    record.last_error = Some(Failure::new(bad, bad));
    record.source.worker = bad.into();
    record.source.message_id = bad.into();
    record.undo = Some(Undoing::default());
    record.steps.insert(bad.into(), step(StepState::Done, 1, Some(bad), 1));
    let page = page(&record, VIEW) + &difference(Some(&record), &running(), VIEW);
    assert!(!page.contains(|c: char| c != '\n' && (c.is_control() || c == '\u{202e}')), "{page}");
    assert!(!page.contains("secret") && !as_json(&record.pk, Some(&record)).to_string().contains("secret"));
}

#[test]
fn a_difference_is_what_will_be_said_and_what_no_more() {
    let mut before = record(Status::Dead);
    before.last_error = Some(Failure::new("http_422", "no"));
    before.steps.insert("mail".into(), step(StepState::Started, 1, None, 1));
    before.steps.insert("charge".into(), step(StepState::Done, 1, Some("1"), 2));
    let mut after = record(Status::Released);
    after.steps.insert("charge".into(), before.steps["charge"].clone());
    (after.fence.0, after.source.worker) = (9, "ann".into());
    let told = difference(Some(&before), &after, VIEW);
    let lines: Vec<_> = told.lines().map(str::trim).collect();
    let expected =
        ["status      released: the next message runs it", "last error  none", "step        mail: not recorded"];
    assert_eq!(lines, expected);
    assert!(difference(None, &after, VIEW).contains("key         payments#p1"));
}

#[test]
fn scripts_get_moments_results_as_json_and_null_where_there_is_no_record() {
    let mut record = record(Status::Done);
    record.steps.insert("charge".into(), step(StepState::Done, 1, Some(r#"{"id":7}"#), 1));
    record.steps.insert("null".into(), step(StepState::Done, 1, Some("null"), 1));
    record.steps.insert("big".into(), step(StepState::Done, 1, None, 1));
    let told = as_json(&record.pk, Some(&record));
    assert_eq!((&told["status"], &told["updated_at"]), (&json!("DONE"), &json!(before(3 * 3600).0)));
    assert_eq!(told["steps"]["charge"]["result"]["id"], 7);
    assert!(told["steps"]["null"].get("result").is_some() && told["steps"]["big"].get("result").is_none());
    assert_eq!(as_json(&record.pk, None), json!({"pk": "payments#p1", "status": null}));
}
