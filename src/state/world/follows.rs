//! How events change edges, and what readers have decided.

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
                Some(before) => self.turn_edge(&follower, &source, before, since, edge.hidden),
                None => self.make_edge(&follower, &source, since, edge.hidden, edge.start),
            }
        }
        Applied::Done
    }

    fn make_edge(&self, follower: &Source, source: &Source, since: UnixMicros, hidden: bool, start: Option<Position>) {
        // The follower's side last: its new version makes the reader fetch what was published before, and from
        // here on it is pushed what comes after.
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
        self.choose_side(source, count);
    }

    /// Lets an edge show, or no more. Neither what it brings nor how many followers there are changes.
    fn turn_edge(&self, follower: &Source, source: &Source, before: Edge, since: UnixMicros, hidden: bool) {
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
        let _taking_back = self.world.arrivals.take_back();
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
        self.choose_side(source, count);
    }

    pub(super) fn silence(
        &mut self,
        reader: &SourceId,
        source: &SourceId,
        how: MuteOrBlock,
        since: Option<UnixMicros>,
    ) -> Applied {
        let source = self.world.sources.intern(source);
        let mut turned = None;
        self.choose(reader, |preferences| {
            let silenced = match how {
                MuteOrBlock::Mute => &mut preferences.mutes,
                MuteOrBlock::Block => &mut preferences.blocks,
            };
            turned = match since {
                Some(since) => silenced.insert(source.slot, since).then_some(since),
                None => silenced.remove(source.slot),
            };
        });
        if let (MuteOrBlock::Block, Some(turned)) = (how, turned) {
            source.note_blocked(turned, since.is_some());
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
        let _taking_back = since.is_none().then(|| world.arrivals.take_back());
        self.choose(reader, |preferences| {
            let members = Arc::make_mut(preferences.lists.entry(list.clone()).or_default());
            match since {
                Some(since) => drop(members.insert(source.slot, since, false)),
                None => drop(members.remove(source.slot)),
            }
        })
    }

    pub(super) fn choose(&mut self, reader: &SourceId, change: impl FnOnce(&mut Preferences)) -> Applied {
        let reader = self.world.sources.intern(reader);
        let mut preferences = reader.preferences.write();
        let preferences = Arc::make_mut(preferences.get_or_insert_default());
        change(preferences);
        preferences.note_change();
        Applied::Done
    }

    /// Decides anew who is a celebrity, once all edges are there: the threshold may be another than it was.
    pub fn choose_sides(&mut self) {
        for source in self.world.sources.iter() {
            let followers = source.followers().len();
            self.choose_side(source, followers);
        }
    }

    pub(super) fn choose_side(&self, source: &Source, followers: u64) {
        let celebrity = self.world.policy.is_celebrity(followers, source.is_celebrity());
        source.celebrity.store(celebrity, Ordering::Relaxed);
    }
}
