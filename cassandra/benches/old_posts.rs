//! Compares old posts in Cassandra, on nodes of this machine, with the embedded archive: posts/s written, and pages that neither has in
//! memory.
//!
//! `scripts/cassandra.sh install`, then `cargo bench -p tidewire-cassandra -- POSTS SOURCES NODES`: each node has a copy
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

#[path = "../../benches/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{id, size};
use hdrhistogram::Histogram;
use testkit::cassandra::Nodes;
use tidewire::clock::UnixMicros;
use tidewire::feed::outbox::{OutboxQuery, Part, Route};
use tidewire::feed::position::{Direction, Position, PositionRange};
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{Archive, ArchivedRecord, Batch, RedbArchive, Wanted};
use tidewire::storage::sequence::Sequence;
use tidewire_cassandra::{CassandraArchive, CassandraOptions, READ_TIME_MAX, Replication};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes of a post in the archive, about the size of a post with a body of 100 bytes.
const POST_BYTES: usize = 250;

/// Entries of one round of tiering.
const ROUND: usize = 8_192;

/// Outboxes that a page merges.
const MERGED: usize = 5;

/// Small, so that pages do not come from memory.
const CACHE_BYTES: usize = 1 << 20;

struct Size {
    posts: usize,
    sources: usize,
}

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let posts = asked.first().copied().unwrap_or(size(1_000_000, 2_000));
    let size = Size { posts, sources: asked.get(1).copied().unwrap_or(size(1_000, 20)) };
    let directory = tempfile::tempdir().unwrap();
    {
        let archive = RedbArchive::open(&directory.path().join("archive.redb"), CACHE_BYTES).unwrap();
        measure("embedded", &archive, &size);
    }
    disk("embedded", directory.path(), posts);
    let nodes = Nodes::start(asked.get(2).copied().unwrap_or(1));
    let url = nodes.url("feeds").parse().unwrap();
    let options = CassandraOptions {
        url,
        login: None,
        tls: None,
        cache_bytes: CACHE_BYTES,
        datacentre: None,
        ttl_seconds: None,
        read_time_max: READ_TIME_MAX,
    };
    CassandraArchive::create(&options, &Replication::Everywhere(nodes.copies())).unwrap();
    measure("Cassandra", &CassandraArchive::open(&options).unwrap(), &size);
    let began = Instant::now();
    let archive = CassandraArchive::open(&options).unwrap();
    println!("Cassandra: opened with {} outboxes in {:.0?}", size.sources, began.elapsed());
    drop(archive);
    // A restart makes the node write its memory to its files.
    nodes.kill(1);
    nodes.restore();
    disk("Cassandra", &nodes.data(1).join("data/feeds"), posts);
}

fn source(nth: usize) -> SourceId {
    id(&format!("user-{nth}"))
}

fn position(nth: usize) -> Position {
    Position { published_at: UnixMicros(nth as i64 * 1_000), id: PostId(nth as u64) }
}

fn measure(name: &str, archive: &dyn Archive, size: &Size) {
    let began = Instant::now();
    let mut took = Histogram::<u64>::new(3).unwrap();
    for first in (0..size.posts).step_by(ROUND) {
        let round = first..size.posts.min(first + ROUND);
        // Bytes that do not compress to nothing.
        let mut random = fastrand::Rng::with_seed(first as u64);
        let post = |nth| {
            let bytes = (0..POST_BYTES).map(|_| random.alphanumeric() as u8).collect();
            (PostId(nth as u64), ArchivedRecord::Post(bytes))
        };
        let posts = round.clone().map(post).collect();
        let placed = round.map(|nth| (source(nth % size.sources), position(nth), Route::Push)).collect();
        let batch = Batch { as_of: Sequence(first as u64 + 1), posts, placed, removed: Vec::new() };
        let began = Instant::now();
        // Retries, as the server does: nodes that have just started may not know each other yet.
        let mut attempts = 1;
        while let Err(cause) = archive.write(&batch) {
            assert!(cause.is_temporary() && attempts < 20, "{cause}");
            println!("{name}: a round is written again: {cause}");
            attempts += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
        took.record(began.elapsed().as_micros() as u64).unwrap();
    }
    archive.persist(Sequence(size.posts as u64)).unwrap();
    let rate = size.posts as f64 / began.elapsed().as_secs_f64();
    println!(
        "{name}: {rate:.0} posts/s, {} of {} sources in a round of {ROUND}: {}",
        size.posts,
        size.sources,
        times(&took)
    );
    for entries in [20, 100] {
        pages(name, archive, size, entries);
    }
}

/// Pages of random readers, each at a random depth.
fn pages(name: &str, archive: &dyn Archive, size: &Size, entries: usize) {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut took, mut longest) = (Histogram::<u64>::new(3).unwrap(), Duration::ZERO);
    for _ in 0..if common::measuring() { 2_000 } else { 20 } {
        let sources: Vec<SourceId> = (0..MERGED).map(|_| source(random.usize(..size.sources))).collect();
        let below = position(random.usize(..size.posts));
        let span = PositionRange { above: Position::MIN, below };
        let ask = OutboxQuery { part: Part::Whole, span, direction: Direction::Older, max: entries };
        let began = Instant::now();
        if let Some(archive) = archive.remote() {
            archive.prefetch(&mut sources.iter().map(|source| Wanted::Outbox(source, ask)));
        }
        let mut page = Vec::new();
        for source in &sources {
            archive.positions(source, ask, &mut page).unwrap();
        }
        page.sort_unstable_by(|a, b| b.cmp(a));
        page.truncate(entries);
        if let Some(archive) = archive.remote() {
            archive.prefetch(&mut page.iter().map(|position| Wanted::Post(position.id)));
        }
        assert!(page.iter().all(|position| archive.post(position.id).unwrap().is_some()));
        took.record(began.elapsed().as_micros() as u64).unwrap();
        longest = longest.max(began.elapsed());
    }
    println!("{name}: page of {entries} from {MERGED} outboxes: {}, longest {longest:.1?}", times(&took));
}

fn times(took: &Histogram<u64>) -> String {
    let at = |quantile| Duration::from_micros(took.value_at_quantile(quantile));
    format!("p50 {:.2?}, p99 {:.2?}", at(0.5), at(0.99))
}

fn disk(name: &str, directory: &Path, posts: usize) {
    let du = Command::new("du").arg("-sb").arg(directory).output().unwrap();
    let text = String::from_utf8_lossy(&du.stdout).into_owned();
    let bytes: f64 = text.split_whitespace().next().unwrap().parse().unwrap();
    println!("{name}: {:.0} bytes a post on disk, of which {POST_BYTES} are the post", bytes / posts as f64);
}
