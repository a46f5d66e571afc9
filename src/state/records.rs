//! The records of a world: the conversion of the world to records for snapshots, and its restoration from them.
//!
//! Responsible for:
//! - the contents of each record, and the field names, which are part of the stored format (`storage::snapshot` holds its version);
//! - traversing a world while it changes, and building a world from records.
//!
//! The traversal does not stop the command processor, so records may already contain the effects of later events. That is harmless: those
//! events are replayed, and applying an event is idempotent. Records leave out every source that was added after the traversal began,
//! because the event that added it is replayed too. Follower sets are not stored: they are the edges in the other direction. Outboxes are
//! not stored either: each post names its sources.

mod archived_counts;
mod awaited;
mod preferences;
mod reposts;
mod revocations;
mod sources;

pub use archived_counts::ArchivedCountsRecord;
pub use awaited::AwaitedRecord;
pub use preferences::PreferencesRecord;
pub use reposts::RepostsRecord;
pub use revocations::RevocationsRecord;
pub use sources::{ErasedRecord, SourceRecord};

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::clock::UnixMicros;
use crate::feed::following::{Edge, RetainedRange};
use crate::feed::outbox::{Part, Route};
use crate::feed::position::{Direction, Position, PositionRange};
use crate::feed::post::{Body, Membership, Post, replies};
use crate::feed::record::PostRecord;
use crate::id::{ExternalId, PostId, SourceSlot};
use crate::limits::POST_TAGS_MAX;
use crate::state::sources::Source;
use crate::state::world::{StateMachine, World};

/// Maximum number of sources that one post can belong to: its author, its tags, its topic and the replies to another post.
const POST_SOURCES_MAX: usize = 1 + POST_TAGS_MAX + 1 + 1;

/// The edges of one follower, as columns of consecutive little-endian numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct EdgesRecord {
    /// The index of the follower.
    pub follower: u32,
    /// The followed sources: 4 bytes each, ascending.
    pub sources: ByteBuf,
    /// The instant at which each edge was made, in microseconds: 8 bytes each, in the same order.
    pub since: ByteBuf,
    /// The indexes, within the columns, of the hidden edges: 4 bytes each.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub hidden: ByteBuf,
    /// Sources whose edges have a start position. They are from the same moment as the edges, and so is `kept`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<(u32, Position)>,
    /// Retained posts of unfollowed sources: source, first position, last position, the instant at which the edge was made, and true if it
    /// was hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<(u32, Position, Position, UnixMicros, bool)>,
}

/// Tombstones: ids of deleted posts, 8 bytes each, little-endian.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeletedRecord {
    /// The ids, one after the other.
    pub ids: ByteBuf,
}

/// The inbox of an active reader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InboxRecord {
    /// The index of the reader.
    pub reader: u32,
    /// The inbox contains the earlier posts of all edges made up to this instant.
    pub synced: UnixMicros,
    /// The inbox is complete above this position.
    pub floor: Position,
    /// Its posts, oldest first: 8 bytes time and 8 bytes id each, little-endian.
    pub posts: ByteBuf,
}

/// Posts whose fan-out was in progress, each encoded as in [`InboxRecord::posts`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnderWayRecord {
    /// The posts, in the encoding of positions.
    pub posts: ByteBuf,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_empty(bytes: &ByteBuf) -> bool {
    bytes.is_empty()
}

/// Encodes positions as bytes, 16 each.
pub fn pack_positions(positions: impl Iterator<Item = Position>) -> ByteBuf {
    let mut bytes = ByteBuf::new();
    for Position { published_at, id } in positions {
        bytes.extend(published_at.0.to_le_bytes());
        bytes.extend(id.0.to_le_bytes());
    }
    bytes
}

/// Decodes positions from bytes; an incomplete position at the end is ignored.
pub fn unpack_positions(bytes: &[u8]) -> impl Iterator<Item = Position> {
    let (pairs, _) = bytes.as_chunks::<16>();
    pairs.iter().map(|pair| Position {
        published_at: UnixMicros(u64::from_le_bytes(half(pair, 0)).cast_signed()),
        id: PostId(u64::from_le_bytes(half(pair, 8))),
    })
}

fn half(pair: &[u8; 16], at: usize) -> [u8; 8] {
    pair[at..at + 8].try_into().expect("eight of sixteen bytes")
}

/// A record contradicts the other records. No version writes such a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRecordError(pub String);

fn invalid<T>(what: impl Into<String>) -> Result<T, InvalidRecordError> {
    Err(InvalidRecordError(what.into()))
}

/// Maximum number of tombstones in one record.
const DELETED_PER_RECORD: usize = 64 * 1_024;

/// Maximum number of posts copied while an outbox is locked.
const OUTBOX_CHUNK: usize = 1_024;

/// A traversal of the first `sources` sources of a world.
#[derive(Clone, Copy)]
pub struct RecordTraversal<'a> {
    /// The world to traverse.
    pub world: &'a World,
    /// The number of sources when the traversal began.
    pub sources: usize,
}

impl<'a> RecordTraversal<'a> {
    fn readers(self) -> impl Iterator<Item = &'a Arc<Source>> {
        (0..self.sources).map(move |slot| self.world.sources.at(SourceSlot(slot as u32)))
    }

    /// Returns the records of all edges, one record per follower.
    pub fn edges(self) -> impl Iterator<Item = EdgesRecord> {
        self.readers().filter_map(move |follower| {
            let mut record = EdgesRecord { follower: follower.slot.0, ..EdgesRecord::default() };
            let following = follower.following();
            let is_known = |source: SourceSlot| (source.0 as usize) < self.sources;
            let kept = |kept: &RetainedRange| (kept.source.0, kept.from, kept.until, kept.since, kept.hidden);
            record.starts =
                following.starts().iter().filter(|start| is_known(start.0)).map(|(s, at)| (s.0, *at)).collect();
            record.kept = following.kept().iter().filter(|kept| is_known(kept.source)).map(kept).collect();
            let known = following.edges().filter(|edge| is_known(edge.source));
            for (place, edge) in known.enumerate() {
                record.sources.extend(edge.source.0.to_le_bytes());
                record.since.extend(edge.since.0.to_le_bytes());
                if edge.hidden {
                    record.hidden.extend((place as u32).to_le_bytes());
                }
            }
            (!record.sources.is_empty() || !record.kept.is_empty()).then_some(record)
        })
    }

    /// Passes all posts in memory to `each`, source by source in the order of slots, the newest post of each source first.
    ///
    /// Outboxes may archive posts meanwhile. A post that an outbox has in memory when the traversal reaches it is passed with that outbox
    /// or with an earlier one. A post that it archived before is in the archive, which is made durable before the snapshot gets its name.
    /// If several outboxes archive a post, each just before the traversal reaches it, the post is passed more than once: restoring it
    /// again is harmless, and the later record is the newer one.
    ///
    /// # Errors
    /// Returns the error of `each`.
    pub fn posts<E>(self, mut each: impl FnMut(PostRecord<u32>) -> Result<(), E>) -> Result<(), E> {
        let mut positions = Vec::with_capacity(OUTBOX_CHUNK);
        for source in self.readers() {
            let mut span = PositionRange::ALL;
            loop {
                positions.clear();
                source.outbox().copy(Part::Whole, span, Direction::Older, OUTBOX_CHUNK, &mut positions);
                let posts = positions.iter().filter_map(|position| self.world.posts.get(position.id));
                posts.filter_map(|post| self.record(&post, source.slot)).try_for_each(&mut each)?;
                match positions.last() {
                    Some(last) if positions.len() == OUTBOX_CHUNK => span = span.beyond(*last, Direction::Older),
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// Returns the record of a post in the outbox of `at`, unless it was passed with an earlier outbox. An outbox that still has the post
    /// also had it when the traversal reached that outbox. To pass a post only with the first of all its outboxes would not be enough: this
    /// outbox may archive it after the traversal has passed the others and before it reaches this one.
    fn record(self, post: &Post, at: SourceSlot) -> Option<PostRecord<u32>> {
        let is_known = |source: &Membership| (source.slot.0 as usize) < self.sources;
        if !post.sources().iter().chain(post.answered.as_deref()).all(is_known) {
            return None;
        }
        let has_it = |source: &Membership| self.world.sources.at(source.slot).outbox().contains(post.position);
        let was_given = post.sources().iter().any(|source| source.slot < at && has_it(source));
        (!was_given).then(|| record(self.world, post, |source| source.slot.0))
    }

    /// Returns the records of all tombstones in memory.
    pub fn deleted(self) -> impl Iterator<Item = DeletedRecord> {
        let ids: Vec<PostId> = self.world.posts.deleted().collect();
        let record = |ids: &[PostId]| DeletedRecord {
            ids: ids.iter().flat_map(|id| id.0.to_le_bytes()).collect::<Vec<u8>>().into(),
        };
        ids.chunks(DELETED_PER_RECORD).map(record).collect::<Vec<_>>().into_iter()
    }
}

/// Converts a post to a record; `name` converts each of its sources.
pub fn record<S>(world: &World, post: &Post, name: impl Fn(&Membership) -> S) -> PostRecord<S> {
    let (mut pulled, mut archived) = (0, 0);
    for (nth, source) in post.sources().iter().enumerate() {
        match world.sources.at(source.slot).outbox().route(post.position) {
            Some(Route::Push) => {}
            Some(Route::Pull) => pulled |= 1 << nth,
            None => archived |= 1 << nth,
        }
    }
    PostRecord {
        at: post.position,
        accepted_at: Some(post.accepted_at).filter(|at| *at != post.position.published_at),
        kind: post.kind,
        body: Body::kept(post.body()),
        sources: post.sources().iter().map(&name).collect(),
        answered: post.answered.as_deref().map(&name),
        pulled,
        archived,
        hidden: post.hidden,
        edited_at: post.edited_at,
        repost_of: post.repost_of,
        reply_to: post.reply_to,
        external_id: post.external_id().and_then(|id| ExternalId::new(id).ok()),
        fingerprint: post.fingerprint,
    }
}

/// Builds a world from records. Required order: all sources, then edges, preferences, reposts and posts, then tombstones.
impl StateMachine {
    /// Restores the edges of one follower.
    ///
    /// # Errors
    /// Fails if a source is not known, or the columns do not match each other.
    pub fn restore_edges(&mut self, record: &EdgesRecord) -> Result<(), InvalidRecordError> {
        let ((slots, rest), (instants, rest2)) = (record.sources.as_chunks::<4>(), record.since.as_chunks::<8>());
        if slots.len() != instants.len() || !rest.is_empty() || !rest2.is_empty() {
            return invalid(format!("the columns of the edges of source {} have different lengths", record.follower));
        }
        let edge = |(slot, since): (&[u8; 4], &[u8; 8])| Edge {
            source: SourceSlot(u32::from_le_bytes(*slot)),
            hidden: false,
            since: UnixMicros(u64::from_le_bytes(*since).cast_signed()),
        };
        let mut edges: Vec<Edge> = slots.iter().zip(instants).map(edge).collect();
        for place in record.hidden.as_chunks::<4>().0 {
            match edges.get_mut(u32::from_le_bytes(*place) as usize) {
                Some(edge) => edge.hidden = true,
                None => return invalid(format!("a hidden edge of source {} does not exist", record.follower)),
            }
        }
        let known = self.world().sources.len();
        let ascending = edges.windows(2).all(|pair| pair[0].source < pair[1].source);
        let all_known = edges.iter().all(|edge| (edge.source.0 as usize) < known);
        if !ascending || !all_known || record.follower as usize >= known {
            return invalid(format!("the edges of source {} name sources that do not exist", record.follower));
        }
        let follower = SourceSlot(record.follower);
        if self.world().sources.at(follower).following().reach_len() > 0 {
            return invalid(format!("the edges of source {} are stored twice", record.follower));
        }
        self.restore_following(follower, &edges);
        self.restore_bounds(follower, record)
    }

    fn restore_bounds(&mut self, follower: SourceSlot, record: &EdgesRecord) -> Result<(), InvalidRecordError> {
        let known = self.world().sources.len();
        if record.starts.is_empty() && record.kept.is_empty() {
            return Ok(());
        }
        let mut bounded = record.starts.iter().map(|start| start.0).chain(record.kept.iter().map(|kept| kept.0));
        if bounded.any(|source| source as usize >= known) {
            return invalid(format!(
                "the starts or kept posts of source {} name sources that do not exist",
                record.follower
            ));
        }
        let follower = Arc::clone(self.world().sources.at(follower));
        self.world().sources.change_edges(&follower, |edges| {
            let following = edges.following_mut();
            for (source, start) in &record.starts {
                if following.contains(SourceSlot(*source)) {
                    following.set_start(SourceSlot(*source), *start);
                }
            }
            for &(source, from, until, since, hidden) in &record.kept {
                following.keep(RetainedRange { source: SourceSlot(source), from, until, since, hidden });
            }
        });
        record.kept.iter().for_each(|kept| self.world().sources.note_kept(&follower, SourceSlot(kept.0)));
        Ok(())
    }

    /// Restores a post into its outboxes.
    ///
    /// # Errors
    /// Fails if a source is not known.
    pub fn restore_post(&mut self, record: &PostRecord<u32>) -> Result<(), InvalidRecordError> {
        let sources = &self.world().sources;
        let known = sources.len();
        if record.sources.is_empty() || record.sources.iter().any(|slot| *slot as usize >= known) {
            return invalid(format!("post {} names sources that do not exist", record.at.id));
        }
        if record.sources.len() > POST_SOURCES_MAX {
            return invalid(format!("post {} belongs to {} sources", record.at.id, record.sources.len()));
        }
        let member = |slot: &u32| {
            let slot = SourceSlot(*slot);
            Membership { slot, id: sources.at(slot).id.clone() }
        };
        if record.answered.is_some_and(|slot| slot as usize >= known) {
            return invalid(format!("post {} is a reply to an author who does not exist", record.at.id));
        }
        let answered = record.answered.as_ref().map(member);
        let mut members: Vec<Membership> = record.sources.iter().map(member).collect();
        // Earlier versions had no sources of replies. A reply of such a version has no entry there in the archive of a cluster, and gets
        // none.
        let replies =
            replies(record.reply_to, record.repost_of).filter(|_| self.world().replicated_archive().is_none());
        if let Some(id) = replies.filter(|id| members.iter().all(|member| member.id != *id)) {
            members.push(Membership { slot: self.world().sources.intern(&id).slot, id });
        }
        let post = Post::restored(record, members.into(), answered);
        self.restore_placed(&Arc::new(post), |nth| record.route(nth));
        Ok(())
    }

    /// Restores tombstones of deleted posts.
    pub fn restore_deleted(&mut self, record: &DeletedRecord) {
        for id in record.ids.as_chunks::<8>().0 {
            self.restore_tombstone(PostId(u64::from_le_bytes(*id)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::celebrity::CelebrityPolicy;
    use crate::feed::event::{Event, NewEdge};
    use crate::feed::followers::Sharding;
    use crate::feed::position::at;
    use crate::id::SourceId;

    fn edge(start: Option<Position>) -> NewEdge {
        let id = |text| SourceId::new(text).unwrap();
        NewEdge { start, ..NewEdge::new(id("ann"), id("bob")) }
    }

    /// Tests every state that a traversal may find, with the following events applied again: the kept posts must be the same.
    #[test]
    fn posts_kept_by_an_unfollow_are_equal_after_replay_from_any_snapshot() {
        let NewEdge { follower, source, .. } = edge(None);
        let unfollowed = |until| Event::Unfollowed {
            follower: follower.clone(),
            source: source.clone(),
            keep_until: Some(at(until, 9)),
        };
        let followed = |since, start: Option<Position>, hidden| Event::Followed {
            edges: vec![NewEdge { hidden, ..edge(start) }],
            since: UnixMicros(since),
        };
        let (first, second) = (Some(at(3, 0)), Some(at(20, 0)));
        let events = [
            followed(1, first, true),
            followed(2, first, false),
            unfollowed(10),
            followed(4, second, false),
            unfollowed(30),
        ];
        let reach = |world: &World| -> Vec<bool> {
            let (ann, bob) = (world.sources.at(SourceSlot(0)).following(), SourceSlot(1));
            (0..40).map(|time| ann.brings(bob, at(time, 0)).is_some()).collect()
        };
        let (expected, mut machine) = World::create(CelebrityPolicy::PushAll, Sharding::new(1));
        events.iter().for_each(|event| drop(machine.apply(event)));
        for applied in 0..=events.len() {
            let (walked, mut machine) = World::create(CelebrityPolicy::PushAll, Sharding::new(1));
            events[..applied].iter().for_each(|event| drop(machine.apply(event)));
            let walk = RecordTraversal { world: &walked, sources: walked.sources.len() };
            for replayed_from in 0..=applied {
                let (restored, mut machine) = World::create(CelebrityPolicy::PushAll, Sharding::new(1));
                walk.sources().for_each(|record| machine.restore_source(&record).unwrap());
                walk.edges().for_each(|record| machine.restore_edges(&record).unwrap());
                machine.set_replaying(true);
                events[replayed_from..].iter().for_each(|event| drop(machine.apply(event)));
                assert_eq!(reach(&restored), reach(&expected), "{applied} applied, replayed from {replayed_from}");
            }
        }
    }
}
