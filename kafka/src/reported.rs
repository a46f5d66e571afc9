//! What the Kafka client reports about its connections, so that a request without an answer can say why.

use std::sync::Arc;

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

use tidewire::storage::log::LogError;

/// The last error that a client has logged. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Reported(Arc<Mutex<Option<String>>>);

impl Reported {
    /// Creates the error of a request that has failed. The request only knows that its time is up, and the log of the client that a
    /// certificate is not trusted, for example.
    pub(super) fn unavailable(&self, error: &KafkaError) -> LogError {
        LogError::Unavailable(match &*self.0.lock() {
            Some(reported) => format!("{error}; the Kafka client reported: {reported}"),
            None => error.to_string(),
        })
    }
}

impl ClientContext for Reported {
    fn log(&self, level: RDKafkaLogLevel, _: &str, message: &str) {
        use RDKafkaLogLevel::{Alert, Critical, Emerg, Error};
        if matches!(level, Emerg | Alert | Critical | Error) {
            // It begins with the name of the client's thread.
            let message = message
                .strip_prefix("[thrd:")
                .and_then(|rest| rest.split_once("]: "))
                .map_or(message, |(_, text)| text);
            *self.0.lock() = Some(message.to_owned());
        }
    }
}

impl ConsumerContext for Reported {}
