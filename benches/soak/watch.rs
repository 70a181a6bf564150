//! What a process holds over time, as Linux and the worker tell it, and whether that stays flat.
//!
//! The rule: after the first third, in which pools and caches fill, a straight line is laid through the samples (least squares).
//! Flat is what grows along it, from its first point to its last, by no more than a tenth of its mean or a named allowance.

use std::{fmt::Write as _, fs, net::SocketAddr, path::Path, time::Duration};

use anyhow::Context;
use http_body_util::{BodyExt, Empty};
use hyper::{Uri, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::time::{Instant, sleep};

use crate::workers::Worker;

/// What is looked at: its name, and how much it may grow in any case.
const SERIES: [(&str, f64); 4] = [("rss_kb", 4_096.0), ("threads", 3.0), ("fds", 20.0), ("slots_taken", f64::MAX)];

type Sample = (f64, [f64; SERIES.len()]);

pub(crate) struct Watch {
    every: Duration,
    id: Option<u32>,
    health: SocketAddr,
    samples: Vec<Sample>,
}

impl Watch {
    pub(crate) fn of(worker: &Worker, every: Duration) -> Self {
        Self { every, id: worker.id().ok(), health: worker.health, samples: Vec::new() }
    }

    /// Looks, until it is over.
    pub(crate) async fn until(&mut self, ends_at: Instant) -> anyhow::Result<()> {
        let begun = Instant::now();
        while Instant::now() + self.every < ends_at {
            sleep(self.every).await;
            let looked = self.look().await.context("the long-lived worker cannot be looked at")?;
            self.samples.push((begun.elapsed().as_secs_f64(), looked));
        }
        Ok(())
    }

    async fn look(&self) -> anyhow::Result<[f64; SERIES.len()]> {
        let process = Path::new("/proc").join(self.id.context("it has ended")?.to_string());
        let status = fs::read_to_string(process.join("status"))?;
        let number = |name: &str| -> anyhow::Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| name.to_owned())?;
            Ok(line.trim().trim_end_matches(" kB").parse()?)
        };
        let fds = fs::read_dir(process.join("fd"))?.count();
        Ok([number("VmRSS:")?, number("Threads:")?, fds as f64, slots_taken(self.health).await?])
    }

    /// Writes the samples and their picture; tells the figures, and what is not flat.
    pub(crate) fn told(&self, folder: &Path) -> anyhow::Result<(String, Vec<String>)> {
        let names = SERIES.map(|(name, _)| name).join(",");
        let mut csv = format!("seconds,{names}\n");
        for (at, values) in &self.samples {
            writeln!(csv, "{at:.1},{}", values.map(|value| value.to_string()).join(","))?;
        }
        fs::write(folder.join("samples.csv"), csv)?;
        fs::write(folder.join("soak.svg"), self.picture()?)?;
        let settled = &self.samples[self.samples.len() / 3..];
        anyhow::ensure!(settled.len() > 5, "so few samples say nothing: soak for longer");
        let (mut text, mut wrong) = (format!("{} samples of the long-lived worker", self.samples.len()), Vec::new());
        for (of, (name, allowance)) in SERIES.into_iter().enumerate() {
            let (mean, growth) = line(&settled.iter().map(|(at, values)| (*at, values[of])).collect::<Vec<_>>());
            let most = self.samples.iter().map(|(_, values)| values[of]).fold(0.0, f64::max);
            write!(text, "\n{name}: mean {mean:.1} after the first third, most {most}, growth {growth:+.1}")?;
            if growth > (mean / 10.0).max(allowance) {
                wrong.push(format!("{name} grows: {growth:+.1} of {mean:.1}"));
            }
        }
        Ok((text, wrong))
    }

    /// A small chart of each series, from zero to its most.
    fn picture(&self) -> anyhow::Result<String> {
        const WIDE: f64 = 640.0;
        const HIGH: f64 = 90.0;
        let end = self.samples.last().map_or(1.0, |(at, _)| *at);
        let height = (HIGH + 30.0) * SERIES.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDE}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        );
        for (of, (name, _)) in SERIES.into_iter().enumerate() {
            let bottom = (HIGH + 30.0) * (of + 1) as f64 - 5.0;
            let most = self.samples.iter().map(|(_, values)| values[of]).fold(1.0, f64::max);
            let point =
                |(at, values): &Sample| format!("{:.1},{:.1}", at / end * WIDE, bottom - values[of] / most * HIGH);
            let points = self.samples.iter().map(point).collect::<Vec<_>>().join(" ");
            let top = bottom - HIGH - 8.0;
            writeln!(svg, "<text x=\"0\" y=\"{top}\">{name}, 0 to {most}, in {end:.0} s</text>")?;
            writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"#06c\"/>")?;
        }
        Ok(svg + "</svg>\n")
    }
}

/// The mean of points, and how much a straight line through them grows from the first to the last.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
    let time = points.last().map_or(0.0, |last| last.0) - points.first().map_or(0.0, |first| first.0);
    (y, slope * time)
}

/// Slots in which a handler runs or which a poll has booked, by the worker's own word.
async fn slots_taken(health: SocketAddr) -> anyhow::Result<f64> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let uri: Uri = format!("http://{health}/live").parse()?;
    let body = client.get(uri).await?.into_body().collect().await?.to_bytes();
    let status: serde_json::Value = serde_json::from_slice(&body)?;
    let queues = status["queues"].as_object().context("a status without queues")?;
    let number = |of: &serde_json::Value| of.as_f64().unwrap_or_default();
    Ok(queues.values().map(|queue| number(&queue["slots"]) - number(&queue["free_slots"])).sum())
}
