//! Errors that the Kafka client logs about its connections, so that a request without an answer can report the cause.

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
    /// Creates the error of a failed request. The request itself only reports a timeout. The client's log has the cause, such as an
    /// untrusted certificate.
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
            // The message begins with the name of the client's thread.
            let message = message
                .strip_prefix("[thrd:")
                .and_then(|rest| rest.split_once("]: "))
                .map_or(message, |(_, text)| text);
            *self.0.lock() = Some(message.to_owned());
        }
    }
}

impl ConsumerContext for Reported {}
