//! `leasehold health`: asks a running worker how it is, for container health checks and for people.
//!
//! The worker's endpoint decides; here its answer becomes an exit code. Needs nothing of the configuration but the
//! address, and must always end within a few seconds.

use std::{
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use leasehold::{
    Problem, WorkerError,
    config::{HttpAddr, ValueError, variables},
};
use url::Url;

use crate::{Ended, exit};

/// Longest wait for the whole answer. Below what container platforms give a check (Docker 30 s, ECS 5 s, Kubernetes 1 s
/// unless set): a worker that takes longer is not well.
const PATIENCE: Duration = Duration::from_secs(3);

/// Of an answer no more is shown: it comes from whoever listens there.
const SHOWN: usize = 256 * 1024;

pub(crate) const HELP: &str = "\
Examples:
  Whether the worker on this machine receives from all of its queues:

    leasehold health

  A container's health check, in a Dockerfile; a worker that hangs is to be
  replaced, one that waits is not:

    HEALTHCHECK CMD [\"leasehold\", \"health\", \"--live\"]

Exit codes:
  0   yes
  64  the command line is wrong
  69  nobody answers at that address, or one that is no worker
  78  LEASEHOLD_HTTP_ADDR is off, or no address
  1   no; why is on standard output";

/// Ask the running worker whether it is well
///
/// Asks the worker at LEASEHOLD_HTTP_ADDR, 127.0.0.1:9464 unless set, whether it is ready: started, and receiving from
/// every queue. With --live, whether it works at all: `no` is a worker that hangs. Prints what it says, within 3 seconds.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whether it hangs, rather than whether it receives
    #[arg(long)]
    live: bool,

    /// Ask this address instead of LEASEHOLD_HTTP_ADDR
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    addr: Option<String>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let address = match args.addr {
        Some(address) => address,
        None => reachable(configured()?).to_string(),
    };
    let url = format!("http://{address}/{}", if args.live { "live" } else { "ready" });
    match answer(&url).await {
        Ok((status, text)) => {
            let text = if text.trim().is_empty() { status.to_string() } else { text.trim_end().to_owned() };
            if !is_of_a_worker(&text) {
                let told = format!("what answers at {url} is no worker ({status}): {}", on_one_line(&text));
                return Err(Ended { code: exit::UNAVAILABLE, told }.into());
            }
            writeln!(io::stdout(), "{text}").context("its answer cannot be told")?;
            Ok(if status == reqwest::StatusCode::OK { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            let error = anyhow::Error::new(error.without_url());
            let told = format!("no worker answers at {url}: {error:#}");
            Err(Ended { code: exit::UNAVAILABLE, told }.into())
        }
    }
}

/// Status and body. A proxy of the environment is for elsewhere, and a redirect is no answer.
async fn answer(url: &str) -> reqwest::Result<(reqwest::StatusCode, String)> {
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(PATIENCE);
    let mut response = client.build()?.get(url).send().await?;
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await? {
        body.extend_from_slice(&part);
        if body.len() > SHOWN {
            break;
        }
    }
    Ok((response.status(), String::from_utf8_lossy(&body).into_owned()))
}

/// What the worker at the address of the environment says of itself; `None` where there is none that answers.
pub(crate) async fn of_running_worker() -> Option<String> {
    let address = reachable(configured().ok()?);
    let (_, text) = answer(&format!("http://{address}/ready")).await.ok()?;
    is_of_a_worker(&text).then_some(text)
}

/// An object that names the worker's phase. It may have been cut off.
fn is_of_a_worker(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.contains("\"phase\"")
}

/// The beginning of a stranger's answer: no terminal should be handed control characters.
fn on_one_line(text: &str) -> String {
    text.replace(char::is_control, " ").chars().take(120).collect()
}

/// The address of the environment, whatever else is wrong with it.
fn configured() -> Result<SocketAddr, WorkerError> {
    const NAME: &str = "LEASEHOLD_HTTP_ADDR";
    let wrong = |what: String, mend: String| WorkerError::Configuration(vec![Problem::new(what, mend)]);
    let vars = variables().map_err(WorkerError::Configuration)?;
    match vars.get(NAME).map(|text| text.trim().parse()) {
        None => Ok(HttpAddr::DEFAULT),
        Some(Ok(HttpAddr::At(address))) => Ok(address),
        Some(Ok(HttpAddr::Off)) => Err(wrong(
            format!("{NAME} is off: the worker tells nobody how it is"),
            format!("{NAME}={}", HttpAddr::DEFAULT),
        )),
        Some(Err(ValueError { what, instead, .. })) => {
            Err(wrong(format!("{NAME}: {what}"), format!("{NAME}={instead}")))
        }
    }
}

/// Who listens on all addresses is asked on loopback.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn host_and_port(text: &str) -> Result<String, String> {
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let url = Url::parse(&format!("http://{text}/")).ok().filter(|url| has_port && url.path() == "/");
    url.map(|_| text.to_owned()).ok_or_else(|| "it is written host:port, as in 127.0.0.1:9464".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_on_all_addresses_is_asked_on_this_machine() {
        for (listens, asked) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("10.0.0.7:80", "10.0.0.7:80"),
            ("127.0.0.1:9464", "127.0.0.1:9464"),
        ] {
            assert_eq!(reachable(listens.parse().expect("an address")).to_string(), asked);
        }
    }
}
