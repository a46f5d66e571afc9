//! Appends records with an idempotent producer. A failed producer is replaced.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, PurgeConfig, ThreadedProducer};

use crate::storage::log::kafka::PARTITION;
use crate::storage::log::kafka::options::{Connection, refused};
use crate::storage::log::{LogError, LogWriter, RECORD_BYTES_MAX};

/// Appends records. To drop it takes up to 600 ms if records are under way.
pub(super) struct KafkaWriter {
    connection: Arc<Connection>,
    current: Current,
}

/// A producer, and the first failure of it.
struct Current {
    producer: ThreadedProducer<Deliveries>,
    failure: Arc<OnceLock<String>>,
}

/// Receives the outcome of each record.
struct Deliveries {
    failure: Arc<OnceLock<String>>,
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        super::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "the writer of the log");
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            // Only the first failure counts: the others follow from it.
            let _ = self.failure.set(error.to_string());
        }
    }
}

impl Current {
    fn new(connection: &Connection) -> Result<Self, LogError> {
        let failure = Arc::new(OnceLock::new());
        let context = Deliveries { failure: failure.clone() };
        let producer = connection.writer_config().create_with_context(context).map_err(|error| refused(&error))?;
        Ok(Self { producer, failure })
    }
}

impl KafkaWriter {
    pub(super) fn new(connection: Arc<Connection>) -> Result<Self, LogError> {
        let current = Current::new(&connection)?;
        Ok(Self { connection, current })
    }

    /// Makes a new producer, and returns the error for an append that the old one cannot do.
    fn replace(&mut self, reason: String) -> LogError {
        tracing::warn!(reason, log = self.connection.place(), "a new writer of the log replaces one that failed");
        match Current::new(&self.connection) {
            Ok(new) => {
                let old = std::mem::replace(&mut self.current, new);
                old.end();
                LogError::Unavailable(reason)
            }
            Err(error) => error,
        }
    }
}

impl Current {
    /// Drops the records that were not sent. The rest of the end may wait for a broker, so it has a thread.
    fn end(self) {
        self.producer.purge(PurgeConfig::default().queue().inflight());
        thread::spawn(move || drop(self.producer));
    }
}

impl LogWriter for KafkaWriter {
    fn append(&mut self, record: Vec<u8>) -> Result<(), LogError> {
        let too_large = LogError::TooLarge { bytes: record.len(), limit: RECORD_BYTES_MAX };
        if record.len() > RECORD_BYTES_MAX {
            return Err(too_large);
        }
        if let Some(reason) = self.current.failure.get() {
            return Err(self.replace(reason.clone()));
        }
        let topic = self.connection.topic();
        let message = BaseRecord::<(), [u8]>::to(topic).partition(PARTITION).payload(&record);
        match self.current.producer.send(message) {
            Ok(()) => Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                let records = usize::try_from(self.current.producer.in_flight_count()).unwrap_or_default();
                Err(LogError::Busy { records })
            }
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge), _)) => Err(too_large),
            Err((error, _)) => Err(self.replace(error.to_string())),
        }
    }

    fn flush(&mut self, at_most: Duration) {
        if let Err(error) = self.current.producer.flush(at_most) {
            tracing::warn!(%error, log = self.connection.place(), "the last records may not be stored");
        }
    }
}
