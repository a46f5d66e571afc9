//! Fuzzes the access file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidewire_server::fuzzing::access_file(data));
