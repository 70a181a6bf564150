//! Requests that are sent again, and second uses of a name that look like them.

use super::*;

/// Another use of a name.
const ANOTHER: &str = r#"{"call": "2"}"#;

#[tokio::test]
async fn a_client_that_asks_again_gets_the_answer_that_it_lost() {
    let office = Office::new(&["a"]).await;
    office
        .work(&[], async || {
            let sent = office.request().await;
            let job = sent.job();
            for step in ["plain", "once"] {
                let (path, wanted) =
                    (format!("/steps/{step}"), json!({"once": step == "once", "call": "1"}).to_string());
                let begun = (200, json!({"recorded": false, "key": format!("jobs#a/{step}")}));
                for _ in 0..3 {
                    assert_eq!(job.ask("POST", &path, &wanted).await, begun);
                }
                for _ in 0..3 {
                    assert_eq!(job.ask("PUT", &path, "[1, 12345678901234567890123]").await, DONE);
                }
                assert_eq!(job.refused("PUT", &path, "2").await, refusal(409, "step_recorded"));
                assert_eq!(job.refused("DELETE", &path, "").await, refusal(409, "step_recorded"));
                let recorded = (200, json!({"recorded": true, "result": [1, 12_345_678_901_234_567_890_123_f64]}));
                assert_eq!(job.ask("POST", &path, &wanted).await, recorded);
                assert_eq!(
                    office.step("a", step).and_then(|(_, result)| result).as_deref(),
                    Some("[1, 12345678901234567890123]")
                );
            }
            job.ask("POST", "/steps/bad", "").await;
            for _ in 0..2 {
                assert_eq!(job.ask("DELETE", "/steps/bad", r#"{"refused": true}"#).await, DONE);
            }
            assert_eq!(job.refused("PUT", "/steps/bad", "").await, refusal(409, "step_not_begun"));
            for method in ["PUT", "DELETE"] {
                assert_eq!(job.refused(method, "/steps/never", "").await, refusal(409, "step_not_begun"));
            }
            sent.reply("200 OK").await;
        })
        .await;
    assert_eq!(office.record("a").status, Status::Done);
}

#[tokio::test]
async fn s1_a_second_use_of_a_name_is_refused_and_fails_the_work_for_good() {
    let office = Office::new(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]).await;
    let report = office
        .work(&[("LEASEHOLD_CONCURRENCY", "1")], async || {
            for (first, second) in [("", ""), ("", A_CALL), (A_CALL, ANOTHER)] {
                for end in [None, Some("PUT"), Some("DELETE")] {
                    let sent = office.request().await;
                    let job = sent.job();
                    assert_eq!(job.ask("POST", "/steps/line", first).await.0, 200);
                    if let Some(method) = end {
                        assert_eq!(job.ask(method, "/steps/line", "").await, DONE);
                    }
                    let (status, told) = job.ask("POST", "/steps/line", second).await;
                    assert_eq!((status, &told["error"]), (409, &"step_repeated".into()), "{first} {second} {end:?}");
                    assert_eq!(told["permanent"], true);
                    // What goes well after it makes no difference.
                    assert_eq!(job.ask("GET", "", "").await.0, 200);
                    sent.reply("500 Oh").await;
                }
            }
        })
        .await;
    assert_eq!(report.dead, 9);
    assert!(office.bed.dead("jobs").iter().all(|(_, note)| note.as_ref().expect("a note").code == "step_repeated"));
}

#[tokio::test]
async fn s1_a_second_use_of_a_name_that_an_earlier_attempt_recorded_is_refused_too() {
    let office = Office::new(&["a"]).await;
    office
        .work(&[], async || {
            let sent = office.request().await;
            sent.job().ask("POST", "/steps/line", A_CALL).await;
            assert_eq!(sent.job().ask("PUT", "/steps/line", "1").await, DONE);
            sent.reply("500 Oh").await;
            let sent = office.request().await;
            for _ in 0..2 {
                let recorded = (200, json!({"recorded": true, "result": 1}));
                assert_eq!(sent.job().ask("POST", "/steps/line", A_CALL).await, recorded);
            }
            assert_eq!(sent.job().refused("POST", "/steps/line", ANOTHER).await, refusal(409, "step_repeated"));
            sent.reply("200 OK").await;
        })
        .await;
    assert_eq!(office.record("a").status, Status::Done, "an app that says it is done is believed");
}

#[tokio::test]
async fn s2_a_once_step_is_begun_by_one_call_only() {
    let office = Office::new(&["a", "b"]).await;
    let report = office
        .work(&[("LEASEHOLD_CONCURRENCY", "1")], async || {
            for (first, second) in [
                (r#"{"once": true, "call": "1"}"#, r#"{"once": true, "call": "2"}"#),
                (r#"{"once": true}"#, r#"{"once": true}"#),
            ] {
                let sent = office.request().await;
                let job = sent.job();
                assert_eq!(job.ask("POST", "/steps/mail", first).await.1["recorded"], false);
                for wanted in [second, ""] {
                    let (status, told) = job.ask("POST", "/steps/mail", wanted).await;
                    assert_eq!((status, &told["error"]), (409, &"step_in_doubt".into()), "{wanted}");
                    assert_eq!(told["permanent"], true);
                }
                sent.reply("500 Oh").await;
            }
        })
        .await;
    assert_eq!(report.dead, 2);
}

#[tokio::test]
async fn s1_a_step_that_ended_while_the_store_was_away_does_not_begin_again() {
    let office = Office::new(&["a"]).await;
    let away = || (0..4).for_each(|_| office.bed.guard_faults.next("step", Fault::Fail(Failure::Unavailable)));
    office
        .work(&[], async || {
            let sent = office.request().await;
            let job = sent.job();
            for step in ["/steps/charge", "/steps/label"] {
                assert_eq!(job.ask("POST", step, A_CALL).await.1["recorded"], false);
            }
            away();
            assert_eq!(job.refused("PUT", "/steps/charge", "1").await, refusal(409, "interrupted"));
            assert_eq!(job.ask("POST", "/steps/charge", A_CALL).await.1, json!({"recorded": true, "result": 1}));
            assert_eq!(job.refused("DELETE", "/steps/charge", "").await, refusal(409, "step_recorded"));
            away();
            for method in ["DELETE", "POST", "DELETE"] {
                let body = if method == "POST" { A_CALL } else { r#"{"refused": true}"# };
                assert_eq!(job.refused(method, "/steps/label", body).await, refusal(409, "interrupted"), "{method}");
            }
            assert_eq!(job.refused("PUT", "/steps/label", "1").await, refusal(409, "step_not_begun"));
            sent.reply("500 Oh").await;
            let sent = office.request().await;
            assert_eq!(sent.head["x-leasehold-steps"], r#"{"charge":1}"#);
            assert_eq!(sent.job().ask("POST", "/steps/label", "").await.1["key"], "jobs#a/label/2");
            sent.reply("200 OK").await;
        })
        .await;
}
