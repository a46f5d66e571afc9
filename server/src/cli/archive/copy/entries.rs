//! The entries of outboxes: read from one archive, and compared with another.

use tidewire::feed::outbox::{OutboxQuery, Part, Route};
use tidewire::feed::position::{Direction, Position, PositionRange};
use tidewire::id::SourceId;
use tidewire::storage::archive::{Archive, ArchiveError, Wanted};

/// Number of outboxes that are read together. With two routes each, this is half the number of concurrent reads of a remote archive.
const OUTBOXES_TOGETHER: usize = 256;

/// Number of entries that are read together if few outboxes are left. With many outboxes, [`PAGE_MIN`] entries of each route are read: at
/// most 32,768.
const ENTRIES_TOGETHER: usize = 4_096;

/// Minimum number of entries of a route in one read, independent of the number of concurrent reads.
const PAGE_MIN: usize = 64;

/// A read of the oldest entries of one route of an outbox within a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) source: &'a SourceId,
    route: Route,
    span: PositionRange,
    max: usize,
}

impl Ask<'_> {
    pub(super) fn query(&self) -> OutboxQuery {
        let part = match self.route {
            Route::Push => Part::Pushed,
            Route::Pull => Part::Pulled,
        };
        OutboxQuery { part, span: self.span, direction: Direction::Newer, max: self.max }
    }

    /// Returns the next read after this one, which found the positions `found`. Returns none if there are no more entries.
    fn after(self, found: &[Position]) -> Option<Self> {
        let last = found.last().filter(|_| found.len() >= self.max)?;
        let span = self.span.beyond(*last, Direction::Newer);
        (!span.is_empty()).then_some(Self { span, ..self })
    }
}

/// Consecutive entries of one route of an outbox, ascending. There is at least one.
#[derive(Debug)]
pub(super) struct Page<'a> {
    ask: Ask<'a>,
    positions: Vec<Position>,
}

impl<'a> Page<'a> {
    pub(super) fn source(&self) -> &'a SourceId {
        self.ask.source
    }

    /// Returns the same read, up to its last entry.
    fn up_to_last(&self) -> Ask<'a> {
        let below = self.positions.last().map_or(PositionRange::ALL.below, |last| last.next_up());
        Ask { span: PositionRange { below, ..self.ask.span }, ..self.ask }
    }

    /// Returns its entries one by one, each with its source and its route.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (SourceId, Position, Route)> {
        let Ask { source, route, .. } = self.ask;
        self.positions.into_iter().map(move |position| (source.clone(), position, route))
    }

    /// Returns true if it begins with the oldest entry of its route.
    pub(super) fn is_first(&self) -> bool {
        self.ask.span == PositionRange::ALL
    }
}

/// A function that executes reads, and returns the positions that each of them found.
pub(super) type Reads<'r> = &'r dyn Fn(&[Ask<'_>]) -> Result<Vec<Vec<Position>>, ArchiveError>;

/// Executes reads of an archive, concurrently if it is remote.
pub(super) fn read(archive: &dyn Archive, asks: &[Ask<'_>]) -> Result<Vec<Vec<Position>>, ArchiveError> {
    if let Some(archive) = archive.remote() {
        archive.prefetch(&mut asks.iter().map(|ask| Wanted::Outbox(ask.source, ask.query())));
    }
    let read = |ask: &Ask<'_>| {
        let mut found = Vec::new();
        archive.positions(ask.source, ask.query(), &mut found)?;
        Ok(found)
    };
    asks.iter().map(read).collect()
}

/// Calls `each` with the entries of these sources: first a page of each route of some sources, then their next pages, then those of the
/// next sources.
pub(super) fn each_round(
    sources: &[SourceId],
    of: Reads<'_>,
    mut each: impl FnMut(Vec<Page<'_>>) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    for some in sources.chunks(OUTBOXES_TOGETHER) {
        let first = |source| Route::ALL.map(|route| Ask { source, route, span: PositionRange::ALL, max: 0 });
        let mut asks: Vec<Ask<'_>> = some.iter().flat_map(first).collect();
        while !asks.is_empty() {
            let max = (ENTRIES_TOGETHER / asks.len()).max(PAGE_MIN);
            asks.iter_mut().for_each(|ask| ask.max = max);
            let pages = asks.iter().zip(of(&asks)?).map(|(ask, positions)| Page { ask: *ask, positions });
            let pages: Vec<_> = pages.filter(|page| !page.positions.is_empty()).collect();
            asks = pages.iter().filter_map(|page| page.ask.after(&page.positions)).collect();
            each(pages)?;
        }
    }
    Ok(())
}

/// Removes the entries that the other archive has. Drops pages that become empty.
pub(super) fn keep_lacking(pages: &mut Vec<Page<'_>>, other: Reads<'_>) -> Result<(), ArchiveError> {
    // The other archive may have more entries in this range than one read returns.
    let mut asks: Vec<(usize, Ask<'_>)> = pages.iter().map(Page::up_to_last).enumerate().collect();
    while !asks.is_empty() {
        let reads: Vec<_> = asks.iter().map(|(_, ask)| *ask).collect();
        let found = other(&reads)?;
        for ((nth, _), there) in asks.iter().zip(&found) {
            pages[*nth].positions.retain(|position| there.binary_search(position).is_err());
        }
        let after = asks.iter().zip(&found).filter_map(|((nth, ask), there)| Some((*nth, ask.after(there)?)));
        asks = after.collect();
    }
    pages.retain(|page| !page.positions.is_empty());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use tidewire::clock::UnixMicros;
    use tidewire::id::PostId;
    use tidewire::storage::archive::faulty::{FaultyArchive, Plan};
    use tidewire::storage::archive::{Batch, MemoryArchive};

    use super::*;

    type Entries = BTreeSet<(u64, i64, bool)>;

    const SOURCES: u64 = 300;

    fn source(nth: u64) -> SourceId {
        SourceId::new(&format!("user-{nth:03}")).unwrap()
    }

    fn position(nth: i64) -> Position {
        Position { published_at: UnixMicros(nth), id: PostId(nth as u64) }
    }

    fn archive(entries: &Entries) -> MemoryArchive {
        let archive = MemoryArchive::default();
        let entry =
            |(of, at, is_pulled): &(u64, i64, bool)| (source(*of), position(*at), Route::ALL[usize::from(*is_pulled)]);
        archive.write(&Batch { placed: entries.iter().map(entry).collect(), ..Batch::default() }).unwrap();
        archive
    }

    /// Returns entries of many outboxes, on both routes. Most outboxes have a few entries, some have many more than a page. `salt` selects
    /// the pulled ones.
    fn some_entries(random: &mut fastrand::Rng, salt: i64) -> Entries {
        let mut entries = Entries::new();
        for of in 0..SOURCES {
            let count = if of % 50 == 0 { random.u64(..8 * PAGE_MIN as u64) } else { random.u64(..3) };
            let positions: BTreeSet<i64> = (0..count).map(|_| random.i64(1..1_000)).collect();
            entries.extend(positions.into_iter().map(|at| (of, at, (of as i64 + at + salt) % 3 == 0)));
        }
        entries
    }

    #[test]
    fn entries_missing_in_another_archive_are_found_regardless_of_its_other_entries() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (one, other) = (some_entries(&mut random, 0), some_entries(&mut random, seed as i64));
            let archives = (archive(&one), archive(&other));
            let sources: Vec<_> = (0..SOURCES).map(source).collect();
            let mut found = Vec::new();
            each_round(&sources, &|asks| read(&archives.0, asks), |mut pages| {
                keep_lacking(&mut pages, &|asks| read(&archives.1, asks))?;
                found.extend(pages.into_iter().flat_map(Page::into_entries));
                Ok(())
            })
            .unwrap();
            let found = found.into_iter().map(|(of, at, route)| (of, at.published_at.0, route == Route::Pull));
            let found: Vec<_> = found.collect();
            let lacking = one.difference(&other).map(|(of, at, is_pulled)| (source(*of), *at, *is_pulled));
            let lacking: BTreeSet<_> = lacking.collect();
            assert_eq!(found.len(), lacking.len(), "{seed}");
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), lacking, "{seed}");
        }
    }

    #[test]
    fn many_outboxes_are_read_together_and_all_reads_are_announced() {
        let archive =
            FaultyArchive::remote(archive(&some_entries(&mut fastrand::Rng::with_seed(1), 0)), Plan::default());
        let sources: Vec<_> = (0..SOURCES).map(source).collect();
        let sizes = RefCell::new(Vec::new());
        let count = |asks: &[Ask<'_>]| {
            sizes.borrow_mut().push(asks.len());
            assert!(asks.iter().all(|ask| ask.max >= PAGE_MIN));
            read(&archive, asks)
        };
        each_round(&sources, &count, |_| Ok(())).unwrap();
        let sizes = sizes.into_inner();
        assert_eq!(sizes[0], 2 * OUTBOXES_TOGETHER);
        // The long outboxes of each part need a few more rounds.
        assert!(sizes.len() <= 2 * 8, "{sizes:?}");
        assert_eq!(archive.counts().prefetched, sizes.iter().sum::<usize>() as u64);
    }
}
