//! Fuzzes the journal's reader.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidewire::fuzzing::journal(data));
