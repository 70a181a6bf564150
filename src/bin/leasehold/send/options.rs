//! The options of `leasehold send`, and which of them fit together.
//!
//! Pure: what a single option cannot say is said by [`Args::check`], before anything is opened.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use leasehold::{
    config::DurationText,
    queue::{MOST_ATTRIBUTES, Outgoing, QueueAddress},
};
use url::Url;

use super::attribute::NamedAttribute;

pub(crate) const HELP: &str = "\
Examples:
  Into the queue of a `leasehold dev` on this machine, three times, to see that
  it takes effect once:

    leasehold send --endpoint-url http://127.0.0.1:4567 --repeat 3 \\
      payments '{\"id\":\"1\"}'

  A file, a message a line, to a queue on AWS; region and credentials are found
  as by every AWS tool:

    leasehold send payments --file messages.jsonl

  What another program prints:

    jq -c '.[]' payments.json | leasehold send payments

  A FIFO queue, one message after the other:

    leasehold send orders.fifo --group customer-7 --file orders.jsonl

  A fair queue, with attributes of every type; binary ones in hexadecimal:

    leasehold send jobs -g t7 -a n:Number=12.5 -a icon:Binary=89 '{\"id\":\"1\"}'

Exit codes:
  0   everything is sent
  64  the command line is wrong
  69  the queue did not answer
  78  there is no such queue, it may not be used, or the configuration is wrong
  1   some messages were not sent; each is on standard error, with its line and
      why";

/// Send messages to a queue
///
/// From arguments, a file or standard input. Sent in batches; on a FIFO queue one after the other. A message that cannot
/// be sent is told, with its line, and the others go on. One whose answer is lost is sent again, so on a standard queue it
/// may arrive twice, as every message may. Ctrl-C ends it when what is on the wire has arrived.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A name from LEASEHOLD_QUEUES, or a queue's name, URL or ARN in SQS
    pub(super) queue: String,

    /// The messages' bodies; `-` is standard input, as is none where that is no terminal
    #[arg(value_name = "BODY", conflicts_with = "file")]
    pub(super) bodies: Vec<String>,

    /// Read bodies from a file, one a line; `-` is standard input. Empty lines are none
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,

    /// The whole file or standard input is one body, not each of its lines
    #[arg(long)]
    pub(super) whole: bool,

    /// A message attribute for every message, of type String unless told; may be given several times. Binary values are
    /// in hexadecimal
    #[arg(short, long = "attribute", value_name = "NAME[:TYPE]=VALUE")]
    pub(super) attributes: Vec<NamedAttribute>,

    /// The message group; a FIFO queue needs one, and on a standard queue it makes the queue fair
    #[arg(short, long, value_name = "GROUP")]
    pub(super) group: Option<String>,

    /// The deduplication id of a single message on a FIFO queue; unless given, each message has one of its own
    #[arg(long, value_name = "ID")]
    pub(super) dedup_id: Option<String>,

    /// The X-Ray trace header, which is told to handlers; that of W3C is the attribute `traceparent`
    #[arg(long, value_name = "HEADER")]
    pub(super) trace_header: Option<String>,

    /// Hide the messages for so long at first, up to 15m; not on a FIFO queue
    #[arg(long, value_name = "DURATION")]
    pub(super) delay: Option<DurationText>,

    /// Send each body so many times: what producers do that are not sure
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) repeat: u64,

    /// Ask this endpoint, such as `leasehold dev` or LocalStack, with its region and keys unless AWS_REGION and
    /// AWS_ACCESS_KEY_ID are set
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    pub(super) endpoint_url: Option<Url>,

    /// Print one JSON object at the end
    #[arg(long)]
    pub(super) json: bool,
}

/// What bodies are read from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    Arguments(Vec<String>),
    File(PathBuf),
    Standard,
}

/// The longest that SQS hides a message at first.
const LONGEST_DELAY: Duration = Duration::from_secs(15 * 60);

impl Args {
    /// What single options cannot say. `typed` is whether standard input is a terminal.
    pub(super) fn check(&self, typed: bool) -> Result<(), String> {
        let input = self.input();
        if self.bodies.iter().any(|body| body == "-") && input != Input::Standard {
            return Err("- is standard input, and stands alone".to_owned());
        }
        if input == Input::Standard && typed && self.bodies.is_empty() && self.file.is_none() {
            return Err(format!(
                "nothing to send: give a body, as in\n\n    leasehold send {} '{{\"id\":\"1\"}}'\n\nor --file FILE, or - to type",
                self.queue
            ));
        }
        if self.whole && matches!(input, Input::Arguments(_)) {
            return Err("--whole is for --file and standard input; an argument is always one body".to_owned());
        }
        let names: BTreeMap<_, _> = self.attributes.iter().map(|attribute| (&attribute.name, ())).collect();
        if names.len() < self.attributes.len() {
            return Err("an --attribute is given twice".to_owned());
        }
        if names.len() > MOST_ATTRIBUTES {
            return Err(format!(
                "{} attributes are more than the {MOST_ATTRIBUTES} that a message can have",
                names.len()
            ));
        }
        if self.dedup_id.is_some() && !self.is_single(&input) {
            return Err("--dedup-id is for one message: of several with one id SQS keeps the first".to_owned());
        }
        if let Some(header) = self.trace_header.as_ref().filter(|header| !is_trace_header(header)) {
            return Err(format!(
                "{header:?} is no trace header, which looks like Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
            ));
        }
        match self.delay {
            Some(DurationText(delay)) if delay > LONGEST_DELAY || delay.subsec_nanos() > 0 => {
                Err("--delay takes whole seconds, up to 15m".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// What concerns FIFO queues, and the others.
    pub(super) fn check_for(&self, address: &QueueAddress) -> Result<(), String> {
        match (is_fifo(address), &self.group) {
            (true, None) => Err(format!(
                "{address} is a FIFO queue, whose messages belong to groups, each in order; name one:\n\n    \
                 leasehold send {} --group customer-7 …",
                self.queue
            )),
            (true, _) if self.delay.is_some() => {
                Err("--delay is not for FIFO queues: there only the queue has a delay".to_owned())
            }
            (false, _) if self.dedup_id.is_some() => {
                Err(format!("--dedup-id is for FIFO queues, and {address} is none"))
            }
            _ => Ok(()),
        }
    }

    fn is_single(&self, input: &Input) -> bool {
        match input {
            Input::Arguments(bodies) => bodies.len() == 1,
            Input::File(_) | Input::Standard => self.whole,
        }
    }

    pub(super) fn input(&self) -> Input {
        match (&self.file, self.bodies.as_slice()) {
            (Some(path), _) if path.as_os_str() != "-" => Input::File(path.clone()),
            (Some(_), _) | (None, []) => Input::Standard,
            (None, [one]) if one == "-" => Input::Standard,
            (None, bodies) => Input::Arguments(bodies.to_vec()),
        }
    }

    /// What goes along with every body.
    pub(super) fn outgoing(&self) -> Outgoing {
        let attributes =
            self.attributes.iter().map(|NamedAttribute { name, attribute }| (name.clone(), attribute.clone()));
        Outgoing {
            attributes: attributes.collect(),
            group: self.group.clone(),
            deduplication_id: self.dedup_id.clone(),
            trace_header: self.trace_header.clone(),
            delay: self.delay.map(|DurationText(delay)| delay),
            body: String::new(),
        }
    }
}

/// The name of a FIFO queue, and no other's, ends in `.fifo`; so do its URL and its ARN.
pub(super) fn is_fifo(address: &QueueAddress) -> bool {
    address.to_string().ends_with(".fifo")
}

/// Of X-Ray: <https://docs.aws.amazon.com/xray/latest/devguide/xray-concepts.html#xray-concepts-tracingheader>. SQS refuses
/// others.
fn is_trace_header(text: &str) -> bool {
    text.split(';').all(|part| part.split_once('=').is_some_and(|(name, _)| !name.is_empty() && part.is_ascii()))
}

fn endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| "it is no URL, such as http://127.0.0.1:4567".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        let words = shell_words::split(line).expect("words");
        Line::try_parse_from([vec!["send".to_owned()], words].concat()).expect(line).args
    }

    #[test]
    fn bodies_come_from_one_place() {
        let arguments = |bodies: &[&str]| Input::Arguments(bodies.iter().map(|body| (*body).to_owned()).collect());
        for (line, input) in [
            ("q a b", arguments(&["a", "b"])),
            ("q -", Input::Standard),
            ("q", Input::Standard),
            ("q --file -", Input::Standard),
            ("q --file x.jsonl", Input::File("x.jsonl".into())),
        ] {
            let args = args(line);
            assert_eq!(args.input(), input, "{line}");
            assert_eq!(args.check(false), Ok(()), "{line}");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_told_before_anything_is_sent() {
        for (line, told) in [
            ("q a -", "stands alone"),
            ("q a --whole", "--whole is for"),
            ("q a -a x=1 -a x=2", "given twice"),
            ("q a b --dedup-id 1", "SQS keeps the first"),
            ("q --file x --dedup-id 1", "SQS keeps the first"),
            ("q a --delay 16m", "up to 15m"),
            ("q a --delay 1500ms", "whole seconds"),
            ("q a --trace-header 'Root 1'", "no trace header"),
            (&format!("q a {}", (0..11).map(|n| format!("-a a{n}=1 ")).collect::<String>()), "more than the 10"),
        ] {
            let problem = args(line).check(false).expect_err(line);
            assert!(problem.contains(told), "{line}: {problem}");
        }
        let typed = args("payments").check(true).expect_err("nothing to send");
        assert!(typed.contains("leasehold send payments '{\"id\":\"1\"}'"), "{typed}");
    }

    #[test]
    fn fifo_queues_want_a_group_and_others_no_deduplication() {
        let check = |line: &str| {
            let args = args(line);
            args.check_for(&args.queue.parse().expect("a queue"))
        };
        assert!(check("q.fifo a").expect_err("no group").contains("leasehold send q.fifo --group"));
        assert!(check("q.fifo a -g 1 --delay 1s").is_err());
        assert!(check("q a --dedup-id 1").is_err());
        assert_eq!(check("q.fifo a -g 1 --dedup-id 1"), Ok(()));
        assert_eq!(check("q a -g 1 --delay 1s"), Ok(()), "a fair queue");
    }
}
