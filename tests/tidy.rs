//! The written law as tests: where things are, who may name whom, and what must not be there.
//!
//! Each test reads the text of the repository and says, for every place, what is wrong; its message says how to mend it.
//! Patterns are searched for in lines, not parsed: a false alarm is mended by plainer code, or by an exception with its
//! reason in the list beside the rule.
#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use std::{collections::BTreeSet, fs, path::Path};

#[path = "tidy/cloudwatch.rs"]
mod cloudwatch;
#[path = "tidy/deployment.rs"]
mod deployment;
#[path = "tidy/directions.rs"]
mod directions;
#[path = "tidy/licences.rs"]
mod licences;
#[path = "tidy/metrics.rs"]
mod metrics;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/policies.rs"]
mod policies;
#[path = "tidy/queries.rs"]
mod queries;
#[path = "tidy/source.rs"]
mod source;

/// One text file of the repository.
#[derive(Debug)]
pub(crate) struct File {
    /// From the top of the repository, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// Its lines that are not comments, with their numbers from 1.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// As [`code`](Self::code), without the tests at its end.
    pub(crate) fn production(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.production_lines();
        self.code().take_while(move |(number, _)| *number <= end)
    }

    /// How many lines come before the tests at its end.
    pub(crate) fn production_lines(&self) -> usize {
        let tests = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        self.text[..tests].lines().count()
    }
}

/// A place that breaks a rule.
pub(crate) fn at(file: &File, line: usize, what: &str) -> String {
    format!("{}:{line}: {what}", file.path)
}

/// Every text file that belongs to the repository.
pub(crate) fn repository() -> Vec<File> {
    let mut files = Vec::new();
    collect(Path::new(env!("CARGO_MANIFEST_DIR")), "", &mut files);
    assert!(files.iter().any(|file| file.path == "src/lib.rs"), "the repository is not where it was built");
    files
}

/// The Rust files under a folder.
pub(crate) fn rust(folder: &str) -> Vec<File> {
    let mut files = repository();
    files.retain(|file| file.path.starts_with(folder) && file.path.ends_with(".rs"));
    files
}

/// What is compiled into the library or the binary: no file of it is declared behind `#[cfg(test)]`.
pub(crate) fn production() -> Vec<File> {
    let mut files = rust("src/");
    let mut tests = BTreeSet::new();
    for file in &files {
        for (start, _) in file.text.match_indices("#[cfg(test)]\nmod ") {
            let name = file.text[start..].lines().nth(1).and_then(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
            tests.extend(name.map(|name| format!("{}/{name}", file.path.trim_end_matches(".rs"))));
        }
    }
    let is_test = |path: &str| path.match_indices(['/', '.']).any(|(end, _)| tests.contains(&path[..end]));
    files.retain(|file| !is_test(&file.path));
    files
}

/// What is hidden, and ours all the same.
const OURS: [&str; 3] = [".ci", ".editorconfig", ".gitignore"];

/// Everything that is not made by a tool: no build, no lock file, nothing of git's or an editor's.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).expect("a folder that can be read") {
        let entry = entry.expect("an entry that can be read");
        let name = entry.file_name().into_string().expect("a name in Unicode");
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().expect("a kind");
        let hidden = name.starts_with('.') && !OURS.contains(&name.as_str());
        if hidden || name == "target" {
            continue;
        }
        if kind.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if !name.ends_with(".lock")
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.push(File { path, text });
        }
    }
}

/// Fails with every place that was found and what to do about it.
#[track_caller]
pub(crate) fn tidy(found: &[String], mend: &str) {
    assert!(found.is_empty(), "\n\n{}\n\n{mend}\n", found.join("\n"));
}

/// What stands in a page between its marks is what the code says, which is in `source`; or is made so, with `UPDATE=1`.
#[track_caller]
pub(crate) fn generated(page: &str, mark: &str, expected: &str, source: &str, mend: &str) {
    let (begin, end) = (format!("<!-- {mark}: begin -->\n"), format!("<!-- {mark}: end -->\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = fs::read_to_string(&path).expect("a page");
    let (before, rest) = text.split_once(&begin).expect("the page has the mark where it begins");
    let (listed, after) = rest.split_once(&end).expect("the page has the mark where it ends");
    if listed.trim() == expected.trim() {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests, no setting of the worker")]
    let update = std::env::var("UPDATE").is_ok_and(|value| value == "1");
    if update {
        let page = format!("{before}{begin}\n{}\n\n{end}{after}", expected.trim());
        fs::write(path, page).expect("the page can be written");
        return;
    }
    tidy(&[format!("{page}: its {mark} are not those of {source}")], mend);
}
