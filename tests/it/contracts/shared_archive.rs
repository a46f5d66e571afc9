//! An archive in memory that nodes share.

use std::sync::Arc;

use testkit::contract::shared_archive::{self, Store};
use testkit::shared_archive_contract;
use tidewire::storage::archive::MemoryArchive;

fn in_memory() -> Store {
    let archive = Arc::new(MemoryArchive::ordered());
    Store { open: Box::new(move || Arc::clone(&archive) as _), is_in_memory: true }
}

shared_archive_contract! { in_memory }

#[tokio::test]
async fn the_sequencer_refuses_edits_of_old_posts_when_too_many_are_pending() {
    shared_archive::the_sequencer_refuses_edits_of_old_posts_when_too_many_are_pending(in_memory()).await;
}
