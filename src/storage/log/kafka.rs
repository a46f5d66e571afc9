//! A log in Apache Kafka: one topic with one partition, `NAME.log`. A record's sequence is its offset and one.
//!
//! Responsible for:
//! - connecting ([`KafkaOptions`]), creating the topic, and refusing a topic whose settings would lose records (`topic`);
//! - appending (`writer`), reading (`reader`) and the range of records.
//!
//! Not responsible for:
//! - consumer groups, and who may append: a reader assigns the partition to itself.

mod fault_tests;
mod options;
mod reader;
mod requests;
pub(super) mod tests;
mod topic;
mod writer;

pub use options::KafkaOptions;
pub use topic::TopicSettings;

use std::sync::Arc;

use rdkafka::config::RDKafkaLogLevel;

use crate::storage::journal::Sequence;
use crate::storage::log::kafka::options::Connection;
use crate::storage::log::kafka::reader::KafkaReader;
use crate::storage::log::kafka::writer::KafkaWriter;
use crate::storage::log::{LogError, LogRange, LogReader, LogWriter, SharedLog};

/// The only partition of the topic.
const PARTITION: i32 = 0;

/// Writes a message of the Kafka client to the log of the process. A lost connection is an error to the client, and reported by the caller.
fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    if matches!(level, RDKafkaLogLevel::Debug | RDKafkaLogLevel::Info | RDKafkaLogLevel::Notice) {
        tracing::trace!(facility, message, "Kafka client");
    } else {
        tracing::debug!(facility, message, "Kafka client");
    }
}

/// A log in Kafka.
pub struct KafkaLog {
    connection: Arc<Connection>,
    settings: TopicSettings,
}

impl KafkaLog {
    /// Opens the log `NAME.log`, whose settings it checks.
    ///
    /// # Errors
    /// Fails if the brokers cannot be reached, or the topic is missing or would lose records.
    pub fn open(options: KafkaOptions) -> Result<Self, LogError> {
        let connection = Connection::new(options)?;
        let settings = requests::describe(&connection)?;
        settings.check(connection.topic(), connection.options().in_sync_replicas_min)?;
        if let Some(retention) = settings.retention() {
            tracing::warn!(
                log = connection.place(),
                retention,
                "the topic deletes old records: a node needs a snapshot that is newer"
            );
        }
        Ok(Self { connection: Arc::new(connection), settings })
    }

    /// Creates the topic of a new log with `replicas` copies, and opens it. Does nothing if it exists with the same settings.
    ///
    /// # Errors
    /// Fails if the topic exists with other settings, or cannot be created.
    pub fn create(options: KafkaOptions, replicas: u16) -> Result<Self, LogError> {
        let connection = Connection::new(options)?;
        requests::create(&connection, &TopicSettings::for_replicas(replicas))?;
        Self::open(connection.into_options())
    }

    /// Returns the settings of the topic, as they were when the log was opened.
    #[must_use]
    pub fn settings(&self) -> &TopicSettings {
        &self.settings
    }
}

impl SharedLog for KafkaLog {
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
        Ok(Box::new(KafkaWriter::new(self.connection.clone(), self.settings.record_bytes_max())?))
    }

    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        let LogRange { first, last } = self.range()?;
        if after > last {
            return Err(LogError::Shorter { wanted: after, last });
        }
        if after.next() < first {
            return Err(LogError::Deleted { wanted: after.next(), first });
        }
        Ok(Box::new(KafkaReader::new(self.connection.clone(), after)?))
    }

    fn range(&self) -> Result<LogRange, LogError> {
        requests::range(&self.connection)
    }

    fn place(&self) -> String {
        self.connection.place()
    }
}
