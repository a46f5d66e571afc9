//! The connection options, and the settings of the Kafka client that Tidewire depends on.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use crate::topic::OVERHEAD_BYTES;
use tidewire::storage::log::{LogError, RECORD_BYTES_MAX};

/// Maximum bytes of records that a writer holds until they are stored.
const BYTES_UNDER_WAY_MAX: usize = 64 << 20;

/// Maximum number of records that a writer holds until they are stored.
const RECORDS_UNDER_WAY_MAX: usize = 100_000;

/// Maximum bytes of records that a reader fetches ahead of its caller. One fetch may exceed it.
const BYTES_AHEAD_MAX: usize = 16 << 20;

/// Maximum time between two attempts to connect to a broker.
const RECONNECT_BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The options of a log in Kafka. They are not `Debug`, since the properties may contain passwords.
#[derive(Clone)]
pub struct KafkaOptions {
    /// Addresses of some brokers, `HOST:PORT`, separated by commas. The client discovers the other brokers through them.
    pub brokers: String,
    /// The name of the cluster. Its log is the topic `NAME.log`.
    pub name: String,
    /// Further properties of librdkafka, for TLS and SASL (feature `cluster-tls`). Empty by default. Properties that Tidewire depends on
    /// are rejected.
    pub properties: BTreeMap<String, String>,
    /// Maximum time for an answer of a broker. Default: 5 s.
    pub request_timeout: Duration,
    /// Maximum time from an append until the record is stored. Default: 10 s.
    pub delivery_timeout: Duration,
    /// Minimum of `min.insync.replicas` of the topic. Default: 2 if the topic has three replicas or more, else 1.
    pub in_sync_replicas_min: Option<u16>,
}

impl KafkaOptions {
    /// Options with defaults for all but the brokers and the name.
    #[must_use]
    pub fn new(brokers: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            name: name.into(),
            properties: BTreeMap::new(),
            request_timeout: Duration::from_secs(5),
            delivery_timeout: Duration::from_secs(10),
            in_sync_replicas_min: None,
        }
    }
}

/// The checked options of a connection.
pub(super) struct Connection {
    options: KafkaOptions,
    topic: String,
}

impl Connection {
    pub(super) fn new(options: KafkaOptions) -> Result<Self, LogError> {
        let topic = format!("{}.log", options.name);
        let connection = Self { topic, options };
        let fixed = [connection.writing(), connection.reading()];
        for name in connection.options.properties.keys() {
            if fixed.iter().any(|config| config.contains_key(name.as_str())) {
                return Err(LogError::Setup(format!("the property {name} of the Kafka client is set by Tidewire")));
            }
        }
        Ok(connection)
    }

    pub(super) fn options(&self) -> &KafkaOptions {
        &self.options
    }

    pub(super) fn into_options(self) -> KafkaOptions {
        self.options
    }

    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    pub(super) fn place(&self) -> String {
        format!("kafka://{}/{}", self.options.brokers, self.topic)
    }

    /// Returns the properties of a client that only sends requests.
    pub(super) fn config(&self) -> ClientConfig {
        self.with_properties(self.common())
    }

    /// Returns the properties of a writer's client.
    pub(super) fn writer_config(&self) -> ClientConfig {
        self.with_properties(self.writing())
    }

    /// Returns the properties of a reader's client.
    pub(super) fn reader_config(&self) -> ClientConfig {
        self.with_properties(self.reading())
    }

    fn with_properties(&self, fixed: BTreeMap<&'static str, String>) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.options.properties {
            config.set(name, value);
        }
        for (name, value) in fixed {
            config.set(name, value);
        }
        config
    }

    fn common(&self) -> BTreeMap<&'static str, String> {
        let request_timeout = millis(self.options.request_timeout);
        BTreeMap::from([
            ("bootstrap.servers", self.options.brokers.clone()),
            // A broker that does not answer must not hold records until the delivery timeout, since another broker could store them.
            ("socket.timeout.ms", request_timeout.clone()),
            ("socket.connection.setup.timeout.ms", request_timeout),
            ("socket.nagle.disable", "true".to_owned()),
            ("reconnect.backoff.max.ms", millis(RECONNECT_BACKOFF_MAX)),
        ])
    }

    fn writing(&self) -> BTreeMap<&'static str, String> {
        let mut config = self.common();
        config.extend([
            ("acks", "all".to_owned()),
            ("enable.idempotence", "true".to_owned()),
            ("linger.ms", "0".to_owned()),
            ("message.timeout.ms", millis(self.options.delivery_timeout)),
            ("request.timeout.ms", millis(self.options.request_timeout)),
            ("message.max.bytes", (RECORD_BYTES_MAX + OVERHEAD_BYTES).to_string()),
            ("queue.buffering.max.messages", RECORDS_UNDER_WAY_MAX.to_string()),
            ("queue.buffering.max.kbytes", (BYTES_UNDER_WAY_MAX >> 10).to_string()),
        ]);
        config
    }

    fn reading(&self) -> BTreeMap<&'static str, String> {
        let mut config = self.common();
        config.extend([
            // The client assigns no partition without a group. It never joins this one.
            ("group.id", self.topic.clone()),
            ("enable.auto.commit", "false".to_owned()),
            ("enable.auto.offset.store", "false".to_owned()),
            ("auto.offset.reset", "error".to_owned()),
            ("allow.auto.create.topics", "false".to_owned()),
            // The default, one second, delays the records after a full queue.
            ("fetch.queue.backoff.ms", "5".to_owned()),
            ("queued.max.messages.kbytes", (BYTES_AHEAD_MAX >> 10).to_string()),
        ]);
        config
    }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// The error for a request that failed.
pub(super) fn unavailable(error: &KafkaError) -> LogError {
    LogError::Unavailable(error.to_string())
}

/// The error for a client that could not be created because of its properties.
pub(super) fn refused(error: &KafkaError) -> LogError {
    LogError::Setup(format!("cannot create the Kafka client: {error}"))
}
