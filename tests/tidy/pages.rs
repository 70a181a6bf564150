//! What the pages say must be so: settings, versions, and the rules that code and tests name.

use std::collections::BTreeSet;

use crate::{File, at, generated, repository, rust, tidy};

fn page(path: &str) -> File {
    repository().into_iter().find(|file| file.path == path).expect("the page is there")
}

#[test]
fn the_readme_lists_the_settings() {
    let mend = "UPDATE=1 cargo test --all-features --test tidy settings writes them.";
    generated("README.md", "settings", &leasehold::config::table(), "src/config/settings.rs", mend);
}

#[test]
fn the_changelog_tells_of_this_version() {
    let heading = format!("\n## {}", env!("CARGO_PKG_VERSION"));
    if !page("CHANGELOG.md").text.contains(&heading) {
        let found = format!("CHANGELOG.md: nothing under {:?}", heading.trim());
        tidy(&[found], "Say there what changes for those who use it, in their words.");
    }
}

/// The rules by number: `R1`, `G12`. Listed in ARCHITECTURE.md, each at the head of a line of its own.
fn rules() -> BTreeSet<String> {
    let page = page("ARCHITECTURE.md");
    let named = page.text.lines().filter_map(|line| Some(line.strip_prefix("- **")?.split_once("**")?.0));
    named.filter(|name| is_rule(name)).map(str::to_owned).collect()
}

fn is_rule(name: &str) -> bool {
    let digits = name.strip_prefix(['R', 'L', 'G', 'S', 'T', 'D']).unwrap_or_default();
    !digits.is_empty() && digits.len() <= 2 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[test]
fn the_rules_are_listed_without_a_gap() {
    let missing: Vec<String> = [('R', 6), ('L', 10), ('G', 12), ('S', 3), ('T', 6), ('D', 4)]
        .into_iter()
        .flat_map(|(letter, last)| (1..=last).map(move |number| format!("{letter}{number}")))
        .filter(|rule| !rules().contains(rule))
        .map(|rule| format!("ARCHITECTURE.md: rule {rule} is not listed"))
        .collect();
    tidy(&missing, "Every rule has one line there, beginning with its number: - **R1** ...");
}

#[test]
fn rules_that_are_named_exist() {
    let rules = rules();
    let mut found = Vec::new();
    for file in &rust("") {
        for (index, line) in file.text.lines().enumerate() {
            let unknown = named_in(line).into_iter().filter(|rule| !rules.contains(rule));
            found.extend(unknown.map(|rule| at(file, index + 1, &format!("there is no rule {rule}"))));
        }
    }
    tidy(&found, "The rules are listed in ARCHITECTURE.md; a test is named after the one that it proves.");
}

/// The rules that a line names: in the name of a test, `fn g3_...`, or in a comment, `(rules L5 and G3)`.
fn named_in(line: &str) -> Vec<String> {
    let line = line.trim();
    let test =
        line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")).and_then(|name| name.split_once('_'));
    let of_test = test.map(|(head, _)| head.to_uppercase()).filter(|head| is_rule(head));
    let after = line.split_once("rule ").or_else(|| line.split_once("rules ")).map_or("", |(_, after)| after);
    let words = after.split([' ', ',', '.', ')', ':', ';', '\'']).filter(|word| !word.is_empty());
    let of_comment = words.take_while(|word| is_rule(word) || *word == "and").filter(|word| is_rule(word));
    of_test.into_iter().chain(of_comment.map(str::to_owned)).collect()
}

/// Pages that say by what tests something is shown.
const NAME_TESTS: [&str; 2] = ["ARCHITECTURE.md", "docs/faults.md"];

/// The simulation's invariants are numbered in its opening.
const SIMULATION: &str = "tests/worker/simulation.rs";

#[test]
fn tests_that_are_named_exist() {
    let (sources, simulation) = (rust(""), page(SIMULATION));
    let is_there = |path: &str, name: &str| {
        let function = format!("fn {name}(");
        sources.iter().any(|file| file.path == path && file.code().any(|(_, line)| line.contains(&function)))
    };
    let is_invariant = |number: u32| simulation.text.lines().any(|line| line.starts_with(&format!("//! {number}. ")));
    let mut found = Vec::new();
    for page in NAME_TESTS.map(page) {
        let mut named = 0;
        for (index, line) in page.text.lines().enumerate() {
            // Every second part of a line stands between backticks.
            let tests = line.split('`').skip(1).step_by(2).filter_map(|quoted| quoted.split_once("::"));
            for (path, name) in tests.filter(|(path, _)| path.ends_with(".rs")) {
                named += 1;
                if !is_there(path, name) {
                    found.push(at(&page, index + 1, &format!("there is no {name} in {path}")));
                }
            }
            let unknown = invariants_in(line).into_iter().filter(|number| !is_invariant(*number));
            found.extend(unknown.map(|number| at(&page, index + 1, &format!("there is no invariant {number}"))));
        }
        assert!(named > 0, "{} names no test", page.path);
    }
    tidy(&found, "Name the test that shows it now, as `path.rs::name`; if there is none, write one.");
}

/// The numbers that a line names as invariants: `invariant 8`, `invariants 2, 3 and 4`.
fn invariants_in(line: &str) -> Vec<u32> {
    let line = line.to_lowercase();
    let Some((_, after)) = line.split_once("invariant ").or_else(|| line.split_once("invariants ")) else {
        return Vec::new();
    };
    let words = after.split([' ', ',', '.', ';', '<', ')']).filter(|word| !word.is_empty());
    words
        .take_while(|word| *word == "and" || word.parse::<u32>().is_ok())
        .filter_map(|word| word.parse().ok())
        .collect()
}

#[test]
fn every_fault_is_shown_or_cannot_happen_or_is_not_there_yet() {
    let faults = page("docs/faults.md");
    let rows =
        || faults.text.lines().enumerate().filter(|(_, line)| line.starts_with("| ") && !line.starts_with("| ---"));
    let mut found = Vec::new();
    for (index, line) in rows().filter(|(_, line)| !line.starts_with("| what went wrong")) {
        let shown = line.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        if !["::", "Invariant ", "Cannot happen", "not there yet"].iter().any(|word| shown.contains(word)) {
            found.push(at(&faults, index + 1, "nothing shows it"));
        }
    }
    assert!(rows().count() > 70, "its rows are not found");
    tidy(&found, "Name its test, or say why it cannot happen, or that what it is about is not there yet.");
}
