//! The group: accepted commands that are journaled together.
//!
//! A command is validated against the state before the group. So only a read of something that the group changes ends
//! the group. A later command of the same group may change something that the group only reads, since it is also
//! applied later. Two changes of the same thing need no special rule, since they are applied in order; most commands
//! read the data that they change.

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use rustc_hash::FxHashMap;

use crate::feed::event::{Event, MuteOrBlock, NewEdge};
use crate::feed::position::Position;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::COMMAND_BATCH_MAX;
use crate::runtime::fanout::open_fanouts::Backlog;
use crate::runtime::message::Command;
use crate::runtime::processor::{Completion, PendingEvent};
use crate::state::reposts::RepostIndex;
use crate::state::sources::Sources;

type Hasher = foldhash::fast::RandomState;

/// Accepted commands, in order, and the data that they change.
#[derive(Default)]
pub(super) struct Group {
    accepted: VecDeque<PendingEvent>,
    /// The number of commands, from the first one on, that were sent to a shared log and not read back yet.
    sent: usize,
    /// The time since which the group waits for the first of these.
    sent_at: Option<Instant>,
    /// The number of commands since the group was last empty.
    pushed: usize,
    /// The posts that are published, edited, deleted or redirected.
    posts: HashSet<PostId, Hasher>,
    /// The posts that new reposts name.
    reposted: HashSet<PostId, Hasher>,
    /// True if a post is edited or deleted, which may be an earlier repost of any other.
    changes_posts: bool,
    /// The users whose edges, decisions or revocations change.
    readers: HashSet<SourceId, Hasher>,
    added: Added,
    fanouts_of: FxHashMap<SourceSlot, Backlog>,
    /// The number of times that the group names a source: an upper bound of the number of sources that it adds.
    named: usize,
    /// The sources that the group adds. None until they are needed.
    unknown: Option<HashSet<SourceId, Hasher>>,
}

/// The amounts that a group adds to the state.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Added {
    /// The number of posts, and of the deliveries that they need.
    pub fanouts: Backlog,
    /// The bytes of posts.
    pub post_bytes: usize,
    /// The number of reposts, each counted once for each of its sources.
    pub reposts: usize,
    /// The number of follow edges.
    pub edges: usize,
    /// The number of users whose tokens were not revoked before.
    pub revocations: usize,
}

impl Group {
    pub(super) fn len(&self) -> usize {
        self.accepted.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.accepted.is_empty()
    }

    /// Returns true if a command reads anything that the group changes.
    pub(super) fn conflicts_with(&self, command: &Command, reposts: &RepostIndex) -> bool {
        if self.accepted.is_empty() {
            return false;
        }
        match command {
            Command::Publish { draft, .. } => {
                // The original post of a repost, and of its earlier reposts, depends on blocks, which change both users.
                let is_read = |id| self.reposted.contains(&id) || (self.changes_posts && reposts.of(id).is_some());
                (draft.repost_of.is_some() && (self.readers.contains(&draft.author) || draft.id.is_some_and(is_read)))
                    || [draft.id, draft.repost_of, draft.reply_to].iter().flatten().any(|id| self.changes_post(*id))
            }
            Command::Edit { id, .. } | Command::Delete { id, .. } => self.changes_post(*id),
            // The follower alone is sufficient, even if the source has blocked it: a block changes both users.
            Command::ChangeEdges { follows, unfollows, .. } => {
                let mut named = followers(follows).chain(unfollows.iter().map(|edge| &edge.follower));
                !self.readers.is_empty() && named.any(|follower| self.readers.contains(follower))
            }
            Command::SetPreference { reader, .. } | Command::RevokeTokens { user: reader, .. } => {
                self.readers.contains(reader)
            }
            Command::Resolved { command, .. } => self.conflicts_with(command, reposts),
            // These commands end the group themselves.
            Command::Erase { .. } | Command::EraseStep { .. } => false,
            Command::RegisterUser { .. }
            | Command::Mark { .. }
            | Command::TieringWritten(_)
            | Command::IdsListed { .. }
            | Command::Leave
            | Command::Many(_)
            | Command::Stop => false,
        }
    }

    /// Returns true if the group publishes, edits or deletes this post.
    pub(super) fn changes_post(&self, id: PostId) -> bool {
        self.posts.contains(&id)
    }

    pub(super) fn push(&mut self, accepted: PendingEvent, sources: &Sources) {
        self.note_changes(&accepted.event);
        names(&accepted.event, &mut |id| {
            self.named += 1;
            if let Some(unknown) = &mut self.unknown
                && sources.get(id).is_none()
            {
                unknown.insert(id.clone());
            }
        });
        self.pushed += 1;
        self.accepted.push_back(accepted);
    }

    fn note_changes(&mut self, event: &Event) {
        let readers = &mut self.readers;
        let mut change = |reader: &SourceId| {
            if !readers.contains(reader) {
                readers.insert(reader.clone());
            }
        };
        match event {
            Event::Published { position: Position { id, .. }, draft, .. } => {
                self.posts.insert(*id);
                self.posts.extend(draft.earlier_reposts.iter().map(|repost| repost.at.id));
                self.reposted.extend(draft.origin.or(draft.repost_of));
            }
            Event::Edited { id, .. } | Event::Deleted { id, .. } => {
                self.posts.insert(*id);
                self.changes_posts = true;
            }
            Event::Followed { edges, .. } => followers(edges).for_each(change),
            Event::FollowsChanged { follows, unfollows, .. } => {
                followers(follows).chain(unfollows.iter().map(|edge| &edge.follower)).for_each(change);
            }
            // A block removes edges in both directions.
            Event::MuteChanged { reader, source, how: MuteOrBlock::Block, .. } => {
                change(reader);
                change(source);
            }
            Event::Unfollowed { follower: reader, .. }
            | Event::MuteChanged { reader, .. }
            | Event::RulesChanged { reader, .. }
            | Event::MarkerMoved { reader, .. }
            | Event::ListMemberChanged { reader, .. }
            | Event::ListDeleted { reader, .. }
            | Event::Revoked { user: reader, .. } => change(reader),
            // These are journaled outside a group, or in a group of their own.
            Event::ClockJumped { .. }
            | Event::Erased { .. }
            | Event::ErasureScrubbed { .. }
            | Event::ErasureEnded { .. } => {}
        }
    }

    /// Returns the amounts that the group adds to the state so far.
    pub(super) fn added(&self) -> &Added {
        &self.added
    }

    /// Adds the amounts of the last command.
    pub(super) fn add(&mut self, more: Added) {
        self.added.fanouts = self.added.fanouts + more.fanouts;
        self.added.post_bytes += more.post_bytes;
        self.added.reposts += more.reposts;
        self.added.edges += more.edges;
        self.added.revocations += more.revocations;
    }

    /// Returns the backlog of the group's posts of one author.
    pub(super) fn fanouts_of(&self, author: SourceSlot) -> Backlog {
        self.fanouts_of.get(&author).copied().unwrap_or_default()
    }

    /// Counts a post of an author.
    pub(super) fn add_fanout_of(&mut self, author: SourceSlot, post: Backlog) {
        let of_author = self.fanouts_of.entry(author).or_default();
        *of_author = *of_author + post;
    }

    /// Returns how often the group names a source.
    pub(super) fn named(&self) -> usize {
        self.named
    }

    /// Returns the sources that the group adds. The first call looks up every named source, so it is used only near
    /// the limit.
    pub(super) fn unknown(&mut self, sources: &Sources) -> &HashSet<SourceId, Hasher> {
        self.unknown.get_or_insert_with(|| {
            let mut unknown = HashSet::default();
            for PendingEvent { event, .. } in &self.accepted {
                names(event, &mut |id| {
                    if sources.get(id).is_none() {
                        unknown.insert(id.clone());
                    }
                });
            }
            unknown
        })
    }

    /// Removes a source that was registered in another way.
    pub(super) fn note_registered(&mut self, id: &SourceId) {
        if let Some(unknown) = &mut self.unknown {
            unknown.remove(id);
        }
    }

    /// Returns true if all commands of the group were sent to a shared log, or the group is empty.
    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.accepted.len()
    }

    /// Records that the next `count` unsent commands were sent to a shared log.
    pub(super) fn note_sent(&mut self, count: usize, now: Instant) {
        self.sent = self.sent.saturating_add(count).min(self.accepted.len());
        self.sent_at = self.sent_at.or(Some(now));
    }

    /// Returns true if so many commands were accepted since the group was last empty that its records should be
    /// cleared. Until then, they include commands that were applied.
    pub(super) fn is_long(&self) -> bool {
        self.pushed >= COMMAND_BATCH_MAX
    }

    /// Returns the time since which the group waits for the oldest sent command.
    pub(super) fn sent_at(&self) -> Option<Instant> {
        self.sent_at
    }

    /// Removes and returns the oldest command that was sent.
    pub(super) fn take_sent(&mut self, now: Instant) -> Option<PendingEvent> {
        self.sent = self.sent.checked_sub(1)?;
        self.sent_at = (self.sent > 0).then_some(now);
        let accepted = self.accepted.pop_front();
        self.clear_if_empty();
        accepted
    }

    /// Removes and returns the commands that were not sent.
    pub(super) fn take_unsent(&mut self) -> VecDeque<PendingEvent> {
        let unsent = self.accepted.split_off(self.sent);
        self.clear_if_empty();
        unsent
    }

    /// Ends the group: returns the accepted commands, and starts an empty group.
    pub(super) fn take(&mut self) -> VecDeque<PendingEvent> {
        (self.sent, self.sent_at) = (0, None);
        let accepted = std::mem::take(&mut self.accepted);
        self.clear_if_empty();
        accepted
    }

    /// Returns the pending answers of sent commands. The events are applied when they are read back, like those of
    /// other processes.
    pub(super) fn take_answers(&mut self) -> impl Iterator<Item = Completion> {
        self.sent_at = None;
        self.accepted
            .iter_mut()
            .take(self.sent)
            .map(|accepted| std::mem::replace(&mut accepted.then, Completion::Nothing))
    }

    fn clear_if_empty(&mut self) {
        if self.accepted.is_empty() {
            // The sets keep their capacity for the next group.
            self.posts.clear();
            self.reposted.clear();
            self.readers.clear();
            self.fanouts_of.clear();
            (self.added, self.named, self.unknown, self.pushed) = (Added::default(), 0, None, 0);
            self.changes_posts = false;
        }
    }
}

/// Returns the followers of edges. Bulk edges are usually grouped by follower: each run of the same follower is
/// returned once.
fn followers(edges: &[NewEdge]) -> impl Iterator<Item = &SourceId> {
    edges
        .chunk_by(|edge, next| edge.follower == next.follower)
        .filter_map(|group| group.first())
        .map(|edge| &edge.follower)
}

/// Calls `name` with each source that an event may add.
fn names(event: &Event, name: &mut dyn FnMut(&SourceId)) {
    match event {
        Event::Published { draft, .. } => draft.sources().for_each(|source| name(&source)),
        Event::Followed { edges, .. } | Event::FollowsChanged { follows: edges, .. } => {
            edges.iter().flat_map(|edge| [&edge.follower, &edge.source]).for_each(name);
        }
        Event::MuteChanged { reader, source, .. } | Event::ListMemberChanged { reader, source, .. } => {
            [reader, source].into_iter().for_each(name);
        }
        Event::RulesChanged { reader, .. } | Event::MarkerMoved { reader, .. } => name(reader),
        Event::Edited { .. }
        | Event::Deleted { .. }
        | Event::Unfollowed { .. }
        | Event::ListDeleted { .. }
        | Event::Revoked { .. }
        | Event::Erased { .. }
        | Event::ErasureScrubbed { .. }
        | Event::ErasureEnded { .. }
        | Event::ClockJumped { .. } => {}
    }
}
