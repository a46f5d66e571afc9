//! Appends records with an idempotent producer. A failed producer is replaced.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, PurgeConfig, ThreadedProducer};

use crate::PARTITION;
use crate::options::{Connection, refused};
use tidewire::storage::log::{LogError, LogWriter, RECORD_BYTES_MAX};

/// Appends records. Dropping it takes up to 600 ms if records are in flight.
pub(super) struct KafkaWriter {
    connection: Arc<Connection>,
    producer: ThreadedProducer<Deliveries>,
}

/// The outcomes of a producer's records.
#[derive(Default)]
struct Deliveries {
    /// The first failure.
    failure: OnceLock<String>,
    /// Records that were sent and have no outcome yet. The client's own count also includes errors that were not polled yet.
    under_way: AtomicUsize,
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        super::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka producer error");
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        if let Err((error, _)) = result {
            // Only the first failure counts: the others follow from it.
            let _ = self.failure.set(error.to_string());
        }
    }
}

fn producer(connection: &Connection) -> Result<ThreadedProducer<Deliveries>, LogError> {
    connection.writer_config().create_with_context(Deliveries::default()).map_err(|error| refused(&error))
}

impl KafkaWriter {
    pub(super) fn new(connection: Arc<Connection>) -> Result<Self, LogError> {
        let producer = producer(&connection)?;
        Ok(Self { connection, producer })
    }

    /// Creates a new producer, and returns the error for the append that failed on the old one.
    fn replace(&mut self, reason: String) -> LogError {
        tracing::warn!(reason, log = self.connection.place(), "the Kafka producer failed; replacing it");
        match producer(&self.connection) {
            Ok(new) => {
                end(std::mem::replace(&mut self.producer, new));
                LogError::Unavailable(reason)
            }
            Err(error) => error,
        }
    }

    /// Returns the number of records that wait to be stored.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.producer.context().under_way.load(Ordering::Relaxed)
    }
}

/// Drops the records that were not sent. The rest of the shutdown may wait for a broker, so it runs in a thread.
fn end(producer: ThreadedProducer<Deliveries>) {
    producer.purge(PurgeConfig::default().queue().inflight());
    thread::spawn(move || drop(producer));
}

impl LogWriter for KafkaWriter {
    fn append(&mut self, record: Vec<u8>) -> Result<(), LogError> {
        let too_large = LogError::TooLarge { bytes: record.len(), limit: RECORD_BYTES_MAX };
        if record.len() > RECORD_BYTES_MAX {
            return Err(too_large);
        }
        if let Some(reason) = self.producer.context().failure.get().cloned() {
            return Err(self.replace(reason));
        }
        let topic = self.connection.topic();
        let message = BaseRecord::<(), [u8]>::to(topic).partition(PARTITION).payload(&record);
        let under_way = &self.producer.context().under_way;
        // Counted before the record is sent, since its outcome may arrive at once.
        let records = under_way.fetch_add(1, Ordering::Relaxed);
        let Err((error, _)) = self.producer.send(message) else { return Ok(()) };
        under_way.fetch_sub(1, Ordering::Relaxed);
        match error {
            KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) => Err(LogError::Busy { records }),
            KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge) => Err(too_large),
            error => Err(self.replace(error.to_string())),
        }
    }

    fn flush(&mut self, at_most: Duration) {
        if let Err(error) = self.producer.flush(at_most) {
            tracing::warn!(%error, log = self.connection.place(), "flush failed; the last records may not be stored");
        }
    }
}
