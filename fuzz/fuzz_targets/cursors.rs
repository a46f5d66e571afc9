//! Fuzzes cursors, ids and times.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidewire::fuzzing::cursors(data));
