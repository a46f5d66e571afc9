//! Applies events that change edges, lists and the preferences of readers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::UnixMicros;
use crate::feed::event::{MuteOrBlock, NewEdge};
use crate::feed::following::{Edge, Following};
use crate::feed::position::Position;
use crate::feed::preferences::Preferences;
use crate::id::{ListName, SourceId, SourceSlot};
use crate::state::sources::Source;
use crate::state::world::{Applied, StateMachine, World};

impl World {
    /// Returns at most `max` visible followers of a source whose edges were made before `before`, youngest edge first.
    pub fn followers_before(&self, source: &Source, before: UnixMicros, max: usize) -> Vec<(UnixMicros, SourceSlot)> {
        let (mut youngest, mut until) = (Vec::new(), before);
        while youngest.len() < max {
            let Some((from, slots)) = source.followers().before(until, self.sharding) else { break };
            // An edge that was removed or made again meanwhile is not there, or in a younger run.
            let edge = |slot: SourceSlot| {
                let edge = self.sources.at(slot).following().get(source.slot)?;
                (!edge.hidden && (from..until).contains(&edge.since)).then_some((edge.since, slot))
            };
            let mut found: Vec<_> = slots.into_iter().filter_map(edge).collect();
            found.sort_unstable_by(|a, b| b.cmp(a));
            youngest.append(&mut found);
            until = from;
        }
        youngest.truncate(max);
        youngest
    }
}

impl StateMachine {
    /// Restores all edges of one follower that has none yet.
    pub(in crate::state) fn restore_following(&mut self, follower: SourceSlot, edges: &[Edge]) {
        let sources = &self.world.sources;
        let restored = Arc::new(Following::restored(edges));
        sources.change_edges(sources.at(follower), |own| own.following = restored);
        for edge in edges {
            self.insert_follower(self.world.sources.at(edge.source), follower, edge.since, edge.hidden, None);
        }
        self.world.edges.fetch_add(edges.len(), Ordering::Relaxed);
    }

    pub(super) fn follow(&mut self, edges: &[NewEdge], first_since: UnixMicros) -> Applied {
        for (nth, edge) in edges.iter().enumerate() {
            let since = UnixMicros(first_since.0 + nth as i64);
            let follower = self.world.sources.intern(&edge.follower);
            let source = self.world.sources.intern(&edge.source);
            let before = follower.edges.read().following.get(source.slot);
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
        let count = self.insert_follower(source, follower.slot, since, hidden, None);
        self.world.sources.change_edges(follower, |edges| {
            let following = edges.following_mut();
            following.insert(source.slot, since, hidden);
            if let Some(start) = start.filter(|start| *start > Position::MIN) {
                following.set_start(source.slot, start);
            }
            following.drop_superfluous(source.slot);
        });
        self.world.sources.note_kept(follower, source.slot);
        self.world.edges.fetch_add(1, Ordering::Relaxed);
        self.update_celebrity(source, count);
    }

    /// Adds a follower on the source's side, and returns the number of followers. An edge that is `replaced` is removed in the same step: a
    /// follower throughout must be in every slice of a fan-out.
    fn insert_follower(
        &self,
        source: &Source,
        follower: SourceSlot,
        since: UnixMicros,
        hidden: bool,
        replaced: Option<Edge>,
    ) -> u64 {
        let sharding = self.world.sharding;
        let sources = &self.world.sources;
        let must_split = source.followers().must_split(since, sharding);
        // Looked up without the lock. Only this thread changes edges, so nothing changes in between.
        let visible = must_split.map(|run| -> Vec<(UnixMicros, SourceSlot)> {
            let edge = |slot: &SourceSlot| Some((*slot, sources.at(*slot).following().get(source.slot)?));
            let others = run.iter().filter(|slot| replaced.is_none() || **slot != follower);
            let visible = others.filter_map(edge).filter(|(_, edge)| !edge.hidden);
            visible.map(|(slot, edge)| (edge.since, slot)).collect()
        });
        sources.change_edges(source, |edges| {
            if let Some(replaced) = replaced {
                edges.followers.remove(follower, replaced.since, replaced.hidden, sharding);
            }
            if let Some(visible) = visible {
                edges.followers.split(since, visible);
            }
            edges.followers.insert(follower, since, hidden, sharding);
            edges.followers.len()
        })
    }

    /// Makes an edge hidden or visible. The posts that it brings and the number of followers do not change.
    fn set_edge_hidden(&self, follower: &Source, source: &Source, before: Edge, since: UnixMicros, hidden: bool) {
        self.insert_follower(source, follower.slot, since, hidden, Some(before));
        self.world.sources.change_edges(follower, |edges| edges.following_mut().set_hidden(source.slot, since, hidden));
    }

    pub(super) fn unfollow(&mut self, follower: &SourceId, source: &SourceId, keep_until: Option<Position>) -> Applied {
        let sources = &self.world.sources;
        if let (Some(follower), Some(source)) = (sources.known(follower), sources.known(source)) {
            self.remove_edge(&follower, &source, keep_until);
        }
        Applied::Done
    }

    pub(super) fn remove_edge(&self, follower: &Source, source: &Source, keep_until: Option<Position>) {
        let _removal = self.world.delivery.begin_removal();
        let (sources, sharding) = (&self.world.sources, self.world.sharding);
        // Most edges that blocks remove do not exist, and changing them would allocate memory.
        let following = follower.following();
        if !following.contains(source.slot) && following.kept_of(source.slot).next().is_none() {
            return;
        }
        drop(following);
        let removed = sources.change_edges(follower, |edges| match keep_until {
            Some(until) => edges.following_mut().remove_but_keep(source.slot, until),
            None => edges.following_mut().remove(source.slot),
        });
        sources.note_kept(follower, source.slot);
        let Some(edge) = removed else { return };
        let count = sources.change_edges(source, |edges| {
            edges.followers.remove(follower.slot, edge.since, edge.hidden, sharding);
            edges.followers.len()
        });
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
        let _removal = since.is_none().then(|| world.delivery.begin_removal());
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
        self.world.sources.change_preferences(&reader, |preferences| {
            let preferences = Arc::make_mut(preferences.get_or_insert_default());
            change(preferences);
            preferences.note_change();
        });
        Applied::Done
    }
}

mod tests;
