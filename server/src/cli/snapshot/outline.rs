//! The index of an export: the position of each post and edge. Posts and edges are written in that order.
//!
//! A snapshot stores posts by source, newest first, and a few of them twice (the later record is the newer one); an archive stores them
//! by id. So the first pass reads only the position of every post, which takes 24 bytes of memory each. Then the snapshot is read once
//! more for every [`SORTED_BYTES`] of lines, which are sorted and written. The first pass finds damage before anything is written.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::follow_line::word;
use crate::cli::post_line::{PostFields, PostLine};
use crate::cli::snapshot::{Snapshot, each_block, each_record};
use crate::one_line::on_one_line;
use tidewire::clock::UnixMicros;
use tidewire::feed::position::Position;
use tidewire::feed::record::PostRecord;
use tidewire::id::{PostId, SourceId};
use tidewire::recovery::RecordBatch;
use tidewire::state::records::EdgesRecord;
use tidewire::state::tiering;
use tidewire::storage::archive::{ArchiveError, ArchivedRecord, ReadOnlyArchive};

/// Maximum bytes of lines that are sorted in memory at once.
pub(super) const SORTED_BYTES: u64 = 256 << 20;

/// The index of everything that is exported, without the content of the posts.
#[derive(Default)]
pub(super) struct Outline {
    ids: Vec<SourceId>,
    /// The posts, oldest first.
    pub(super) posts: Vec<ExportedPost>,
    /// The follow edges, oldest first.
    pub(super) edges: Vec<Edge>,
    pub(super) deleted: FxHashSet<PostId>,
    /// The originals of reposts for which the archive may have a different original.
    redirected: FxHashMap<PostId, PostId>,
    /// Readers with settings other than follow edges: preferences, or edges with a start or end position.
    pub(super) with_preferences: BTreeSet<u32>,
    /// Number of users whose tokens are revoked.
    pub(super) revoked: usize,
    /// True if the snapshot was taken with an archive that had posts.
    pub(super) needs_archive: bool,
}

/// The position of a post in the export, and its properties.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExportedPost {
    at: Position,
    line_bytes: u32,
    /// True if the post is read from the archive.
    pub(super) is_archived: bool,
    pub(super) is_hidden: bool,
    pub(super) is_edited: bool,
    /// True if its body has line breaks.
    pub(super) has_breaks: bool,
}

/// A follow edge of the export.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    since: UnixMicros,
    follower: u32,
    source: u32,
    pub(super) hidden: bool,
}

impl Outline {
    pub(super) fn read(snapshot: &Snapshot) -> Result<Self, Box<dyn Error>> {
        let mut outline = Self::default();
        let end = each_block(&mut snapshot.reader()?, |batch| outline.take(batch))?;
        outline.needs_archive = end.archive;
        outline.posts.retain(|post| !outline.deleted.contains(&post.at.id));
        sort_once(&mut outline.posts, |post| post.at);
        outline.edges.sort_unstable();
        Ok(outline)
    }

    /// Adds the posts that are only in the archive, and removes those that the archive marks as deleted.
    pub(super) fn read_archive(&mut self, archive: &ReadOnlyArchive) -> Result<(), ArchiveError> {
        let Self { posts, deleted, redirected, .. } = self;
        let mut archived = Vec::new();
        archive.each(|id, kept| {
            let Some(record) = archived_record(&kept, redirected)? else {
                deleted.insert(id);
                return Ok(());
            };
            if record.at.id != id {
                return Err(format!("its record has the id {}", record.at.id));
            }
            let is_in_snapshot = posts.binary_search_by_key(&record.at, |post| post.at).is_ok();
            if !is_in_snapshot && !deleted.contains(&id) {
                archived
                    .push(ExportedPost { is_archived: true, ..ExportedPost::of(&record, &archived_line(&record)?) });
            }
            Ok(())
        })?;
        posts.append(&mut archived);
        posts.retain(|post| !deleted.contains(&post.at.id));
        posts.sort_unstable();
        Ok(())
    }

    fn take(&mut self, batch: RecordBatch) -> Result<(), String> {
        match batch {
            RecordBatch::Sources(records) => self.ids.extend(records.into_iter().map(|record| record.id)),
            RecordBatch::Edges(records) => each_record("edges", &records, |record| self.take_edges(record))?,
            RecordBatch::Posts(records) => each_record("posts", &records, |record| {
                self.posts.push(ExportedPost::of(record, &self.line(record)?));
                Ok::<_, String>(())
            })?,
            RecordBatch::Deleted(records) => {
                let ids = records.iter().flat_map(|record| record.ids.as_chunks::<8>().0);
                self.deleted.extend(ids.map(|id| PostId(u64::from_le_bytes(*id))));
            }
            RecordBatch::Preferences(records) => {
                self.with_preferences.extend(records.iter().map(|record| record.reader));
            }
            RecordBatch::Revocations(records) => {
                self.revoked += records.iter().map(|record| record.users.len()).sum::<usize>();
            }
            RecordBatch::Reposts(records) => {
                for record in &records {
                    self.redirected.extend(record.redirected().map(|repost| (repost, record.of)));
                }
            }
            RecordBatch::UnfinishedFanout(_)
            | RecordBatch::Inboxes(_)
            | RecordBatch::ArchivedCounts(_)
            | RecordBatch::Awaited(_)
            | RecordBatch::Cluster(_) => {}
        }
        Ok(())
    }

    fn take_edges(&mut self, record: &EdgesRecord) -> Result<(), String> {
        let ((sources, _), (since, _)) = (record.sources.as_chunks::<4>(), record.since.as_chunks::<8>());
        if sources.len() != since.len() {
            return Err("its columns have different lengths".to_owned());
        }
        self.id(record.follower)?;
        if !record.starts.is_empty() || !record.kept.is_empty() {
            self.with_preferences.insert(record.follower);
        }
        let first = self.edges.len();
        for (source, since) in sources.iter().zip(since) {
            let (source, since) = (u32::from_le_bytes(*source), UnixMicros(i64::from_le_bytes(*since)));
            self.id(source)?;
            self.edges.push(Edge { since, follower: record.follower, source, hidden: false });
        }
        for place in record.hidden.as_chunks::<4>().0 {
            let place = first.saturating_add(u32::from_le_bytes(*place) as usize);
            self.edges.get_mut(place).ok_or("a hidden edge does not exist")?.hidden = true;
        }
        Ok(())
    }

    fn id(&self, number: u32) -> Result<&SourceId, String> {
        self.ids.get(number as usize).ok_or_else(|| format!("source {number} does not exist"))
    }

    fn line(&self, record: &PostRecord<u32>) -> Result<String, String> {
        line(record, record.sources.iter().map(|number| self.id(*number)).collect::<Result<_, _>>()?)
    }

    /// Writes the posts. The outer error comes from reading the input, the inner one from writing to `sink`.
    pub(super) fn write_posts(
        &self,
        snapshot: &Snapshot,
        archive: Option<&ReadOnlyArchive>,
        sink: &mut dyn Write,
        sorted_bytes: u64,
    ) -> Result<io::Result<()>, Box<dyn Error>> {
        for run in runs(&self.posts, sorted_bytes) {
            let mut lines = Vec::with_capacity(run.len());
            each_block(&mut snapshot.reader()?, |batch| {
                let RecordBatch::Posts(records) = batch else { return Ok(()) };
                for record in records {
                    if run.binary_search_by_key(&record.at, |post| post.at).is_ok() {
                        lines.push((record.at, self.line(&record)?));
                    }
                }
                Ok(())
            })?;
            for post in run.iter().filter(|post| post.is_archived) {
                let kept = archive.map(|archive| archive.post(post.at.id)).transpose()?.flatten();
                let record = kept.map(|kept| archived_record(&kept, &self.redirected)).transpose()?.flatten();
                lines.push((
                    post.at,
                    archived_line(&record.ok_or("a post was removed from the archive during the export")?)?,
                ));
            }
            sort_once(&mut lines, |(at, _)| *at);
            let written = lines.iter().try_for_each(|(_, line)| writeln!(sink, "{line}"));
            if written.is_err() {
                return Ok(written);
            }
        }
        Ok(Ok(()))
    }

    pub(super) fn write_edges(&self, sink: &mut dyn Write) -> io::Result<()> {
        for edge in &self.edges {
            let [follower, source] =
                [edge.follower, edge.source].map(|number| word(self.ids[number as usize].as_str()));
            let hidden = if edge.hidden { "\thidden" } else { "" };
            writeln!(sink, "{follower}\t{source}{hidden}")?;
        }
        Ok(())
    }
}

impl ExportedPost {
    fn of<S>(record: &PostRecord<S>, line: &str) -> Self {
        Self {
            at: record.at,
            line_bytes: line.len() as u32 + 1,
            is_archived: false,
            is_hidden: record.hidden,
            is_edited: record.edited_at.is_some(),
            has_breaks: matches!(on_one_line(record.body.as_str()), Cow::Owned(_)),
        }
    }
}

/// Sorts by position. Retains only the last one of entries with the same position.
fn sort_once<T>(entries: &mut Vec<T>, at: impl Fn(&T) -> Position) {
    entries.sort_by_key(&at);
    entries.dedup_by(|next, kept| {
        let is_same = at(next) == at(kept);
        if is_same {
            std::mem::swap(next, kept);
        }
        is_same
    });
}

fn line<S>(record: &PostRecord<S>, sources: Vec<&SourceId>) -> Result<String, String> {
    let parts = PostFields {
        position: record.at,
        external_id: record.external_id.as_ref(),
        kind: record.kind,
        body: record.body.as_str(),
        sources,
        repost_of: record.repost_of,
        reply_to: record.reply_to,
        hidden: record.hidden,
    };
    PostLine::new(&parts)?.json()
}

fn archived_line(record: &PostRecord<SourceId>) -> Result<String, String> {
    line(record, record.sources.iter().collect())
}

/// Decodes an archived post, or returns `None` for a tombstone.
fn archived_record(
    kept: &ArchivedRecord,
    redirected: &FxHashMap<PostId, PostId>,
) -> Result<Option<PostRecord<SourceId>>, String> {
    match kept {
        ArchivedRecord::Deleted => Ok(None),
        ArchivedRecord::Post(bytes) => {
            let mut record = tiering::decode(bytes)?;
            record.repost_of = redirected.get(&record.at.id).copied().or(record.repost_of);
            Ok(Some(record))
        }
    }
}

/// Splits posts into runs whose lines take at most `bytes_max` bytes. A run has at least one post.
fn runs(posts: &[ExportedPost], bytes_max: u64) -> Vec<&[ExportedPost]> {
    let mut run_bytes = 0;
    let mut starts = Vec::new();
    for (nth, post) in posts.iter().enumerate() {
        run_bytes += u64::from(post.line_bytes);
        if nth == 0 || run_bytes > bytes_max {
            starts.push(nth);
            run_bytes = u64::from(post.line_bytes);
        }
    }
    let ends = starts.iter().skip(1).copied().chain([posts.len()]);
    starts.iter().zip(ends).map(|(start, end)| &posts[*start..end]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::at;
    use std::path::Path;
    use tidewire::feed::celebrity::CelebrityPolicy;
    use tidewire::feed::followers::Sharding;
    use tidewire::feed::post::{Body, Draft, Post};
    use tidewire::state::records::{SourceRecord, record};
    use tidewire::state::world::World;
    use tidewire::storage::files::disk::DiskFiles;
    use tidewire::storage::sequence::Sequence;
    use tidewire::storage::snapshot::{self, Section, SnapshotHeader, SnapshotWriter};

    #[test]
    fn runs_fill_the_byte_limit_and_have_at_least_one_post() {
        let place = |line_bytes| ExportedPost {
            at: Position::MIN,
            line_bytes,
            is_archived: false,
            is_hidden: false,
            is_edited: false,
            has_breaks: false,
        };
        let posts = [4, 4, 9, 1, 1, 8, 30].map(place);
        let lengths = |max| runs(&posts, max).iter().map(|run| run.len()).collect::<Vec<_>>();
        assert_eq!(lengths(10), [2, 2, 2, 1]);
        assert_eq!(lengths(1), [1; 7]);
        assert_eq!(lengths(u64::MAX), [7]);
        assert!(runs(&[], 10).is_empty());
    }

    #[test]
    fn a_post_with_two_records_is_exported_once_from_the_later_record() {
        let directory = tempfile::tempdir().unwrap();
        let files = DiskFiles::open(directory.path()).unwrap();
        let header = SnapshotHeader { sequence: Sequence(1), taken_at: UnixMicros(0) };
        let mut writer = SnapshotWriter::begin(&files, header, false).unwrap();
        let ids = ["ann", "bob"].map(|id| SourceId::new(id).unwrap());
        for id in ids {
            let record = SourceRecord::new(id);
            writer.record(Section::Sources, &record).unwrap();
        }
        let (world, hand) = World::create(CelebrityPolicy::PushAll, Sharding::new(1));
        for (nth, body) in [(1, "1"), (2, "2"), (1, "3")] {
            let draft = Draft::new(SourceId::new("ann").unwrap(), Body::new(body).unwrap());
            let mut post = Post::new(at(nth, nth as u64), &draft, at(nth, 0).published_at);
            post.join(|id| hand.intern(id).slot);
            writer.record(Section::Posts, &record(&world, &post, |source| source.slot.0)).unwrap();
        }
        writer.finish(Sequence(1), UnixMicros(0), false).unwrap();
        let snapshot = Snapshot::open(&directory.path().join(snapshot::name(Sequence(1)))).unwrap();
        let outline = Outline::read(&snapshot).unwrap();
        let mut text = Vec::new();
        outline.write_posts(&snapshot, None, &mut text, SORTED_BYTES).unwrap().unwrap();
        let text = String::from_utf8(text).unwrap();
        let bodies: Vec<&str> = text.lines().filter_map(|line| line.split("\"body\":").nth(1)?.get(..1)).collect();
        assert_eq!((bodies, outline.posts.len()), (vec!["3", "2"], 2), "{text}");
    }

    #[test]
    fn many_short_runs_write_the_same_as_one_long_run() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/v1");
        let snapshot = Snapshot::open(&fixtures.join("snapshot-00000000000000000008.tide")).unwrap();
        let outline = Outline::read(&snapshot).unwrap();
        let written = |sorted_bytes| {
            let mut text = Vec::new();
            outline.write_posts(&snapshot, None, &mut text, sorted_bytes).unwrap().unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(written(1), written(SORTED_BYTES));
        assert_eq!(written(700).lines().count(), 5);
    }
}
