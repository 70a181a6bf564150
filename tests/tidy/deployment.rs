//! What it is deployed by must fit together, and fit the program: image, compose file, templates.
//!
//! No engine builds the image here. Its steps are taken as far as they can be without one: what goes to the builder is put
//! into a folder, and Cargo looks there for what the Dockerfile asks it to build.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use leasehold::config::{Config, SETTINGS, Scope};
use serde_json::Value;

use crate::{File, at, repository, tidy};

const TEMPLATES: [&str; 3] = ["infra/queue.yaml", "infra/ecs-service.yaml", "infra/lambda.yaml"];
const COMPOSE: &str = "examples/compose/compose.yaml";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn file(path: &str) -> File {
    repository().into_iter().find(|file| file.path == path).unwrap_or_else(|| panic!("there is no {path}"))
}

/// The Dockerfile's instructions, each on one line, without comments.
fn instructions() -> Vec<(String, String)> {
    let dockerfile = file("Dockerfile");
    let code: Vec<&str> = dockerfile.text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let joined = code.join("\n").replace("\\\n", " ");
    let lines = joined.lines().filter_map(|line| line.trim().split_once(' '));
    lines.map(|(name, rest)| (name.to_owned(), rest.split_whitespace().collect::<Vec<_>>().join(" "))).collect()
}

/// What the instructions of this name say.
fn said(name: &str) -> Vec<String> {
    instructions().into_iter().filter(|(instruction, _)| instruction == name).map(|(_, rest)| rest).collect()
}

/// The only one of its name, which is an array: no shell reads it.
fn in_exec_form(name: &str) -> Vec<String> {
    let all = said(name);
    let [one] = all.as_slice() else { panic!("{name} is there {} times", all.len()) };
    let array = one.find('[').map(|start| &one[start..]).unwrap_or_default();
    serde_json::from_str(array).unwrap_or_else(|error| panic!("{name} {one} is not in exec form: {error}"))
}

/// What goes to the builder: nothing but what .dockerignore lets through again.
fn context() -> Vec<PathBuf> {
    let text = fs::read_to_string(root().join(".dockerignore")).expect(".dockerignore can be read");
    let rules: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(rules[0], "*", ".dockerignore lets everything through that it does not name");
    rules[1..].iter().map(|rule| rule.strip_prefix('!').expect("a rule that lets through").into()).collect()
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).expect("a folder");
        for entry in fs::read_dir(from).expect("a folder that can be read") {
            let name = entry.expect("an entry").file_name();
            copy(&from.join(&name), &to.join(&name));
        }
    } else {
        fs::copy(from, to).unwrap_or_else(|error| panic!("{} goes to the builder: {error}", from.display()));
    }
}

/// What Cargo knows of the package in a folder.
fn package(folder: &Path) -> Value {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(folder)
        .output()
        .expect("cargo runs");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let mut metadata: Value = serde_json::from_slice(&cargo.stdout).expect("JSON");
    metadata["packages"][0].take()
}

fn targets(package: &Value) -> impl Iterator<Item = &Value> {
    package["targets"].as_array().expect("targets").iter()
}

#[test]
fn cargo_finds_in_the_image_what_the_image_is_built_of() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in context() {
        copy(&root().join(&path), &folder.path().join(&path));
    }
    assert_eq!(said("COPY")[0], ". .", "what else is copied has to be looked for here");
    let (package, whole) = (package(folder.path()), package(root()));
    // Cargo builds nothing where the files of one target that Cargo.toml names are missing; `metadata` only leaves it out.
    // Those of tests are found by their files, and are not there.
    for target in targets(&whole).filter(|target| target["kind"][0] != "test") {
        let is_there =
            targets(&package).any(|there| there["name"] == target["name"] && there["kind"] == target["kind"]);
        assert!(is_there, "the builder lacks the files of {} {}", target["kind"][0], target["name"]);
    }

    let args = said("ARG");
    let features = args.iter().find_map(|arg| arg.strip_prefix("FEATURES=")).expect("features are built unless told");
    let features: Vec<&str> = features.split(',').collect();
    for feature in &features {
        assert!(package["features"].get(*feature).is_some(), "Cargo.toml has no feature {feature}");
    }
    assert!(!features.contains(&"demo"), "the embedded engine is for tests");

    let build = said("RUN").into_iter().find(|run| run.contains("cargo build")).expect("it is built");
    for part in
        ["--release", "--locked", "--features \"$FEATURES\"", "--bin leasehold", "/release/leasehold\" /leasehold"]
    {
        assert!(build.contains(part), "{build}: no {part}");
    }
    let binary = targets(&package).find(|target| target["name"] == "leasehold" && target["kind"][0] == "bin");
    let required = binary.expect("the binary is a target")["required-features"].as_array().expect("features").clone();
    assert!(required.iter().all(|one| features.contains(&one.as_str().expect("a name"))), "{required:?}");
}

#[test]
fn the_image_runs_what_was_built_without_a_shell_and_without_root() {
    let (entry, command, health) = (in_exec_form("ENTRYPOINT"), in_exec_form("CMD"), in_exec_form("HEALTHCHECK"));
    let copied = said("COPY").pop().expect("the binary is copied");
    assert_eq!(copied, format!("--from=build /leasehold /usr/local/bin/{}", entry[0]));
    for arguments in [&command[..], &health[1..]] {
        let help = Command::new(env!("CARGO_BIN_EXE_leasehold")).args(arguments).arg("--help").output();
        assert!(help.expect("the command runs").status.success(), "leasehold {arguments:?} is no command");
    }
    let user = said("USER").pop().expect("a user");
    assert!(user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)), "USER {user} may be root");
    let toolchain = file("rust-toolchain.toml").text;
    let channel = toolchain.split('"').nth(1).expect("a version");
    let from = &said("FROM")[0];
    assert!(from.contains(&format!(" rust:{channel}-")), "{from}: what is tested is {channel}");
}

/// The names of variables of ours in a text, with where they are. What ends in `_` is the beginning of names.
fn variables(file: &File) -> Vec<(usize, String)> {
    let is_of_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let mut found = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for (start, _) in line.match_indices("LEASEHOLD_") {
            let name = line[start..].split(|c| !is_of_name(c)).next().unwrap_or_default();
            if !name.ends_with('_') {
                found.push((index + 1, name.to_owned()));
            }
        }
    }
    found
}

/// `LEASEHOLD_TABLE`, `LEASEHOLD_KEY`, `LEASEHOLD_PAYMENTS_KEY`.
fn is_setting(name: &str) -> bool {
    let name = name.strip_prefix("LEASEHOLD_").unwrap_or_default();
    SETTINGS.iter().any(|setting| {
        let of_a_queue = name.strip_suffix(setting.name).is_some_and(|queue| queue.len() > 1 && queue.ends_with('_'));
        match setting.scope {
            Scope::Process => name == setting.name,
            Scope::EachQueue => of_a_queue,
            _ => name == setting.name || of_a_queue,
        }
    })
}

#[test]
fn variables_of_deployments_are_settings() {
    let mut found = Vec::new();
    for path in TEMPLATES.into_iter().chain([COMPOSE, "Dockerfile", "docs/deploy.md"]) {
        let file = file(path);
        let unknown = variables(&file).into_iter().filter(|(_, name)| !is_setting(name));
        found.extend(unknown.map(|(line, name)| at(&file, line, &format!("{name} is no setting"))));
    }
    tidy(&found, "src/config/settings.rs has the settings.");
}

#[test]
fn the_compose_file_sets_a_configuration_that_fits_together() {
    let compose = file(COMPOSE);
    let lines = compose.text.lines().map(str::trim).filter(|line| line.starts_with("LEASEHOLD_"));
    let set = lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (config, warnings) = Config::from_vars(set).expect("a configuration");
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(config.queues["payments"].handler.is_some(), "{config:?}");
    let grace = numbers(&compose, "stop_grace_period:").remove(0);
    assert!(config.drain_timeout.as_secs() < grace, "{grace} s are not enough for a drain");
}

/// The numbers that follow this in a file, one a line.
fn numbers(file: &File, after: &str) -> Vec<u64> {
    let rests = file.text.lines().filter_map(|line| Some(line.split_once(after)?.1));
    rests.filter_map(|rest| rest.trim().trim_end_matches('s').parse().ok()).collect()
}

/// A parameter of a template, as a file of its lines.
fn parameter(file: &File, name: &str) -> File {
    let (_, rest) = file.text.split_once(&format!("\n  {name}:\n")).unwrap_or_else(|| panic!("no parameter {name}"));
    let lines: Vec<&str> = rest.lines().take_while(|line| line.starts_with("    ")).collect();
    File { path: file.path.clone(), text: lines.join("\n") }
}

#[test]
fn d3_ecs_gives_a_worker_more_time_than_it_takes_to_drain() {
    let service = file("infra/ecs-service.yaml");
    let drain = parameter(&service, "DrainTimeout");
    let (default, most) = (numbers(&drain, "Default: ")[0], numbers(&drain, "MaxValue: ")[0]);
    // The worker's container is the first of the two.
    let given = numbers(&service, "StopTimeout: ")[0];
    assert!(default <= most && most < given, "{default} and {most} s of a drain, {given} s until it is killed");
}

#[test]
fn lambda_asks_for_six_times_its_timeout_as_visibility() {
    let template = file("infra/lambda.yaml");
    let timeout = parameter(&template, "FunctionTimeout");
    let (_, allowed) = timeout.text.split_once("AllowedValues: [").expect("timeouts");
    let allowed: Vec<u64> = allowed.split([',', ']']).filter_map(|text| text.trim().parse().ok()).collect();
    assert!(allowed.len() > 3, "{allowed:?}");
    for seconds in allowed {
        let row = format!("    \"{seconds}\": {{Seconds: \"{}\"}}\n", 6 * seconds);
        assert!(template.text.contains(&row), "SixTimes has no row {row}");
    }
}

#[test]
fn the_page_on_deployment_tells_of_every_kind_of_resource() {
    let page = file("docs/deploy.md");
    let mut found = Vec::new();
    for path in TEMPLATES {
        let template = file(path);
        for (index, line) in template.text.lines().enumerate() {
            let kind = line.strip_prefix("    Type: AWS::").filter(|kind| !kind.ends_with("::Id"));
            // `SQS::Queue` is told of as `AWS::SQS::Queue`.
            if let Some(kind) = kind.filter(|kind| !page.text.contains(&format!("`AWS::{kind}`"))) {
                found.push(at(&template, index + 1, &format!("docs/deploy.md does not tell of AWS::{kind}")));
            }
        }
    }
    tidy(&found, "Its table is for those who make the same with other tools: a row says what is set, and why.");
}
