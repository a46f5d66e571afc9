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
use rdkafka::{Offset, TopicPartitionList};

use crate::PARTITION;
use crate::options::{Connection, refused, unavailable};
use crate::reported::Reported;
use crate::topic::TopicSettings;
use tidewire::storage::log::{LogError, LogRange};
use tidewire::storage::sequence::Sequence;

/// Pause between two checks for a new topic, which not all brokers know at once.
const POLL: Duration = Duration::from_millis(20);

/// Maximum number of brokers that are asked for the settings of the topic.
const DESCRIBE_ATTEMPTS_MAX: u32 = 3;

/// Maximum number of messages of a client that are read after a failed request.
const REPORTS_MAX: usize = 64;

/// Returns the range of records that the brokers have. Waits while another broker takes over the leadership of the partition.
pub(super) fn range(connection: &Connection) -> Result<LogRange, LogError> {
    let client: BaseConsumer = connection.config().create().map_err(|error| refused(&error))?;
    let until = Instant::now() + connection.options().request_timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match client.fetch_watermarks(connection.topic(), PARTITION, left) {
            Ok((low, high)) => return Ok(LogRange { first: Sequence(low as u64).next(), last: Sequence(high as u64) }),
            Err(error) if leader_changes(&error) && Instant::now() < until => thread::park_timeout(POLL),
            Err(error) => return Err(unavailable(&error)),
        }
    }
}

/// Returns true if the error ends once the partition has a leader that knows the committed records.
fn leader_changes(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{
        FencedLeaderEpoch, LeaderNotAvailable, NotLeaderForPartition, OffsetNotAvailable, UnknownLeaderEpoch,
    };
    let codes = [FencedLeaderEpoch, LeaderNotAvailable, NotLeaderForPartition, OffsetNotAvailable, UnknownLeaderEpoch];
    error.rdkafka_error_code().is_some_and(|code| codes.contains(&code))
}

/// Deletes the records before `first`.
pub(super) fn delete_before(connection: &Connection, first: Sequence) -> Result<(), LogError> {
    let admin: AdminClient<DefaultClientContext> = connection.config().create().map_err(|error| refused(&error))?;
    let offset = Offset::Offset(i64::try_from(first.0.saturating_sub(1)).unwrap_or(i64::MAX));
    let mut records = TopicPartitionList::new();
    records.add_partition_offset(connection.topic(), PARTITION, offset).map_err(|error| refused(&error))?;
    let deleted = wait_for(admin.delete_records(&records, &admin_options(connection)));
    let deleted = deleted.map_err(|error| unavailable(&error))?;
    let partitions = deleted.elements();
    partitions.iter().try_for_each(|partition| partition.error()).map_err(|error| unavailable(&error))
}

/// Returns the settings of the topic.
pub(super) fn describe(connection: &Connection) -> Result<TopicSettings, LogError> {
    let (partitions, replicas) = copies(connection)?;
    let topic = [ResourceSpecifier::Topic(connection.topic())];
    // The brokers are reachable, but the asked one may hang. So each attempt has a new client, which asks another broker.
    let mut attempts = 0;
    let described = loop {
        let admin: AdminClient<DefaultClientContext> = connection.config().create().map_err(|error| refused(&error))?;
        attempts += 1;
        match wait_for(admin.describe_configs(&topic, &admin_options(connection))) {
            Err(_) if attempts < DESCRIBE_ATTEMPTS_MAX => {}
            described => break described.map_err(|error| unavailable(&error))?,
        }
    };
    let described = described.into_iter().next();
    let described = described
        .ok_or_else(|| LogError::Unavailable("the brokers did not describe the topic".to_owned()))?
        .map_err(|code| LogError::Unavailable(code.to_string()))?;
    let named = described.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?)));
    Ok(TopicSettings { partitions, replicas, named: named.collect() })
}

/// Creates the topic. If it exists, compares its settings.
pub(super) fn create(connection: &Connection, wanted: &TopicSettings) -> Result<(), LogError> {
    // Done first, because an admin client does not report why it cannot reach the brokers.
    topic(connection)?;
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
    match topic(connection)? {
        Some((partitions, replicas)) if partitions > 0 => Ok((partitions, replicas)),
        _ => Err(LogError::Setup(format!("the topic {} does not exist", connection.topic()))),
    }
}

/// Asks the brokers for the numbers of partitions and replicas. Fails with the cause, if they cannot be reached.
fn topic(connection: &Connection) -> Result<Option<(usize, usize)>, LogError> {
    let reported = Reported::default();
    let client: BaseConsumer<Reported> =
        connection.config().create_with_context(reported.clone()).map_err(|error| refused(&error))?;
    let timeout = connection.options().request_timeout;
    let metadata = client.fetch_metadata(Some(connection.topic()), timeout).map_err(|error| {
        // The client delivers its log messages when it is polled.
        for _ in 0..REPORTS_MAX {
            drop(client.poll(Duration::ZERO));
        }
        reported.unavailable(&error)
    })?;
    let partitions = metadata.topics().first().map(|topic| topic.partitions());
    Ok(partitions.map(|partitions| (partitions.len(), partitions.first().map_or(0, |first| first.replicas().len()))))
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

/// Blocks this thread until a thread of the Kafka client delivers the answer.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_a_leader_election_are_retried() {
        use RDKafkaErrorCode as Code;
        for (code, is_waited_for) in [
            (Code::OffsetNotAvailable, true),
            (Code::LeaderNotAvailable, true),
            (Code::NotLeaderForPartition, true),
            (Code::AllBrokersDown, false),
            (Code::UnknownTopicOrPartition, false),
            (Code::TopicAuthorizationFailed, false),
        ] {
            assert_eq!(leader_changes(&KafkaError::MetadataFetch(code)), is_waited_for, "{code:?}");
        }
    }
}
