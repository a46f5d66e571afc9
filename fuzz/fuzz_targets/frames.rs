//! Fuzzes WebSocket frames and the messages in them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidewire_server::fuzzing::frames(data));
