//! What readers decide about their feeds, as the engine's users ask for it.

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
use crate::feed::resume::{Resume, Settled};
use crate::feed::rules::{Rules, RulesPatch};
use crate::feed::work::Work;
use crate::id::{ListName, PostId, SourceId};
use crate::limits::{ARCHIVE_QUEUE_MAX, UNREAD_MAX};
use crate::runtime::message::{Choice, Command};
use crate::state::explain::{self, Explanation, explain};
use crate::state::reader::PageRequest;
use crate::state::view::Finder;
use crate::state::viewer::Viewer;
use crate::state::world::World;

/// How much a reader has not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unread {
    /// How far the reader has read, if that was ever said.
    pub marker: Option<Position>,
    /// Entries above it by others than the reader: exact, unless `capped`.
    pub entries: usize,
    /// There may be more than were counted.
    pub capped: bool,
    /// The count came to its end: there are no more, or more than are counted. If not, what is missing is not known, and `capped` is set.
    pub complete: bool,
    /// What was done to count.
    pub work: Work,
}

impl Engine {
    /// Mutes or blocks a source, or does so no more. False if that is so already. A block takes away the edges between both,
    /// which do not come back with its end.
    ///
    /// # Errors
    /// When it is the reader itself, or there are too many.
    pub async fn silence(&self, reader: SourceId, source: SourceId, how: MuteOrBlock, on: bool) -> Result<bool, Error> {
        self.choose(reader, Choice::Silence { source, how, on }).await
    }

    /// At most `max` muted or blocked sources, silenced before `before`, the newest first.
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

    /// A reader's rules.
    pub fn rules(&self, reader: &SourceId) -> Rules {
        let reader = self.inner.shared.world.sources.get(reader);
        reader.map(|reader| reader.preferences().rules).unwrap_or_default()
    }

    /// Changes some of a reader's rules, and returns all.
    ///
    /// # Errors
    /// As every write.
    pub async fn change_rules(&self, reader: SourceId, patch: RulesPatch) -> Result<Rules, Error> {
        self.choose(reader.clone(), Choice::Rules(patch)).await?;
        Ok(self.rules(&reader))
    }

    /// Notes how far a reader has read: up to a position, or what a page's token stands for. What arrives later counts as unread
    /// wherever it stands.
    ///
    /// # Errors
    /// As every write.
    pub async fn mark(&self, reader: SourceId, up_to: impl Into<Resume>) -> Result<(), Error> {
        let Resume { position, below, ahead_us, .. } = up_to.into();
        let given = below.map(|through| Settled { through, ahead_us });
        let now = self.inner.shared.world.arrivals.settled();
        // A token from the future was made where more was known than was kept.
        let seen = given.filter(|given| given.through <= now.through).unwrap_or(now);
        self.choose(reader, Choice::Mark(Marker { at: position, seen: Some(seen) })).await.map(drop)
    }

    /// Counts what a reader has not read, by the state of this moment: it builds one page, however much there is, and says so if that came
    /// to no end.
    ///
    /// # Errors
    /// As [`Engine::feed`].
    pub async fn unread(&self, reader: &SourceId) -> Result<Unread, Error> {
        let known = self.inner.shared.world.sources.get(reader);
        let marker = known.and_then(|reader| reader.preferences().marker);
        let range = Range::Since(marker.map_or(Resume::at(Position::MIN), Marker::resume));
        let page = self.feed(reader, PageRequest { range, limit: UNREAD_MAX }).await?.page;
        let complete = page.is_complete && (!page.gap || page.next.is_some());
        let work = page.work;
        let marker = marker.map(|marker| marker.at);
        Ok(Unread { marker, entries: page.items.len(), capped: page.next.is_some() || !complete, complete, work })
    }

    /// Puts a source on a list of a reader's, or takes it off. False if that is so already.
    ///
    /// # Errors
    /// When there are too many lists or members.
    pub async fn set_listed(
        &self,
        reader: SourceId,
        list: ListName,
        source: SourceId,
        on: bool,
    ) -> Result<bool, Error> {
        self.choose(reader, Choice::List { list, source, on }).await
    }

    /// Drops a list. False if there is none.
    ///
    /// # Errors
    /// As every write.
    pub async fn drop_list(&self, reader: SourceId, list: ListName) -> Result<bool, Error> {
        self.choose(reader, Choice::Unlist(list)).await
    }

    /// At most `max` of a reader's lists, by name from behind `after` on, with how many members each has.
    pub fn lists(&self, reader: &SourceId, after: Option<&ListName>, max: usize) -> Vec<(ListName, usize)> {
        let Some(reader) = self.inner.shared.world.sources.get(reader) else { return Vec::new() };
        let (preferences, from) = (reader.preferences(), after.map_or(Bound::Unbounded, Bound::Excluded));
        let lists = preferences.lists.range((from, Bound::Unbounded)).take(max);
        lists.map(|(name, members)| (name.clone(), members.len())).collect()
    }

    /// At most `max` members of a list, put on it before `before`, the newest first.
    ///
    /// # Errors
    /// When there is no such list.
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

    /// A page of a list: what its members published, by the reader's rules.
    ///
    /// # Errors
    /// When there is no such list.
    pub async fn list_feed(&self, reader: &SourceId, list: &ListName, request: PageRequest) -> Result<FeedPage, Error> {
        let settled = self.inner.shared.world.arrivals.applied();
        self.pulled_page(self.list_viewer(reader, list)?, settled, request).await
    }

    fn list_viewer(&self, reader: &SourceId, list: &ListName) -> Result<Viewer, Error> {
        let unknown = || Error::UnknownList { reader: reader.clone(), list: list.as_str().to_owned() };
        let source = self.inner.shared.world.sources.get(reader).ok_or_else(unknown)?;
        let preferences = source.preferences();
        let members = preferences.lists.get(list).ok_or_else(unknown)?;
        Ok(Viewer::list(&source, members))
    }

    /// Says why a post is, or is not, in a reader's home feed.
    ///
    /// # Errors
    /// When the archive cannot be read.
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
            // Whoever asked may have gone.
            let _ = reply.send(explain(Finder::Archive(world), &viewer, post));
        };
        if !shared.archive_readers.ask(job) {
            return Err(shared.overloaded("archive", ARCHIVE_QUEUE_MAX));
        }
        let unreadable = |_: explain::Missing| Error::ArchiveFailed(format!("post {post} could not be read from it"));
        answer.await.map_err(|_| Error::ShuttingDown)?.map_err(unreadable)
    }

    async fn choose(&self, reader: SourceId, choice: Choice) -> Result<bool, Error> {
        self.command(|reply| Command::Choose { reader, choice, reply }).await
    }
}
