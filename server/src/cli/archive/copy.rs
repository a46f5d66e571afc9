//! `tidewire archive copy`: copies an archive from a data directory to Cassandra, or back.
//!
//! Responsible for:
//! - writing what the target lacks or has otherwise, so that a copy that was interrupted continues where it was;
//! - reading both afterwards, and comparing their counts and checksums.
//!
//! Not responsible for:
//! - servers that write meanwhile: none may. An archive in a file is locked by its server, one in Cassandra is not.

use std::path::PathBuf;
use std::process::ExitCode;

use xxhash_rust::xxh3::Xxh3;

use super::remote::Access;
use crate::cli::settings::Span;
use crate::cli::{Outcome, terminal};
use tidewire::feed::outbox::{OutboxQuery, Part, Route};
use tidewire::feed::position::{Direction, Position, Span as Range};
use tidewire::id::{PostId, SourceId};
use tidewire::limits::ARCHIVE_CACHE_BYTES;
use tidewire::storage::archive::cassandra::CassandraArchive;
use tidewire::storage::archive::{Archive, ArchiveError, ArchivedRecord, Batch, ReadOnlyArchive, RedbArchive, Wanted};
use tidewire::storage::identity::Identity;
use tidewire::storage::journal::Sequence;

/// Posts that are compared and written together.
const POSTS_TOGETHER: usize = 1_000;

/// Entries of an outbox that are compared and written together.
const ENTRIES_TOGETHER: usize = 4_096;

/// Arguments of `tidewire archive copy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Copy {
    /// The archive to read: a data directory, its archive.redb, or cassandra://HOST:PORT,…/KEYSPACE; no server may write to it
    #[arg(long, value_name = "ARCHIVE")]
    from: String,

    /// The archive to write, in the same form; an archive.redb is created, a keyspace must have been prepared
    #[arg(long, value_name = "ARCHIVE")]
    to: String,

    /// Time after which what is written to Cassandra expires
    #[arg(long, env = "TIDEWIRE_ARCHIVE_TTL", value_name = "DURATION")]
    archive_ttl: Option<Span>,

    #[command(flatten)]
    access: Access,
}

/// An archive that can be listed.
trait Listed {
    fn place(&self) -> String;
    fn through(&self) -> Result<Sequence, ArchiveError>;
    fn identity(&self) -> Result<Option<Identity>, ArchiveError>;
    fn sources(&self) -> Result<Vec<SourceId>, ArchiveError>;
    fn positions(&self, source: &SourceId, ask: OutboxQuery) -> Result<Vec<Position>, ArchiveError>;
    /// Calls `each` with some posts and tombstones after the other.
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

    fn positions(&self, source: &SourceId, ask: OutboxQuery) -> Result<Vec<Position>, ArchiveError> {
        self.copy(source, ask)
    }

    fn posts(&self, each: &mut dyn FnMut(Vec<(PostId, ArchivedRecord)>) -> Done) -> Done {
        let (mut some, mut done) = (Vec::new(), Ok(()));
        let listed = self.each(|id, kept| {
            some.push((id, kept));
            if some.len() >= POSTS_TOGETHER {
                done = each(std::mem::take(&mut some));
            }
            // The error itself is returned below.
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

    fn through(&self) -> Result<Sequence, ArchiveError> {
        Archive::through(self)
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        Archive::identity(self)
    }

    fn sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
        Ok(self.archived_counts()?.into_iter().map(|(source, _)| source).collect())
    }

    fn positions(&self, source: &SourceId, ask: OutboxQuery) -> Result<Vec<Position>, ArchiveError> {
        let mut positions = Vec::new();
        let OutboxQuery { part, span, direction, max } = ask;
        Archive::copy(self, source, part, span, direction, max, &mut positions)?;
        Ok(positions)
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
                    "{} is of another data directory than {}: {found}, not {expected}",
                    places.0, places.1
                )
                .into());
            }
            let written = write(&*from, &*to).map_err(text)?;
            if let Some(identity) = identity {
                to.set_identity(identity).map_err(text)?;
            }
            to.close();
            terminal::print_line(&format!("written: {} posts, {} entries", written.posts, written.entries));
        }
        let (expected, found) = (sums(&*from).map_err(text)?, sums(&*self.open(&self.to)?).map_err(text)?);
        for (place, sums) in [(&self.from, &expected), (&self.to, &found)] {
            terminal::print_line(&format!(
                "{place}: {} posts, checksum {:016x}; {} outboxes, {} entries, checksum {:016x}",
                sums.posts, sums.of_posts, sums.outboxes, sums.entries, sums.of_entries
            ));
        }
        if expected != found {
            terminal::print_line(
                "bad: both differ; a server may have written meanwhile, or the target had something before",
            );
            return Ok(ExitCode::FAILURE);
        }
        terminal::print_line("good: both are the same");
        Ok(ExitCode::SUCCESS)
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

/// What was written.
#[derive(Default)]
struct Written {
    posts: u64,
    entries: u64,
}

/// Writes what the target lacks, or has otherwise.
fn write(from: &dyn Listed, to: &dyn Archive) -> Result<Written, ArchiveError> {
    // In an archive that has only what was copied, everything is older than what a server writes: it may go on from an earlier event than the
    // archive was written with.
    let through = from.through()?;
    let as_of = if to.written()? == Sequence(0) { Sequence(0) } else { through };
    let mut written = Written::default();
    from.posts(&mut |posts| {
        // An id that surely is not there needs no read.
        to.prefetch(&mut posts.iter().map(|(id, _)| *id).filter(|id| to.may_have(*id)).map(Wanted::Post));
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
    for source in from.sources()? {
        for route in [Route::Push, Route::Pull] {
            written.entries += write_route(from, to, &source, route, as_of)?;
        }
    }
    to.persist(through)?;
    Ok(written)
}

fn part_of(route: Route) -> Part {
    match route {
        Route::Push => Part::Pushed,
        Route::Pull => Part::Pulled,
    }
}

fn write_route(
    from: &dyn Listed,
    to: &dyn Archive,
    source: &SourceId,
    route: Route,
    as_of: Sequence,
) -> Result<u64, ArchiveError> {
    let (part, direction, max) = (part_of(route), Direction::Newer, ENTRIES_TOGETHER);
    let (mut span, mut written) = (Range::ALL, 0);
    loop {
        let positions = from.positions(source, OutboxQuery { part, span, direction, max })?;
        let Some(last) = positions.last() else { return Ok(written) };
        let mut there = Vec::new();
        to.copy(source, part, Range { below: last.next_up(), ..span }, direction, max, &mut there)?;
        let missing = positions.iter().filter(|position| there.binary_search(position).is_err());
        let placed: Vec<_> = missing.map(|position| (source.clone(), *position, route)).collect();
        span.above = *last;
        written += placed.len() as u64;
        if !placed.is_empty() {
            to.write(&Batch { as_of, placed, ..Batch::default() })?;
        }
    }
}

/// Counts of an archive, and checksums that do not depend on the order of reading.
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
    for source in archive.sources()? {
        let before = sums.entries;
        for route in [Route::Push, Route::Pull] {
            let mut span = Range::ALL;
            loop {
                let ask =
                    OutboxQuery { part: part_of(route), span, direction: Direction::Newer, max: ENTRIES_TOGETHER };
                let positions = archive.positions(&source, ask)?;
                let Some(last) = positions.last() else { break };
                span.above = *last;
                for Position { published_at, id } in positions {
                    let mut hash = Xxh3::new();
                    hash.update(source.as_str().as_bytes());
                    hash.update(&[route as u8]);
                    hash.update(&published_at.0.to_le_bytes());
                    hash.update(&id.0.to_le_bytes());
                    sums.entries += 1;
                    sums.of_entries = sums.of_entries.wrapping_add(hash.digest());
                }
            }
        }
        // An outbox of which everything was removed is no outbox in Cassandra.
        sums.outboxes += u64::from(sums.entries > before);
    }
    Ok(sums)
}
