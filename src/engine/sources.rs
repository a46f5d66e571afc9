//! The engine's interface for facts about sources, and for a search by a prefix of their ids.
//!
//! Ids have no order in memory: an ordered index would take about 16 bytes for each of millions of sources, for a
//! request that only operators send. So a search examines all ids within a time limit, and holds no lock meanwhile.

use std::cmp::Reverse;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use roaring::RoaringBitmap;

use crate::clock::UnixMicros;
use crate::engine::Engine;
use crate::error::Error;
use crate::feed::celebrity::RouteBasis;
use crate::feed::outbox::Route;
use crate::id::{SourceId, SourceSlot};
use crate::limits::{SEARCH_TIME_MAX, SOURCES_FOUND_MAX};
use crate::state::sources::Source;

/// Number of ids after which a search checks the clock.
const EXAMINED_PER_LOOK: usize = 4_096;

/// Maximum number of awake readers of each shard among which suggestions are chosen.
const AWAKE_PER_SHARD_MAX: usize = 4 * SOURCES_FOUND_MAX;

/// The public facts about a source.
#[derive(Clone, Debug)]
pub struct SourceInfo {
    /// The id of the source.
    pub id: SourceId,
    /// The number of visible followers.
    pub followers: usize,
    /// The number of visible followed sources.
    pub following: usize,
    /// The number of posts in its outbox.
    pub posts: usize,
    /// True if followers pull its posts on read, instead of fan-out pushing them.
    pub celebrity: bool,
    /// The cost of its posts by either route.
    pub cost: RouteCost,
    /// True if the source is awake.
    pub active: bool,
    /// The time at which it last read its feed.
    pub last_seen: Option<UnixMicros>,
}

/// The cost of a source's posts by either route, at current rates, in microseconds of processor time per hour. The
/// rates are measured since the start of the process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RouteCost {
    /// The cost of pushing its posts to the followers that have inboxes.
    pub push_us_per_hour: f64,
    /// The cost of pulling its posts for each page of a follower.
    pub pull_us_per_hour: f64,
    /// The basis on which its route is chosen. The costs matter only for [`RouteBasis::Cost`].
    pub decided_by: RouteBasis,
}

/// The kind of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceKind {
    /// A user, or an account of another kind that publishes.
    User,
    /// A tag of posts.
    Tag,
    /// A topic of posts.
    Topic,
    /// The replies to a post.
    Replies,
}

impl SourceKind {
    /// Returns the kind of the source with this id.
    pub fn of(id: &SourceId) -> Self {
        match id {
            _ if id.is_user() => Self::User,
            _ if id.tag_name().is_some() => Self::Tag,
            _ if id.topic_name().is_some() => Self::Topic,
            _ => Self::Replies,
        }
    }

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Tag => "tag",
            Self::Topic => "topic",
            Self::Replies => "replies",
        }
    }
}

impl FromStr for SourceKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::User, Self::Tag, Self::Topic, Self::Replies].into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("{text:?} is neither user, tag, topic nor replies"))
    }
}

/// The parameters of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceSearch {
    /// The prefix of the id. The case of letters does not matter. If it is empty, some awake readers are suggested.
    pub prefix: String,
    /// The kind of the sources; all kinds if it is missing.
    pub kind: Option<SourceKind>,
    /// The maximum number of sources, at most [`SOURCES_FOUND_MAX`].
    pub limit: usize,
}

/// The sources that a search found.
#[derive(Clone, Debug, Default)]
pub struct FoundSources {
    /// The source with exactly this id first, then those that are awake, then those with the most followers.
    pub sources: Vec<SourceInfo>,
    /// False if the time limit was reached before all ids were examined.
    pub complete: bool,
    /// The number of ids that were examined.
    pub examined: usize,
}

impl Engine {
    /// Returns the public facts about a source.
    ///
    /// # Errors
    /// Fails if the source is unknown.
    pub fn source(&self, id: &SourceId) -> Result<SourceInfo, Error> {
        let source = self.inner.shared.world.sources.get(id).ok_or_else(|| Error::UnknownSource(id.clone()))?;
        Ok(self.source_info(&source))
    }

    pub(super) fn source_info(&self, source: &Source) -> SourceInfo {
        let shared = &self.inner.shared;
        let (followers, posts) = (source.followers().visible_len(), source.outbox().len());
        SourceInfo {
            id: source.id.clone(),
            followers,
            following: source.following().visible_len(),
            posts,
            celebrity: shared.world.route(source) == Route::Pull,
            cost: self.route_cost(source),
            active: shared.directory.is_active(source.slot),
            last_seen: source.last_seen(),
        }
    }

    /// Returns the cost of a source's posts by either route.
    fn route_cost(&self, source: &Source) -> RouteCost {
        let shared = self.shared();
        let costs = shared.world.costs(source, shared.clock.now());
        let (push_us_per_hour, pull_us_per_hour) = costs.us_per_hour();
        RouteCost { push_us_per_hour, pull_us_per_hour, decided_by: shared.config.celebrity.basis() }
    }

    /// Searches for sources. Takes up to a tenth of a second, so it is called on a thread that may block.
    pub fn find_sources(&self, search: &SourceSearch) -> FoundSources {
        // A prefix of a tag has the form of a tag, too.
        let prefix = SourceId::new(&search.prefix).map_or_else(|_| search.prefix.clone(), |id| id.as_str().to_owned());
        let search = SourceSearch { prefix, limit: search.limit.min(SOURCES_FOUND_MAX), ..search.clone() };
        if !search.prefix.is_empty() || !matches!(search.kind, None | Some(SourceKind::User)) {
            return self.scan(&search, |_| true);
        }
        let awake = self.awake_readers(search.limit);
        if !awake.sources.is_empty() {
            return awake;
        }
        // Users who follow nobody have empty feeds.
        let users = SourceSearch { kind: Some(SourceKind::User), ..search };
        self.scan(&users, |source| source.following().reach_len() > 0)
    }

    /// Returns some of the awake readers: first those who follow a source, by the time of their last read. Of a shard
    /// with more than [`AWAKE_PER_SHARD_MAX`], only those with the smallest slots are examined, so that the time does
    /// not grow with the number of readers.
    fn awake_readers(&self, limit: usize) -> FoundSources {
        let (world, directory) = (&self.shared().world, &self.shared().directory);
        let mut slots: Vec<SourceSlot> = Vec::new();
        for shard in 0..world.sharding.shards() {
            let active = directory.active(shard);
            slots.extend(active.iter().take(AWAKE_PER_SHARD_MAX).map(|local| world.sharding.source(shard, local)));
        }
        let readers = slots.into_iter().map(|slot| Arc::clone(world.sources.at(slot)));
        let mut readers: Vec<Arc<Source>> = readers.filter(|reader| !reader.is_erased()).collect();
        readers.sort_by_cached_key(|reader| (reader.following().reach_len() == 0, Reverse(reader.last_seen())));
        let examined = readers.len();
        readers.truncate(limit);
        self.found(&readers, true, examined)
    }

    fn scan(&self, search: &SourceSearch, is_wanted: impl Fn(&Source) -> bool) -> FoundSources {
        let (sources, began) = (&self.shared().world.sources, Instant::now());
        let mut best = Best::new(self, search.limit);
        let exact = SourceId::new(&search.prefix).ok().and_then(|id| sources.get(&id));
        let exact = exact.filter(|source| search.has_kind(&source.id));
        let (mut complete, mut examined) = (true, 0_usize);
        for source in sources.iter() {
            if examined.is_multiple_of(EXAMINED_PER_LOOK) && began.elapsed() >= SEARCH_TIME_MAX {
                complete = false;
                break;
            }
            examined += 1;
            if search.fits(&source.id) && !source.is_erased() && is_wanted(source) {
                best.add(source);
            }
        }
        let mut found = best.into_sources();
        if let Some(exact) = exact {
            found.retain(|source| source.slot != exact.slot);
            found.insert(0, exact);
            found.truncate(search.limit);
        }
        self.found(&found, complete, examined)
    }

    fn found(&self, sources: &[Arc<Source>], complete: bool, examined: usize) -> FoundSources {
        let sources = sources.iter().map(|source| self.source_info(source)).collect();
        FoundSources { sources, complete, examined }
    }
}

impl SourceSearch {
    fn has_kind(&self, id: &SourceId) -> bool {
        self.kind.is_none_or(|kind| kind == SourceKind::of(id))
    }

    fn fits(&self, id: &SourceId) -> bool {
        let start = id.as_str().as_bytes().get(..self.prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(self.prefix.as_bytes())) && self.has_kind(id)
    }
}

/// The rank of a found source, the most useful first: awake sources, then those with the most followers.
type Rank = (bool, Reverse<u64>);

/// The most useful of the sources that were found so far.
struct Best {
    /// The awake readers of each shard when the search began.
    active: Vec<RoaringBitmap>,
    engine: Engine,
    limit: usize,
    /// At most a few times `limit`.
    found: Vec<(Rank, Arc<Source>)>,
    /// The last source within `limit`, once there were more.
    worst: Option<(Rank, Arc<Source>)>,
}

impl Best {
    fn new(engine: &Engine, limit: usize) -> Self {
        let shards = 0..engine.shared().world.sharding.shards();
        let active = shards.map(|shard| engine.shared().directory.active(shard).clone()).collect();
        Self { active, engine: engine.clone(), limit, found: Vec::new(), worst: None }
    }

    fn add(&mut self, source: &Arc<Source>) {
        let sharding = self.engine.shared().world.sharding;
        let is_awake = self.active[sharding.shard_of(source.slot)].contains(sharding.local(source.slot));
        let rank = (!is_awake, Reverse(source.followers().len()));
        if self.worst.as_ref().is_some_and(|(worst, last)| (rank, &source.id) > (*worst, &last.id)) {
            return;
        }
        self.found.push((rank, Arc::clone(source)));
        if self.found.len() > 4 * self.limit {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.found.sort_unstable_by(|(rank, source), (other, another)| (rank, &source.id).cmp(&(other, &another.id)));
        if self.found.len() > self.limit {
            self.found.truncate(self.limit);
            self.worst = self.found.last().cloned();
        }
    }

    fn into_sources(mut self) -> Vec<Arc<Source>> {
        self.cut();
        self.found.into_iter().map(|(_, source)| source).collect()
    }
}
