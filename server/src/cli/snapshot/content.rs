//! Reads the records of a snapshot block by block and reports the place of any error.

use tidewire::recovery::{RecordBatch, decode};
use tidewire::storage::error::StorageError;
use tidewire::storage::snapshot::{EndRecord, SnapshotReader};

/// Calls `each` with the records of every block.
///
/// # Errors
/// Names the block that is damaged, or whose records `each` rejected.
pub(super) fn each_block(
    reader: &mut SnapshotReader,
    mut each: impl FnMut(RecordBatch) -> Result<(), String>,
) -> Result<EndRecord, StorageError> {
    while let Some(block) = reader.next_block()? {
        decode(&block).and_then(&mut each).map_err(|reason| reader.bad(reason))?;
    }
    Ok(reader.end().expect("all blocks were read"))
}

/// Calls `each` with every record, and names the record that it rejected in the error.
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
