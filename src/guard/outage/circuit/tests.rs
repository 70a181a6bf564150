use std::cell::Cell;

use tokio::time::timeout;

use super::*;

fn circuit() -> Circuit {
    Circuit::new("store", Ends::Probe, Clock::simulated(1, 0))
}

#[tokio::test(start_paused = true)]
async fn g8_several_unanswered_in_a_row_are_an_outage_and_a_success_between_them_is_none() {
    let circuit = circuit();
    for _ in 0..2 {
        circuit.unanswered("timeout");
    }
    circuit.succeeded();
    circuit.unanswered("timeout");
    assert!(!circuit.is_open());
    circuit.unanswered("timeout");
    circuit.unanswered("timeout");
    assert!(circuit.is_open());
}

#[tokio::test(start_paused = true)]
async fn g8_only_a_probe_closes_an_open_circuit_and_pauses_between_probes_grow() {
    let circuit = circuit();
    circuit.open("denied", None);
    circuit.succeeded();
    assert!(circuit.is_open());
    let probes = Cell::new(0);
    let start = Instant::now();
    let tend = circuit.tend(true, || {
        probes.set(probes.get() + 1);
        let answer = if start.elapsed() < Duration::from_secs(120) { Err("still".into()) } else { Ok(()) };
        async { answer }
    });
    let back = timeout(Duration::from_secs(200), async {
        tokio::select! { biased; () = tend => {}, () = circuit.closed() => {} }
    });
    assert!(back.await.is_ok());
    assert!((6..=14).contains(&probes.get()), "{}", probes.get());
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_proves_nothing_puts_the_circuit_on_trial_until_work_succeeds() {
    let circuit = circuit();
    circuit.open("503", Some(Duration::from_secs(60)));
    let start = Instant::now();
    let tend = circuit.tend(false, || async { Ok(()) });
    tokio::select! { biased; () = tend => {}, () = circuit.closed() => {} }
    assert_eq!(start.elapsed().as_secs(), 60, "Retry-After is honoured");
    assert!(circuit.is_trial());
    circuit.succeeded();
    assert!(!circuit.is_trial() && !circuit.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_resume_is_not_undone_by_a_probe_that_is_due_or_on_its_way() {
    for (pause, probe) in [(60, 0), (0, 60)] {
        for passes in [true, false] {
            let circuit = circuit();
            circuit.open("a burst", Some(Duration::from_secs(pause)));
            let tend = circuit.tend(false, || async {
                sleep(Duration::from_secs(probe)).await;
                if passes { Ok(()) } else { Err("still".into()) }
            });
            let resume = async {
                sleep(Duration::from_secs(10)).await;
                circuit.resume();
                sleep(Duration::from_secs(600)).await;
            };
            tokio::select! { biased; () = tend => {}, () = resume => {} }
            assert_eq!(circuit.told(), None, "{pause} s, {probe} s, {passes}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_word_that_asks_for_a_day_is_believed_for_a_quarter_of_an_hour() {
    let circuit = circuit();
    circuit.open("503", Some(Duration::from_secs(24 * 60 * 60)));
    let start = Instant::now();
    let tend = circuit.tend(false, || async { Ok(()) });
    tokio::select! { biased; () = tend => {}, () = circuit.closed() => {} }
    assert_eq!(start.elapsed(), LONGEST_WORD);
}
