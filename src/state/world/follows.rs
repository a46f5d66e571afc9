//! How events change edges, lists and the preferences of readers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::UnixMicros;
use crate::feed::event::{MuteOrBlock, NewEdge};
use crate::feed::following::Edge;
use crate::feed::position::Position;
use crate::feed::preferences::Preferences;
use crate::id::{ListName, SourceId};
use crate::state::sources::Source;
use crate::state::world::{Applied, Writer};

impl Writer {
    pub(super) fn follow(&mut self, edges: &[NewEdge], first_since: UnixMicros) -> Applied {
        for (nth, edge) in edges.iter().enumerate() {
            let since = UnixMicros(first_since.0 + nth as i64);
            let follower = self.world.sources.intern(&edge.follower);
            let source = self.world.sources.intern(&edge.source);
            let before = follower.following.read().get(source.slot).copied();
            match before {
                Some(before) if before.hidden == edge.hidden => continue,
                Some(before) => self.set_edge_hidden(&follower, &source, before, since, edge.hidden),
                None => self.insert_edge(&follower, &source, since, edge.hidden, edge.start),
            }
        }
        Applied::Done
    }

    fn insert_edge(
        &self,
        follower: &Source,
        source: &Source,
        since: UnixMicros,
        hidden: bool,
        start: Option<Position>,
    ) {
        // The follower's side is changed last. The new version makes the reader fetch the posts published before; from
        // the change of the source's side on, new posts are pushed to the follower.
        let mut followers = source.followers.write();
        followers.insert(follower.slot, since, hidden, self.world.sharding);
        let count = followers.len();
        drop(followers);
        let mut following = follower.following.write();
        let following = Arc::make_mut(&mut *following);
        following.insert(source.slot, since, hidden);
        if let Some(start) = start.filter(|start| *start > Position::MIN) {
            following.set_start(source.slot, start);
        }
        following.drop_superfluous(source.slot);
        self.world.edges.fetch_add(1, Ordering::Relaxed);
        self.update_celebrity(source, count);
    }

    /// Changes whether an edge is hidden. The posts that it brings and the number of followers do not change.
    fn set_edge_hidden(&self, follower: &Source, source: &Source, before: Edge, since: UnixMicros, hidden: bool) {
        let mut followers = source.followers.write();
        followers.remove(follower.slot, before.since, self.world.sharding);
        followers.insert(follower.slot, since, hidden, self.world.sharding);
        drop(followers);
        Arc::make_mut(&mut *follower.following.write()).set_hidden(source.slot, since, hidden);
    }

    pub(super) fn unfollow(&mut self, follower: &SourceId, source: &SourceId, keep_until: Option<Position>) -> Applied {
        let sources = &self.world.sources;
        if let (Some(follower), Some(source)) = (sources.known(follower), sources.known(source)) {
            self.remove_edge(&follower, &source, keep_until);
        }
        Applied::Done
    }

    pub(super) fn remove_edge(&self, follower: &Source, source: &Source, keep_until: Option<Position>) {
        let _removal = self.world.arrivals.begin_removal();
        let removed = {
            let mut following = follower.following.write();
            let following = Arc::make_mut(&mut *following);
            match keep_until {
                Some(until) => following.remove_but_keep(source.slot, until),
                None => following.remove(source.slot),
            }
        };
        let Some(edge) = removed else { return };
        let mut followers = source.followers.write();
        followers.remove(follower.slot, edge.since, self.world.sharding);
        let count = followers.len();
        drop(followers);
        self.world.edges.fetch_sub(1, Ordering::Relaxed);
        self.update_celebrity(source, count);
    }

    pub(super) fn silence(
        &mut self,
        reader: &SourceId,
        source: &SourceId,
        how: MuteOrBlock,
        since: Option<UnixMicros>,
    ) -> Applied {
        let source = self.world.sources.intern(source);
        let mut changed_at = None;
        self.change_preferences(reader, |preferences| {
            let silenced = match how {
                MuteOrBlock::Mute => &mut preferences.mutes,
                MuteOrBlock::Block => &mut preferences.blocks,
            };
            changed_at = match since {
                Some(since) => silenced.insert(source.slot, since).then_some(since),
                None => silenced.remove(source.slot),
            };
        });
        if let (MuteOrBlock::Block, Some(changed_at)) = (how, changed_at) {
            source.note_blocked(changed_at, since.is_some());
        }
        if how == MuteOrBlock::Block && since.is_some() {
            let reader = self.world.sources.intern(reader);
            self.remove_edge(&reader, &source, None);
            self.remove_edge(&source, &reader, None);
        }
        Applied::Done
    }

    pub(super) fn list(
        &mut self,
        reader: &SourceId,
        list: &ListName,
        source: &SourceId,
        since: Option<UnixMicros>,
    ) -> Applied {
        let (source, world) = (self.world.sources.intern(source), Arc::clone(&self.world));
        let _removal = since.is_none().then(|| world.arrivals.begin_removal());
        self.change_preferences(reader, |preferences| {
            let members = Arc::make_mut(preferences.lists.entry(list.clone()).or_default());
            match since {
                Some(since) => drop(members.insert(source.slot, since, false)),
                None => drop(members.remove(source.slot)),
            }
        })
    }

    pub(super) fn change_preferences(&mut self, reader: &SourceId, change: impl FnOnce(&mut Preferences)) -> Applied {
        let reader = self.world.sources.intern(reader);
        let mut preferences = reader.preferences.write();
        let preferences = Arc::make_mut(preferences.get_or_insert_default());
        change(preferences);
        preferences.note_change();
        Applied::Done
    }

    /// Decides again which sources are celebrities, after all edges are restored: the threshold may have changed since
    /// they were stored.
    pub fn update_celebrities(&mut self) {
        for source in self.world.sources.iter() {
            let followers = source.followers().len();
            self.update_celebrity(source, followers);
        }
    }

    pub(super) fn update_celebrity(&self, source: &Source, followers: u64) {
        let celebrity = self.world.policy.is_celebrity(followers, source.is_celebrity());
        source.celebrity.store(celebrity, Ordering::Relaxed);
    }
}
