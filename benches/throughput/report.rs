//! What the rounds say together: medians, how far they lie apart, and ratios.
//!
//! Relies on figures being of one run; judges nothing.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use crate::{subject::Subject, usage::Usage};

/// One subject, measured once.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) messages: usize,
    pub(crate) usage: Usage,
    /// By IAM action name.
    pub(crate) calls: BTreeMap<String, u64>,
}

impl Measured {
    fn per_message(&self, figure: f64) -> f64 {
        figure / self.messages as f64
    }

    fn calls(&self, of: impl Fn(&str) -> bool) -> f64 {
        self.per_message(self.calls.iter().filter(|(call, _)| of(call)).map(|(_, count)| *count as f64).sum())
    }
}

/// All rounds.
#[derive(Debug, Default)]
pub(crate) struct Report(BTreeMap<Subject, Vec<Measured>>);

/// One figure over all rounds.
#[derive(Debug, Clone, Copy)]
struct Figure {
    median: f64,
    least: f64,
    most: f64,
}

impl Report {
    pub(crate) fn add(&mut self, subject: Subject, measured: Measured) {
        self.0.entry(subject).or_default().push(measured);
    }

    fn figure(&self, subject: Subject, of: impl Fn(&Measured) -> f64) -> Option<Figure> {
        let mut figures: Vec<f64> = self.0.get(&subject)?.iter().map(of).collect();
        figures.sort_by(f64::total_cmp);
        let (least, most) = (*figures.first()?, *figures.last()?);
        let (lower, upper) = (figures[(figures.len() - 1) / 2], figures[figures.len() / 2]);
        Some(Figure { median: f64::midpoint(lower, upper), least, most })
    }

    fn cpu(&self, subject: Subject) -> Option<Figure> {
        self.figure(subject, |measured| measured.per_message(measured.usage.cpu_micros))
    }

    /// CPU beside that of what it is compared with: the bare loop of the same kind, or the same that tells nothing.
    fn ratio(&self, subject: Subject) -> Option<f64> {
        Some(self.cpu(subject)?.median / self.cpu(subject.baseline()?)?.median)
    }

    /// A line for scripts: each subject with its medians.
    pub(crate) fn json(&self) -> Value {
        let median = |figure: Option<Figure>| figure.map(|figure| (figure.median * 1000.0).round() / 1000.0);
        let subjects = self.0.keys().map(|subject| {
            let of = |figure: fn(&Measured) -> f64| median(self.figure(*subject, figure));
            let figures = json!({
                "messages_per_second": of(|measured| measured.messages as f64 / measured.usage.seconds),
                "cpu_micros_per_message": median(self.cpu(*subject)),
                "cpu_ratio": self.ratio(*subject).map(|ratio| (ratio * 1000.0).round() / 1000.0),
                "calls_per_message": of(|measured| measured.calls(|_| true)),
                "receives_per_message": of(|measured| measured.calls(is_receive)),
                "peak_kb": of(|measured| measured.usage.peak_kb as f64),
                "first_message_ms": of(|measured| measured.usage.first_ms as f64),
                "first_message_ms_of_work": of(|measured| measured.usage.first_ms_of_work),
            });
            (subject.name().to_owned(), figures)
        });
        Value::Object(subjects.collect())
    }
}

fn is_receive(call: &str) -> bool {
    call == "sqs:ReceiveMessage"
}

const HEAD: [&str; 8] =
    ["", "messages/s", "CPU µs/message", "× beside", "calls/message", "receives/message", "peak MB", "first after ms"];

const FOOT: &str = "\n
Medians (least–most). CPU is the subject's alone, on one thread; \"× beside\" compares it with the bare loop of the same
kind, and where all is told with the same where it is not.
Messages a second are the engine's limit as much as the subject's. Calls include those of the start.";

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [head, rest @ ..] = HEAD;
        write!(f, "| {head:<20} |")?;
        rest.iter().try_for_each(|head| write!(f, " {head:>20} |"))?;
        write!(f, "\n| {:-<20} |", "")?;
        rest.iter().try_for_each(|_| write!(f, " {:->19}: |", ""))?;
        for subject in self.0.keys() {
            let figure = |of: fn(&Measured) -> f64, digits| spread(self.figure(*subject, of), digits);
            let cells = [
                figure(|measured| measured.messages as f64 / measured.usage.seconds, 0),
                spread(self.cpu(*subject), 1),
                self.ratio(*subject).map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                figure(|measured| measured.calls(|_| true), 2),
                figure(|measured| measured.calls(is_receive), 3),
                figure(|measured| measured.usage.peak_kb as f64 / 1024.0, 1),
                figure(|measured| measured.usage.first_ms as f64, 0),
            ];
            write!(f, "\n| {:<20} |", subject.name())?;
            cells.iter().try_for_each(|cell| write!(f, " {cell:>20} |"))?;
        }
        f.write_str(FOOT)
    }
}

fn spread(figure: Option<Figure>, digits: usize) -> String {
    let Some(Figure { median, least, most }) = figure else { return String::new() };
    if format!("{least:.digits$}") == format!("{most:.digits$}") {
        return format!("{median:.digits$}");
    }
    format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
}
