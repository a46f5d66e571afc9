//! Tests of an archive in a real Cassandra, beside those of the contract.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::layout::{BucketId, BucketLimits};
use super::read::row;
use super::{CassandraArchive, CassandraOptions, CassandraUrl, Replication};
use Route::{Pull, Push};
use tidewire::feed::outbox::{OutboxQuery, Part, Route};
use tidewire::feed::position::{Direction, Position, PositionRange, at};
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::samples::{CACHE_BYTES, all, next_batch, placed, post, posts, source};
use tidewire::storage::archive::{Archive, ArchiveError, ArchivedRecord, Batch, Fate, RemoteArchive as _, Rewrite};
use tidewire::storage::identity::Identity;
use tidewire::storage::sequence::Sequence;

use proptest::prelude::*;
use testkit::cassandra::Nodes;
use testkit::contract::archive::model::{agrees_with_the_model, steps};
use testkit::contract::archive::{self, Tested};

/// Buckets so small that a few entries create, split and rewrite them.
const TINY: BucketLimits = BucketLimits { rows: 2, removed: 2 };

pub(super) fn options(nodes: &Nodes, keyspace: &str) -> CassandraOptions {
    let url: CassandraUrl = nodes.url(keyspace).parse().expect("tests use good URLs");
    // On a machine that runs several tests at once a node may need more than a second.
    let read_time_max = Duration::from_secs(4);
    CassandraOptions {
        url,
        login: None,
        tls: None,
        datacentre: None,
        cache_bytes: CACHE_BYTES,
        ttl_seconds: None,
        read_time_max,
    }
}

/// Creates a keyspace of its own for a test.
pub(super) fn created(nodes: &Nodes) -> CassandraOptions {
    let options = options(nodes, &Nodes::keyspace());
    CassandraArchive::create(&options, &Replication::Everywhere(nodes.copies())).expect("the keyspace can be created");
    options
}

/// Returns an archive in a new keyspace.
pub(crate) fn archive() -> CassandraArchive {
    CassandraArchive::open(&created(Nodes::shared())).expect("the archive can be opened")
}

/// Runs a statement that is not one of the archive's own.
pub(super) fn run(archive: &CassandraArchive, cql: &str) {
    let (core, cql) = (Arc::clone(&archive.core), cql.replace("{ks}", keyspace(archive)));
    let done = archive.calls.run_scan("run a statement on", async move {
        core.session.query_unpaged(cql, ()).await.map(drop).map_err(|cause| core.error("change", &cause))
    });
    done.expect("the statement is good");
}

fn keyspace(archive: &CassandraArchive) -> &str {
    archive.core.place.rsplit('/').next().expect("a URL has a keyspace")
}

/// A keyspace for the cases of a property test, one after the other.
pub(crate) struct Keyspace(CassandraOptions);

/// Returns a keyspace in which an archive has tiny buckets.
pub(crate) fn with_tiny_buckets() -> Keyspace {
    static CREATED: OnceLock<CassandraOptions> = OnceLock::new();
    Keyspace(CREATED.get_or_init(|| created(Nodes::shared())).clone())
}

impl Keyspace {
    /// Opens the archive again, or an empty one.
    pub(crate) fn open(&self, open: Option<CassandraArchive>) -> CassandraArchive {
        let opened = || CassandraArchive::open_with(&self.0, TINY).expect("the archive can be opened");
        if open.is_none() {
            let before = opened();
            for table in ["posts", "outboxes", "buckets"] {
                run(&before, &format!("TRUNCATE {{ks}}.{table}"));
            }
            run(&before, "DELETE FROM {ks}.meta WHERE key IN ('largest_ids', 'through', 'written')");
        }
        drop(open);
        opened()
    }
}

pub(super) fn times(positions: &[Position]) -> Vec<i64> {
    positions.iter().map(|position| position.published_at.0).collect()
}

/// Returns a batch with an entry of `ann` at each of these times.
pub(super) fn entries(times: impl Iterator<Item = i64>) -> Batch {
    Batch { placed: times.map(|time| (source("ann"), at(time, 0), Push)).collect(), ..next_batch() }
}

pub(super) fn removal(times: impl Iterator<Item = i64>) -> Batch {
    Batch { removed: times.map(|time| (source("ann"), at(time, 0))).collect(), ..next_batch() }
}

mod contract {
    use super::*;

    fn in_cassandra(case: &dyn Fn(&dyn Archive) -> Tested) -> Tested {
        case(&archive())
    }

    testkit::archive_contract! { #[ignore = "needs Cassandra: scripts/cassandra.sh install"] in_cassandra }

    proptest! {
        // The tables are emptied before each case, which takes a second.
        #![proptest_config(ProptestConfig { max_shrink_iters: 64, ..ProptestConfig::with_cases(16) })]
        #[test]
        #[ignore = "needs Cassandra: scripts/cassandra.sh install"]
        fn the_archive_in_cassandra_agrees_with_the_model(steps in steps()) {
            let keyspace = with_tiny_buckets();
            agrees_with_the_model(|open| keyspace.open(open), steps)?;
        }
    }
}

/// Returns the number of buckets of `ann` that have rows, including those that no layout contains any more.
pub(super) fn buckets(archive: &CassandraArchive) -> usize {
    buckets_of(archive, &["ann"]).values().map(Vec::len).sum()
}

/// Returns the buckets of sources, as a search retains them in memory.
fn buckets_of(archive: &CassandraArchive, sources: &[&str]) -> BTreeMap<SourceId, Vec<(Route, BucketId)>> {
    let (core, sources) = (Arc::clone(&archive.core), sources.iter().map(|id| source(id)).collect::<Vec<_>>());
    let search = async move { super::scan::buckets_of(&core, &sources).await };
    archive.calls.run_scan("read", search).expect("the archive can be read")
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn an_erasure_loads_only_the_buckets_of_the_erased_sources() {
    let archive = archive();
    let others = (0..50).map(|nth| (source(&format!("user-{nth}")), at(nth, 0), Push));
    let of_two =
        [("ann", Push), ("ann", Pull), ("bob", Push)].map(|(id, route)| (source(id), at(route as i64, 1), route));
    archive.write(&Batch { placed: others.chain(of_two).collect(), ..next_batch() }).unwrap();
    let found = buckets_of(&archive, &["ann", "nobody"]);
    let routes = |id: &str| found[&source(id)].iter().map(|(route, _)| *route as u8).collect::<BTreeSet<_>>();
    assert_eq!((found.len(), routes("ann").len(), routes("nobody").len()), (2, 2, 0));
    let rewrite =
        Rewrite { without: &[source("ann"), source("nobody")], fate: &|_| Fate::Keep, as_of: next_batch().as_of };
    archive.rewrite(&rewrite).unwrap();
    let left = buckets_of(&archive, &["ann", "bob", "user-7"]);
    assert_eq!(left.values().map(Vec::len).collect::<Vec<_>>(), [0, 1, 1]);
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn the_outbox_of_a_busy_source_spans_buckets_and_is_read_as_one() {
    let nodes = Nodes::shared();
    let options = created(nodes);
    let archive = CassandraArchive::open_with(&options, BucketLimits { rows: 100, removed: 40 }).unwrap();
    for first in (0..1_000).step_by(250) {
        archive.write(&entries(first..first + 250)).unwrap();
    }
    assert_eq!(buckets(&archive), 10);
    // Each page spans one or two buckets. Another process reads the same.
    for reader in [&archive, &CassandraArchive::open(&options).unwrap()] {
        let (mut below, mut read) = (Position::MAX, Vec::new());
        loop {
            let (mut page, span) = (Vec::new(), PositionRange { above: Position::MIN, below });
            let query = OutboxQuery { part: Part::Pushed, span, direction: Direction::Older, max: 30 };
            reader.positions(&source("ann"), query, &mut page).unwrap();
            let Some(last) = page.last() else { break };
            below = *last;
            read.append(&mut page);
        }
        assert_eq!(times(&read), (0..1_000).rev().collect::<Vec<_>>());
        assert_eq!(times(&all(reader, "ann", Part::Whole)), (0..1_000).collect::<Vec<_>>());
    }
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn late_entries_split_a_bucket_and_removed_ones_rewrite_it() {
    let nodes = Nodes::shared();
    let archive = CassandraArchive::open_with(&created(nodes), BucketLimits { rows: 100, removed: 40 }).unwrap();
    // From the newest to the oldest, as an import may write them.
    for first in (0..1_000).rev().step_by(50) {
        archive.write(&entries(first - 49..first + 1)).unwrap();
    }
    assert_eq!(times(&all(&archive, "ann", Part::Pushed)), (0..1_000).collect::<Vec<_>>());
    assert!(buckets(&archive) >= 5, "{}", buckets(&archive));
    archive.write(&removal(100..900)).unwrap();
    let left: Vec<i64> = (0..100).chain(900..1_000).collect();
    assert_eq!(times(&all(&archive, "ann", Part::Pushed)), left);
    // Emptied buckets are not read, and new entries get a new bucket there.
    archive.write(&entries(500..505)).unwrap();
    let expected: Vec<i64> = (0..100).chain(500..505).chain(900..1_000).collect();
    assert_eq!(times(&all(&archive, "ann", Part::Pushed)), expected);
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn a_rewrite_is_older_than_the_rest_of_a_batch_that_it_overtakes() {
    let archive = archive();
    archive::a_rewrite_is_older_than_the_rest_of_a_batch_that_it_overtakes(&archive).unwrap();
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn late_and_repeated_writes_do_not_replace_newer_data() {
    let archive = archive();
    let (first, then) = (posts([(1, post("first"))]), posts([(1, post("then")), (2, ArchivedRecord::Deleted)]));
    let placing = placed([("ann", at(1, 1), Push), ("ann", at(2, 2), Pull)]);
    let removing = Batch { removed: vec![(source("ann"), at(1, 1))], ..next_batch() };
    for batch in [&first, &placing, &then, &removing] {
        archive.write(batch).unwrap();
    }
    for again in [&first, &placing, &then, &placing] {
        archive.write(again).unwrap();
        assert_eq!(archive.post(PostId(1)).unwrap(), Some(post("then")));
        assert_eq!(archive.post(PostId(2)).unwrap(), Some(ArchivedRecord::Deleted));
        assert_eq!(all(&archive, "ann", Part::Whole), [at(2, 2)]);
    }
    archive.persist(Sequence(9)).unwrap();
    archive.persist(Sequence(7)).unwrap();
    assert_eq!(archive.through().unwrap(), Sequence(9));
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn a_second_writer_is_detected_and_loses_nothing() {
    let nodes = Nodes::shared();
    let options = created(nodes);
    let [one, other] = [(); 2].map(|()| CassandraArchive::open_with(&options, TINY).unwrap());
    one.write(&entries(0..2)).unwrap();
    other.write(&entries(2..4)).unwrap();
    // Both archives know the layout now, and each begins buckets of its own.
    let mut refused = 0;
    for (nth, archive) in [&one, &other, &one, &other].into_iter().enumerate() {
        let batch = entries((10 * nth as i64)..(10 * nth as i64 + 5));
        while let Err(cause) = archive.write(&batch) {
            assert!(cause.is_temporary() && cause.to_string().contains("another process"), "{cause}");
            refused += 1;
        }
    }
    assert!(refused > 0);
    let reader = CassandraArchive::open(&options).unwrap();
    let expected: Vec<i64> = (0..5).chain(10..15).chain(20..25).chain(30..35).collect();
    assert_eq!(times(&all(&reader, "ann", Part::Pushed)), expected);
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn the_largest_sequence_of_any_write_is_known_after_a_start() {
    let nodes = Nodes::shared();
    let options = created(nodes);
    let written = || CassandraArchive::open(&options).unwrap().written().unwrap();
    let archive = CassandraArchive::open(&options).unwrap();
    assert_eq!(written(), Sequence(0));
    // The archive treats a copy as older than every other write.
    archive.write(&Batch { as_of: Sequence(0), ..posts([(1, post("copied"))]) }).unwrap();
    archive.persist(Sequence(90)).unwrap();
    assert_eq!(written(), Sequence(0));
    for (as_of, expected) in [(7, 7), (5, 7), (8, 8)] {
        archive.write(&Batch { as_of: Sequence(as_of), ..posts([(1, post("text"))]) }).unwrap();
        assert_eq!(written(), Sequence(expected));
    }
    assert_eq!(archive.through().unwrap(), Sequence(90));
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn an_earlier_writer_does_not_hide_rows_of_its_successor() {
    let nodes = Nodes::shared();
    let options = created(nodes);
    let [earlier, later] = [(); 2].map(|()| CassandraArchive::open_with(&options, TINY).unwrap());
    // The earlier writer counts two rows in the only bucket, and the later one finds one. So the bucket is full for the earlier writer
    // only.
    earlier.write(&entries(0..2)).unwrap();
    earlier.write(&removal(0..1)).unwrap();
    later.write(&entries(5..6)).unwrap();
    let closing = entries(3..4);
    let refused = earlier.write(&closing).unwrap_err();
    assert!(refused.is_temporary() && refused.to_string().contains("another process"), "{refused}");
    let read = || times(&all(&CassandraArchive::open(&options).unwrap(), "ann", Part::Pushed));
    assert_eq!(read(), [1, 5]);
    earlier.write(&closing).unwrap();
    assert_eq!(read(), [1, 3, 5]);
    // It drops its cached state when it becomes the writer again.
    later.invalidate_all();
    later.write(&entries(7..10)).unwrap();
    assert_eq!(read(), [1, 3, 5, 7, 8, 9]);
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn repeated_writes_of_the_same_entries_neither_close_nor_split_a_bucket() {
    let nodes = Nodes::shared();
    let archive = CassandraArchive::open_with(&created(nodes), BucketLimits { rows: 10, removed: 10 }).unwrap();
    for _ in 0..10 {
        archive.write(&entries(0..5)).unwrap();
    }
    archive.write(&entries(5..10)).unwrap();
    assert_eq!((times(&all(&archive, "ann", Part::Pushed)), buckets(&archive)), ((0..10).collect(), 1));
    archive.write(&entries(10..11)).unwrap();
    assert_eq!((times(&all(&archive, "ann", Part::Pushed)), buckets(&archive)), ((0..11).collect(), 2));
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn ids_that_may_be_archived_are_known_after_a_start() {
    let nodes = Nodes::shared();
    let options = created(nodes);
    let archive = CassandraArchive::open(&options).unwrap();
    assert!(archive.is_empty() && !archive.may_have(PostId(1)));
    for id in [5, u64::MAX, 7] {
        archive.write(&posts([(id, post("text"))])).unwrap();
    }
    let identity = Identity([7; 16]);
    assert_eq!(archive.identity().unwrap(), None);
    archive.set_identity(identity).unwrap();
    // An archive that has an identity ignores another one.
    archive.set_identity(Identity([8; 16])).unwrap();
    let again = CassandraArchive::open(&options).unwrap();
    let known = [5, 6, 7, 8, u64::MAX].map(|id| again.may_have(PostId(id)));
    assert_eq!(known, [true, false, true, false, true]);
    assert_eq!(again.identity().unwrap(), Some(identity));
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn archived_posts_expire_and_tombstones_do_not() {
    let nodes = Nodes::shared();
    let options = CassandraOptions { ttl_seconds: NonZeroU32::new(2), ..created(nodes) };
    let archive = CassandraArchive::open(&options).unwrap();
    archive.write(&posts([(1, post("text")), (2, ArchivedRecord::Deleted)])).unwrap();
    archive.write(&entries(0..3)).unwrap();
    assert_eq!(all(&archive, "ann", Part::Pushed).len(), 3);
    #[expect(clippy::disallowed_methods, reason = "the nodes have a clock of their own")]
    std::thread::sleep(Duration::from_secs(4));
    // Data that was written with a time to live expires even if new data does not.
    let later = CassandraArchive::open(&CassandraOptions { ttl_seconds: None, ..options }).unwrap();
    assert!(archive.expires() && later.expires());
    assert_eq!(all(&later, "ann", Part::Pushed), []);
    // A post expires an hour later than the entries that name it.
    assert_eq!(later.post(PostId(1)).unwrap(), Some(post("text")));
    assert_eq!(later.post(PostId(2)).unwrap(), Some(ArchivedRecord::Deleted));
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn a_keyspace_that_is_missing_or_incomplete_is_refused_by_name() {
    let nodes = Nodes::shared();
    let refusal = |options: &CassandraOptions| match CassandraArchive::open(options).unwrap_err() {
        ArchiveError::Unprepared { missing, .. } => missing,
        other => other.with_sources(),
    };
    let missing = options(nodes, "nowhere");
    assert_eq!(refusal(&missing), "there is no such keyspace, or it has no tables");
    let options = created(nodes);
    let archive = CassandraArchive::open(&options).unwrap();
    run(&archive, "UPDATE {ks}.meta SET value = 0x0000000000000009 WHERE key = 'format' IF EXISTS");
    let newer = refusal(&options);
    assert!(newer.contains("has format 9, and this version reads formats up to 1"), "{newer}");
    run(&archive, "DELETE FROM {ks}.meta WHERE key = 'format' IF EXISTS");
    assert_eq!(refusal(&options), "the table meta has no format");
    run(&archive, "ALTER TABLE {ks}.outboxes DROP kept");
    assert_eq!(refusal(&options), "the table outboxes has no column kept boolean");
    run(&archive, "DROP TABLE {ks}.posts");
    assert_eq!(refusal(&options), "there is no table posts");
    // `create` adds the missing tables, and leaves the existing ones unchanged.
    run(&archive, "ALTER TABLE {ks}.outboxes ADD kept boolean");
    for _ in 0..2 {
        CassandraArchive::create(&options, &Replication::Everywhere(nodes.copies())).unwrap();
        assert_eq!(CassandraArchive::open(&options).unwrap().through().unwrap(), Sequence(0));
    }
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn invalid_rows_are_reported_as_damage_and_affect_nothing_else() {
    let archive = archive();
    archive.write(&posts([(1, post("good")), (2, post("bad"))])).unwrap();
    archive.write(&placed([("ann", at(1, 1), Push), ("bob", at(1, 1), Push)])).unwrap();
    let damage = |error: ArchiveError| match error {
        ArchiveError::Damaged { ref place, ref what } => {
            // The archive is not in the data directory, so the message must not suggest its repair.
            assert_eq!(error.to_string(), format!("the archive {place} is damaged: {what}"));
            what.clone()
        }
        other => panic!("{other:?}"),
    };
    let (_, id) = row(at(0, 2));
    run(&archive, &format!("DELETE record FROM {{ks}}.posts WHERE id = {id}"));
    run(&archive, "INSERT INTO {ks}.buckets (source, route, layout, version) VALUES ('bob', 1, 0x0708, 1)");
    archive.core.cache.clear();
    assert_eq!(damage(archive.post(PostId(2)).unwrap_err()), "post 2 is neither post nor tombstone");
    let mut into = vec![at(9, 9)];
    let query = OutboxQuery { part: Part::Whole, span: PositionRange::ALL, direction: Direction::Newer, max: 9 };
    let read = archive.positions(&source("bob"), query, &mut into);
    assert_eq!(damage(read.unwrap_err()), "the buckets of bob: a layout has version 7");
    assert_eq!(into, [at(9, 9)]);
    assert_eq!(archive.post(PostId(1)).unwrap(), Some(post("good")));
    assert_eq!(all(&archive, "ann", Part::Whole), [at(1, 1)]);
    // A batch with such a source writes the other sources, and reports the damaged one.
    let reopened = CassandraArchive::open(&CassandraOptions { cache_bytes: 0, ..options_of(&archive) }).unwrap();
    let batch = placed([("ann", at(2, 2), Push), ("bob", at(2, 2), Push)]);
    assert_eq!(damage(reopened.write(&batch).unwrap_err()), "the buckets of bob: a layout has version 7");
    assert_eq!(all(&reopened, "ann", Part::Whole), [at(1, 1), at(2, 2)]);
    run(&archive, "UPDATE {ks}.meta SET value = 0x00 WHERE key = 'largest_ids' IF EXISTS");
    let opened = CassandraArchive::open(&options_of(&archive));
    assert_eq!(damage(opened.unwrap_err()), "the row largest_ids of the table meta is not valid in any version");
}

fn options_of(archive: &CassandraArchive) -> CassandraOptions {
    options(Nodes::shared(), keyspace(archive))
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn pages_are_served_from_the_cache_until_they_change() {
    let archive = archive();
    archive.write(&entries(0..500)).unwrap();
    archive.write(&posts([(1, post("text"))])).unwrap();
    let page = |below: i64| {
        let mut page = Vec::new();
        let span = PositionRange { above: Position::MIN, below: at(below, 0) };
        let query = OutboxQuery { part: Part::Pushed, span, direction: Direction::Older, max: 20 };
        archive.positions(&source("ann"), query, &mut page).unwrap();
        times(&page)
    };
    let reads = || archive.figures().reads;
    assert_eq!(page(500), (480..500).rev().collect::<Vec<_>>());
    let after_first = reads();
    // The next pages were read ahead.
    for below in [500, 480, 460, 440, 420] {
        assert_eq!(page(below), (below - 20..below).rev().collect::<Vec<_>>());
    }
    assert_eq!(archive.post(PostId(1)).unwrap(), Some(post("text")));
    assert_eq!(archive.post(PostId(1)).unwrap(), Some(post("text")));
    assert_eq!(reads(), after_first + 1);
    archive.write(&removal(470..490)).unwrap();
    archive.write(&posts([(1, post("new"))])).unwrap();
    assert_eq!(page(500), (460..470).chain(490..500).rev().collect::<Vec<_>>());
    assert_eq!(archive.post(PostId(1)).unwrap(), Some(post("new")));
    let figures = archive.figures();
    assert!(figures.cache_hits >= 6 && figures.cache_bytes > 0, "{figures:?}");
}
