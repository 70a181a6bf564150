//! The fuzz targets without a fuzzer: all seeds, and a few thousand inputs that are made of them or of nothing, always the
//! same.

use std::{fs, panic::catch_unwind, path::Path};

use fastrand::Rng;

use super::*;

/// Inputs for a target, beside its seeds.
const INPUTS: usize = 3_000;

/// What numbers are read wrongly at, and what the formats are made of.
const WORDS: [&str; 16] = [
    "",
    "0",
    "-1",
    "1e999",
    "4294967296",
    "18446744073709551616",
    "null",
    "\\ud800",
    "\"",
    "{",
    "]",
    "~1",
    "..",
    BETWEEN,
    "\u{feff}",
    "\u{ffff}",
];

#[test]
fn t4_no_message_is_a_panic_and_every_copy_can_be_sent_and_redriven() {
    drive("messages", INPUTS, messages);
}

#[test]
fn r5_no_settings_are_a_panic_and_what_is_read_fits_together() {
    drive("settings", INPUTS / 6, settings);
}

#[test]
fn g10_no_body_and_no_pointer_is_a_panic_and_keys_are_found_where_others_find_them() {
    drive("keys", INPUTS, keys);
}

#[test]
fn g1_no_item_of_the_table_is_a_panic_and_what_is_read_is_written_back() {
    drive("records", INPUTS, records);
}

#[test]
fn no_reply_of_an_app_is_a_panic_or_a_verdict_without_bounds() {
    drive("replies", INPUTS, replies);
}

#[test]
fn no_end_of_a_program_is_a_panic_or_a_verdict_without_bounds() {
    drive("programs", INPUTS, programs);
}

fn drive(name: &str, inputs: usize, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
    let mut files: Vec<_> = fs::read_dir(&folder).expect("seeds").map(|entry| entry.expect("a seed").path()).collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).expect("a seed")).collect();
    assert!(seeds.len() > 2, "{} has few seeds", folder.display());
    let mut chance = Rng::with_seed(1);
    let made: Vec<_> = (0..inputs).map(|_| input(&seeds, &mut chance)).collect();
    for input in seeds.iter().chain(&made) {
        if catch_unwind(|| target(input)).is_err() {
            panic!("{name}: {:?}", String::from_utf8_lossy(input));
        }
    }
}

fn input(seeds: &[Vec<u8>], chance: &mut Rng) -> Vec<u8> {
    let mut input = seeds[chance.usize(..seeds.len())].clone();
    if chance.u8(..) < 16 {
        input = vec![0; chance.usize(..64)];
        chance.fill(&mut input);
    }
    for _ in 0..chance.usize(1..5) {
        let (from, to) = (chance.usize(..=input.len()), chance.usize(..=input.len()));
        let range = from.min(to)..from.max(to);
        let other = &seeds[chance.usize(..seeds.len())];
        match chance.u8(..6) {
            0 => drop(input.drain(range)),
            1 => drop(input.splice(from..from, WORDS[chance.usize(..WORDS.len())].bytes())),
            2 => drop(input.splice(from..from, other[chance.usize(..=other.len())..].to_vec())),
            3 => drop(input.splice(from..from, input[range].to_vec())),
            4 => input.truncate(from),
            _ => input.iter_mut().skip(from).take(1).for_each(|byte| *byte ^= 1 << chance.u8(..8)),
        }
    }
    input
}
