//! `tidewire archive`: looking into an archive that no server has open. Nothing is written.
//!
//! Responsible for:
//! - how much is in it, by its own counts;
//! - comparing all of it: pages with their checksums, outboxes with their counts, posts with the outboxes that name them, and naming what
//!   is gone.
//!
//! Not responsible for:
//! - the bytes of an archive (`storage::archive`), bringing back what is gone: nothing here can.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use crate::cli::{Outcome, terminal};
use tidewire::feed::outbox::{Ask, Part, Shelf};
use tidewire::feed::position::{Direction, Position, Span};
use tidewire::id::{PostId, SourceId};
use tidewire::limits::ARCHIVE_CACHE_BYTES;
use tidewire::state::tiering::decode;
use tidewire::storage::archive::{self, ArchiveError, Kept, ReadOnlyArchive, Totals};

/// What `tidewire archive` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveTool {
    /// Say how much is in an archive
    Inspect(ArchivePath),
    /// Read all of an archive, and say whether it is good or what is gone: of whom, how much, where
    Verify(ArchivePath),
}

/// The archive to look into.
#[derive(Debug, clap::Args)]
pub(crate) struct ArchivePath {
    /// A data directory, or its archive.redb; no server may have it open
    path: PathBuf,
}

/// Positions read at once.
const STEP: usize = 4_096;

/// Ids of one outbox that are named; the others are counted.
const NAMED_MAX: usize = 20;

impl ArchiveTool {
    pub(crate) fn run(self) -> Outcome {
        let (Self::Inspect(ArchivePath { path }) | Self::Verify(ArchivePath { path })) = &self;
        let path = if path.is_dir() { path.join(archive::FILE) } else { path.clone() };
        let archive = ReadOnlyArchive::open(&path, ARCHIVE_CACHE_BYTES).map_err(|cause| cause.with_sources())?;
        let outcome = match self {
            Self::Inspect(_) => inspect(&archive),
            Self::Verify(_) => verify(&archive),
        };
        outcome.map_err(|cause| cause.with_sources().into())
    }
}

fn inspect(archive: &ReadOnlyArchive) -> Result<ExitCode, ArchiveError> {
    let (totals, shelves) = (archive.totals()?, archive.shelves()?);
    terminal::say(&format!("format:     {}", totals.format));
    let identity = archive.identity()?.map_or("none yet".to_owned(), |identity| identity.to_string());
    terminal::say(&format!("identity:   {identity}"));
    terminal::say(&format!("through:    event {}", totals.through));
    terminal::say(&format!("posts:      {}, tombstones included", totals.posts));
    terminal::say(&format!("outboxes:   {}, with {} entries", shelves.len(), totals.entries));
    let checksums = if archive.has_checksums() { "of every page, in archive.sums" } else { "none; a start makes them" };
    terminal::say(&format!("checksums:  {checksums}"));
    Ok(ExitCode::SUCCESS)
}

fn verify(archive: &ReadOnlyArchive) -> Result<ExitCode, ArchiveError> {
    let (totals, shelves) = (archive.totals()?, archive.shelves()?);
    let counted: u64 = shelves.iter().map(|(_, shelf)| entries(shelf)).sum();
    let mut is_good = counted == totals.entries;
    if !is_good {
        terminal::say(&format!("bad: {counted} entries of outboxes are counted, and {} are there", totals.entries));
    }
    for (source, shelf) in &shelves {
        is_good &= Outbox::read(archive, source).report(source, entries(shelf));
    }
    // Tombstones stand in no outbox.
    if let Err(cause) = archive.each(|_, kept| whole(&kept)) {
        is_good = false;
        terminal::say(&format!("bad: not all posts and tombstones can be read: {}", cause.with_sources()));
    }
    if !is_good {
        return Ok(ExitCode::FAILURE);
    }
    let Totals { posts, through, .. } = totals;
    let unchecked =
        if archive.has_checksums() { "" } else { "; its pages have no checksums, so that not all damage shows" };
    terminal::say(&format!(
        "good: {} outboxes, {counted} entries, {posts} posts, event {through}{unchecked}",
        shelves.len()
    ));
    Ok(ExitCode::SUCCESS)
}

fn entries(shelf: &Shelf) -> u64 {
    shelf.pushed.posts + shelf.pulled.posts
}

fn whole(kept: &Kept) -> Result<(), String> {
    match kept {
        Kept::Deleted => Ok(()),
        Kept::Post(bytes) => decode(bytes).map(drop),
    }
}

/// What could be read of an outbox.
#[derive(Default)]
struct Outbox {
    listed: u64,
    /// Between these some entries cannot be listed, and why.
    hole: Option<(Position, Position, String)>,
    /// Posts that are listed, and gone or damaged.
    gone: u64,
    named: Vec<(PostId, String)>,
}

impl Outbox {
    fn read(archive: &ReadOnlyArchive, source: &SourceId) -> Self {
        let mut outbox = Self::default();
        let Err((above, cause)) = outbox.walk(archive, source, Direction::Newer, Span::ALL) else { return outbox };
        // From the other end, as far as that goes.
        let rest = Span { above, below: Position::MAX };
        let below = outbox.walk(archive, source, Direction::Older, rest).err().map_or(above, |(below, _)| below);
        outbox.hole = Some((above, below, cause));
        outbox
    }

    /// Walks one way, and returns where that ended if it did not come to the end.
    fn walk(
        &mut self,
        archive: &ReadOnlyArchive,
        source: &SourceId,
        direction: Direction,
        mut span: Span,
    ) -> Result<(), (Position, String)> {
        let mut max = STEP;
        loop {
            let ask = Ask { part: Part::Whole, span, direction, max };
            let positions = match archive.copy(source, ask) {
                Ok(positions) => positions,
                // A step that is too long meets what is damaged: shorter ones come closer to it.
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
            Ok(None) => "it is not there".to_owned(),
            Err(cause) => cause.with_sources(),
        };
        self.gone += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push((id, why));
        }
    }

    /// Says what is gone, and returns whether nothing is.
    fn report(&self, source: &SourceId, counted: u64) -> bool {
        let Self { listed, hole, gone, named } = self;
        if let Some((above, below, cause)) = hole {
            let between = format!("between posts {} and {}", above.id, below.id);
            terminal::say(&format!(
                "bad: {source}: {} of {counted} entries cannot be listed, {between}: {cause}",
                counted.saturating_sub(*listed)
            ));
        } else if *listed != counted {
            terminal::say(&format!("bad: {source}: {listed} entries are there, and {counted} are counted"));
        }
        if *gone > 0 {
            terminal::say(&format!("bad: {source}: {gone} of {listed} posts cannot be read"));
        }
        for (id, why) in named {
            terminal::say(&format!("bad: {source}: post {id}: {why}"));
        }
        if *gone > named.len() as u64 {
            terminal::say(&format!("bad: {source}: and {} others", gone - named.len() as u64));
        }
        hole.is_none() && *listed == counted && *gone == 0
    }
}
