//! A log in Apache Kafka: one topic with one partition, `NAME.log`. A record's sequence is its offset plus one.
//!
//! Responsible for:
//! - connecting ([`KafkaOptions`]), creating the topic, and refusing a topic whose settings would lose records (`topic`);
//! - appending (`writer`), reading (`reader`) and the range of records.

mod fault_tests;
mod options;
mod reader;
mod reported;
mod requests;
mod tests;
mod topic;
mod writer;

pub use options::KafkaOptions;
pub use topic::TopicSettings;

use std::sync::Arc;

use rdkafka::config::RDKafkaLogLevel;

use crate::options::Connection;
use crate::reader::KafkaReader;
use crate::writer::KafkaWriter;
use tidewire::storage::log::{LogError, LogRange, LogReader, LogWriter, ReadLog, SharedLog};
use tidewire::storage::sequence::Sequence;

/// The only partition of the topic.
const PARTITION: i32 = 0;

/// Writes a message of the Kafka client to the log of the process. The client logs a lost connection as an error, but the caller reports
/// it already.
fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    if matches!(level, RDKafkaLogLevel::Debug | RDKafkaLogLevel::Info | RDKafkaLogLevel::Notice) {
        tracing::trace!(facility, message, "Kafka client");
    } else {
        tracing::debug!(facility, message, "Kafka client");
    }
}

/// A log in Kafka. Clones share its connection.
#[derive(Clone)]
pub struct KafkaLog {
    connection: Arc<Connection>,
    settings: TopicSettings,
}

impl KafkaLog {
    /// Opens the log `NAME.log`, and checks its settings. Accepts a topic that deletes old records, although a node without a snapshot
    /// cannot follow it ([`TopicSettings::retention`]).
    ///
    /// # Errors
    /// Fails if the brokers cannot be reached, or the topic is missing or would lose records.
    pub fn open(options: KafkaOptions) -> Result<Self, LogError> {
        let connection = Connection::new(options)?;
        let settings = requests::describe(&connection)?;
        settings.check(connection.topic(), connection.options().in_sync_replicas_min)?;
        Ok(Self { connection: Arc::new(connection), settings })
    }

    /// Creates the topic of a new log with `replicas` copies and unlimited retention, and opens it. If the topic exists with the same
    /// settings, only opens it.
    ///
    /// # Errors
    /// Fails if the topic exists with other settings, or cannot be created.
    pub fn create(options: KafkaOptions, replicas: u16) -> Result<Self, LogError> {
        Self::create_with(options, &TopicSettings::for_replicas(replicas))
    }

    /// As [`KafkaLog::create`], with these settings.
    ///
    /// # Errors
    /// Fails for the same reasons as [`KafkaLog::create`].
    pub fn create_with(options: KafkaOptions, settings: &TopicSettings) -> Result<Self, LogError> {
        let connection = Connection::new(options)?;
        requests::create(&connection, settings)?;
        Self::open(connection.into_options())
    }

    /// Deletes all records before `first`. No node may still need them.
    ///
    /// # Errors
    /// Fails if the brokers do not delete them.
    pub fn delete_before(&self, first: Sequence) -> Result<(), LogError> {
        requests::delete_before(&self.connection, first)
    }

    /// Returns the settings of the topic, as they were when the log was opened.
    #[must_use]
    pub fn settings(&self) -> &TopicSettings {
        &self.settings
    }
}

impl SharedLog for KafkaLog {
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
        Ok(Box::new(KafkaWriter::new(self.connection.clone())?))
    }

    fn to_read(&self) -> Arc<dyn ReadLog> {
        Arc::new(self.clone())
    }
}

impl ReadLog for KafkaLog {
    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        self.range()?.check_after(after)?;
        Ok(Box::new(KafkaReader::new(self.connection.clone(), after)?))
    }

    fn range(&self) -> Result<LogRange, LogError> {
        requests::range(&self.connection)
    }

    fn place(&self) -> String {
        self.connection.place()
    }
}
