//! The digest of a world: nodes of a cluster that have applied the same events have the same digest.
//!
//! It is the sum of the hashes of all facts, each with the ids of its sources, so the order in which facts are visited does not matter.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

use crate::clock::UnixMicros;
use crate::feed::outbox::Part;
use crate::feed::position::{Direction, Position, PositionRange};
use crate::feed::post::Post;
use crate::feed::preferences::{Preferences, Silenced};
use crate::id::{PostId, SourceSlot};
use crate::state::records::RecordTraversal;
use crate::state::sources::Source;
use crate::state::world::World;
use crate::storage::frame::pack;

/// Number of entries of an outbox that are copied together.
const OUTBOX_CHUNK: usize = 1_024;

/// The digest of a world. Its text is 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Digest(pub u128);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The kinds of facts. Each hash begins with its kind.
#[derive(Clone, Copy)]
enum Kind {
    Followers,
    Edge,
    Kept,
    InOutbox,
    Rules,
    Mute,
    Block,
    Marker,
    List,
    Member,
    Post,
    Tombstone,
    Repost,
    Revocation,
    Erased,
    Lead,
}

/// One fact: its fields are hashed in order, and texts with their lengths.
struct Fact(Xxh3);

impl Fact {
    fn new(kind: Kind) -> Self {
        Self(Xxh3::new()).number(kind as u64)
    }

    fn number(mut self, number: u64) -> Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    fn instant(self, at: UnixMicros) -> Self {
        self.number(at.0.cast_unsigned())
    }

    fn position(self, at: Position) -> Self {
        self.instant(at.published_at).number(at.id.0)
    }

    fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self = self.number(bytes.len() as u64);
        self.0.update(bytes);
        self
    }

    fn option<T>(self, value: Option<T>, field: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            None => self.number(0),
            Some(value) => field(self.number(1), value),
        }
    }

    /// Hashes a source by its id. The id of a source that is being erased is not known on every node; its erasure's instant is hashed
    /// instead.
    fn source(self, source: &Source) -> Self {
        match source.erased_at() {
            None => self.text(source.id.as_str()),
            Some(at) => self.instant(at),
        }
    }
}

struct Sum<'a> {
    world: &'a World,
    has_posts: bool,
    sum: u128,
}

impl World {
    /// Computes the digest of this world. It visits the whole world, so the caller must not be a thread that others wait for.
    pub fn digest(&self) -> Digest {
        self.digest_with(true)
    }

    /// Computes the digest without posts and tombstones, because nodes with an archive have different ones in memory.
    pub fn digest_without_posts(&self) -> Digest {
        self.digest_with(false)
    }

    fn digest_with(&self, has_posts: bool) -> Digest {
        let mut sum = Sum { world: self, has_posts, sum: 0 };
        sum.add(Fact::new(Kind::Lead).instant(UnixMicros(self.delivery.ahead_us())));
        (0..self.sources.len()).for_each(|slot| sum.add_source(self.sources.at(SourceSlot(slot as u32))));
        let deleted = self.posts.deleted().filter(|_| has_posts);
        deleted.for_each(|PostId(id)| sum.add(Fact::new(Kind::Tombstone).number(id)));
        self.reposts.origins().into_iter().for_each(|origin| sum.add_reposts(origin));
        let traversal = RecordTraversal { world: self, sources: 0 };
        for (user, not_before) in traversal.revocations().flat_map(|record| record.users) {
            sum.add(Fact::new(Kind::Revocation).text(user.as_str()).instant(not_before));
        }
        Digest(sum.sum)
    }
}

impl Sum<'_> {
    fn add(&mut self, Fact(hash): Fact) {
        self.sum = self.sum.wrapping_add(hash.digest128());
    }

    fn about(&self, kind: Kind, source: &Source, other: SourceSlot) -> Fact {
        Fact::new(kind).source(source).source(self.world.sources.at(other))
    }

    fn add_source(&mut self, source: &Source) {
        if let Some(at) = source.erased_at() {
            let is_under_way = self.world.sources.erasures().at(at).is_some();
            self.add(Fact::new(Kind::Erased).instant(at).number(is_under_way.into()));
        }
        let followers = source.followers().len();
        if followers > 0 {
            self.add(Fact::new(Kind::Followers).source(source).number(followers));
        }
        let following = source.following();
        for edge in following.edges() {
            let fact = self.about(Kind::Edge, source, edge.source).instant(edge.since).number(edge.hidden.into());
            self.add(fact.position(following.start(edge.source)));
        }
        for kept in following.kept() {
            let fact = self.about(Kind::Kept, source, kept.source).instant(kept.since).number(kept.hidden.into());
            self.add(fact.position(kept.from).position(kept.until));
        }
        if let Some(preferences) = source.own_preferences() {
            self.add_preferences(source, &preferences);
        }
        // The posts of a reply source follow from the parents of all posts. Earlier versions had no such sources.
        if self.has_posts && source.id.replied_post().is_none() {
            self.add_outbox(source);
        }
    }

    fn add_preferences(&mut self, source: &Source, preferences: &Preferences) {
        let mut rules = Vec::new();
        pack(&preferences.rules, &mut rules);
        self.add(Fact::new(Kind::Rules).source(source).bytes(&rules));
        self.add_silenced(Kind::Mute, source, &preferences.mutes);
        self.add_silenced(Kind::Block, source, &preferences.blocks);
        if let Some(marker) = preferences.marker {
            let fact = Fact::new(Kind::Marker).source(source).position(marker.at);
            self.add(
                fact.option(marker.seen, |fact, seen| fact.instant(seen.through).number(seen.ahead_us.cast_unsigned())),
            );
        }
        for (name, members) in &preferences.lists {
            self.add(Fact::new(Kind::List).source(source).text(name.as_str()));
            for member in members.edges() {
                let fact = self.about(Kind::Member, source, member.source).text(name.as_str());
                self.add(fact.instant(member.since));
            }
        }
    }

    fn add_silenced(&mut self, kind: Kind, source: &Source, silenced: &Silenced) {
        for (other, since) in silenced.iter() {
            self.add(self.about(kind, source, other).instant(since));
        }
    }

    /// Adds the entries of an outbox, and each post with the outbox of its author.
    fn add_outbox(&mut self, source: &Source) {
        let (mut positions, mut span) = (Vec::new(), PositionRange::ALL);
        loop {
            positions.clear();
            source.outbox().copy(Part::Whole, span, Direction::Older, OUTBOX_CHUNK, &mut positions);
            for position in &positions {
                self.add(Fact::new(Kind::InOutbox).source(source).position(*position));
                let post = self.world.posts.get(position.id);
                if let Some(post) = post.filter(|post| post.author().slot == source.slot) {
                    self.add_post(&post);
                }
            }
            match positions.last() {
                Some(last) if positions.len() == OUTBOX_CHUNK => span = span.beyond(*last, Direction::Older),
                _ => return,
            }
        }
    }

    fn add_post(&mut self, post: &Post) {
        let source = |fact: Fact, slot: SourceSlot| fact.source(self.world.sources.at(slot));
        let mut fact = Fact::new(Kind::Post).position(post.position).instant(post.accepted_at);
        fact = fact.text(post.kind.as_str()).number(post.hidden.into()).option(post.edited_at, Fact::instant);
        fact = fact.option(post.repost_of, |fact, id| fact.number(id.0));
        fact = fact.option(post.reply_to, |fact, id| fact.number(id.0));
        fact = fact.option(self.world.answered_by(post), source);
        let named = post.sources().iter().filter(|member| member.id.replied_post().is_none());
        fact = fact.number(post.fingerprint).text(post.body()).number(named.clone().count() as u64);
        fact = named.fold(fact, |fact, member| source(fact, member.slot));
        self.add(fact);
    }

    fn add_reposts(&mut self, origin: PostId) {
        let Some(reposts) = self.world.reposts.of(origin) else { return };
        // Copied, so that the command processor does not wait.
        let reposts = reposts.read().clone();
        for repost in reposts.iter() {
            let fact = self.about(Kind::Repost, self.world.sources.at(repost.source), repost.author);
            self.add(fact.number(origin.0).position(repost.at).number(reposts.is_hidden(repost.at).into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::feed::celebrity::CelebrityPolicy;
    use crate::feed::event::{Event, MuteOrBlock, NewEdge};
    use crate::feed::followers::Sharding;
    use crate::feed::position::at;
    use crate::feed::post::{Body, Draft, Membership};
    use crate::feed::rules::Rules;
    use crate::id::SourceId;
    use crate::state::records::record;

    fn id(text: &str) -> SourceId {
        SourceId::new(text).unwrap()
    }

    /// Events that each change something new.
    fn events() -> Vec<Event> {
        let published = |author: &str, nth: u64, repost_of: Option<u64>| {
            let draft = Draft::new(id(author), Body::new("{}").unwrap());
            let draft = Draft { repost_of: repost_of.map(PostId), ..draft };
            let position = at(10 * nth as i64, nth);
            Event::Published { position, draft, accepted_at: position.published_at }
        };
        let followed = |follower: &str, since| Event::Followed {
            edges: vec![NewEdge::new(id(follower), id("bob"))],
            since: UnixMicros(since),
        };
        let silenced = |how, since| Event::MuteChanged {
            reader: id("ann"),
            source: id("eve"),
            how,
            since: Some(UnixMicros(since)),
        };
        let edited = |body, hidden| Event::Edited { id: PostId(1), body, hidden, at: UnixMicros(50), post: None };
        let unfollowed = |follower, keep_until| Event::Unfollowed { follower, source: id("bob"), keep_until };
        let listed = |source| Event::ListMemberChanged {
            reader: id("ann"),
            list: "news".parse().unwrap(),
            source: id(source),
            since: Some(UnixMicros(60)),
        };
        let rules = Rules { show_own: false, ..Rules::default() };
        vec![
            published("bob", 1, None),
            published("eve", 2, Some(1)),
            followed("ann", 30),
            followed("dan", 31),
            edited(Some(Body::new("[]").unwrap()), None),
            edited(None, Some(true)),
            unfollowed(id("ann"), Some(at(10, 1))),
            unfollowed(id("dan"), None),
            silenced(MuteOrBlock::Mute, 32),
            silenced(MuteOrBlock::Block, 33),
            Event::RulesChanged { reader: id("dan"), rules },
            Event::MarkerMoved { reader: id("ann"), at: at(10, 1), seen: None },
            listed("bob"),
            listed("eve"),
            Event::ListDeleted { reader: id("ann"), list: "news".parse().unwrap() },
            Event::Revoked { user: id("ann"), not_before: UnixMicros(5), forget_before: None },
            Event::Deleted { id: PostId(1), repost_of: None, post: None },
            Event::Erased { user: id("ann"), at: UnixMicros(70) },
            Event::ErasureEnded { at: UnixMicros(70) },
            Event::ClockJumped { at: UnixMicros(90), drift_us: 7 },
        ]
    }

    #[test]
    fn the_digest_depends_on_every_event_and_not_on_slots() {
        let (world, mut writer) = World::create(CelebrityPolicy::PushAll, Sharding::new(1));
        let (other, mut other_writer) = World::create(CelebrityPolicy::PushAll, Sharding::new(4));
        // Sources that only one node has registered, because it has read them.
        ["zoe", "eve", "dan"].iter().for_each(|name| drop(other_writer.intern(&id(name))));
        for event in events() {
            let before = world.digest();
            writer.apply(&event);
            other_writer.apply(&event);
            other_writer.apply(&event);
            assert_eq!(other.digest(), world.digest(), "after {event:?}");
            assert_ne!(world.digest(), before, "{event:?} does not show");
        }
    }

    #[test]
    fn the_digest_ignores_reply_sources_that_earlier_versions_lack() {
        let draft = Draft::new(id("ann"), Body::new("{}").unwrap());
        let draft = Draft { reply_to: Some(PostId(7)), ..draft };
        let (joined, mut writer) = World::create(CelebrityPolicy::PushAll, Sharding::new(1));
        writer.apply(&Event::Published { position: at(1, 1), draft, accepted_at: UnixMicros(1) });
        let post = joined.posts.get(PostId(1)).unwrap();
        let mut record = record(&joined, &post, |source| source.slot.0);
        record.sources.truncate(1);

        let (alone, mut writer) = World::create(CelebrityPolicy::PushAll, Sharding::new(1));
        let author = Membership { slot: writer.intern(&id("ann")).slot, id: id("ann") };
        let post = Post::restored(&record, Box::new([author]), None);
        writer.restore_placed(&Arc::new(post), |nth| record.route(nth));
        assert_eq!((joined.sources.len(), alone.sources.len()), (2, 1));
        assert_eq!(joined.digest(), alone.digest());
    }
}
