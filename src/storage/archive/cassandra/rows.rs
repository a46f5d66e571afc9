//! Rows of answers, with the types that this version expects in them.
//!
//! Responsible for:
//! - reading all rows of an answer, or of a table page by page; rows of other types are damage.
//!
//! Not responsible for:
//! - statements and their failures (`connection`, `schema`), what the rows mean (`read`, `meta`, `layout`).

use std::error::Error;

use scylla::deserialize::row::DeserializeRow;
use scylla::response::PagingState;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;

use super::connection::Core;
use crate::storage::archive::ArchiveError;

/// Returns the rows of an answer. Statements have pages or limits, so that they fit into memory.
pub(super) fn typed<T: for<'a> DeserializeRow<'a, 'a>>(
    found: QueryResult,
) -> Result<Vec<T>, Box<dyn Error + Send + Sync>> {
    let found = found.into_rows_result()?;
    let rows = found.rows::<T>()?;
    Ok(rows.collect::<Result<Vec<T>, _>>()?)
}

impl Core {
    /// Returns the rows of an answer.
    pub(super) fn rows<T: for<'a> DeserializeRow<'a, 'a>>(&self, found: QueryResult) -> Result<Vec<T>, ArchiveError> {
        typed(found).map_err(|cause| self.damaged(cause))
    }

    /// Returns the first row of an answer, if it has rows.
    pub(super) fn first_row<T: for<'a> DeserializeRow<'a, 'a>>(
        &self,
        found: QueryResult,
    ) -> Result<Option<T>, ArchiveError> {
        Ok(self.rows(found)?.into_iter().next())
    }

    /// Reads all rows that a statement finds, and passes them to `each` page by page.
    pub(super) async fn each_page<T: for<'a> DeserializeRow<'a, 'a>>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        mut each: impl FnMut(Vec<T>) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let mut paging = Some(PagingState::start());
        while let Some(at) = paging {
            let (page, next) = self.read_page(statement, &values, at).await?;
            each(self.rows(page)?)?;
            paging = next;
        }
        Ok(())
    }
}
