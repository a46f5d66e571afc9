//! The group: commands that were accepted and are journaled together.
//!
//! Responsible for:
//! - knowing what the group changes, so that a command which reads any of it waits for the next group;
//! - counting what the group adds to what is limited, since limits are judged by the state before the group.
//!
//! Not responsible for:
//! - judging commands, the journal (the rest of `runtime::writer`).
//!
//! A command is judged by the state before the group. So only a read of something that the group changes ends it. What the
//! group merely reads may be changed by a later command of the same group: it is applied later too. Two changes of the same
//! thing need no rule of their own, since they are applied in order; most commands read what they change.

use std::collections::HashSet;

use rustc_hash::FxHashMap;

use crate::feed::event::{Event, MuteOrBlock, NewEdge};
use crate::feed::position::Position;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::runtime::fanout::open_fanouts::Backlog;
use crate::runtime::message::Command;
use crate::runtime::writer::Accepted;
use crate::state::sources::Sources;

type State = foldhash::fast::RandomState;

/// Accepted commands, in order, and what they change.
#[derive(Default)]
pub(super) struct Group {
    accepted: Vec<Accepted>,
    /// Posts that are published, edited or deleted.
    posts: HashSet<PostId, State>,
    /// Users whose edges, decisions or revocations change.
    readers: HashSet<SourceId, State>,
    added: Added,
    fanouts_of: FxHashMap<SourceSlot, Backlog>,
    /// How often the group names a source: at least the number of those that it makes known.
    named: usize,
    /// The sources that it makes known, once anybody asked.
    unknown: Option<HashSet<SourceId, State>>,
}

/// What a group adds to the state.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Added {
    /// Posts, and the deliveries that they need.
    pub fanouts: Backlog,
    /// Bytes of posts.
    pub post_bytes: usize,
    /// Reposts, each counted once for each of its sources.
    pub reposts: usize,
    /// Follow edges.
    pub edges: usize,
    /// Users whose tokens were not revoked before.
    pub revocations: usize,
}

impl Group {
    pub(super) fn len(&self) -> usize {
        self.accepted.len()
    }

    /// Whether a command reads anything that the group changes.
    pub(super) fn decides_about(&self, command: &Command) -> bool {
        if self.accepted.is_empty() {
            return false;
        }
        match command {
            Command::Publish { draft, .. } => {
                // What a repost repeats in the end depends on whether there is a block, which changes both users.
                (draft.repost_of.is_some() && self.readers.contains(&draft.author))
                    || [draft.id, draft.repost_of, draft.reply_to].iter().flatten().any(|id| self.changes_post(*id))
            }
            Command::Edit { id, .. } | Command::Delete { id, .. } => self.changes_post(*id),
            // Whether the source has blocked the follower is known by the follower as well: a block changes both.
            Command::Follow { edges, .. } => {
                !self.readers.is_empty() && followers(edges).any(|follower| self.readers.contains(follower))
            }
            Command::Unfollow { follower, .. } => self.readers.contains(follower),
            Command::Choose { reader, .. } | Command::RevokeTokens { user: reader, .. } => {
                self.readers.contains(reader)
            }
            Command::Resolved { command, .. } => self.decides_about(command),
            // These end the group themselves.
            Command::Erase { .. } | Command::EraseStep { .. } => false,
            Command::Meet { .. }
            | Command::Mark { .. }
            | Command::Shelved(_)
            | Command::IdsListed { .. }
            | Command::Stop => false,
        }
    }

    /// Whether a post is published, edited or deleted by the group.
    pub(super) fn changes_post(&self, id: PostId) -> bool {
        self.posts.contains(&id)
    }

    pub(super) fn push(&mut self, accepted: Accepted, sources: &Sources) {
        self.note_changes(&accepted.event);
        names(&accepted.event, &mut |id| {
            self.named += 1;
            if let Some(unknown) = &mut self.unknown
                && sources.get(id).is_none()
            {
                unknown.insert(id.clone());
            }
        });
        self.accepted.push(accepted);
    }

    fn note_changes(&mut self, event: &Event) {
        let readers = &mut self.readers;
        let mut change = |reader: &SourceId| {
            if !readers.contains(reader) {
                readers.insert(reader.clone());
            }
        };
        match event {
            Event::Published { position: Position { id, .. }, .. }
            | Event::Edited { id, .. }
            | Event::Deleted { id, .. } => {
                self.posts.insert(*id);
            }
            Event::Followed { edges, .. } => followers(edges).for_each(change),
            // A block takes edges away on both sides.
            Event::Silenced { reader, source, how: MuteOrBlock::Block, .. } => {
                change(reader);
                change(source);
            }
            Event::Unfollowed { follower: reader, .. }
            | Event::Silenced { reader, .. }
            | Event::Ruled { reader, .. }
            | Event::Marked { reader, .. }
            | Event::Listed { reader, .. }
            | Event::Unlisted { reader, .. }
            | Event::Revoked { user: reader, .. } => change(reader),
            // Journaled beside the group, or as all of one.
            Event::ClockJumped { .. }
            | Event::Erased { .. }
            | Event::ErasureScrubbed { .. }
            | Event::ErasureEnded { .. } => {}
        }
    }

    /// What it adds to the state so far.
    pub(super) fn added(&self) -> &Added {
        &self.added
    }

    /// Counts what its last command adds to the state.
    pub(super) fn add(&mut self, more: Added) {
        self.added.fanouts = self.added.fanouts + more.fanouts;
        self.added.post_bytes += more.post_bytes;
        self.added.reposts += more.reposts;
        self.added.edges += more.edges;
        self.added.revocations += more.revocations;
    }

    /// Its posts of one author.
    pub(super) fn fanouts_of(&self, author: SourceSlot) -> Backlog {
        self.fanouts_of.get(&author).copied().unwrap_or_default()
    }

    /// Counts a post of an author.
    pub(super) fn add_fanout_of(&mut self, author: SourceSlot, post: Backlog) {
        let of_author = self.fanouts_of.entry(author).or_default();
        *of_author = *of_author + post;
    }

    /// How often it names a source.
    pub(super) fn named(&self) -> usize {
        self.named
    }

    /// The sources that it makes known. Costs a look-up for each that it names, once, so it is asked for only near the limit.
    pub(super) fn unknown(&mut self, sources: &Sources) -> &HashSet<SourceId, State> {
        self.unknown.get_or_insert_with(|| {
            let mut unknown = HashSet::default();
            for Accepted { event, .. } in &self.accepted {
                names(event, &mut |id| {
                    if sources.get(id).is_none() {
                        unknown.insert(id.clone());
                    }
                });
            }
            unknown
        })
    }

    /// Takes note that a source has become known by other means.
    pub(super) fn met(&mut self, id: &SourceId) {
        if let Some(unknown) = &mut self.unknown {
            unknown.remove(id);
        }
    }

    /// Ends it: what it accepted is handed over, and the next one begins.
    pub(super) fn take(&mut self) -> Vec<Accepted> {
        // The sets keep their room for the next group, unless this one was unusual.
        self.posts.clear();
        self.readers.clear();
        self.fanouts_of.clear();
        (self.added, self.named, self.unknown) = (Added::default(), 0, None);
        std::mem::take(&mut self.accepted)
    }
}

/// The followers of edges. Bulk edges come grouped by follower more often than not: each of such a group is returned once.
fn followers(edges: &[NewEdge]) -> impl Iterator<Item = &SourceId> {
    edges
        .chunk_by(|edge, next| edge.follower == next.follower)
        .filter_map(|group| group.first())
        .map(|edge| &edge.follower)
}

/// Calls `name` with each source that an event may make known.
fn names(event: &Event, name: &mut dyn FnMut(&SourceId)) {
    match event {
        Event::Published { draft, .. } => draft.sources().for_each(name),
        Event::Followed { edges, .. } => edges.iter().flat_map(|edge| [&edge.follower, &edge.source]).for_each(name),
        Event::Silenced { reader, source, .. } | Event::Listed { reader, source, .. } => {
            [reader, source].into_iter().for_each(name);
        }
        Event::Ruled { reader, .. } | Event::Marked { reader, .. } => name(reader),
        Event::Edited { .. }
        | Event::Deleted { .. }
        | Event::Unfollowed { .. }
        | Event::Unlisted { .. }
        | Event::Revoked { .. }
        | Event::Erased { .. }
        | Event::ErasureScrubbed { .. }
        | Event::ErasureEnded { .. }
        | Event::ClockJumped { .. } => {}
    }
}
