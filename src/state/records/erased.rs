//! The records of users who are being erased or were erased.

use serde::{Deserialize, Serialize};

use crate::clock::UnixMicros;
use crate::id::SourceId;
use crate::state::records::{RecordTraversal, SourceRecord};
use crate::state::world::StateMachine;

/// The erasure of a user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErasedRecord {
    /// The instant at which the erasure began.
    pub at: UnixMicros,
    /// True if the erasure has not ended.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub is_under_way: bool,
    /// The id of the user, as long as the archive may contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<SourceId>,
}

impl RecordTraversal<'_> {
    /// Returns the record of a source whose erasure began at `at`.
    pub(super) fn erased(self, at: UnixMicros) -> SourceRecord {
        let erasure = self.world.sources.erasures().at(at);
        let user = erasure.as_ref().filter(|erasure| !erasure.is_scrubbed()).and_then(|erasure| erasure.user.clone());
        let record = ErasedRecord { at, is_under_way: erasure.is_some(), user };
        let name = SourceId::new(&format!("erased:{}", at.0)).expect("a short prefix and digits are an id");
        SourceRecord { erased: Some(record), ..SourceRecord::new(name) }
    }
}

impl StateMachine {
    pub(super) fn restore_erased(&mut self, name: &SourceId, record: &ErasedRecord) {
        self.world().sources.restore_erased(name, record.at, record.user.clone(), record.is_under_way);
    }
}
