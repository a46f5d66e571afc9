//! The settings of the topic: those of a new topic, and the check for settings that would lose records.

use std::collections::BTreeMap;
use std::time::Duration;

use tidewire::storage::log::{LogError, RECORD_BYTES_MAX};

/// Bytes that Kafka adds to a record, with a margin: the headers of a batch (61 bytes) and of a record (at most some 40).
pub(super) const OVERHEAD_BYTES: usize = 1_024;

/// Minimum `max.message.bytes` of a topic: the largest event must fit, or its caller would retry forever.
const MESSAGE_BYTES_MIN: usize = RECORD_BYTES_MAX + OVERHEAD_BYTES;

/// With this number of replicas, two should store a record before it is acknowledged. Then one may fail without stopping the log.
const REPLICAS_THAT_MAY_FAIL: usize = 3;

/// The settings of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicSettings {
    /// The number of partitions.
    pub partitions: usize,
    /// The number of replicas of the first partition.
    pub replicas: usize,
    /// The named settings of the topic, as Kafka spells them.
    pub named: BTreeMap<String, String>,
}

impl TopicSettings {
    /// Returns the settings of a new topic: records are never deleted, and survive the loss of a broker if there are three brokers.
    #[must_use]
    pub fn for_replicas(replicas: u16) -> Self {
        let replicas = usize::from(replicas);
        let named = [
            ("cleanup.policy", "delete".to_owned()),
            ("retention.ms", "-1".to_owned()),
            ("retention.bytes", "-1".to_owned()),
            ("min.insync.replicas", in_sync_min(replicas).to_string()),
            ("unclean.leader.election.enable", "false".to_owned()),
            ("max.message.bytes", MESSAGE_BYTES_MIN.to_string()),
        ];
        Self { partitions: 1, replicas, named: named.map(|(name, value)| (name.to_owned(), value)).into() }
    }

    /// Returns the same settings, with records that are deleted after this time.
    #[must_use]
    pub fn with_retention(mut self, kept: Duration) -> Self {
        self.named.insert("retention.ms".to_owned(), kept.as_millis().to_string());
        self
    }

    /// Refuses settings that would lose records or their order. `in_sync_min` replaces the usual minimum of `min.insync.replicas`.
    pub(super) fn check(&self, topic: &str, in_sync_min_set: Option<u16>) -> Result<(), LogError> {
        let wrong = |setting: &str, value: &dyn std::fmt::Display, needed: &str| {
            Err(LogError::Setup(format!("the topic {topic} has {setting} {value}, and needs {needed}")))
        };
        if self.partitions != 1 {
            return wrong("partitions", &self.partitions, "1: several partitions have no common order");
        }
        let policy = self.text("cleanup.policy");
        if policy != "delete" {
            return wrong("cleanup.policy", &policy, "delete: compaction removes records from the middle");
        }
        if self.text("unclean.leader.election.enable") != "false" {
            let value = self.text("unclean.leader.election.enable");
            return wrong(
                "unclean.leader.election.enable",
                &value,
                "false: a broker that lags would lose acknowledged records",
            );
        }
        let needed = in_sync_min_set.map_or_else(|| in_sync_min(self.replicas), usize::from);
        if self.number("min.insync.replicas").is_none_or(|value| value < needed) {
            return wrong("min.insync.replicas", &self.text("min.insync.replicas"), &format!("{needed} or more"));
        }
        if self.number("max.message.bytes").is_none_or(|value| value < MESSAGE_BYTES_MIN) {
            return wrong(
                "max.message.bytes",
                &self.text("max.message.bytes"),
                &format!("{MESSAGE_BYTES_MIN} or more"),
            );
        }
        Ok(())
    }

    /// Refuses an existing topic that does not have the settings that a new one would get.
    pub(super) fn check_same(&self, topic: &str, wanted: &Self) -> Result<(), LogError> {
        let counts = [("partitions", self.partitions, wanted.partitions), ("replicas", self.replicas, wanted.replicas)];
        let counts = counts.map(|(name, is, wanted)| (name, is.to_string(), wanted.to_string()));
        let named = wanted.named.iter().map(|(name, wanted)| (name.as_str(), self.text(name), wanted.clone()));
        for (name, is, wanted) in counts.into_iter().chain(named) {
            if is != wanted {
                return Err(LogError::Setup(format!("the topic {topic} exists with {name} {is}, not {wanted}")));
            }
        }
        Ok(())
    }

    /// Returns the retention if records are deleted by age or size, for a message.
    #[must_use]
    pub fn retention(&self) -> Option<String> {
        let limited = ["retention.ms", "retention.bytes"].map(|name| (name, self.text(name)));
        let limited: Vec<_> = limited.iter().filter(|(_, value)| value != "-1").collect();
        let texts: Vec<_> = limited.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// Returns the time after which records are deleted, if they are.
    #[must_use]
    pub fn retention_time(&self) -> Option<Duration> {
        // The value is -1 without a limit.
        self.named.get("retention.ms")?.parse().ok().map(Duration::from_millis)
    }

    fn text(&self, name: &str) -> String {
        self.named.get(name).map_or_else(|| "unknown".to_owned(), Clone::clone)
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.named.get(name)?.parse().ok()
    }
}

fn in_sync_min(replicas: usize) -> usize {
    if replicas >= REPLICAS_THAT_MAY_FAIL { 2 } else { 1 }
}
