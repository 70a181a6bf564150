//! What source files look like: their openings, their sizes, and what must not be in them.

use crate::{File, at, production, repository, rust, tidy};

/// With more lines before its tests a file deserves a hard look; those that had it, and why they are in one piece.
const HARD_LOOK: usize = 350;
const LONG_FILES: &[(&str, &str)] = &[
    ("src/config/settings.rs", "one table, that grows by a row for a setting"),
    ("src/job.rs", "the life of a message reads from top to bottom"),
    ("src/queue/memory.rs", "one model of SQS: calls, and what they mean"),
    ("src/queue/memory/store.rs", "the same model's state"),
];

/// In a module as short as this, a line says it all.
const TINY: usize = 60;

/// No file is longer, whatever it is.
const LONGEST_FILE: usize = 600;

#[test]
fn modules_open_with_what_they_own() {
    let mut found = Vec::new();
    for (files, least) in [(production(), 2), (rust("tests/"), 1), (rust("benches/"), 1)] {
        for file in &files {
            let lines = file.text.lines().take_while(|line| line.starts_with("//!")).count();
            let least = if file.text.lines().count() < TINY { 1 } else { least };
            if lines < least {
                found.push(at(file, 1, &format!("{lines} lines of //!, and {least} are the least")));
            }
        }
    }
    tidy(&found, "Open it with two to six lines of //!: what it owns, what it relies on, what it must never do.");
}

#[test]
fn files_are_short_or_say_why_not() {
    let mut found = Vec::new();
    let length = |file: &File| file.text.lines().count();
    for file in rust("").iter().filter(|file| length(file) > LONGEST_FILE) {
        found.push(at(file, LONGEST_FILE, &format!("{} lines, and {LONGEST_FILE} are the most", length(file))));
    }
    let production = production();
    for file in production.iter().filter(|file| file.production_lines() > HARD_LOOK) {
        if !LONG_FILES.iter().any(|(path, _)| *path == file.path) {
            let lines = file.production_lines();
            found.push(at(file, HARD_LOOK, &format!("{lines} lines before its tests deserve a hard look")));
        }
    }
    for (path, _) in LONG_FILES {
        if production.iter().all(|file| file.path != *path) {
            found.push(format!("{path}: is in LONG_FILES, and is not there"));
        }
    }
    tidy(
        &found,
        "Move a concept out. If it is one concept, add it to LONG_FILES in tests/tidy/source.rs, with the reason.",
    );
}

#[test]
fn every_select_is_biased_and_says_why() {
    let select = ["select", "! {"].concat();
    let production = paths(&production());
    let mut found = Vec::new();
    for file in &rust("") {
        let lines: Vec<&str> = file.text.lines().collect();
        let tests_begin = file.production_lines();
        for (line, text) in file.code().filter(|(_, text)| text.contains(&select)) {
            let inside = text.split_once(&select).map_or("", |(_, inside)| inside.trim());
            let mut after = lines[line..].iter().map(|text| text.trim());
            let comments = after.by_ref().take_while(|text| text.starts_with("//")).count();
            let first = lines[line..].get(comments).map_or("", |text| text.trim());
            if !inside.starts_with("biased;") && first != "biased;" {
                found.push(at(file, line, "a select! that is not biased"));
            }
            let above = lines[line.saturating_sub(4)..line - 1].iter().any(|text| text.trim().starts_with("//"));
            let below = lines.get(line + comments + 1).is_some_and(|text| text.trim().starts_with("//"));
            if production.contains(&file.path) && line <= tests_begin && comments == 0 && !above && !below {
                found.push(at(file, line, "a select! without a word on its arms"));
            }
        }
    }
    tidy(&found, "Begin it with `biased;` and a comment: why this order, and what a losing arm throws away.");
}

#[test]
fn every_task_has_an_owner() {
    // Here and below: in parts, or the line would be a place itself.
    let bare = ["tokio::", "task::", "thread::"].map(|path| format!("{path}spawn("));
    let mut found = Vec::new();
    for file in &rust("") {
        for (line, text) in file.code().filter(|(_, text)| bare.iter().any(|call| text.contains(call.as_str()))) {
            found.push(at(file, line, text.trim()));
        }
    }
    tidy(&found, "Spawn it on a JoinSet that somebody awaits, or wrap the future instead.");
}

#[test]
fn no_test_is_ignored() {
    let mark = ["#[", "ignore"].concat();
    let mut found = Vec::new();
    for file in &rust("") {
        found.extend(
            file.code().filter(|(_, text)| text.contains(&mark)).map(|(line, text)| at(file, line, text.trim())),
        );
    }
    tidy(&found, "Mend it or take it out: a test that is not run proves nothing, and looks as if it did.");
}

/// Tests that talk to real sockets and processes: their clock cannot be paused.
const REAL_TIME: [&str; 3] = ["tests/contract/", "tests/localstack/", "tests/process/"];

/// Delay replies for a living: what they sleep is the fault that they make, and nothing is waited for.
const FAULT_MAKERS: [&str; 2] = ["tests/process/proxy.rs", "tests/process/credentials/agent.rs"];

#[test]
fn tests_sleep_on_a_paused_clock_or_not_at_all() {
    let sleep = ["sl", "eep("].concat();
    let production = paths(&production());
    let mut found = Vec::new();
    for file in rust("")
        .iter()
        .filter(|file| !file.path.starts_with("examples/") && !FAULT_MAKERS.contains(&file.path.as_str()))
    {
        let tests_begin = if production.contains(&file.path) { file.production_lines() } else { 0 };
        let paused = |text: &str| !text.contains("#[tokio::test") || text.contains("start_paused");
        let real =
            REAL_TIME.iter().any(|room| file.path.starts_with(room)) || !file.code().all(|(_, text)| paused(text));
        for (line, text) in file.code().filter(|(line, text)| *line > tests_begin && text.contains(&sleep)) {
            if real || text.contains(&format!("thread::{sleep}")) {
                found.push(at(file, line, text.trim()));
            }
        }
    }
    tidy(
        &found,
        "Wait for what you wait for (a reply, a line, a long poll), or use #[tokio::test(start_paused = true)].",
    );
}

#[test]
fn nothing_is_left_open_and_no_machine_is_named() {
    let marks = ["TO|DO", "FIX|ME", "XX|X", "to|do!(", "unimple|mented!(", "/wo|rk/", "/ro|ot/", "/ho|me/", "/Us|ers/"];
    let marks = marks.map(|mark| mark.replace('|', ""));
    let mut found = Vec::new();
    for file in &repository() {
        for (index, text) in file.text.lines().enumerate() {
            if marks.iter().any(|mark| text.contains(mark.as_str())) {
                found.push(at(file, index + 1, text.trim()));
            }
        }
    }
    tidy(&found, "Do it, or file it as an issue; a path is an argument, a variable, or relative to the repository.");
}

fn paths(files: &[File]) -> Vec<String> {
    files.iter().map(|file| file.path.clone()).collect()
}
