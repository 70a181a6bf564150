//! What it takes and what must hold is said at `leasehold::fuzzing::programs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold::fuzzing::programs(data));
