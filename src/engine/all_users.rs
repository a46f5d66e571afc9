//! The engine's interface for reading all users in pages, by ascending id.

use crate::engine::Engine;
use crate::engine::sources::SourceInfo;
use crate::id::SourceSlot;

/// The users who existed at one moment, 4 bytes each, from which pages of all users are read.
#[derive(Clone, Debug)]
pub struct AllUsers(Box<[SourceSlot]>);

impl Engine {
    /// Collects all users, for [`Engine::users_after`]. Sorting their ids takes about a second for a million users, so
    /// callers use a thread that may block, and use the result for many pages.
    pub fn all_users(&self) -> AllUsers {
        let sources = &self.inner.shared.world.sources;
        let users = sources.iter().filter(|source| source.id.is_user() && !source.is_erased());
        let mut slots: Vec<SourceSlot> = users.map(|user| user.slot).collect();
        slots.sort_unstable_by(|one, other| sources.at(*one).id.cmp(&sources.at(*other).id));
        AllUsers(slots.into())
    }

    /// Returns the next users, at most `limit`, by ascending id: their ids begin with `prefix` and are greater than
    /// `after`. Users who were erased since they were collected are left out.
    pub fn users_after(&self, users: &AllUsers, prefix: &str, after: Option<&str>, limit: usize) -> Vec<SourceInfo> {
        let sources = &self.inner.shared.world.sources;
        let is_before = |slot: &SourceSlot| {
            let id = sources.at(*slot).id.as_str();
            id < prefix || after.is_some_and(|after| id <= after)
        };
        let rest = users.0[users.0.partition_point(is_before)..].iter().map(|slot| sources.at(*slot));
        let these = rest.take_while(|user| user.id.as_str().starts_with(prefix)).filter(|user| !user.is_erased());
        these.take(limit).map(|user| self.source_info(user)).collect()
    }
}
