//! All users in pages, by ascending id: this part of the engine's interface.

use crate::engine::Engine;
use crate::engine::sources::SourceInfo;
use crate::id::SourceSlot;

/// The users who existed at one moment, 4 bytes for each, with which pages of all users are read.
#[derive(Clone, Debug)]
pub struct AllUsers(Box<[SourceSlot]>);

impl Engine {
    /// Collects all users, for [`Engine::users_after`]. Sorts their ids, about a second for a million, so it is called on a thread that may
    /// block, and callers use the result for many pages.
    pub fn all_users(&self) -> AllUsers {
        let sources = &self.inner.shared.world.sources;
        let users = sources.iter().filter(|source| source.id.is_user() && !source.is_erased());
        let mut slots: Vec<SourceSlot> = users.map(|user| user.slot).collect();
        slots.sort_unstable_by(|one, other| sources.at(*one).id.cmp(&sources.at(*other).id));
        AllUsers(slots.into())
    }

    /// Returns the next users, at most `limit`, whose ids begin with `prefix` and are behind `after`, by ascending id. Those who were erased
    /// since they were collected are left out.
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
