//! What `dev` runs with: the environment's settings, those of the command line, and shorter waits.
//!
//! Pure. Whatever a queue or a table is called on AWS, here it has the last part of that as its name. Must never override
//! what somebody has set.

use std::collections::BTreeMap;

use leasehold::{
    Config, Problem,
    config::{DeadLetter, GuardMode, variable},
    queue::usual_dead_letter_name,
};

use super::Args;
use crate::local;

/// What makes people wait in production, shorter. Where somebody's own settings do not fit beside these, they are left
/// out.
const SHORTER: [(&str, &str); 6] = [
    ("BACKOFF", "1s..10s"),
    ("CANCEL_GRACE", "1s"),
    ("CLOCK_SKEW", "250ms"),
    ("DRAIN_TIMEOUT", "10s"),
    ("VISIBILITY_TIMEOUT", "4s"),
    ("WAIT_TIME", "2s"),
];

/// The outcome of every message, and what programs write.
const LOG: &str = "info,leasehold::outcome=debug,leasehold::handler=debug";

/// That a timeout is short for its handlers is no news of the one that is chosen here.
const NOT_OF_OURS: &str = ",leasehold::lease::visibility=error";

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) warnings: Vec<String>,
    /// Those of [`SHORTER`] that are in force.
    pub(super) shorter: Vec<(&'static str, &'static str)>,
}

impl Settings {
    pub(super) fn new(vars: BTreeMap<String, String>, args: &Args) -> Result<Self, Vec<Problem>> {
        Self::read(vars, args).map_err(|problems| problems.into_iter().map(|problem| as_typed(problem, args)).collect())
    }

    fn read(mut vars: BTreeMap<String, String>, args: &Args) -> Result<Self, Vec<Problem>> {
        let queue = named(&mut vars, args)?;
        for (setting, value) in [("KEY", &args.key), ("HANDLER", &args.handler)] {
            if let (Some(queue), Some(value)) = (&queue, value) {
                vars.insert(variable(queue, setting), value.clone());
            }
        }
        let unset = |setting: &str| !vars.contains_key(&format!("LEASEHOLD_{setting}"));
        let log_is_ours = unset("LOG");
        let mut shorter: Vec<_> = SHORTER.into_iter().filter(|(setting, _)| unset(setting)).collect();
        let more = shorter.iter().map(|(setting, value)| (format!("LEASEHOLD_{setting}"), (*value).to_owned()));
        let read = Config::from_vars(vars.clone().into_iter().chain(more)).or_else(|_| {
            shorter.clear();
            Config::from_vars(vars)
        });
        let (mut config, warnings) = read?;
        if log_is_ours {
            config.log = LOG.to_owned();
            if shorter.iter().any(|(setting, _)| *setting == "VISIBILITY_TIMEOUT") {
                config.log.push_str(NOT_OF_OURS);
            }
        }
        if let Some(queue) = args.queue.as_ref().and(queue) {
            config.queues.retain(|name, _| *name == queue);
        }
        to_this_machine(&mut config);
        let problems: Vec<_> = config.check().into_iter().chain(keyless(&config)).collect();
        let warnings = warnings.iter().map(ToString::to_string).collect();
        if problems.is_empty() { Ok(Self { config, warnings, shorter }) } else { Err(problems) }
    }

    /// The queues to make, each with its dead-letter queue if it has a redrive policy, in an order in which they can be
    /// made.
    pub(super) fn queues(&self) -> Vec<(String, Option<String>)> {
        let mut queues = BTreeMap::new();
        for queue in self.config.queues.values() {
            let name = queue.address.queue_name();
            let dead = (queue.dead_letter == DeadLetter::RedrivePolicy).then(|| usual_dead_letter_name(name));
            queues.insert(name.to_owned(), dead);
        }
        let targets = self.config.queues.values().filter_map(|queue| match &queue.dead_letter {
            DeadLetter::Queue(address) => Some(address.queue_name().to_owned()),
            _ => None,
        });
        for dead in queues.values().flatten().cloned().chain(targets).collect::<Vec<_>>() {
            queues.entry(dead).or_insert(None);
        }
        let mut queues: Vec<_> = queues.into_iter().collect();
        // A dead-letter queue has the longer name.
        queues.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        queues
    }
}

/// The queue that options are for, added to `LEASEHOLD_QUEUES` if it is not among them.
fn named(vars: &mut BTreeMap<String, String>, args: &Args) -> Result<Option<String>, Vec<Problem>> {
    let listed = vars.get("LEASEHOLD_QUEUES").cloned().unwrap_or_default();
    let names: Vec<&str> = listed.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    match (&args.queue, names.as_slice()) {
        (Some(queue), names) => {
            if !names.contains(&queue.as_str()) {
                vars.insert(
                    "LEASEHOLD_QUEUES".to_owned(),
                    names.iter().chain([&queue.as_str()]).copied().collect::<Vec<_>>().join(","),
                );
            }
            Ok(Some(queue.clone()))
        }
        (None, []) => Err(vec![Problem::new(
            "there is no queue: name one here, or in LEASEHOLD_QUEUES",
            "leasehold dev payments --key /id --handler 'exec:cat'\n    export LEASEHOLD_QUEUES=payments",
        )]),
        (None, [one]) => Ok(Some((*one).to_owned())),
        (None, [first, ..]) if args.key.is_some() || args.handler.is_some() => Err(vec![Problem::new(
            format!("--key and --handler are for one queue, and LEASEHOLD_QUEUES names {}", names.len()),
            format!("leasehold dev {first} …"),
        )]),
        (None, _) => Ok(None),
    }
}

/// A problem of a setting that came from the command line, told as what was typed there.
fn as_typed(mut problem: Problem, args: &Args) -> Problem {
    let Some(queue) = &args.queue else { return problem };
    let typed = [
        ("LEASEHOLD_QUEUES".to_owned(), "the queue", "leasehold dev "),
        (variable(queue, "KEY"), "--key", "--key "),
        (variable(queue, "HANDLER"), "--handler", "--handler "),
    ];
    let given = [true, args.key.is_some(), args.handler.is_some()];
    for ((variable, name, option), _) in typed.into_iter().zip(given).filter(|(_, given)| *given) {
        if let (Some(what), Some(mend)) =
            (problem.what.strip_prefix(&variable), problem.mend.strip_prefix(&format!("{variable}=")))
            && what.starts_with([':', ' '])
        {
            problem = Problem::new(format!("{name}{what}"), format!("{option}{mend}"));
        }
    }
    problem
}

fn to_this_machine(config: &mut Config) {
    config.table = table_name(&config.table).to_owned();
    for queue in config.queues.values_mut() {
        queue.address = local::address(&queue.address);
        if let DeadLetter::Queue(address) = &queue.dead_letter {
            queue.dead_letter = DeadLetter::Queue(local::address(address));
        }
    }
}

/// Queues whose messages would be handled, and have nothing to tell their work by.
fn keyless(config: &Config) -> impl Iterator<Item = Problem> {
    let keyless = config
        .queues
        .iter()
        .filter(|(_, queue)| queue.handler.is_some() && queue.key.is_none() && queue.guard == GuardMode::Claim);
    keyless.map(|(name, _)| {
        let what = format!("the queue {name:?} has no idempotency key: say which part of a message names its work");
        let key = variable(name, "KEY");
        Problem::new(what, format!("leasehold dev {name} --key /id\n    export {key}=/id"))
    })
}

/// A table's name: of an ARN what stands last, and all of a plain name.
fn table_name(table: &str) -> &str {
    table.rsplit('/').next().unwrap_or(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_one_name_here_however_it_is_named_there() {
        assert_eq!(table_name("arn:aws:dynamodb:eu-central-1:123456789012:table/leasehold"), "leasehold");
        assert_eq!(table_name("leasehold"), "leasehold");
    }

    fn args(queue: Option<&str>, key: Option<&str>, handler: Option<&str>) -> Args {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Args { queue: owned(queue), key: owned(key), handler: owned(handler), port: 0 }
    }

    fn settings(lines: &[&str], args: &Args) -> Result<Settings, Vec<Problem>> {
        let vars = lines.iter().filter_map(|line| line.split_once('='));
        Settings::new(vars.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(), args)
    }

    #[test]
    fn a_queue_of_the_command_line_stands_alone_and_keeps_its_settings() {
        let lines = ["LEASEHOLD_QUEUES=a,b", "LEASEHOLD_B_CONCURRENCY=3", "LEASEHOLD_A_DONE_TTL=3d"];
        let of_b = settings(&lines, &args(Some("b"), Some("/id"), Some("exec:cat"))).expect("good settings");
        assert_eq!(of_b.config.queues.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(of_b.config.queues["b"].concurrency, 3);
        let of_c = settings(&lines, &args(Some("c"), None, None)).expect("good settings");
        assert_eq!(of_c.config.queues.keys().collect::<Vec<_>>(), ["c"]);
        assert_eq!(of_c.warnings, [] as [String; 0]);
        assert_eq!(settings(&lines, &args(None, None, None)).expect("good settings").config.queues.len(), 2);
    }

    #[test]
    fn waits_are_shorter_unless_set_and_never_in_the_way_of_what_is_set() {
        let plain = settings(&[], &args(Some("q"), None, None)).expect("good settings");
        assert_eq!(plain.shorter, SHORTER);
        let own = settings(&["LEASEHOLD_BACKOFF=5s"], &args(Some("q"), None, None)).expect("good settings");
        assert!(
            !own.shorter.iter().any(|(setting, _)| *setting == "BACKOFF") && own.shorter.len() == SHORTER.len() - 1
        );
        assert_eq!(own.config.queues["q"].backoff.to_string(), "5s");
        let grace = settings(&["LEASEHOLD_CANCEL_GRACE=8s"], &args(Some("q"), None, None)).expect("good settings");
        assert_eq!(grace.shorter, [], "half of 4s is less than 8s");
    }

    #[test]
    fn what_is_wrong_on_the_command_line_is_told_as_it_was_typed() {
        let told = |lines: &[&str], queue, key, handler| {
            let problems = settings(lines, &args(Some(queue), key, handler)).expect_err("a problem");
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let typed = told(&[], "q", Some("id"), Some("cat"));
        assert!(typed.contains("--key: ") && typed.contains("--key /id"), "{typed}");
        assert!(typed.contains("--handler: ") && !typed.contains("LEASEHOLD_"), "{typed}");
        assert!(told(&[], "a b", None, None).contains("leasehold dev a-b"));
        let of_a_variable = told(&["LEASEHOLD_Q_KEY=id"], "q", None, Some("exec:cat"));
        assert!(of_a_variable.contains("LEASEHOLD_Q_KEY=/id"), "{of_a_variable}");
        let other = told(&["LEASEHOLD_QUEUES=q,a b"], "q", None, None);
        assert!(other.contains("a b"), "{other}");
    }

    #[test]
    fn a_short_timeout_is_no_news_where_it_was_not_set_by_anybody() {
        let log = |lines: &[&str]| settings(lines, &args(Some("q"), None, None)).expect("good settings").config.log;
        assert!(log(&[]).ends_with("visibility=error"));
        assert!(!log(&["LEASEHOLD_VISIBILITY_TIMEOUT=5s"]).contains("visibility"));
        assert_eq!(log(&["LEASEHOLD_LOG=info"]), "info");
    }

    #[test]
    fn queues_come_after_their_dead_letter_queues() {
        let lines = [
            "LEASEHOLD_QUEUES=a,a-dlq,b.fifo,c",
            "LEASEHOLD_A_DLQ_DEAD_LETTER=keep",
            "LEASEHOLD_C_DEAD_LETTER=https://sqs.eu-central-1.amazonaws.com/1/graveyard",
        ];
        let queues = settings(&lines, &args(None, None, None)).expect("good settings").queues();
        let at = |name: &str| queues.iter().position(|(queue, _)| queue == name).unwrap_or_else(|| panic!("{name}"));
        assert!(at("a-dlq") < at("a") && at("b-dlq.fifo") < at("b.fifo"), "{queues:?}");
        assert_eq!(queues[at("a")].1.as_deref(), Some("a-dlq"));
        assert_eq!((&queues[at("c")].1, &queues[at("graveyard")].1, queues.len()), (&None, &None, 6));
    }

    #[test]
    fn two_queues_that_become_one_here_are_a_problem() {
        let lines = [
            "LEASEHOLD_QUEUES=a,b",
            "LEASEHOLD_A_URL=https://sqs.eu-central-1.amazonaws.com/1/q",
            "LEASEHOLD_B_URL=https://sqs.eu-central-1.amazonaws.com/2/q",
        ];
        let problems = settings(&lines, &args(None, None, None)).expect_err("a problem");
        assert!(problems[0].what.contains("one and the same"), "{}", problems[0]);
    }
}
