//! Fuzzes commands of the Redis protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidewire_server::fuzzing::commands(data));
