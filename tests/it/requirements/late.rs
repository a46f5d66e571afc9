//! Parts that are late or cannot be read: the rest is shown, and what is missing is said.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tidewire::clock::{Clock, ManualClock, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::feed::outbox::Part;
use tidewire::feed::policy::Policy;
use tidewire::feed::position::{Direction, Position, Span};
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::faulty::{FaultyArchive, Plan};
use tidewire::storage::archive::{Archive, ArchiveError, Batch, Kept, MemoryArchive, Shelf};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::{Durability, Sequence};

use super::{all, feed, figure, follow_all, numbers, until};
use crate::kept::{open_before, storage};
use crate::personal::publish;
use crate::server::Server;
use crate::world::{above, config, some};

/// An archive in which one source is out of reach for ever: reading it takes longer than any page may, or fails.
struct OutOfReach {
    archive: MemoryArchive,
    clock: Arc<ManualClock>,
    fails: bool,
    /// Reads of that source.
    tries: AtomicU64,
}

const LATE: &str = "late";

impl Archive for OutOfReach {
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        self.archive.write(batch)
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        self.archive.persist(through)
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        self.archive.through()
    }

    fn post(&self, id: PostId) -> Result<Option<Kept>, ArchiveError> {
        self.archive.post(id)
    }

    fn copy(
        &self,
        source: &SourceId,
        part: Part,
        span: Span,
        direction: Direction,
        max: usize,
        into: &mut Vec<Position>,
    ) -> Result<(), ArchiveError> {
        if source.as_str() == LATE {
            self.tries.fetch_add(1, Ordering::SeqCst);
            if self.fails {
                let source = std::io::Error::other("the disk failed").into();
                return Err(ArchiveError::Failed { action: "read", path: self.place(), source });
            }
            self.clock.advance(Duration::from_secs(60));
        }
        self.archive.copy(source, part, span, direction, max, into)
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Vec<PostId>, ArchiveError> {
        self.archive.ids_from(from, max)
    }

    fn shelves(&self) -> Result<Vec<(SourceId, Shelf)>, ArchiveError> {
        self.archive.shelves()
    }

    fn close(&self) {}

    fn place(&self) -> PathBuf {
        self.archive.place()
    }

    fn largest_id(&self) -> Option<PostId> {
        self.archive.largest_id()
    }
}

/// A feed read down to its end, whatever is missing of it.
#[derive(Default)]
struct Walk {
    met: BTreeSet<u64>,
    partial: BTreeSet<String>,
    reads: u64,
    partial_pages: u64,
}

fn read_down(server: &Server, reader: &str, reads_max: u64) -> Walk {
    let (mut walk, mut before) = (Walk::default(), String::new());
    loop {
        walk.reads += 1;
        assert!(walk.reads <= reads_max, "{} reads without coming to an end: {:?}", walk.reads, walk.met);
        let answer = server.get(&format!("{}?limit=10{before}", feed(reader)));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let page = answer.json();
        walk.met.extend(numbers(page["items"].as_array().unwrap()));
        let partial = page["partial"].as_array().unwrap();
        walk.partial.extend(partial.iter().map(|source| source.as_str().unwrap().to_owned()));
        walk.partial_pages += u64::from(!partial.is_empty());
        let Some(next) = page["next"].as_str() else { return walk };
        let next = format!("&before={next}");
        assert!(next != before, "read {} goes on where it began: {page}", walk.reads);
        before = next;
    }
}

/// A server on which ann follows the source out of reach and five others, with 20 posts each, most of them archived. Returns what the
/// others posted.
fn with_one_out_of_reach(fails: bool, policy: Policy) -> (Server, Arc<OutOfReach>, BTreeSet<u64>) {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let (archive, tries) = (MemoryArchive::default(), AtomicU64::new(0));
    let archive = Arc::new(OutOfReach { archive, clock: Arc::clone(&clock), fails, tries });
    let kept = Arc::clone(&archive) as Arc<dyn Archive>;
    let small = EngineConfig { outbox_posts: some(4), inbox_posts: some(10), ..config(1, policy) };
    let options = storage(Durability::Always, 1 << 20);
    let server = Server::of(open_before(small, MemoryFiles::default(), Some(&kept), &options, clock).unwrap().0);
    let authors = [LATE, "a", "b", "m", "y", "z"];
    follow_all(&server, authors.map(|source| ("ann", source)));
    for body in 0..120 {
        publish(&server, authors[body as usize % 6], body, &json!({}));
    }
    until("most posts are archived", || figure(&server, "posts") <= 6 * 8);
    (server, archive, (0..120).filter(|body| body % 6 != 0).collect())
}

#[test]
fn r20_a_source_that_can_never_be_read_is_named_and_reading_on_reaches_everything_else() {
    for policy in [Policy::PushAll, Policy::PullAll, above(2)] {
        let (server, archive, others) = with_one_out_of_reach(true, policy);
        for nth in 1..=3 {
            let walk = read_down(&server, "ann", 40);
            assert_eq!(others.difference(&walk.met).count(), 0, "{policy:?}, walk {nth}: {:?}", walk.met);
            assert_eq!(walk.partial, BTreeSet::from([LATE.to_owned()]), "nobody else is named");
            assert!(walk.met.len() < 120 && walk.partial_pages > 0);
        }
        assert!(archive.tries.load(Ordering::SeqCst) > 0 && figure(&server, "partial_pages") > 0, "it is counted");
    }
}

/// A read of the archive cannot be broken off: whatever a page has yet to read once one took all of its time is left out and named,
/// others each time, and comes with a later read.
#[test]
fn r20_a_source_that_is_late_for_ever_sends_nobody_in_circles_and_later_reads_bring_the_rest() {
    for policy in [Policy::PushAll, Policy::PullAll] {
        let (server, _, mut missing) = with_one_out_of_reach(false, policy);
        let mut walks = 0;
        while !missing.is_empty() {
            walks += 1;
            assert!(walks <= 100, "{policy:?}: never shown: {missing:?}");
            let walk = read_down(&server, "ann", 60);
            let is_whole = missing.is_subset(&walk.met);
            assert!(is_whole || walk.partial_pages > 0, "{policy:?}: what is missing is said: {missing:?}");
            missing.retain(|body| !walk.met.contains(body));
        }
        assert!(figure(&server, "partial_pages") > 0, "it is counted");
    }
}

#[test]
fn r20_what_was_missing_comes_with_a_later_read() {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let archive = FaultyArchive::<MemoryArchive>::default();
    let archive = Arc::new(archive);
    let kept = Arc::clone(&archive) as Arc<dyn Archive>;
    let small = EngineConfig { outbox_posts: some(4), inbox_posts: some(10), ..config(1, above(2)) };
    let opened = open_before(small, MemoryFiles::default(), Some(&kept), &storage(Durability::Always, 1 << 20), clock);
    let server = Server::of(opened.unwrap().0);
    follow_all(&server, [("ann", "star"), ("eve", "star"), ("fay", "star"), ("ann", "bob")]);
    for body in 0..60 {
        publish(&server, ["star", "bob"][body as usize % 2], body, &json!({}));
    }
    until("most posts are archived", || figure(&server, "posts") <= 16);
    let fail_copies = 1..u64::MAX;
    archive.set_plan(Plan { fail_copies, ..Plan::default() });
    let lacking = server.get(&format!("{}?limit=30", feed("ann"))).json();
    assert!(!lacking["partial"].as_array().unwrap().is_empty(), "{lacking}");
    assert!(!lacking["items"].as_array().unwrap().is_empty(), "the rest is returned");
    archive.set_plan(Plan::default());
    assert_eq!(all(&server, "ann"), (0..60).rev().collect::<Vec<_>>());
}
