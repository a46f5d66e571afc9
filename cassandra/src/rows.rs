//! Rows of answers, with the types that this version expects in them.

use std::error::Error;

use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryResult;

/// Returns the rows of an answer. Statements have pages or limits, so that they fit into memory.
pub(super) fn typed<T: for<'a> DeserializeRow<'a, 'a>>(
    found: QueryResult,
) -> Result<Vec<T>, Box<dyn Error + Send + Sync>> {
    let found = found.into_rows_result()?;
    let rows = found.rows::<T>()?;
    Ok(rows.collect::<Result<Vec<T>, _>>()?)
}
