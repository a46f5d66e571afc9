//! Fuzzes the snapshot's reader.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidewire::fuzzing::snapshot(data));
