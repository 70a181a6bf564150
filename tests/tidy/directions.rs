//! Who may name whom: the directions and rooms of ARCHITECTURE.md.
//!
//! The binary may name everything. A room is a module of the library with what lies under it; an adapter is a room of
//! its own inside its port, and so are parts that only some may see. What a room needs and may not name is handed to it by who makes it.

use crate::{File, at, production, tidy};

/// A room, and the paths of this crate that it may name beside its own. Exceptions to "downwards only" say why.
const ROOMS: &[(&str, &str)] = &[
    ("causes", ""),
    ("seldom", ""),
    ("clock", ""),
    ("shutdown", ""),
    // What a copy in the DLQ carries is part of a message as it is received.
    // A delivery is counted while it is in hand.
    ("message", "clock lease settle::dead_letter telemetry::InHand"),
    // A key becomes a primary key here, so that nobody else builds or takes apart one.
    ("key", "message guard::Pk"),
    ("lease", "clock"),
    ("queue", "clock message"),
    ("queue::sqs", "aws clock message queue"),
    ("queue::memory", "clock message queue testing::faults"),
    ("bodies", "message"),
    ("bodies::s3", "aws bodies clock message"),
    ("bodies::memory", "bodies message testing::faults"),
    ("guard", "clock key message"),
    ("guard::dynamodb", "aws clock guard"),
    ("guard::memory", "clock guard testing::faults"),
    // A claim is never longer than SQS lets a message be hidden; what it could not write waits for an outage's end.
    ("guard::execution", "clock guard guard::outage lease queue::LONGEST_VISIBILITY"),
    ("guard::outage", "clock guard"),
    // What is wrong with a table is told as what is wrong with a setting.
    ("guard::admin", "config::Problem guard"),
    ("config", "key message::Pointer queue::LONGEST_VISIBILITY queue::QueueAddress"),
    // Named by whoever looks, before a start or as a tool: pure, over what was found.
    ("fit", "config queue"),
    // What is wrong with a region or an endpoint is told as what is wrong with a setting.
    ("aws", "bodies::s3 clock config::Problem config::env queue::sqs guard::dynamodb telemetry"),
    // It asks ECS's agent, at addresses that the environment has; what it is told of the work is handed in.
    ("ecs", "clock config::env telemetry"),
    ("handler", "clock guard guard::execution key message"),
    // Of the environment, a program gets what `config::env` leaves in.
    ("handler::exec", "clock config::env handler message"),
    // Made of values that settings have, which are checked where they are read.
    (
        "handler::http",
        "clock config::HandlerHeader config::PermanentStatus config::ValueError config::http handler message",
    ),
    ("settle", "clock guard lease message queue"),
    // The job never touches the queue; of it, it knows how long a message can be hidden.
    (
        "job",
        "bodies clock config guard guard::execution guard::outage handler key lease message queue::LONGEST_VISIBILITY settle status::FailureStatus status::RunStatus telemetry",
    ),
    (
        "worker",
        "aws bodies clock config ecs fit guard guard::admin guard::dynamodb guard::outage handler handler::exec job lease message queue serve settle shutdown status telemetry",
    ),
    // Another way in for deliveries, beside the worker's polls: it puts queues together as the worker does, and acts on what
    // their jobs say in its own way. Whether it is under Lambda is told by the environment. What is counted goes out with an
    // answer, or not at all.
    ("lambda", "clock config guard::outage job lease message queue settle telemetry worker"),
    // Tools act on queues and records by themselves; of a worker, they know its settings.
    ("ops", "aws clock config fit guard guard::admin guard::dynamodb key message queue settle::dead_letter"),
    // It tells what it is handed, and hands questions to runs; it knows nothing of who made them.
    ("serve", "handler::remote handler::steps::Kind status telemetry"),
    ("status", ""),
    // Whoever acts counts; what is counted knows nothing of what it means.
    ("telemetry", ""),
    ("trace", "message"),
    (
        "testing",
        "bodies bodies::memory clock config::Config guard guard::memory message ops queue queue::memory settle::dead_letter shutdown worker",
    ),
    ("embedded", "queue::Depth"),
    // What decodes is called where it is, so that a fuzzer finds what is wrong with that and not with what is around it.
    (
        "fuzzing",
        "clock config guard guard::dynamodb handler::error handler::exec handler::http key message queue queue::sqs settle::dead_letter",
    ),
];

/// May be named from everywhere: errors in full and what is behind them, lines that an outage repeats, spans, and where the
/// proofs plant a fault.
const EVERYWHERE: &str = "causes::in_full causes::NoCredentials seldom trace testing::planted testing::Planted";

#[test]
fn rooms_name_only_what_lies_below_them() {
    let mut found = Vec::new();
    for file in production().iter().filter(|file| file.path != "src/lib.rs" && !file.path.starts_with("src/bin/")) {
        let module = module(file);
        let Some((room, allowed)) = room(&module) else {
            found.push(at(file, 1, "a room that the list does not have"));
            continue;
        };
        for (line, named) in named(file, &module) {
            let mut may_name = allowed.split(' ').chain(EVERYWHERE.split(' ')).chain([room]);
            if !may_name.any(|path| within(&named, path) && is_outside_of_rooms_in(path, &named)) {
                found.push(at(file, line, &format!("{room} may not name {named}")));
            }
        }
    }
    tidy(
        &found,
        "Hand it in from above, or move it down. If the direction itself is wrong, change ROOMS in \
         tests/tidy/directions.rs and ARCHITECTURE.md together, and say why.",
    );
}

#[test]
fn the_sdk_stays_in_adapters_and_aws_rs() {
    // The last hands adapters what the SDK would.
    let rooms = ["src/queue/sqs", "src/guard/dynamodb", "src/bodies/s3", "src/aws.rs", "src/aws/", "src/fuzzing"];
    let crates = ["aws_sdk_sqs::", "aws_sdk_dynamodb::", "aws_sdk_s3::", "aws_smithy_"];
    let mut found = Vec::new();
    for file in production().iter().filter(|file| !rooms.iter().any(|room| file.path.starts_with(room))) {
        for (line, text) in file.production() {
            if crates.iter().any(|name| text.contains(name)) && text.contains("::") {
                found.push(at(file, line, text.trim()));
            }
        }
    }
    tidy(&found, "Say it in the port's words; the adapter turns them into the SDK's.");
}

#[test]
fn the_environment_is_read_in_one_place() {
    let reads = ["env::var", "env::vars", "env::set_var", "env::remove_var", "env = \""];
    let mut found = Vec::new();
    for file in production().iter().filter(|file| file.path != "src/config/env.rs") {
        for (line, text) in file.production() {
            if reads.iter().any(|read| text.contains(read)) {
                found.push(at(file, line, text.trim()));
            }
        }
    }
    tidy(&found, "Make it a setting in src/config/settings.rs; src/config/env.rs reads it with all others, once.");
}

/// A file's module, as a path in this crate.
fn module(file: &File) -> String {
    file.path.trim_start_matches("src/").trim_end_matches(".rs").replace('/', "::")
}

/// The innermost room of a module.
fn room(module: &str) -> Option<(&'static str, &'static str)> {
    ROOMS.iter().filter(|(room, _)| within(module, room)).max_by_key(|(room, _)| room.len()).copied()
}

/// Whoever may name a port may not, by that alone, name the rooms in it.
fn is_outside_of_rooms_in(path: &str, named: &str) -> bool {
    room(named).is_none_or(|(room, _)| within(path, room))
}

fn within(path: &str, room: &str) -> bool {
    path.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The paths of this crate that a file names, from its top, with the lines where they begin.
fn named(file: &File, module: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = file.production();
    while let Some((number, line)) = lines.next() {
        let starts = line.match_indices("crate::").chain(line.match_indices("super::"));
        let inner = |start: &usize| !line[..*start].ends_with(|c: char| c == ':' || c == '_' || c.is_alphanumeric());
        for start in starts.map(|(start, _)| start).filter(inner).collect::<Vec<_>>() {
            let mut tree = line[start..].to_owned();
            while tree.matches('{').count() > tree.matches('}').count() && line.trim_start().contains("use ") {
                let Some((_, next)) = lines.next() else { break };
                tree.push_str(next.trim());
            }
            found.extend(leaves(&tree).into_iter().filter_map(|path| Some((number, from_the_top(&path, module)?))));
        }
    }
    found
}

/// `a::{b, c::{d, e}}` is `a::b`, `a::c::d` and `a::c::e`.
fn leaves(tree: &str) -> Vec<String> {
    let end = tree.find(|c: char| !(c == ':' || c == '_' || c.is_alphanumeric())).unwrap_or(tree.len());
    let (path, rest) = tree.split_at(end);
    if !(path.ends_with("::") && rest.starts_with('{')) {
        return vec![path.trim_end_matches(':').to_owned()];
    }
    let (mut depth, mut start, mut found) = (0, 1, Vec::new());
    for (index, c) in rest.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if (c == ',' && depth == 1) || depth == 0 {
            let part = rest[start..index].trim();
            found.extend(leaves(part).iter().filter(|leaf| !leaf.is_empty()).map(|leaf| format!("{path}{leaf}")));
            start = index + 1;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Resolves `crate` and `super`.
fn from_the_top(path: &str, module: &str) -> Option<String> {
    if let Some(path) = path.strip_prefix("crate::") {
        return Some(path.to_owned());
    }
    let (mut path, mut base): (&str, Vec<&str>) = (path, module.split("::").collect());
    while let Some(rest) = path.strip_prefix("super::") {
        base.pop()?;
        path = rest;
    }
    base.push(path);
    Some(base.join("::"))
}
