//! Fuzzes request bodies.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidewire_server::fuzzing::bodies(data));
