//! Tests of the log in Kafka: the topics that it accepts, and the faults that it detects. They run on a broker, or on librdkafka's mock.
#![cfg(test)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::options::Connection;
use crate::reader::{Fingerprint, KafkaReader, SILENCE_MAX};
use crate::requests::wait_for;
use crate::writer::KafkaWriter;
use crate::{KafkaLog, KafkaOptions, TopicSettings};
use testkit::contract::log::{append, numbered, read};
use tidewire::storage::log::{LogError, LogReader, LogWriter, RECORD_BYTES_MAX, ReadLog, SharedLog};
use tidewire::storage::sequence::Sequence;

use testkit::kafka::Brokers;

/// An error after which librdkafka refuses all further use of a producer.
const FATAL: RDKafkaRespErr = RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH;

/// The broker that all tests share.
fn broker() -> &'static RwLock<Brokers> {
    static BROKER: OnceLock<RwLock<Brokers>> = OnceLock::new();
    BROKER.get_or_init(|| RwLock::new(Brokers::start(1)))
}

/// Returns the broker for a test that does not disturb it.
pub(super) fn shared() -> RwLockReadGuard<'static, Brokers> {
    broker().read()
}

/// Returns the broker for a test that disturbs it.
pub(super) fn alone() -> RwLockWriteGuard<'static, Brokers> {
    broker().write()
}

/// Options for a cluster with a name that no other test uses.
pub(super) fn options(addresses: &str) -> KafkaOptions {
    static CLUSTERS: AtomicUsize = AtomicUsize::new(0);
    KafkaOptions::new(addresses, format!("test{}", CLUSTERS.fetch_add(1, Ordering::Relaxed)))
}

/// Runs a case of the contract on a new topic of a real broker.
fn on_broker(case: &dyn Fn(&dyn SharedLog)) {
    let broker = shared();
    case(&KafkaLog::create(options(&broker.addresses), 1).unwrap());
}

/// Runs a case of the contract on librdkafka's mock of a cluster. It has no settings to check.
fn on_mock(case: &dyn Fn(&dyn SharedLog)) {
    case(&on(&MockCluster::new(1).unwrap()));
}

mod contract {
    mod broker {
        testkit::log_contract! { #[ignore = "needs Kafka: scripts/kafka.sh install"] crate::tests::on_broker }
    }

    // The mock of a broker deletes records when it has some MiB of them.
    mod mock {
        testkit::log_contract! { crate::tests::on_mock, without_large_records }
    }
}

type Mock = MockCluster<'static, DefaultProducerContext>;

fn on(cluster: &Mock) -> KafkaLog {
    let connection = Connection::new(options(&cluster.bootstrap_servers())).unwrap();
    cluster.create_topic(connection.topic(), 1, 1).unwrap();
    KafkaLog { connection: connection.into(), settings: TopicSettings::for_replicas(1) }
}

fn admin(options: &KafkaOptions) -> AdminClient<DefaultClientContext> {
    Connection::new(options.clone()).unwrap().config().create().unwrap()
}

fn patient() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(Duration::from_secs(10)))
}

/// Creates a topic with settings as an operator would.
fn create_topic(options: &KafkaOptions, partitions: i32, settings: &[(&str, &str)]) {
    let topic = format!("{}.log", options.name);
    let topic = NewTopic { config: settings.to_vec(), ..NewTopic::new(&topic, partitions, TopicReplication::Fixed(1)) };
    wait_for(admin(options).create_topics([&topic], &patient())).unwrap().remove(0).unwrap();
}

fn delete_topic(options: &KafkaOptions) {
    let topic = format!("{}.log", options.name);
    wait_for(admin(options).delete_topics(&[&topic], &patient())).unwrap().remove(0).unwrap();
}

#[track_caller]
fn assert_refused(refusal: Result<impl Sized, LogError>, parts: &[&str]) {
    let Some(LogError::Setup(text)) = refusal.err() else { panic!("not refused for its setup") };
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn settings_that_would_lose_records_are_refused_by_name_and_value() {
    let good = TopicSettings::for_replicas(3);
    assert_eq!(good.check("x.log", None), Ok(()));
    for (name, value, needed) in [
        ("cleanup.policy", "compact", "delete"),
        ("cleanup.policy", "compact,delete", "delete"),
        ("unclean.leader.election.enable", "true", "false"),
        ("min.insync.replicas", "1", "2 or more"),
        ("max.message.bytes", "16778239", "16778240 or more"),
    ] {
        let mut settings = good.clone();
        settings.named.insert(name.to_owned(), value.to_owned());
        assert_refused(settings.check("x.log", None), &["x.log", name, value, needed]);
        settings.named.remove(name);
        assert_refused(settings.check("x.log", None), &["x.log", name, "unknown", needed]);
    }
    assert_refused(TopicSettings { partitions: 2, ..good }.check("x.log", None), &["partitions 2", "1"]);
}

#[test]
fn the_minimum_of_replicas_in_sync_depends_on_the_replicas_unless_it_is_set() {
    for (replicas, in_sync, set, is_good) in [
        (1, "1", None, true),
        (2, "1", None, true),
        (3, "1", None, false),
        (3, "2", None, true),
        (5, "1", Some(1), true),
        (3, "2", Some(3), false),
        (1, "1", Some(2), false),
    ] {
        let mut settings = TopicSettings::for_replicas(replicas);
        settings.named.insert("min.insync.replicas".to_owned(), in_sync.to_owned());
        assert_eq!(settings.check("x.log", set).is_ok(), is_good, "{replicas} {in_sync} {set:?}");
    }
}

#[test]
fn the_retention_of_the_log_is_that_of_the_topic() {
    let mut settings = TopicSettings::for_replicas(1);
    assert_eq!(settings.retention(), None);
    settings.named.insert("retention.ms".to_owned(), "604800000".to_owned());
    assert_eq!(settings.retention().as_deref(), Some("retention.ms=604800000"));
}

#[test]
fn properties_that_tidewire_depends_on_are_refused() {
    for property in ["acks", "auto.offset.reset", "bootstrap.servers"] {
        let mut options = KafkaOptions::new("127.0.0.1:1", "x");
        options.properties.insert(property.to_owned(), "x".to_owned());
        assert_refused(KafkaLog::open(options), &[property]);
    }
}

#[test]
fn unknown_client_properties_are_named() {
    let mut options = KafkaOptions::new("127.0.0.1:1", "x");
    options.properties.insert("no.such.property".to_owned(), "x".to_owned());
    assert_refused(KafkaLog::open(options), &["no.such.property"]);
}

#[test]
fn a_log_without_brokers_is_unavailable() {
    let options = KafkaOptions { request_timeout: Duration::from_secs(1), ..KafkaOptions::new("127.0.0.1:1", "x") };
    assert!(matches!(KafkaLog::open(options), Err(LogError::Unavailable(_))));
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_topic_is_described_by_its_broker() {
    let broker = shared();
    let options = options(&broker.addresses);
    assert_refused(KafkaLog::open(options.clone()), &["does not exist"]);
    let log = KafkaLog::create(options.clone(), 1).unwrap();
    let created = TopicSettings::for_replicas(1);
    assert_eq!(log.settings().check_same("x.log", &created), Ok(()));
    assert_eq!(log.place(), format!("kafka://{}/{}.log", broker.addresses, options.name));
    // A second creation does not fail.
    assert!(KafkaLog::create(options.clone(), 1).is_ok());
    assert!(KafkaLog::open(options).is_ok());
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_topic_with_bad_settings_is_refused() {
    let broker = shared();
    for (partitions, settings, parts) in [
        (3, vec![], ["partitions", "3"]),
        (1, vec![], ["max.message.bytes", "16778240 or more"]),
        (1, vec![("cleanup.policy", "compact")], ["cleanup.policy", "compact"]),
        (1, vec![("max.message.bytes", "16778239")], ["max.message.bytes", "16778240 or more"]),
        (1, vec![("unclean.leader.election.enable", "true")], ["unclean.leader.election.enable", "true"]),
    ] {
        let options = options(&broker.addresses);
        create_topic(&options, partitions, &settings);
        assert_refused(KafkaLog::open(options.clone()), &parts);
        assert_refused(KafkaLog::create(options, 1), &["exists with"]);
    }
    let strict = KafkaOptions { in_sync_replicas_min: Some(2), ..options(&broker.addresses) };
    assert_refused(KafkaLog::create(strict, 1), &["min.insync.replicas 1", "2 or more"]);
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn reading_deleted_records_fails() {
    let broker = shared();
    let options = options(&broker.addresses);
    // Each batch has a segment of its own, and those before the newest are deleted at once.
    let settings = [("segment.bytes", "1048576"), ("retention.bytes", "1048576"), ("max.message.bytes", "16778240")];
    create_topic(&options, 1, &settings);
    let log = KafkaLog::open(options).unwrap();
    let mut writer = log.writer().unwrap();
    let mut last = 0;
    while log.range().unwrap().first.0 < 10 {
        append(&mut *writer, &vec![0; 400_000]);
        last += 1;
        read(&mut *log.reader(Sequence(last - 1)).unwrap(), 1);
    }
    let first = log.range().unwrap().first;
    // A reader that the deletion overtakes gets the same error as one that begins too late.
    let mut overtaken = KafkaReader::new(log.connection.clone(), Sequence(0)).unwrap();
    assert!(matches!(first_error(&mut overtaken), LogError::Deleted { wanted: Sequence(1), .. }));
    let Some(LogError::Deleted { wanted: Sequence(1), first: named }) = log.reader(Sequence(0)).err() else {
        panic!("record 1 is there");
    };
    assert!(named >= first);
    assert!(log.reader(Sequence(first.0 - 1)).is_ok());
}

/// Returns the first permanent error of a reader without further records. For a moment, the topic may be unavailable.
fn first_error(reader: &mut dyn LogReader) -> LogError {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        match reader.read(Duration::from_secs(1)) {
            Ok(records) => assert_eq!(records, []),
            Err(LogError::Unavailable(_)) => thread::park_timeout(Duration::from_millis(50)),
            Err(error) => return error,
        }
    }
    panic!("no error");
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_reader_beyond_the_end_fails_because_the_log_is_shorter() {
    let broker = shared();
    let log = KafkaLog::create(options(&broker.addresses), 1).unwrap();
    let mut reader = KafkaReader::new(log.connection, Sequence(5)).unwrap();
    assert_eq!(first_error(&mut reader), LogError::Shorter { wanted: Sequence(5), last: Sequence(0) });
}

#[test]
fn a_failed_delivery_is_reported_by_a_later_append_and_then_appends_continue() {
    let cluster = MockCluster::new(1).unwrap();
    for error in [RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, FATAL] {
        let log = on(&cluster);
        let mut writer = log.writer().unwrap();
        append(&mut *writer, b"one");
        read(&mut *log.reader(Sequence(0)).unwrap(), 1);
        cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
        append(&mut *writer, b"lost");
        let until = Instant::now() + Duration::from_secs(60);
        while let Ok(()) = writer.append(b"may be stored".to_vec()) {
            assert!(Instant::now() < until, "no append fails");
            thread::park_timeout(Duration::from_millis(10));
        }
        append(&mut *writer, b"two");
        let mut reader = log.reader(Sequence(1)).unwrap();
        loop {
            let bytes = read(&mut *reader, 1).pop().unwrap().bytes;
            assert_ne!(bytes, b"lost", "{error:?}");
            if bytes == b"two" {
                break;
            }
        }
    }
}

#[test]
fn a_writer_without_brokers_is_busy_at_its_limits() {
    for (bytes, records) in [(0, 100_000), (RECORD_BYTES_MAX, 4)] {
        let connection = Connection::new(options("127.0.0.1:1")).unwrap();
        let mut writer = KafkaWriter::new(connection.into()).unwrap();
        let accepted = (0..).find(|_| writer.append(vec![0; bytes]).is_err()).unwrap();
        assert_eq!(accepted, records);
        assert_eq!(writer.append(vec![0; bytes]), Err(LogError::Busy { records }));
    }
}

#[test]
fn records_are_in_flight_until_they_are_stored_or_have_failed() {
    let cluster = MockCluster::new(1).unwrap();
    let mut writer = KafkaWriter::new(on(&cluster).connection).unwrap();
    for fails in [false, true] {
        if fails {
            cluster.request_errors(
                RDKafkaApiKey::Produce,
                &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED],
            );
        }
        append(&mut writer, b"one");
        let until = Instant::now() + Duration::from_secs(60);
        while writer.under_way() > 0 {
            assert!(Instant::now() < until, "{} records are under way", writer.under_way());
            thread::park_timeout(Duration::from_millis(10));
        }
    }
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_recreated_topic_is_detected() {
    let broker = shared();
    // The new topic is shorter, as long, or longer than the records that were read.
    for records in [0, 3, 10] {
        let options = options(&broker.addresses);
        let log = KafkaLog::create(options.clone(), 1).unwrap();
        let mut reader = log.reader(Sequence(0)).unwrap();
        let mut writer = log.writer().unwrap();
        (1..=3).for_each(|n| append(&mut *writer, &numbered(n)));
        assert_eq!(read(&mut *reader, 3).len(), 3);
        drop(writer);
        delete_topic(&options);
        let again = loop {
            // The broker may still be deleting the old topic.
            match KafkaLog::create(options.clone(), 1) {
                Ok(log) => break log,
                Err(_) => thread::park_timeout(Duration::from_millis(50)),
            }
        };
        let mut writer = again.writer().unwrap();
        (1..=records).for_each(|n| append(&mut *writer, format!("another {n}").as_bytes()));
        read(&mut *again.reader(Sequence(0)).unwrap(), records);
        let noticed = first_error(&mut *reader);
        let expected = match records {
            0 => LogError::Shorter { wanted: Sequence(3), last: Sequence(0) },
            _ => LogError::Replaced { sequence: Sequence(3) },
        };
        assert_eq!(noticed, expected);
    }
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_reader_compares_its_last_record_after_a_long_silence() {
    let broker = shared();
    let log = KafkaLog::create(options(&broker.addresses), 1).unwrap();
    let mut writer = log.writer().unwrap();
    (1..=2).for_each(|n| append(&mut *writer, &numbered(n)));
    let mut reader = KafkaReader::new(log.connection.clone(), Sequence(0)).unwrap();
    assert_eq!(read(&mut reader, 2).len(), 2);
    reader.heard -= SILENCE_MAX;
    // The same record is not returned again.
    append(&mut *writer, &numbered(3));
    assert_eq!(read(&mut reader, 1)[0].bytes, numbered(3));
    reader.heard -= SILENCE_MAX;
    reader.seen = Some(Fingerprint { hash: 0, created_ms: None });
    assert_eq!(first_error(&mut reader), LogError::Replaced { sequence: Sequence(3) });
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn the_gap_after_a_transaction_of_another_producer_is_refused() {
    let broker = shared();
    let options = options(&broker.addresses);
    let log = KafkaLog::create(options.clone(), 1).unwrap();
    let mut config = Connection::new(options.clone()).unwrap().config();
    let other: BaseProducer = config.set("transactional.id", &options.name).create().unwrap();
    let patience = Duration::from_secs(30);
    other.init_transactions(patience).unwrap();
    other.begin_transaction().unwrap();
    let topic = format!("{}.log", options.name);
    other.send(BaseRecord::<(), [u8]>::to(&topic).payload(b"stranger")).unwrap();
    other.commit_transaction(patience).unwrap();
    let mut reader = log.reader(Sequence(0)).unwrap();
    assert_eq!(read(&mut *reader, 1).len(), 1);
    let mut writer = log.writer().unwrap();
    append(&mut *writer, b"ours");
    assert_refused(Err::<(), _>(first_error(&mut *reader)), &["record 3 after record 1"]);
}
