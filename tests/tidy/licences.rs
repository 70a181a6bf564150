//! What is in the dependency graph may be used: `deny.toml`'s licences and sources, for machines without cargo-deny.
//!
//! Sees the packages for the machine it runs on; `cargo deny` sees those of all platforms.

use std::{path::Path, process::Command};

use serde_json::Value;

use crate::{repository, tidy};

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn dependencies_have_licences_and_sources_that_we_allow() {
    let allowed = allowed();
    assert!(allowed.contains(&"MIT".to_owned()), "deny.toml's list of licences was not found: {allowed:?}");
    let mut found = Vec::new();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 100, "the graph was not found");
    for package in packages {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or_default());
        if !Expression::new(licence).holds(&allowed) {
            found.push(format!("{name}: its licence is {licence:?}"));
        }
        if !package["source"].is_null() && package["source"] != REGISTRY {
            found.push(format!("{name}: it comes from {}", package["source"]));
        }
    }
    tidy(&found, "Use another crate; or, if the licence is as free as ours, allow it in deny.toml.");
}

#[test]
fn licence_expressions_are_read_as_spdx_means_them() {
    let allowed = ["MIT".to_owned(), "ISC".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()];
    let holds = |text: &str| Expression::new(text).holds(&allowed);
    for good in ["MIT", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "MIT AND (ISC OR GPL-3.0)", "Apache-2.0 WITH LLVM-exception"] {
        assert!(holds(good), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "Apache-2.0", "MIT OR ISC AND", "MIT ISC"]
    {
        assert!(!holds(bad), "{bad}");
    }
}

/// The list in `deny.toml`, one licence on a line.
fn allowed() -> Vec<String> {
    let files = repository();
    let deny = files.iter().find(|file| file.path == "deny.toml").expect("deny.toml");
    let lines = deny.text.lines().skip_while(|line| *line != "allow = [").skip(1).take_while(|line| *line != "]");
    lines.filter_map(|line| Some(line.trim().strip_prefix('"')?.split_once('"')?.0.to_owned())).collect()
}

/// Of this machine's packages, which were downloaded to build this test: nothing is asked of the network.
fn metadata() -> Value {
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        let output =
            command.args(arguments).current_dir(Path::new(env!("CARGO_MANIFEST_DIR"))).output().expect("cargo");
        assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let version = cargo(&["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let flags =
        ["metadata", "--format-version=1", "--locked", "--offline", "--all-features", "--filter-platform", host];
    serde_json::from_str(&cargo(&flags)).expect("JSON")
}

/// An SPDX expression: `OR` of `AND`s of licences and parentheses; the old `/` is an `OR`.
struct Expression<'a> {
    words: Vec<&'a str>,
    next: usize,
}

impl<'a> Expression<'a> {
    fn new(text: &'a str) -> Self {
        let mut words = Vec::new();
        for word in text.split_whitespace() {
            let mut rest = word;
            while let Some(end) = rest.find(['(', ')', '/']) {
                let (before, mark) = rest.split_at(end);
                words.extend([before, &mark[..1]].into_iter().filter(|word| !word.is_empty()));
                rest = &mark[1..];
            }
            words.extend(Some(rest).filter(|word| !word.is_empty()));
        }
        Self { words, next: 0 }
    }

    /// Whether the allowed licences are enough. What cannot be read is not.
    fn holds(mut self, allowed: &[String]) -> bool {
        self.any(allowed) == Some(true) && self.next == self.words.len()
    }

    fn any(&mut self, allowed: &[String]) -> Option<bool> {
        let mut holds = self.all(allowed)?;
        while self.take(&["OR", "/"]) {
            holds |= self.all(allowed)?;
        }
        Some(holds)
    }

    fn all(&mut self, allowed: &[String]) -> Option<bool> {
        let mut holds = self.one(allowed)?;
        while self.take(&["AND"]) {
            holds &= self.one(allowed)?;
        }
        Some(holds)
    }

    fn one(&mut self, allowed: &[String]) -> Option<bool> {
        if self.take(&["("]) {
            let holds = self.any(allowed)?;
            return self.take(&[")"]).then_some(holds);
        }
        let mut licence = (*self.words.get(self.next)?).to_owned();
        self.next += 1;
        if self.take(&["WITH"]) {
            licence = format!("{licence} WITH {}", self.words.get(self.next)?);
            self.next += 1;
        }
        Some(allowed.contains(&licence))
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let there = self.words.get(self.next).is_some_and(|word| words.contains(word));
        self.next += usize::from(there);
        there
    }
}
