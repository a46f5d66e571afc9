//! `tidewire archive`: inspects an archive that no server has open, prepares an archive in Cassandra, and copies archives.
//!
//! Responsible for:
//! - reporting the size of the archive from its own counters;
//! - checking the whole archive: pages against their checksums, outboxes against their counters, posts against the outboxes that list them;
//!   reporting missing and damaged posts.

#[cfg(feature = "cassandra")]
mod copy;
#[cfg(feature = "cassandra")]
mod remote;

#[cfg(all(feature = "cassandra", feature = "cluster"))]
pub(super) use remote::ClusterArchive;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use crate::cli::{Outcome, terminal};
use tidewire::feed::outbox::{ArchivedCounts, OutboxQuery, Part};
use tidewire::feed::position::{Direction, Position, PositionRange};
use tidewire::id::{PostId, SourceId};
use tidewire::limits::ARCHIVE_CACHE_BYTES;
use tidewire::state::tiering::decode;
use tidewire::storage::archive::{self, ArchiveError, ArchivedRecord, ReadOnlyArchive, Totals};

/// Subcommands of `tidewire archive`.
#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveTool {
    /// Show how much data is in an archive
    Inspect(ArchivePath),
    /// Read all of an archive and report missing and damaged posts by source
    Verify(ArchivePath),
    /// Create keyspace and tables of an archive in Cassandra, where they are missing
    #[cfg(feature = "cassandra")]
    Init(remote::Init),
    /// Copy an archive from a data directory to Cassandra or back, and compare both; repeat it to continue one that was interrupted
    #[cfg(feature = "cassandra")]
    Copy(copy::Copy),
}

/// Path of the archive to inspect.
#[derive(Debug, clap::Args)]
pub(crate) struct ArchivePath {
    /// A data directory, or its archive.redb; no server may have it open
    path: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Maximum number of positions per read.
const STEP: usize = 4_096;

/// Maximum number of missing posts listed for each outbox; the others are only counted.
const NAMED_MAX: usize = 20;

impl ArchiveTool {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Inspect(ArchivePath { path, json }) => on(path, |archive| inspect(archive, json)),
            Self::Verify(ArchivePath { path, json }) => {
                terminal::verdict(json, on(path, |archive| verify(archive, json)))
            }
            #[cfg(feature = "cassandra")]
            Self::Init(init) => init.run(),
            #[cfg(feature = "cassandra")]
            Self::Copy(copy) => copy.run(),
        }
    }
}

/// Runs a tool on the archive of a path.
fn on(path: PathBuf, run: impl FnOnce(&ReadOnlyArchive) -> Result<ExitCode, ArchiveError>) -> Outcome {
    let path = file_in(path);
    let archive = ReadOnlyArchive::open(&path, ARCHIVE_CACHE_BYTES).map_err(|cause| cause.with_sources())?;
    run(&archive).map_err(|cause| cause.with_sources().into())
}

/// Returns the path of the archive in a data directory, or the path itself if it is not a directory.
fn file_in(path: PathBuf) -> PathBuf {
    if path.is_dir() { path.join(archive::FILE) } else { path }
}

fn inspect(archive: &ReadOnlyArchive, json: bool) -> Result<ExitCode, ArchiveError> {
    let (totals, archived_counts) = (archive.totals()?, archive.archived_counts()?);
    if json {
        terminal::print_json(&json!({
            "format": totals.format,
            "identity": archive.identity()?.map(|identity| identity.to_string()),
            "through": totals.through.0,
            "posts": totals.posts,
            "outboxes": archived_counts.len(),
            "entries": totals.entries,
            "checksums": archive.has_checksums(),
        }));
        return Ok(ExitCode::SUCCESS);
    }
    terminal::print_line(&format!("format:     {}", totals.format));
    let identity = archive.identity()?.map_or("none yet".to_owned(), |identity| identity.to_string());
    terminal::print_line(&format!("identity:   {identity}"));
    terminal::print_line(&format!("through:    event {}", totals.through));
    terminal::print_line(&format!("posts:      {}, tombstones included", totals.posts));
    terminal::print_line(&format!("outboxes:   {}, with {} entries", archived_counts.len(), totals.entries));
    let checksums =
        if archive.has_checksums() { "of every page, in archive.sums" } else { "none; the next start writes them" };
    terminal::print_line(&format!("checksums:  {checksums}"));
    Ok(ExitCode::SUCCESS)
}

fn verify(archive: &ReadOnlyArchive, json: bool) -> Result<ExitCode, ArchiveError> {
    let (totals, archived_counts) = (archive.totals()?, archive.archived_counts()?);
    let counted: u64 = archived_counts.iter().map(|(_, archived_counts)| entries(archived_counts)).sum();
    let mut findings = Vec::new();
    if counted != totals.entries {
        findings.push(format!("{counted} entries of outboxes are counted, but {} exist", totals.entries));
    }
    let report = |findings: &mut Vec<String>| {
        // Print findings at once, because a damaged archive may have very many.
        findings.drain(..).fold(true, |_, finding| {
            match json {
                true => terminal::print_json(&json!({"bad": finding})),
                false => terminal::print_line(&format!("bad: {finding}")),
            }
            false
        })
    };
    let mut is_good = report(&mut findings);
    for (source, counts) in &archived_counts {
        Outbox::read(archive, source).report(source, entries(counts), &mut findings);
        is_good &= report(&mut findings);
    }
    // Also reads the tombstones, which no outbox lists.
    if let Err(cause) = archive.each(|_, kept| whole(&kept)) {
        findings.push(format!("not all posts and tombstones can be read: {}", cause.with_sources()));
        is_good &= report(&mut findings);
    }
    let (Totals { posts, through, .. }, outboxes) = (totals, archived_counts.len());
    if json {
        let (through, checksums) = (through.0, archive.has_checksums());
        let figures = json!({"good": is_good, "outboxes": outboxes, "entries": counted, "posts": posts, "through": through, "checksums": checksums});
        terminal::print_json(&figures);
    } else if is_good {
        let unchecked =
            if archive.has_checksums() { "" } else { "; its pages have no checksums, so damage may be missed" };
        terminal::print_line(&format!(
            "good: {outboxes} outboxes, {counted} entries, {posts} posts, event {through}{unchecked}"
        ));
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn entries(archived_counts: &ArchivedCounts) -> u64 {
    archived_counts.pushed.posts + archived_counts.pulled.posts
}

fn whole(kept: &ArchivedRecord) -> Result<(), String> {
    match kept {
        ArchivedRecord::Deleted => Ok(()),
        ArchivedRecord::Post(bytes) => decode(bytes).map(drop),
    }
}

/// The result of reading one outbox.
#[derive(Default)]
struct Outbox {
    listed: u64,
    /// The range of positions whose entries cannot be listed, and the error.
    hole: Option<(Position, Position, String)>,
    /// Number of posts that are listed but missing or damaged.
    gone: u64,
    named: Vec<(PostId, String)>,
}

impl Outbox {
    fn read(archive: &ReadOnlyArchive, source: &SourceId) -> Self {
        let mut outbox = Self::default();
        let Err((above, cause)) = outbox.traverse(archive, source, Direction::Newer, PositionRange::ALL) else {
            return outbox;
        };
        // Read from the other end, down to the damaged range.
        let rest = PositionRange { above, below: Position::MAX };
        let below = outbox.traverse(archive, source, Direction::Older, rest).err().map_or(above, |(below, _)| below);
        outbox.hole = Some((above, below, cause));
        outbox
    }

    /// Traverses the outbox in one direction. On an error, returns the last position that was read and the error text.
    fn traverse(
        &mut self,
        archive: &ReadOnlyArchive,
        source: &SourceId,
        direction: Direction,
        mut span: PositionRange,
    ) -> Result<(), (Position, String)> {
        let mut max = STEP;
        loop {
            let ask = OutboxQuery { part: Part::Whole, span, direction, max };
            let positions = match archive.positions(source, ask) {
                Ok(positions) => positions,
                // A read of many positions fails if it touches a damaged page. Smaller reads get closer to the damage.
                Err(_) if max > 1 => {
                    max /= 8;
                    continue;
                }
                Err(cause) => {
                    let end = if direction == Direction::Newer { span.above } else { span.below };
                    return Err((end, cause.with_sources()));
                }
            };
            positions.iter().for_each(|position| self.look_up(archive, position.id));
            self.listed += positions.len() as u64;
            match (positions.last(), direction) {
                (Some(last), Direction::Newer) => span.above = *last,
                (Some(last), Direction::Older) => span.below = *last,
                (None, _) => return Ok(()),
            }
        }
    }

    fn look_up(&mut self, archive: &ReadOnlyArchive, id: PostId) {
        let why = match archive.post(id) {
            Ok(Some(kept)) => match whole(&kept) {
                Ok(()) => return,
                Err(why) => why,
            },
            Ok(None) => "it does not exist".to_owned(),
            Err(cause) => cause.with_sources(),
        };
        self.gone += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push((id, why));
        }
    }

    /// Adds missing and damaged posts to the findings.
    fn report(&self, source: &SourceId, counted: u64, findings: &mut Vec<String>) {
        let Self { listed, hole, gone, named } = self;
        if let Some((above, below, cause)) = hole {
            let between = format!("between posts {} and {}", above.id, below.id);
            let lost = counted.saturating_sub(*listed);
            findings.push(format!("{source}: {lost} of {counted} entries cannot be listed, {between}: {cause}"));
        } else if *listed != counted {
            findings.push(format!("{source}: {counted} entries are counted, but {listed} exist"));
        }
        if *gone > 0 {
            findings.push(format!("{source}: {gone} of {listed} posts cannot be read"));
        }
        findings.extend(named.iter().map(|(id, why)| format!("{source}: post {id}: {why}")));
        if *gone > named.len() as u64 {
            findings.push(format!("{source}: and {} others", gone - named.len() as u64));
        }
    }
}
