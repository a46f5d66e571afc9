//! The engine's interface for preferences, lists and unread counts of readers.

use std::ops::Bound;

use tokio::sync::oneshot;

use crate::clock::UnixMicros;
use crate::engine::{Engine, FeedPage, Listed};
use crate::error::Error;
use crate::feed::event::MuteOrBlock;
use crate::feed::following::Edge;
use crate::feed::page::Range;
use crate::feed::position::Position;
use crate::feed::preferences::Marker;
use crate::feed::resume::{DeliveryWatermark, Resume};
use crate::feed::rules::{Rules, RulesPatch};
use crate::feed::work::Work;
use crate::id::{ListName, PostId, SourceId};
use crate::limits::{ARCHIVE_QUEUE_MAX, UNREAD_MAX};
use crate::runtime::message::{Command, PreferenceChange};
use crate::state::explain::{ExplainUnavailable, Explanation, explain};
use crate::state::feed_filter::Finder;
use crate::state::reader::PageRequest;
use crate::state::viewer::Viewer;
use crate::state::world::World;

/// The number of unread entries of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unread {
    /// The position up to which the reader has read, if the reader ever set it.
    pub marker: Option<Position>,
    /// The number of entries above the marker by other authors: exact, unless `capped`.
    pub entries: usize,
    /// True if there may be more entries than were counted.
    pub capped: bool,
    /// True if counting finished: there are no more entries, or more than the maximum. If false, the number of
    /// missing entries is unknown, and `capped` is true.
    pub complete: bool,
    /// The work that counting required.
    pub work: Work,
}

impl Unread {
    /// Returns the result for a reader with this marker, before anything is counted.
    pub fn not_counted(marker: Position) -> Self {
        Self { marker: Some(marker), entries: 0, capped: true, complete: false, work: Work::default() }
    }
}

impl Engine {
    /// Mutes or blocks a source, or removes the mute or block. Returns false if nothing changes. A block removes the
    /// follow edges in both directions; removing the block does not restore them.
    ///
    /// # Errors
    /// Fails if the source is the reader itself, or the limit is reached.
    pub async fn silence(&self, reader: SourceId, source: SourceId, how: MuteOrBlock, on: bool) -> Result<bool, Error> {
        self.choose(reader, PreferenceChange::Silence { source, how, on }).await
    }

    /// Returns at most `max` sources that were muted or blocked before `before`, newest first.
    pub fn silenced(&self, reader: &SourceId, how: MuteOrBlock, before: UnixMicros, max: usize) -> Vec<Listed> {
        let sources = &self.inner.shared.world.sources;
        let Some(preferences) = sources.get(reader).and_then(|reader| reader.own_preferences()) else {
            return Vec::new();
        };
        let silenced = match how {
            MuteOrBlock::Mute => &preferences.mutes,
            MuteOrBlock::Block => &preferences.blocks,
        };
        let line = |(source, since)| (since, source);
        self.listed(before, max, |before, max| silenced.newest_before(before, max).into_iter().map(line).collect())
    }

    /// Returns a reader's rules.
    pub fn rules(&self, reader: &SourceId) -> Rules {
        let reader = self.inner.shared.world.sources.get(reader);
        reader.map(|reader| reader.preferences().rules).unwrap_or_default()
    }

    /// Changes some of a reader's rules, and returns all of them.
    ///
    /// # Errors
    /// Fails for the same reasons as every write.
    pub async fn change_rules(&self, reader: SourceId, patch: RulesPatch) -> Result<Rules, Error> {
        self.choose(reader.clone(), PreferenceChange::Rules(patch)).await?;
        Ok(self.rules(&reader))
    }

    /// Moves the read marker to a position, or to the state that a page's token describes. Posts that arrive later
    /// count as unread at any position.
    ///
    /// # Errors
    /// Fails for the same reasons as every write.
    pub async fn mark(&self, reader: SourceId, up_to: impl Into<Resume>) -> Result<(), Error> {
        let Resume { position, below, ahead_us, .. } = up_to.into();
        let given = below.map(|through| DeliveryWatermark { through, ahead_us });
        let delivery = &self.inner.shared.world.delivery;
        // A token that is ahead of this state was issued before a recovery that lost events, or by another node that
        // has delivered more.
        let seen = given.filter(|given| given.through <= delivery.applied().through).unwrap_or(delivery.settled());
        self.choose(reader, PreferenceChange::Mark(Marker { at: position, seen: Some(seen) })).await.map(drop)
    }

    /// Counts the unread entries at this moment. It builds a single page, whatever the size of the feed, and reports
    /// if the count is not complete. It neither wakes the reader nor counts as reading the feed.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Engine::feed`].
    pub async fn unread(&self, reader: &SourceId) -> Result<Unread, Error> {
        let shared = &self.inner.shared;
        let known = shared.world.sources.get(reader);
        let marker = known.as_ref().and_then(|reader| reader.preferences().marker);
        let range = Range::Since(marker.map_or(Resume::at(Position::MIN), Marker::resume));
        let request = PageRequest { range, limit: UNREAD_MAX };
        let page = match known.filter(|source| !shared.directory.is_active(source.slot)) {
            Some(asleep) => {
                let viewer = Viewer::home(&asleep, &asleep.following());
                self.pulled_page(viewer, shared.world.delivery.applied(), request).await?
            }
            None => self.feed(reader, request).await?,
        };
        let page = page.page;
        let complete = page.is_complete && (!page.gap || page.next.is_some());
        let work = page.work;
        let marker = marker.map(|marker| marker.at);
        Ok(Unread { marker, entries: page.items.len(), capped: page.next.is_some() || !complete, complete, work })
    }

    /// Adds a source to a list of a reader, or removes it. Returns false if nothing changes.
    ///
    /// # Errors
    /// Fails if the limit of lists or members is reached.
    pub async fn set_listed(
        &self,
        reader: SourceId,
        list: ListName,
        source: SourceId,
        on: bool,
    ) -> Result<bool, Error> {
        self.choose(reader, PreferenceChange::List { list, source, on }).await
    }

    /// Deletes a list. Returns false if there is none.
    ///
    /// # Errors
    /// Fails for the same reasons as every write.
    pub async fn drop_list(&self, reader: SourceId, list: ListName) -> Result<bool, Error> {
        self.choose(reader, PreferenceChange::DropList(list)).await
    }

    /// Returns at most `max` of a reader's lists in the order of their names, starting after `after`, with their
    /// numbers of members.
    pub fn lists(&self, reader: &SourceId, after: Option<&ListName>, max: usize) -> Vec<(ListName, usize)> {
        let Some(reader) = self.inner.shared.world.sources.get(reader) else { return Vec::new() };
        let (preferences, from) = (reader.preferences(), after.map_or(Bound::Unbounded, Bound::Excluded));
        let lists = preferences.lists.range((from, Bound::Unbounded)).take(max);
        lists.map(|(name, members)| (name.clone(), members.len())).collect()
    }

    /// Returns at most `max` members of a list that were added before `before`, newest first.
    ///
    /// # Errors
    /// Fails if there is no such list.
    pub fn members(
        &self,
        reader: &SourceId,
        list: &ListName,
        before: UnixMicros,
        max: usize,
    ) -> Result<Vec<Listed>, Error> {
        let members = self.list_viewer(reader, list)?.feed;
        let edge = |edge: &Edge| (edge.since, edge.source);
        Ok(self.listed(before, max, |before, max| members.newest_before(before, max).iter().map(edge).collect()))
    }

    /// Returns a page of a list: the posts of its members, filtered by the reader's rules.
    ///
    /// # Errors
    /// Fails if there is no such list.
    pub async fn list_feed(&self, reader: &SourceId, list: &ListName, request: PageRequest) -> Result<FeedPage, Error> {
        let settled = self.inner.shared.world.delivery.applied();
        self.pulled_page(self.list_viewer(reader, list)?, settled, request).await
    }

    fn list_viewer(&self, reader: &SourceId, list: &ListName) -> Result<Viewer, Error> {
        let unknown = || Error::UnknownList { reader: reader.clone(), list: list.as_str().to_owned() };
        let source = self.inner.shared.world.sources.get(reader).ok_or_else(unknown)?;
        let preferences = source.preferences();
        let members = preferences.lists.get(list).ok_or_else(unknown)?;
        Ok(Viewer::list(&source, members))
    }

    /// Explains why a post is, or is not, in a reader's home feed.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub async fn explain(&self, reader: &SourceId, post: PostId) -> Result<Explanation, Error> {
        let shared = &self.inner.shared;
        let viewer = match shared.world.sources.get(reader).filter(|reader| reader.id.is_user()) {
            Some(reader) => Viewer::home(&reader, &reader.following()),
            None => Viewer { has_own: true, ..Viewer::nobody() },
        };
        if let Ok(explanation) = explain(Finder::Memory(&shared.world), &viewer, post) {
            return Ok(explanation);
        }
        let (reply, answer) = oneshot::channel();
        let job = move |world: &World| {
            // The caller may have disconnected.
            let _ = reply.send(explain(Finder::Archive(world), &viewer, post));
        };
        if !shared.archive_readers.ask(job) {
            return Err(shared.overloaded("archive", ARCHIVE_QUEUE_MAX));
        }
        answer.await.map_err(|_| Error::ShuttingDown)?.map_err(|why| match why {
            ExplainUnavailable::Late => Error::ArchiveUnavailable(format!("post {post} was not read from it in time")),
            ExplainUnavailable::Archived | ExplainUnavailable::Unreadable => {
                Error::ArchiveFailed(format!("post {post} could not be read from it"))
            }
        })
    }

    async fn choose(&self, reader: SourceId, choice: PreferenceChange) -> Result<bool, Error> {
        self.command(|reply| Command::SetPreference { reader, choice, reply }).await
    }
}
