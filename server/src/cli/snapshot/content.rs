//! The records of a snapshot, block by block, with the place of whatever is wrong.

use tidewire::storage::error::StorageError;
use tidewire::storage::recovery::{Batch, decode};
use tidewire::storage::snapshot::{EndRecord, SnapshotReader};

/// Gives the records of every block to `each`.
///
/// # Errors
/// Names the block that is damaged, or whose records `each` refused.
pub(super) fn each_block(
    reader: &mut SnapshotReader,
    mut each: impl FnMut(Batch) -> Result<(), String>,
) -> Result<EndRecord, StorageError> {
    while let Some(block) = reader.next_block()? {
        decode(&block).and_then(&mut each).map_err(|reason| reader.bad(reason))?;
    }
    Ok(reader.end().expect("all blocks were read"))
}

/// Gives records to `each`, and says which of them it refused.
pub(super) fn each_record<T, E: std::fmt::Display>(
    what: &str,
    records: &[T],
    mut each: impl FnMut(&T) -> Result<(), E>,
) -> Result<(), String> {
    for (nth, record) in records.iter().enumerate() {
        each(record).map_err(|cause| format!("record {} of this block of {what}: {cause}", nth + 1))?;
    }
    Ok(())
}
