//! Faults of a real broker during appends: it is killed and started again, or stops for some seconds.
#![cfg(test)]

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::options::Connection;
use crate::tests::{alone, options};
use crate::{KafkaLog, KafkaOptions};
use testkit::kafka::Brokers;
use testkit::test_servers::Servers;
use tidewire::storage::log::{LogError, LogRecord, ReadLog, SharedLog};
use tidewire::storage::sequence::Sequence;

/// Number of records that are read back before a fault.
const UNDISTURBED: u64 = 200;

/// Time after which a fault counts as permanent.
const PATIENCE: Duration = Duration::from_secs(60);

/// Restores the broker, even if the test fails.
struct Disturbed<'a>(&'a Brokers);

impl Drop for Disturbed<'_> {
    fn drop(&mut self) {
        self.0.restore();
    }
}

/// Returns options with which no record is given up during a test.
fn patient(addresses: &str) -> KafkaOptions {
    KafkaOptions { delivery_timeout: PATIENCE, ..options(addresses) }
}

/// The appends of a test, and the records that were read back meanwhile.
struct Outcome {
    /// The numbers of the records whose append was accepted.
    accepted: BTreeSet<u64>,
    /// Numbers before which a writer failed. The order of the records holds only between two failures.
    failures: Vec<u64>,
    records: Vec<LogRecord>,
}

/// Appends records steadily, reads them back, and calls `disturb` meanwhile. Ends when it reads a record that was appended afterwards.
fn append_beside(log: &KafkaLog, disturb: impl FnOnce()) -> Outcome {
    let (appended, last_read, settled) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let (is_over, until) = (AtomicBool::new(false), Instant::now() + 2 * PATIENCE);
    let append = || {
        let mut writer = log.writer().unwrap();
        let (mut accepted, mut failures) = (BTreeSet::new(), vec![]);
        while !is_over.load(Relaxed) && Instant::now() < until {
            let n = appended.fetch_add(1, Relaxed) + 1;
            match writer.append(n.to_string().into_bytes()) {
                Ok(()) => assert!(accepted.insert(n)),
                Err(LogError::Unavailable(_)) => failures.push(n),
                Err(error) => panic!("{error}"),
            }
            thread::park_timeout(Duration::from_micros(500));
        }
        (accepted, failures)
    };
    let read = || {
        let mut reader = log.reader(Sequence(0)).unwrap();
        let mut records: Vec<LogRecord> = vec![];
        while records.last().is_none_or(|record| number(record) < settled.load(Relaxed)) {
            assert!(Instant::now() < until, "{} records were read, and no more", records.len());
            match reader.read(Duration::from_millis(200)) {
                Ok(read) => {
                    records.extend(read);
                    last_read.store(records.last().map_or(0, number), Relaxed);
                }
                Err(LogError::Unavailable(_)) => thread::park_timeout(Duration::from_millis(50)),
                Err(error) => panic!("{error}"),
            }
        }
        records
    };
    thread::scope(|scope| {
        let (appending, reading) = (scope.spawn(append), scope.spawn(read));
        while last_read.load(Relaxed) < UNDISTURBED && !reading.is_finished() {
            thread::park_timeout(Duration::from_millis(10));
        }
        disturb();
        settled.store(appended.load(Relaxed) + 1, Relaxed);
        let read = reading.join();
        is_over.store(true, Relaxed);
        let (accepted, failures) = appending.join().unwrap();
        Outcome { accepted, failures, records: read.unwrap() }
    })
}

fn number(record: &LogRecord) -> u64 {
    std::str::from_utf8(&record.bytes).unwrap().parse().unwrap()
}

/// Checks the guarantees of a writer and a reader: no record twice, no refused record, all in order, without gaps.
fn check(outcome: &Outcome) {
    let Outcome { accepted, failures, records } = outcome;
    let sequences: Vec<_> = records.iter().map(|record| record.sequence.0).collect();
    assert_eq!(sequences, (1..=records.len() as u64).collect::<Vec<_>>());
    let numbers: Vec<u64> = records.iter().map(number).collect();
    let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "a record is stored twice");
    assert!(distinct.is_subset(accepted), "a refused record is stored");
    // Each producer keeps the order of its own records.
    let producer = |n: u64| failures.partition_point(|failure| *failure < n);
    for pair in numbers.windows(2) {
        assert!(pair[0] < pair[1] || producer(pair[0]) != producer(pair[1]), "{pair:?} is out of order");
    }
}

/// Checks that no append failed, and that all records up to the last one that was read are stored.
fn check_that_nothing_is_lost(outcome: &Outcome) {
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let numbers: Vec<u64> = outcome.records.iter().map(number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_killed_and_restarted_broker_stores_records_once_and_in_order() {
    let broker = alone();
    let log = KafkaLog::create(patient(&broker.addresses), 1).unwrap();
    let restored = Disturbed(&broker);
    let outcome = append_beside(&log, || {
        broker.kill(1);
        thread::park_timeout(Duration::from_millis(500));
        broker.restore();
    });
    drop(restored);
    check(&outcome);
    check_that_nothing_is_lost(&outcome);
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn appends_fail_while_a_broker_is_down_longer_than_the_delivery_timeout() {
    let broker = alone();
    let impatient = Duration::from_secs(1);
    let options =
        KafkaOptions { request_timeout: impatient, delivery_timeout: impatient, ..options(&broker.addresses) };
    let log = KafkaLog::create(options, 1).unwrap();
    let restored = Disturbed(&broker);
    let outcome = append_beside(&log, || {
        broker.kill(1);
        thread::park_timeout(Duration::from_secs(3));
        broker.restore();
    });
    drop(restored);
    check(&outcome);
    assert!(!outcome.failures.is_empty());
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_broker_paused_for_three_seconds_stores_records_once_and_in_order() {
    let broker = alone();
    let log = KafkaLog::create(patient(&broker.addresses), 1).unwrap();
    let restored = Disturbed(&broker);
    let outcome = append_beside(&log, || {
        broker.pause(1);
        thread::park_timeout(Duration::from_secs(3));
        broker.restore();
    });
    drop(restored);
    check(&outcome);
    check_that_nothing_is_lost(&outcome);
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn killing_or_pausing_the_leader_of_three_brokers_loses_no_record() {
    let brokers = Brokers::start(3);
    for disturb in [Servers::kill, Servers::pause] {
        let options = KafkaOptions { request_timeout: Duration::from_secs(2), ..patient(&brokers.addresses) };
        let log = KafkaLog::create(options.clone(), 3).unwrap();
        let leader = leader(&options);
        let outcome = append_beside(&log, || disturb(&brokers, leader));
        check(&outcome);
        check_that_nothing_is_lost(&outcome);
        brokers.restore();
    }
}

/// Returns the number of the broker that leads the partition.
fn leader(options: &KafkaOptions) -> usize {
    let client: BaseConsumer = Connection::new(options.clone()).unwrap().config().create().unwrap();
    let metadata = client.fetch_metadata(Some(&format!("{}.log", options.name)), Duration::from_secs(10)).unwrap();
    metadata.topics()[0].partitions()[0].leader() as usize
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_log_is_opened_while_one_of_three_brokers_hangs() {
    let brokers = Brokers::start(3);
    let options = options(&brokers.addresses);
    KafkaLog::create(options.clone(), 3).unwrap();
    // A client whose first broker hangs tries another one after a second, on a busy machine after several.
    let options = KafkaOptions { request_timeout: Duration::from_secs(60), ..options };
    for broker in 1..=3 {
        brokers.pause(broker);
        // Opened before the other brokers have noticed the pause, and afterwards.
        for _ in 0..3 {
            if let Err(cause) = KafkaLog::open(options.clone()) {
                panic!("while broker {broker} hangs: {cause}");
            }
        }
        brokers.restore();
    }
}
