//! The records of token revocations.

use std::iter;

use serde::{Deserialize, Serialize};

use crate::clock::UnixMicros;
use crate::id::SourceId;
use crate::state::records::RecordTraversal;
use crate::state::revocations::Revocation;
use crate::state::world::StateMachine;

/// Some users, each with an instant: tokens of the user made before it are rejected. Users are named by their ids,
/// because they may be unknown as sources.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevocationsRecord {
    /// Each user with the instant.
    pub users: Vec<(SourceId, UnixMicros)>,
}

/// Maximum number of revocations in one record. They are copied together, so that no request waits for a disk.
const REVOCATIONS_PER_RECORD: usize = 1_024;

impl RecordTraversal<'_> {
    /// Returns the records of all revocations. One that gets a later instant meanwhile is returned again; its event is
    /// replayed too.
    pub fn revocations(self) -> impl Iterator<Item = RevocationsRecord> {
        let mut last: Option<Revocation> = None;
        iter::from_fn(move || {
            let some = self.world.revocations.after(last.as_ref(), REVOCATIONS_PER_RECORD);
            last = Some(some.last()?.clone());
            Some(RevocationsRecord { users: some.into_iter().map(|(instant, user)| (user, instant)).collect() })
        })
    }
}

impl StateMachine {
    /// Restores revocations of some users.
    pub fn restore_revocations(&mut self, record: &RevocationsRecord) {
        record.users.iter().for_each(|(user, not_before)| drop(self.revoke(user, *not_before, None)));
    }
}
