//! Requests to the brokers that wait for an answer: creating and describing the topic, and the range of its records.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::storage::journal::Sequence;
use crate::storage::log::kafka::PARTITION;
use crate::storage::log::kafka::options::{Connection, refused, unavailable};
use crate::storage::log::kafka::topic::TopicSettings;
use crate::storage::log::{LogError, LogRange};

/// Time between two looks for a new topic, which not all brokers know at once.
const POLL: Duration = Duration::from_millis(20);

/// Returns the range of records that the brokers have.
pub(super) fn range(connection: &Connection) -> Result<LogRange, LogError> {
    let client: BaseConsumer = connection.config().create().map_err(|error| refused(&error))?;
    let timeout = connection.options().request_timeout;
    let (low, high) =
        client.fetch_watermarks(connection.topic(), PARTITION, timeout).map_err(|error| unavailable(&error))?;
    Ok(LogRange { first: Sequence(low as u64).next(), last: Sequence(high as u64) })
}

/// Returns the settings of the topic.
pub(super) fn describe(connection: &Connection) -> Result<TopicSettings, LogError> {
    let (partitions, replicas) = copies(connection)?;
    let admin: AdminClient<DefaultClientContext> = connection.config().create().map_err(|error| refused(&error))?;
    let topic = [ResourceSpecifier::Topic(connection.topic())];
    let described =
        wait_for(admin.describe_configs(&topic, &admin_options(connection))).map_err(|error| unavailable(&error))?;
    let described = described.into_iter().next();
    let described = described
        .ok_or_else(|| LogError::Unavailable("the brokers described no topic".to_owned()))?
        .map_err(|code| LogError::Unavailable(code.to_string()))?;
    let named = described.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?)));
    Ok(TopicSettings { partitions, replicas, named: named.collect() })
}

/// Creates the topic. If it exists, compares its settings.
pub(super) fn create(connection: &Connection, wanted: &TopicSettings) -> Result<(), LogError> {
    let admin: AdminClient<DefaultClientContext> = connection.config().create().map_err(|error| refused(&error))?;
    let replication = TopicReplication::Fixed(i32::try_from(wanted.replicas).unwrap_or(i32::MAX));
    let mut topic = NewTopic::new(connection.topic(), 1, replication);
    for (name, value) in &wanted.named {
        topic = topic.set(name, value);
    }
    let created =
        wait_for(admin.create_topics([&topic], &admin_options(connection))).map_err(|error| unavailable(&error))?;
    match created.into_iter().next() {
        Some(Ok(_)) => await_topic(connection),
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {
            describe(connection)?.check_same(connection.topic(), wanted)
        }
        Some(Err((_, code))) => {
            Err(LogError::Setup(format!("the topic {} cannot be created: {code}", connection.topic())))
        }
        None => Err(LogError::Unavailable("the brokers did not answer the creation of the topic".to_owned())),
    }
}

/// Returns the numbers of partitions and replicas.
fn copies(connection: &Connection) -> Result<(usize, usize), LogError> {
    let client: BaseConsumer = connection.config().create().map_err(|error| refused(&error))?;
    let timeout = connection.options().request_timeout;
    let metadata = client.fetch_metadata(Some(connection.topic()), timeout).map_err(|error| unavailable(&error))?;
    let partitions = metadata.topics().first().map_or(&[][..], |topic| topic.partitions());
    match partitions {
        [] => Err(LogError::Setup(format!("the topic {} does not exist", connection.topic()))),
        [first, ..] => Ok((partitions.len(), first.replicas().len())),
    }
}

fn await_topic(connection: &Connection) -> Result<(), LogError> {
    let until = Instant::now() + connection.options().request_timeout;
    loop {
        match range(connection) {
            Err(error) if Instant::now() >= until => return Err(error),
            Err(_) => thread::park_timeout(POLL),
            Ok(_) => return Ok(()),
        }
    }
}

fn admin_options(connection: &Connection) -> AdminOptions {
    let timeout = Some(connection.options().request_timeout);
    AdminOptions::new().request_timeout(timeout).operation_timeout(timeout)
}

/// Waits on this thread for an answer, which a thread of the Kafka client brings.
pub(super) fn wait_for<T>(future: impl Future<Output = Result<T, KafkaError>>) -> Result<T, KafkaError> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}
