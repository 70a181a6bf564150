//! What the pages say must be so: settings, versions, and the rules that code and tests name.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{File, at, repository, rust, tidy};

const BEGIN: &str = "<!-- settings: begin -->\n";
const END: &str = "<!-- settings: end -->\n";

fn page(path: &str) -> File {
    repository().into_iter().find(|file| file.path == path).expect("the page is there")
}

#[test]
fn the_readme_lists_the_settings() {
    let readme = page("README.md");
    let (before, rest) = readme.text.split_once(BEGIN).expect("README.md has the mark where its settings begin");
    let (listed, after) = rest.split_once(END).expect("README.md has the mark where its settings end");
    let table = format!("\n{}\n", leasehold::config::table().trim_end());
    if listed.trim_end() == table.trim_end() {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests, no setting of the worker")]
    let update = std::env::var("UPDATE").is_ok_and(|value| value == "1");
    if update {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&readme.path);
        fs::write(path, format!("{before}{BEGIN}{table}\n{END}{after}")).expect("README.md can be written");
        return;
    }
    let found = "README.md: its settings are not those of src/config/settings.rs".to_owned();
    tidy(&[found], "UPDATE=1 cargo test --all-features --test tidy settings writes them.");
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
