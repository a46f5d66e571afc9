//! Faults of a real Cassandra: killed, paused, and without its tables.
#![cfg(test)]

use std::thread;
use std::time::{Duration, Instant};

use super::connection::STALLED_AT_STOP_AFTER;
use super::tests::{created, run};
use super::{CassandraArchive, Replication, schema};
use testkit::cassandra::Nodes;
use testkit::test_servers::Servers;
use tidewire::feed::outbox::{OutboxQuery, Part, Route};
use tidewire::feed::position::{Direction, PositionRange, at};
use tidewire::id::PostId;
use tidewire::storage::archive::samples::{all, next_batch, post, posts, source};
use tidewire::storage::archive::{Archive, ArchiveError, Batch, RemoteArchive as _, Wanted};
use tidewire::storage::sequence::Sequence;

/// Time for the driver to find a node again, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time by which a call may exceed its own limit on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

fn batch(nth: u64) -> Batch {
    let placed = (0..20).map(|id| (source("ann"), at(nth as i64, id), Route::Push)).collect();
    Batch { placed, posts: posts([(nth, post("text"))]).posts, ..next_batch() }
}

/// Returns the numbers of the stored batches, each with the number of its entries.
fn read(archive: &CassandraArchive) -> Result<Vec<(i64, usize)>, ArchiveError> {
    let mut into = Vec::new();
    let query =
        OutboxQuery { part: Part::Pushed, span: PositionRange::ALL, direction: Direction::Newer, max: usize::MAX };
    archive.positions(&source("ann"), query, &mut into)?;
    let batches = into.chunk_by(|a, b| a.published_at == b.published_at);
    Ok(batches.map(|batch| (batch[0].published_at.0, batch.len())).collect())
}

/// Repeats an attempt until it succeeds. All earlier errors must be temporary.
fn eventually<T>(what: &str, attempt: impl Fn() -> Result<T, ArchiveError>) -> T {
    let began = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(cause) => {
                assert!(cause.is_temporary(), "{what}: {cause:?}");
                assert!(began.elapsed() < PATIENCE, "{what}: {cause}");
            }
        }
        thread::park_timeout(Duration::from_millis(50));
    }
}

/// Opens a new archive on nodes that have just started, and writes the first batch. A node that does not know the others yet may not know
/// the tables.
fn written_on_new(nodes: &Nodes) -> CassandraArchive {
    let options = created(nodes);
    let known = |cause: ArchiveError| match schema::may_be_unknown(&cause) {
        true => ArchiveError::Unavailable { place: nodes.addresses.clone(), why: cause.with_sources() },
        false => cause,
    };
    let archive = eventually("the open", || CassandraArchive::open(&options).map_err(known));
    eventually("the write", || archive.write(&batch(0)).map_err(known));
    archive
}

fn temporary<T: std::fmt::Debug>(what: &str, result: Result<T, ArchiveError>) {
    let cause = result.expect_err(what);
    assert!(cause.is_temporary(), "{what}: {cause:?}");
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn an_archive_is_created_on_nodes_that_have_just_started() {
    let nodes = Nodes::start(3);
    let archive = written_on_new(&nodes);
    assert_eq!(eventually("the read", || read(&archive)), [(0, 20)]);
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn a_killed_node_causes_temporary_errors_and_loses_no_data() {
    let nodes = Nodes::start(1);
    let archive = CassandraArchive::open(&created(&nodes)).unwrap();
    archive.write(&batch(0)).unwrap();
    for round in 1..4 {
        nodes.kill(1);
        let began = Instant::now();
        archive.core.cache.clear();
        temporary("a read of a dead node", read(&archive));
        temporary("a post of a dead node", archive.post(PostId(0)));
        let unwritten = batch(round);
        temporary("a write to a dead node", archive.write(&unwritten));
        temporary("a cursor on a dead node", archive.persist(Sequence(round)));
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        nodes.restore();
        eventually("the write", || archive.write(&unwritten));
        eventually("the cursor", || archive.persist(Sequence(round)));
        let expected: Vec<_> = (0..=round as i64).map(|batch| (batch, 20)).collect();
        assert_eq!(eventually("the read", || read(&archive)), expected);
        assert_eq!(archive.through().unwrap(), Sequence(round));
    }
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn a_hanging_node_blocks_no_call_longer_than_the_read_timeout() {
    let nodes = Nodes::start(1);
    let archive = CassandraArchive::open(&created(&nodes)).unwrap();
    archive.write(&batch(0)).unwrap();
    nodes.pause(1);
    archive.core.cache.clear();
    let began = Instant::now();
    temporary("a read of a node that hangs", read(&archive));
    assert!(began.elapsed() < archive.core.read_time_max + SLACK, "{:?}", began.elapsed());
    // Reads do not wait again for announced reads that did not complete.
    let ask = OutboxQuery { part: Part::Pushed, span: PositionRange::ALL, direction: Direction::Older, max: 20 };
    let names: Vec<_> = (0..50).map(|nth| source(&format!("user-{nth}"))).collect();
    let began = Instant::now();
    archive.prefetch(&mut names.iter().map(|name| Wanted::Outbox(name, ask)));
    for name in &names {
        temporary("an announced read", archive.positions(name, ask, &mut Vec::new()));
    }
    assert!(began.elapsed() < archive.core.read_time_max + SLACK, "{:?}", began.elapsed());
    // A write ends soon when the engine stops.
    let (unwritten, began) = (batch(1), Instant::now());
    thread::scope(|scope| {
        let writer = scope.spawn(|| archive.write(&unwritten));
        thread::park_timeout(Duration::from_millis(300));
        archive.stop_waiting();
        temporary("a write that is given up", writer.join().unwrap());
    });
    assert!(began.elapsed() < STALLED_AT_STOP_AFTER + SLACK, "{:?}", began.elapsed());
    temporary("a read after that", read(&archive));
    nodes.resume();
    let archive =
        eventually("opening it", || CassandraArchive::open(&super::tests::options(&nodes, keyspace(&archive))));
    eventually("the write", || archive.write(&unwritten));
    assert_eq!(all(&archive, "ann", Part::Pushed).len(), 40);
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn reads_and_writes_continue_if_one_of_three_nodes_hangs_or_dies() {
    let nodes = Nodes::start(3);
    let archive = written_on_new(&nodes);
    let mut written = vec![(0, 20)];
    for inflict in [Servers::pause, Servers::kill] {
        for node in 1..=3 {
            inflict(&nodes, node);
            archive.core.cache.clear();
            assert_eq!(eventually("the read", || read(&archive)), written, "without node {node}");
            let next = written.len() as u64;
            eventually("the write", || archive.write(&batch(next)));
            written.push((next as i64, 20));
            archive.core.cache.clear();
            assert_eq!(eventually("the read", || read(&archive)), written, "without node {node}");
            for post_id in 0..=next {
                let found = eventually("the post", || archive.post(PostId(post_id)));
                assert_eq!(found, Some(post("text")), "without node {node}");
            }
            nodes.restore();
        }
    }
}

fn keyspace(archive: &CassandraArchive) -> &str {
    archive.core.place.rsplit('/').next().expect("a URL has a keyspace")
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn dropped_tables_cause_permanent_errors_until_they_are_created_again() {
    let nodes = Nodes::shared();
    let options = created(nodes);
    let archive = CassandraArchive::open(&options).unwrap();
    archive.write(&batch(0)).unwrap();
    run(&archive, "DROP TABLE {ks}.posts");
    archive.core.cache.clear();
    for cause in [archive.post(PostId(0)).unwrap_err(), archive.write(&batch(1)).unwrap_err()] {
        assert!(!cause.is_temporary(), "{cause:?}");
        assert!(cause.with_sources().contains("posts"), "{}", cause.with_sources());
    }
    // The other table still exists.
    assert_eq!(all(&archive, "ann", Part::Pushed).len(), 20);
    CassandraArchive::create(&options, &Replication::Everywhere(nodes.copies())).unwrap();
    archive.write(&batch(1)).unwrap();
    assert_eq!(archive.post(PostId(1)).unwrap(), Some(post("text")));
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn an_unreachable_contact_point_is_harmless_if_another_one_answers() {
    let nodes = Nodes::shared();
    let mut options = created(nodes);
    options.url.contacts.insert(0, "127.0.0.1:1".to_owned());
    let archive = CassandraArchive::open(&options).unwrap();
    archive.write(&batch(1)).unwrap();
    assert_eq!(read(&archive).unwrap(), [(1, 20)]);
    CassandraArchive::create(&options, &Replication::Everywhere(nodes.copies())).unwrap();
}

#[test]
fn opening_the_archive_names_an_unreachable_node() {
    let url = "cassandra://127.0.0.1:1/feeds".parse().unwrap();
    let read_time_max = super::READ_TIME_MAX;
    let options = super::CassandraOptions {
        url,
        login: None,
        tls: None,
        datacentre: None,
        cache_bytes: 0,
        ttl_seconds: None,
        read_time_max,
    };
    let cause = CassandraArchive::open(&options).unwrap_err();
    assert!(cause.is_temporary() && cause.to_string().contains("cassandra://127.0.0.1:1/feeds"), "{cause}");
}
