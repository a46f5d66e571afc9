//! The follow part of the command processor: validating edges, and finding the earlier posts that each one brings.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::{Error, FollowRefusal};
use crate::feed::event::{Event, NewEdge, OldEdge};
use crate::feed::following::Following;
use crate::feed::position::Position;
use crate::id::{PostId, SourceId};
use crate::limits::{
    ARCHIVE_QUEUE_MAX, BACKFILL_MAX, BACKFILLS_PER_REQUEST_MAX, FOLLOWS_PER_REQUEST_MAX, PUBLISH_AHEAD_MAX,
};
use crate::runtime::message::{FollowResult, Reply};
use crate::runtime::processor::group::Added;
use crate::runtime::processor::{CommandProcessor, Completion, refuse};
use crate::state::sources::Source;
use crate::storage::journal::Journal;

type Hasher = foldhash::fast::RandomState;

/// The number of edges that use as much memory as the data that an unfollow may retain.
const KEPT_AS_EDGES: usize = 8;

impl<J: Journal> CommandProcessor<J> {
    /// Creates edges, and then removes others. All edges are validated before any is accepted, and one event contains
    /// all of them.
    pub(super) fn change_edges(
        &mut self,
        follows: Vec<NewEdge>,
        unfollows: Vec<OldEdge>,
        keep: bool,
        reply: Reply<FollowResult>,
    ) {
        match self.validate_edges(follows, unfollows, keep) {
            Err(refused) => refuse(reply, refused),
            Ok((result, None)) => drop(reply.send(Ok(result))),
            Ok((result, Some((event, new)))) => {
                if self.accept(event, Completion::Follow(reply, result)) {
                    self.group.add(Added { edges: new, ..Added::default() });
                }
            }
        }
    }

    /// Returns the result of a request. If anything changes, also returns the event, and the number of edges that are new.
    fn validate_edges(
        &mut self,
        follows: Vec<NewEdge>,
        unfollows: Vec<OldEdge>,
        keep: bool,
    ) -> Result<(FollowResult, Option<(Event, usize)>), Error> {
        if keep && (unfollows.len(), follows.len()) != (1, 0) {
            let what = "a request that keeps posts removes one edge and creates none".to_owned();
            return Err(Error::InvalidDraft { what });
        }
        let requested = follows.len();
        let (follows, new) = self.validate_follows(follows)?;
        let mut unfollows = self.edges_there(unfollows, keep, &follows);
        let created = follows.len();
        let result = FollowResult { created, existing: requested - created, removed: unfollows.len() };
        let event = match (created, unfollows.len()) {
            (0, 0) => return Ok((result, None)),
            (0, 1) => {
                let OldEdge { follower, source } = unfollows.remove(0);
                let keep_until = if keep { Some(self.kept_until(&follower, &source)?) } else { None };
                Event::Unfollowed { follower, source, keep_until }
            }
            (0, _) => Event::FollowsChanged { follows, since: self.logical_clock.now(), unfollows },
            (_, 0) => Event::Followed { since: self.tick(created).instant, edges: follows },
            (_, _) => Event::FollowsChanged { since: self.tick(created).instant, follows, unfollows },
        };
        Ok((result, Some((event, new))))
    }

    /// Returns the edges that can be removed, each once: they exist, or the same request creates them. Retained posts of
    /// an earlier edge can be removed like an edge, but not kept again.
    fn edges_there(&self, edges: Vec<OldEdge>, keep: bool, created: &[NewEdge]) -> Vec<OldEdge> {
        if edges.is_empty() {
            return edges;
        }
        let sources = &self.machine.world().sources;
        let created: HashSet<_> = created.iter().map(|edge| (&edge.follower, &edge.source)).collect();
        let is_there = |edge: &OldEdge| {
            let (from, to) = (sources.get(&edge.follower), sources.get(&edge.source));
            let known = from.zip(to).is_some_and(|(from, to)| {
                let following = from.following();
                following.contains(to.slot) || (!keep && following.is_only_kept(to.slot))
            });
            known || created.contains(&(&edge.follower, &edge.source))
        };
        let mut named = HashSet::new();
        edges.into_iter().filter(|edge| is_there(edge) && named.insert(edge.clone())).collect()
    }

    /// Returns the edges that change the state, if all of them are allowed, and the number of those that did not
    /// exist. A hidden edge becomes visible if it is requested as visible. A visible edge does not become hidden if
    /// it is requested as hidden. An edge that is requested several times is requested one time after the other.
    fn validate_follows(&mut self, edges: Vec<NewEdge>) -> Result<(Vec<NewEdge>, usize), Error> {
        let world = self.machine.world();
        let requested = edges.len();
        if requested > FOLLOWS_PER_REQUEST_MAX {
            let what = format!("{requested} follow edges at once are more than the {FOLLOWS_PER_REQUEST_MAX} allowed");
            return Err(Error::InvalidDraft { what });
        }
        let limit = self.shared.config.following_max;
        let (mut fresh, mut new, mut refusals) = (Vec::<NewEdge>::with_capacity(requested), 0, Vec::new());
        let mut followers: HashMap<SourceId, Requested, Hasher> = HashMap::default();
        for (nth, edge) in edges.into_iter().enumerate() {
            let Requested { follower, following, added, visible, hidden } =
                followers.entry(edge.follower.clone()).or_insert_with_key(|id| Requested::of(world.sources.get(id)));
            let source = world.sources.get(&edge.source);
            let before = source.as_ref().and_then(|source| following.get(source.slot));
            let earlier = added.get(&edge.source).copied();
            let was_hidden = earlier.map(|at| fresh[at].hidden).or(before.map(|before| before.hidden));
            if !edge.follower.is_user() {
                refusals.push((nth, FollowRefusal::NotAUser(edge.follower)));
            } else if edge.follower == edge.source {
                refusals.push((nth, FollowRefusal::Oneself(edge.follower)));
            } else if was_hidden.is_some_and(|hidden| !hidden || edge.hidden) {
                continue;
            } else if follower.as_deref().zip(source.as_deref()).is_some_and(|(one, other)| one.has_block(other)) {
                let (follower, source_id) = (edge.follower, edge.source);
                refusals.push((nth, FollowRefusal::Blocked { follower, source_id }));
            } else if (if edge.hidden { *hidden } else { *visible }) >= limit {
                refusals.push((nth, FollowRefusal::Limit { follower: edge.follower, limit }));
            } else {
                *visible += usize::from(!edge.hidden);
                *hidden += usize::from(edge.hidden);
                // An existing edge is added only if it becomes visible.
                *hidden -= usize::from(was_hidden.is_some());
                new += usize::from(was_hidden.is_none());
                if let Some(at) = earlier {
                    fresh[at].hidden = edge.hidden;
                    continue;
                }
                added.insert(edge.source.clone(), fresh.len());
                // An edge that becomes visible keeps its start.
                let start = before.map(|before| following.start(before.source));
                fresh.push(NewEdge { start, ..edge });
            }
        }
        if !refusals.is_empty() {
            return Err(Error::FollowsRefused { requested, refusals });
        }
        self.check_edges_limit(new)?;
        self.check_sources_limit(fresh.iter().flat_map(|edge| [&edge.follower, &edge.source]))?;
        self.find_starts(&mut fresh)?;
        Ok((fresh, new))
    }

    /// Checks that this many more edges fit within the limits, together with those of the group.
    fn check_edges_limit(&self, new: usize) -> Result<(), Error> {
        if new == 0 {
            return Ok(());
        }
        let limit = self.shared.config.edges_max;
        let edges = self.group.added().edges + new;
        if self.machine.world().edges() + edges > limit {
            return Err(Error::Full { what: "follow edge", limit });
        }
        self.check_graph_bytes(edges, 0)
    }

    /// Finds the starts of edges that were requested with only some of the earlier posts.
    fn find_starts(&self, edges: &mut [NewEdge]) -> Result<(), Error> {
        let asked: usize = edges.iter().filter_map(|edge| edge.backfill).fold(0, usize::saturating_add);
        if asked > BACKFILLS_PER_REQUEST_MAX {
            let what =
                format!("backfills of {asked} posts in all are more than the {BACKFILLS_PER_REQUEST_MAX} allowed");
            return Err(Error::InvalidDraft { what });
        }
        for edge in edges.iter_mut().filter(|edge| edge.start.is_none() && edge.backfill.is_some()) {
            let source = self.machine.world().sources.get(&edge.source);
            edge.start = self.start(edge, source.as_deref())?;
        }
        Ok(())
    }

    /// Returns the start of an edge that was requested with only some of the earlier posts.
    fn start(&self, edge: &NewEdge, source: Option<&Source>) -> Result<Option<Position>, Error> {
        let (Some(backfill), Some(source)) = (edge.backfill, source) else { return Ok(None) };
        if backfill > BACKFILL_MAX {
            let what = format!(
                "a backfill of {backfill} posts is more than the {BACKFILL_MAX} allowed; omit it to request all"
            );
            return Err(Error::InvalidDraft { what });
        }
        let newest = self.newest(source, backfill.max(1))?;
        let start = match backfill {
            0 => newest.first().map(|newest| newest.next_up()),
            _ => newest.get(backfill - 1).copied(),
        };
        Ok(start.map(|start| self.not_ahead(start)))
    }

    /// Limits a bound of an edge to about the current time. Without this limit, a bound from a post that was dated
    /// while the clock was years ahead would exclude all posts until that date from an edge, or keep them in a feed.
    fn not_ahead(&self, at: Position) -> Position {
        let now = self.logical_clock.now();
        if at.published_at > now.saturating_add(PUBLISH_AHEAD_MAX) {
            Position { published_at: now, id: PostId(u64::MAX) }
        } else {
            at
        }
    }

    /// Returns the position up to which the posts of an edge stay in the feed after its removal.
    fn kept_until(&self, follower: &SourceId, source: &SourceId) -> Result<Position, Error> {
        let (sources, limit) = (&self.machine.world().sources, self.shared.config.following_max);
        if sources.get(follower).is_some_and(|follower| follower.following().kept().len() >= limit) {
            return Err(Error::TooMany { reader: follower.clone(), what: "kept sources", limit });
        }
        // The retained data uses more memory than the edge did.
        self.check_graph_bytes(self.group.added().edges + KEPT_AS_EDGES, 0)?;
        let newest = sources.get(source).map_or(Ok(Vec::new()), |source| self.newest(&source, 1))?;
        // Posts that are dated ahead are already in the feed, too.
        let now = Position { published_at: self.logical_clock.now(), id: PostId(u64::MAX) };
        Ok(newest.first().map_or(now, |newest| now.max(self.not_ahead(*newest))))
    }

    /// Returns at most `max` of the newest positions of an outbox, newest first. They were looked up if memory does
    /// not contain them all.
    fn newest(&self, source: &Source, max: usize) -> Result<Vec<Position>, Error> {
        let newest = self.resolved.newest(self.machine.world(), source, max);
        newest.ok_or(Error::Overloaded { queue: "archive", limit: ARCHIVE_QUEUE_MAX })
    }
}

/// A follower in a request for edges.
struct Requested {
    follower: Option<Arc<Source>>,
    following: Arc<Following>,
    /// The sources of the edges that the request adds so far, each with the index of its edge in the request.
    added: HashMap<SourceId, usize, Hasher>,
    /// The number of visible edges together with those that the request adds. Visible and hidden edges each have a limit of their own.
    visible: usize,
    /// The number of hidden edges, counted in the same way.
    hidden: usize,
}

impl Requested {
    fn of(follower: Option<Arc<Source>>) -> Self {
        let following = follower.as_ref().map(|follower| follower.following()).unwrap_or_default();
        let [visible, hidden] = [false, true].map(|hidden| following.len_of(hidden));
        Self { follower, following, added: HashMap::default(), visible, hidden }
    }
}
