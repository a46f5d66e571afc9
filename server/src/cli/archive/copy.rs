//! `tidewire archive copy`: copies an archive from a data directory to Cassandra, or back.
//!
//! Responsible for:
//! - writing the entries and posts that the target lacks or has with different content, and removing entries that only the target has. So a
//!   repeated copy continues an interrupted one, and updates a complete one;
//! - reading both afterwards, and comparing their counts and checksums.

mod entries;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use self::entries::{Ask, Page, each_round, keep_lacking, read};
use super::remote::Access;
use crate::cli::settings::DurationArg;
use crate::cli::{Outcome, terminal};
use tidewire::feed::position::Position;
use tidewire::id::{PostId, SourceId};
use tidewire::limits::ARCHIVE_CACHE_BYTES;
use tidewire::storage::archive::{
    Archive, ArchiveError, ArchivedRecord, Batch, ReadOnlyArchive, RedbArchive, RemoteArchive, Wanted,
};
use tidewire::storage::identity::Identity;
use tidewire::storage::sequence::Sequence;
use tidewire_cassandra::CassandraArchive;

/// Number of posts that are compared and written together.
const POSTS_TOGETHER: usize = 1_000;

/// Arguments of `tidewire archive copy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Copy {
    /// The archive to read: a data directory, its archive.redb, or cassandra://HOST:PORT,…/KEYSPACE; no server may write to it
    #[arg(long, value_name = "ARCHIVE")]
    from: String,

    /// The archive to write, in the same form; an archive.redb is created, a keyspace must have been prepared
    #[arg(long, value_name = "ARCHIVE")]
    to: String,

    /// Time after which copied posts expire in Cassandra
    #[arg(long, env = "TIDEWIRE_ARCHIVE_TTL", value_name = "DURATION")]
    archive_ttl: Option<DurationArg>,

    #[command(flatten)]
    access: Access,

    /// Print the written records, both archives and the result of the comparison, each as a line of JSON
    #[arg(long)]
    json: bool,
}

/// An archive that can be listed.
trait Listed {
    fn place(&self) -> String;
    fn through(&self) -> Result<Sequence, ArchiveError>;
    fn identity(&self) -> Result<Option<Identity>, ArchiveError>;
    /// Returns the sources that lack posts.
    fn held_back(&self) -> Result<BTreeSet<SourceId>, ArchiveError> {
        Ok(BTreeSet::new())
    }
    fn sources(&self) -> Result<Vec<SourceId>, ArchiveError>;
    /// Executes reads of outboxes, and returns the positions that each of them found.
    fn positions(&self, asks: &[Ask<'_>]) -> Result<Vec<Vec<Position>>, ArchiveError>;
    /// Calls `each` with one batch of posts and tombstones after the other.
    fn posts(&self, each: &mut dyn FnMut(Vec<(PostId, ArchivedRecord)>) -> Done) -> Done;
}

type Done = Result<(), ArchiveError>;

impl Listed for ReadOnlyArchive {
    fn place(&self) -> String {
        self.path().display().to_string()
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        Ok(self.totals()?.through)
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        self.identity()
    }

    fn sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
        Ok(self.archived_counts()?.into_iter().map(|(source, _)| source).collect())
    }

    fn positions(&self, asks: &[Ask<'_>]) -> Result<Vec<Vec<Position>>, ArchiveError> {
        asks.iter().map(|ask| self.positions(ask.source, ask.query())).collect()
    }

    fn posts(&self, each: &mut dyn FnMut(Vec<(PostId, ArchivedRecord)>) -> Done) -> Done {
        let (mut some, mut done) = (Vec::new(), Ok(()));
        let listed = self.each(|id, kept| {
            some.push((id, kept));
            if some.len() >= POSTS_TOGETHER {
                done = each(std::mem::take(&mut some));
            }
            // The caller returns the error of `each`; this one only ends the listing.
            if done.is_ok() { Ok(()) } else { Err(String::new()) }
        });
        done?;
        listed?;
        each(some)
    }
}

impl Listed for CassandraArchive {
    fn place(&self) -> String {
        Archive::place(self)
    }

    fn held_back(&self) -> Result<BTreeSet<SourceId>, ArchiveError> {
        RemoteArchive::held_back(self)
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        Archive::through(self)
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        Archive::identity(self)
    }

    fn sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
        RemoteArchive::list_sources(self)
    }

    fn positions(&self, asks: &[Ask<'_>]) -> Result<Vec<Vec<Position>>, ArchiveError> {
        read(self, asks)
    }

    fn posts(&self, each: &mut dyn FnMut(Vec<(PostId, ArchivedRecord)>) -> Done) -> Done {
        let mut done = Ok(());
        self.each_page(&mut |page| {
            done = each(page);
            done.is_ok()
        })?;
        done
    }
}

impl Copy {
    pub(super) fn run(self) -> Outcome {
        self.copied().map_err(|cause| cause.to_string().into())
    }

    fn copied(&self) -> Outcome {
        let from = self.open(&self.from)?;
        let is_remote = is_remote(&self.to);
        let identity = from.identity().map_err(text)?;
        {
            let to: Box<dyn Archive> = if is_remote {
                Box::new(CassandraArchive::open(&self.access.options(&self.to, self.archive_ttl)?).map_err(text)?)
            } else {
                Box::new(RedbArchive::open(&file(&self.to), ARCHIVE_CACHE_BYTES).map_err(text)?)
            };
            if let (Some(found), Some(expected)) = (to.identity().map_err(text)?, identity)
                && found != expected
            {
                let places = (to.place(), from.place());
                return Err(format!(
                    "{} belongs to another data directory than {}: {found}, not {expected}",
                    places.0, places.1
                )
                .into());
            }
            refuse_held_back(&*from)?;
            let written = write(&*from, &*to).map_err(text)?;
            if let Some(identity) = identity {
                to.set_identity(identity).map_err(text)?;
            }
            to.close();
            let Written { posts, entries, removed } = written;
            let also = if removed > 0 { format!("; removed: {removed} entries") } else { String::new() };
            self.print(
                &json!({"written": {"posts": posts, "entries": entries, "removed": removed}}),
                &format!("written: {posts} posts, {entries} entries{also}"),
            );
        }
        let (expected, found) = (sums(&*from).map_err(text)?, sums(&*self.open(&self.to)?).map_err(text)?);
        for (place, sums) in [(&self.from, &expected), (&self.to, &found)] {
            let Sums { posts, of_posts, outboxes, entries, of_entries } = sums;
            let (of_posts, of_entries) = (format!("{of_posts:016x}"), format!("{of_entries:016x}"));
            self.print(
                &json!({
                    "archive": place,
                    "posts": posts,
                    "posts_checksum": of_posts,
                    "outboxes": outboxes,
                    "entries": entries,
                    "entries_checksum": of_entries,
                }),
                &format!("{place}: {posts} posts, checksum {of_posts}; {outboxes} outboxes, {entries} entries, checksum {of_entries}"),
            );
        }
        let is_good = expected == found;
        let verdict = match is_good {
            true => "good: both are equal",
            false => "bad: they differ; a server may have written meanwhile, or the target was not empty",
        };
        self.print(&json!({"good": is_good}), verdict);
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print(&self, document: &Value, text: &str) {
        if self.json { terminal::print_json(document) } else { terminal::print_line(text) }
    }

    fn open(&self, place: &str) -> Result<Box<dyn Listed>, Box<dyn std::error::Error>> {
        if is_remote(place) {
            return Ok(Box::new(CassandraArchive::open(&self.access.options(place, None)?).map_err(text)?));
        }
        Ok(Box::new(ReadOnlyArchive::open(&file(place), ARCHIVE_CACHE_BYTES).map_err(text)?))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is called with the errors of results")]
fn text(cause: ArchiveError) -> String {
    cause.with_sources()
}

fn is_remote(place: &str) -> bool {
    place.contains("://")
}

fn file(place: &str) -> PathBuf {
    super::file_in(PathBuf::from(place))
}

/// Refuses an archive that lacks entries which only the memory of nodes has, because nodes that start with the copy would treat it as
/// complete.
fn refuse_held_back(from: &dyn Listed) -> Result<(), String> {
    let held_back = from.held_back().map_err(text)?;
    let Some(first) = held_back.first() else { return Ok(()) };
    Err(format!(
        "{} holds {} sources back, such as {first}, whose outboxes are damaged: it lacks some of their posts. Repair the outboxes, and restart the node that accepts writes, before you copy it",
        from.place(),
        held_back.len()
    ))
}

/// Numbers of written and removed records.
#[derive(Default)]
struct Written {
    posts: u64,
    entries: u64,
    /// Number of entries that were in the target but not in the source archive.
    removed: u64,
}

/// Writes records that the target lacks or has with different content, and removes entries that only the target has.
fn write(from: &dyn Listed, to: &dyn Archive) -> Result<Written, ArchiveError> {
    // In an archive with nothing but copied data, all data counts as older than any write of a server, because the server may continue from
    // an earlier event than the source archive was written at.
    let through = from.through()?;
    let as_of = match to.remote() {
        Some(to) if to.written()? != Sequence(0) => through,
        _ => Sequence(0),
    };
    to.remote().map_or(Ok(()), RemoteArchive::begin_copy)?;
    let (of_source, of_target) = (|asks: &[Ask<'_>]| from.positions(asks), |asks: &[Ask<'_>]| read(to, asks));
    let mut written = Written::default();
    if !to.is_empty() {
        let sources = to.sources()?;
        // Entries that only the target has: posts deleted since an earlier copy, or sources that were erased.
        each_round(&sources, &of_target, |mut extra| {
            keep_lacking(&mut extra, &of_source)?;
            let entries = extra.into_iter().flat_map(Page::into_entries);
            let removed: Vec<_> = entries.map(|(source, position, _)| (source, position)).collect();
            written.removed += removed.len() as u64;
            if removed.is_empty() { Ok(()) } else { to.write(&Batch { as_of, removed, ..Batch::default() }) }
        })?;
    }
    from.posts(&mut |posts| {
        // Skip the read of ids that are certainly not in the target.
        if let Some(remote) = to.remote() {
            remote.prefetch(&mut posts.iter().map(|(id, _)| *id).filter(|id| to.may_have(*id)).map(Wanted::Post));
        }
        let mut missing = Vec::new();
        for (id, kept) in posts {
            let is_there = to.may_have(id) && to.post(id)?.as_ref() == Some(&kept);
            if !is_there {
                missing.push((id, kept));
            }
        }
        written.posts += missing.len() as u64;
        if missing.is_empty() { Ok(()) } else { to.write(&Batch { as_of, posts: missing, ..Batch::default() }) }
    })?;
    each_round(&from.sources()?, &of_source, |mut missing| {
        keep_lacking(&mut missing, &of_target)?;
        let placed: Vec<_> = missing.into_iter().flat_map(Page::into_entries).collect();
        written.entries += placed.len() as u64;
        if placed.is_empty() { Ok(()) } else { to.write(&Batch { as_of, placed, ..Batch::default() }) }
    })?;
    to.persist(through)?;
    Ok(written)
}

/// Counts of an archive, and checksums that do not depend on the order of reads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    posts: u64,
    of_posts: u64,
    outboxes: u64,
    entries: u64,
    of_entries: u64,
}

fn sums(archive: &dyn Listed) -> Result<Sums, ArchiveError> {
    let mut sums = Sums::default();
    archive.posts(&mut |posts| {
        for (id, kept) in posts {
            let mut hash = Xxh3::new();
            hash.update(&id.0.to_le_bytes());
            match &kept {
                ArchivedRecord::Post(bytes) => hash.update(bytes),
                ArchivedRecord::Deleted => hash.update(b"\0deleted"),
            }
            sums.posts += 1;
            sums.of_posts = sums.of_posts.wrapping_add(hash.digest());
        }
        Ok(())
    })?;
    each_round(&archive.sources()?, &|asks| archive.positions(asks), |pages| {
        // In Cassandra, an outbox without entries does not exist.
        let of_source = pages.chunk_by(|a, b| a.source() == b.source());
        sums.outboxes += of_source.filter(|pages| pages.iter().any(Page::is_first)).count() as u64;
        for (source, Position { published_at, id }, route) in pages.into_iter().flat_map(Page::into_entries) {
            let mut hash = Xxh3::new();
            hash.update(source.as_str().as_bytes());
            hash.update(&[route as u8]);
            hash.update(&published_at.0.to_le_bytes());
            hash.update(&id.0.to_le_bytes());
            sums.entries += 1;
            sums.of_entries = sums.of_entries.wrapping_add(hash.digest());
        }
        Ok(())
    })?;
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::clock::UnixMicros;
    use tidewire::feed::outbox::Route;
    use tidewire::storage::archive::MemoryArchive;
    use tidewire::storage::archive::faulty::{FaultyArchive, Plan};

    impl Listed for MemoryArchive {
        fn place(&self) -> String {
            Archive::place(self)
        }

        fn through(&self) -> Result<Sequence, ArchiveError> {
            Archive::through(self)
        }

        fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
            Archive::identity(self)
        }

        fn sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
            RemoteArchive::list_sources(self)
        }

        fn positions(&self, asks: &[Ask<'_>]) -> Result<Vec<Vec<Position>>, ArchiveError> {
            read(self, asks)
        }

        fn posts(&self, each: &mut dyn FnMut(Vec<(PostId, ArchivedRecord)>) -> Done) -> Done {
            let ids = self.ids_from(PostId(0), usize::MAX)?.unwrap_or_default();
            let all: Vec<_> = ids.into_iter().filter_map(|id| Some((id, self.post(id).ok()??))).collect();
            all.chunks(POSTS_TOGETHER).try_for_each(|some| each(some.to_vec()))
        }
    }

    fn source(nth: u64) -> SourceId {
        SourceId::new(&format!("user-{}", nth % 10)).unwrap()
    }

    fn position(nth: u64) -> Position {
        Position { published_at: UnixMicros(nth as i64), id: PostId(nth) }
    }

    fn batch(ids: std::ops::Range<u64>, text: &str) -> Batch {
        let record = || ArchivedRecord::Post(text.as_bytes().to_vec());
        Batch {
            posts: ids.clone().map(|nth| (PostId(nth), record())).collect(),
            placed: ids.map(|nth| (source(nth), position(nth), Route::ALL[(nth / 10 % 2) as usize])).collect(),
            ..Batch::default()
        }
    }

    #[test]
    fn an_interrupted_copy_writes_only_the_rest() {
        let from = MemoryArchive::default();
        from.write(&batch(0..5_000, "text")).unwrap();
        assert_eq!(sums(&from).unwrap().outboxes, 10);
        // Five batches of posts, and two of entries: 204 on both routes of ten outboxes, then the rest of all.
        for fails_at in 1..=7 {
            let plan = Plan { fail_writes: fails_at..fails_at + 1, is_temporary: true, ..Plan::default() };
            let to = FaultyArchive::new(MemoryArchive::default(), plan);
            assert!(write(&from, &to).is_err(), "{fails_at}");
            let (posts, entries) = (1_000 * (fails_at - 1).min(5), 20 * 204 * (fails_at - 1).saturating_sub(5));
            let rest = write(&from, &to).unwrap();
            assert_eq!((rest.posts, rest.entries, rest.removed), (5_000 - posts, 5_000 - entries, 0), "{fails_at}");
            assert_eq!(sums(&from).unwrap(), sums(to.inner()).unwrap());
        }
    }

    #[test]
    fn a_repeated_copy_follows_edits_deletions_and_erasures() {
        let (from, to) = (MemoryArchive::default(), MemoryArchive::default());
        from.write(&batch(0..100, "text")).unwrap();
        write(&from, &to).unwrap();
        let deleted = vec![(PostId(7), ArchivedRecord::Deleted), (PostId(8), ArchivedRecord::Post(b"new".to_vec()))];
        from.write(&Batch { posts: deleted, removed: vec![(source(7), position(7))], ..Batch::default() }).unwrap();
        let keep = |_: &[u8]| tidewire::storage::archive::Fate::Keep;
        let erasure =
            tidewire::storage::archive::Rewrite { without: &[source(3)], fate: &keep, as_of: Sequence::default() };
        from.rewrite(&erasure).unwrap();
        let again = write(&from, &to).unwrap();
        assert_eq!((again.posts, again.entries, again.removed), (2, 0, 11));
        assert_eq!(sums(&from).unwrap(), sums(&to).unwrap());
        let last = write(&from, &to).unwrap();
        assert_eq!((last.posts, last.entries, last.removed), (0, 0, 0));
    }
}
