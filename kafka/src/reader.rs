//! Reads records with a consumer that assigns the partition to itself. After an error or a long silence, a new consumer reads the last
//! record again. If it differs, the topic was replaced by another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};
use xxhash_rust::xxh3::xxh3_64;

use crate::options::{Connection, refused, unavailable};
use crate::{PARTITION, requests};
use tidewire::storage::log::{LogError, LogRange, LogReader, LogRecord};
use tidewire::storage::sequence::Sequence;

/// Maximum number of records in one answer.
const RECORDS_PER_READ_MAX: usize = 1_024;

/// Maximum bytes of the records in one answer, except for its last record.
const BYTES_PER_READ_MAX: usize = 4 << 20;

/// Time without a record after which the reader checks that the topic is still the same. The Kafka client does not notice by itself that
/// a topic was deleted and created again: it waits for the old one.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Reads records from a place on.
pub(super) struct KafkaReader {
    connection: Arc<Connection>,
    /// None after an error, until the next read.
    consumer: Option<BaseConsumer<Quiet>>,
    /// The last record that was returned, or the sequence after which the reader began.
    last: Sequence,
    /// The fingerprint of the last record, if this reader has read it.
    pub(super) seen: Option<Fingerprint>,
    /// True if the consumer returns the last record first.
    reads_last_again: bool,
    /// The time when the last record, or the check that replaces it, was received.
    pub(super) heard: Instant,
}

/// Distinguishes a record from another one at the same offset.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) hash: u64,
    pub(super) created_ms: Option<i64>,
}

/// The kind of a received record.
enum Taken {
    /// The last record, read again.
    Again,
    /// The next record.
    Next(LogRecord),
}

/// Writes messages of the client to the log of the process.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        super::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka consumer error");
    }
}

impl ConsumerContext for Quiet {}

impl KafkaReader {
    pub(super) fn new(connection: Arc<Connection>, after: Sequence) -> Result<Self, LogError> {
        let heard = Instant::now();
        let mut reader = Self { connection, consumer: None, last: after, seen: None, reads_last_again: false, heard };
        reader.consumer = Some(reader.connect()?);
        Ok(reader)
    }

    /// Creates a consumer. It begins with the last record if its fingerprint is known, otherwise with the next record.
    fn connect(&mut self) -> Result<BaseConsumer<Quiet>, LogError> {
        let consumer: BaseConsumer<Quiet> =
            self.connection.reader_config().create_with_context(Quiet).map_err(|error| refused(&error))?;
        self.reads_last_again = self.seen.is_some();
        let from = if self.reads_last_again { self.last.0 - 1 } else { self.last.0 };
        let mut assignment = TopicPartitionList::new();
        let offset = Offset::Offset(i64::try_from(from).unwrap_or(i64::MAX));
        assignment
            .add_partition_offset(self.connection.topic(), PARTITION, offset)
            .and_then(|()| consumer.assign(&assignment))
            .map_err(|error| refused(&error))?;
        self.heard = Instant::now();
        Ok(consumer)
    }

    /// Returns the next record if it arrives in time.
    fn next(&mut self, until: Instant) -> Result<Option<LogRecord>, LogError> {
        loop {
            let consumer = match self.consumer.take() {
                Some(consumer) => consumer,
                None => self.connect()?,
            };
            let taken = match consumer.poll(until.saturating_duration_since(Instant::now())) {
                None => None,
                Some(Ok(message)) => Some(self.take(&message)?),
                Some(Err(error)) if is_of_place(&error) => return Err(self.misplaced(&error)),
                Some(Err(error)) => {
                    self.consumer = Some(consumer);
                    return Err(unavailable(&error));
                }
            };
            self.consumer = Some(consumer);
            match taken {
                None => return Ok(None),
                Some(Taken::Again) => {}
                Some(Taken::Next(record)) => return Ok(Some(record)),
            }
        }
    }

    /// Checks a received record.
    fn take(&mut self, message: &BorrowedMessage<'_>) -> Result<Taken, LogError> {
        let received = Sequence(u64::try_from(message.offset()).unwrap_or_default()).next();
        let bytes = message.payload().unwrap_or_default();
        let fingerprint = Some(Fingerprint { hash: xxh3_64(bytes), created_ms: message.timestamp().to_millis() });
        self.heard = Instant::now();
        if std::mem::take(&mut self.reads_last_again) {
            let is_same = received == self.last && fingerprint == self.seen;
            return if is_same { Ok(Taken::Again) } else { Err(LogError::Replaced { sequence: self.last }) };
        }
        if received != self.last.next() {
            let (topic, last) = (self.connection.topic(), self.last);
            let gap =
                format!("the topic {topic} has record {received} after record {last}: only Tidewire may write to it");
            return Err(LogError::Setup(gap));
        }
        (self.last, self.seen) = (received, fingerprint);
        Ok(Taken::Next(LogRecord { sequence: received, bytes: bytes.to_vec() }))
    }

    /// Determines why the brokers do not have the requested record.
    fn misplaced(&mut self, error: &KafkaError) -> LogError {
        let LogRange { first, last } = match requests::range(&self.connection) {
            Ok(range) => range,
            Err(error) => return error,
        };
        let wanted = self.last.next();
        if self.last > last {
            return LogError::Shorter { wanted: self.last, last };
        }
        if wanted < first {
            return LogError::Deleted { wanted, first };
        }
        if wanted == first {
            // The record to compare with was deleted, but nothing is missing after it.
            self.seen = None;
        }
        unavailable(error)
    }
}

/// Returns true if the error concerns the position of the reader, or the topic. The consumer would not recover from it.
fn is_of_place(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{AutoOffsetReset, LogTruncation, OffsetOutOfRange, UnknownTopic, UnknownTopicOrPartition};
    let KafkaError::MessageConsumption(code) = error else { return false };
    matches!(code, AutoOffsetReset | LogTruncation | OffsetOutOfRange | UnknownTopic | UnknownTopicOrPartition)
}

impl LogReader for KafkaReader {
    fn read(&mut self, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        if self.heard.elapsed() >= SILENCE_MAX {
            self.consumer = None;
        }
        let mut until = Instant::now() + wait;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < RECORDS_PER_READ_MAX && bytes < BYTES_PER_READ_MAX {
            match self.next(until) {
                Ok(None) => break,
                Ok(Some(record)) => {
                    bytes += record.bytes.len();
                    records.push(record);
                    // Records that have arrived already are returned with the first one.
                    until = Instant::now();
                }
                // The records before the error are returned. The next read returns the error if it persists.
                Err(_) if !records.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }
}
