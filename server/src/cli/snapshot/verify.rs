//! `tidewire snapshot verify`: reads and loads a whole snapshot to check that a server could start from it.

use std::process::ExitCode;
use std::sync::Arc;

use serde_bytes::ByteBuf;
use serde_json::json;

use crate::cli::snapshot::{Snapshot, each_block, each_record};
use crate::cli::{Outcome, terminal};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::followers::Sharding;
use tidewire::recovery::RecordBatch;
use tidewire::state::world::{StateMachine, World};
use tidewire::storage::snapshot;

pub(super) fn run(file: &Snapshot, json: bool) -> Outcome {
    let mut reader = file.reader()?;
    let sequence = reader.header().sequence;
    if snapshot::parse_name(file.name()).is_some_and(|named| named != sequence) {
        return Err(reader.bad(format!("its header names event {sequence}, and its file name another")).into());
    }
    let (world, machine) = World::create(CelebrityPolicy::PushAll, Sharding::new(1));
    let mut loading = Loading { world, machine, inboxes: 0 };
    let end = each_block(&mut reader, |batch| loading.take(batch))?;
    if end.through < sequence {
        let through = end.through;
        return Err(reader.bad(format!("it ends at event {through}, before its sequence {sequence}")).into());
    }
    let Loading { world, inboxes, .. } = loading;
    if json {
        terminal::print_json(&json!({
            "good": true,
            "file": reader.place(),
            "sequence": sequence.0,
            "sources": world.sources.len(),
            "edges": world.edges(),
            "posts": world.posts.len(),
            "deleted_ids": world.posts.deleted().count(),
            "inboxes": inboxes,
            "needs_archive": end.archive,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    terminal::print_line(&format!(
        "good: {}: event {sequence}; sources: {}, edges: {}, posts: {}, deleted ids: {}, inboxes: {inboxes}",
        reader.place(),
        world.sources.len(),
        world.edges(),
        world.posts.len(),
        world.posts.deleted().count(),
    ));
    if end.archive {
        terminal::print_line("older posts are in its archive, which was not verified");
    }
    Ok(ExitCode::SUCCESS)
}

struct Loading {
    world: Arc<World>,
    machine: StateMachine,
    inboxes: usize,
}

impl Loading {
    /// Loads a batch as recovery does, and also rejects some records that recovery ignores.
    fn take(&mut self, batch: RecordBatch) -> Result<(), String> {
        let (machine, sources) = (&mut self.machine, self.world.sources.len());
        match batch {
            RecordBatch::Sources(records) => each_record("sources", &records, |record| machine.restore_source(record)),
            RecordBatch::Edges(records) => each_record("edges", &records, |record| {
                whole(&record.hidden, 4)?;
                machine.restore_edges(record).map_err(|cause| cause.to_string())
            }),
            RecordBatch::Preferences(records) => {
                each_record("choices", &records, |record| machine.restore_preferences(record))
            }
            RecordBatch::Reposts(records) => each_record("reposts", &records, |record| {
                whole(&record.hidden, 4)?;
                whole(&record.redirected, 8)?;
                machine.restore_reposts(record).map_err(|cause| cause.to_string())
            }),
            RecordBatch::Revocations(records) => {
                records.iter().for_each(|record| machine.restore_revocations(record));
                Ok(())
            }
            RecordBatch::Posts(records) => each_record("posts", &records, |record| machine.restore_post(record)),
            RecordBatch::Deleted(records) => each_record("deleted ids", &records, |record| {
                whole(&record.ids, 8)?;
                machine.restore_deleted(record);
                Ok::<_, String>(())
            }),
            RecordBatch::ArchivedCounts(records) => {
                each_record("archived counts", &records, |record| machine.restore_archived_counts(record))
            }
            RecordBatch::Awaited(records) => {
                each_record("awaited replies", &records, |record| machine.restore_awaited(record))
            }
            RecordBatch::Cluster(_) => Ok(()),
            RecordBatch::UnfinishedFanout(records) => {
                each_record("posts under way", &records, |record| whole(&record.posts, 16))
            }
            RecordBatch::Inboxes(records) => {
                self.inboxes += records.len();
                each_record("inboxes", &records, |record| {
                    whole(&record.posts, 16)?;
                    let known = (record.reader as usize) < sources;
                    if known { Ok(()) } else { Err(format!("its source {} does not exist", record.reader)) }
                })
            }
        }
    }
}

/// Rejects a column whose length is not a multiple of its entry size.
fn whole(column: &ByteBuf, entry_bytes: usize) -> Result<(), String> {
    match column.len() % entry_bytes {
        0 => Ok(()),
        rest => Err(format!("a column of {entry_bytes} bytes each ends with {rest} bytes too many")),
    }
}
