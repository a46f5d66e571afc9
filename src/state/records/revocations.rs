//! The image of revocations.

use std::iter;

use serde::{Deserialize, Serialize};

use crate::clock::UnixMicros;
use crate::id::SourceId;
use crate::state::records::Walk;
use crate::state::revocations::Revocation;
use crate::state::world::Writer;

/// Some users, and before which instant their tokens must not have been made. Users are named by their ids: nothing else may
/// be known of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevocationsRecord {
    /// Each user with the instant.
    pub users: Vec<(SourceId, UnixMicros)>,
}

/// Revocations in one record: copied together, so that no request waits for a disk.
const REVOCATIONS_PER_RECORD: usize = 1_024;

impl Walk<'_> {
    /// All revocations. One that becomes later meanwhile is met again; its event is replayed too.
    pub fn revocations(self) -> impl Iterator<Item = RevocationsRecord> {
        let mut last: Option<Revocation> = None;
        iter::from_fn(move || {
            let some = self.world.revocations.after(last.as_ref(), REVOCATIONS_PER_RECORD);
            last = Some(some.last()?.clone());
            Some(RevocationsRecord { users: some.into_iter().map(|(instant, user)| (user, instant)).collect() })
        })
    }
}

impl Writer {
    /// Takes in revocations.
    pub fn restore_revocations(&mut self, record: &RevocationsRecord) {
        record.users.iter().for_each(|(user, not_before)| drop(self.revoke(user, *not_before, None)));
    }
}
