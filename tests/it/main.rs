//! The integration tests of the engine, in one binary. Those of the server are in `server/tests/it/`.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

mod archive;
mod archive_faults;
mod archive_held_back;
mod archive_races;
mod archive_reads;
mod archive_remote;
mod bounds;
mod clock;
mod cluster;
mod concurrency;
mod contracts;
mod counts;
mod damage;
mod engine;
mod fixture_names;
mod fixtures;
mod group_commit;
mod held_walk;
mod hostile;
mod modes;
mod paging;
mod polling;
mod power;
mod properties;
mod push_or_pull;
mod replies;
mod reposts;
mod resumed;
mod revealed;
mod text_forms;
mod tidy;
mod walks;
