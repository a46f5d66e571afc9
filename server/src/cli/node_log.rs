//! Opens the log of a cluster in Kafka for a node that starts.

use std::error::Error;
use std::time::Duration;

use tracing::warn;

use crate::cli::waiting::AT_START;
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::log::{LogError, ReadLog as _};
use tidewire_kafka::{KafkaLog, KafkaOptions, TopicSettings};

/// Number of backup intervals for which the log should retain records, because some runs may fail.
const BACKUPS_IN_RETENTION: u32 = 3;

/// The phase of a recovery in which the log is opened.
const CONNECTING: &str = "connecting to the log";

/// The log of a node's cluster, and what the node requires of it.
pub(super) struct NodeLog {
    /// The name of the cluster.
    pub(super) cluster: String,
    pub(super) brokers: KafkaOptions,
    /// Maximum time between two snapshots of the node, or none if it has no data directory.
    pub(super) snapshots_apart: Option<Duration>,
    /// Time between two backups, or none if there are no backups.
    pub(super) backups_apart: Option<Duration>,
}

impl NodeLog {
    /// Opens the log. Waits for brokers that do not answer yet.
    ///
    /// # Errors
    /// Fails if the brokers cannot be reached, the topic is missing or has wrong settings, or it deletes records that the node needs.
    pub(super) fn open(self, progress: &RecoveryProgress) -> Result<KafkaLog, Box<dyn Error + Send + Sync>> {
        let Self { cluster, brokers, snapshots_apart, backups_apart } = self;
        progress.enter(CONNECTING);
        let is_away = |cause: &LogError| matches!(cause, LogError::Unavailable(_));
        let opened = || {
            let log = KafkaLog::open(brokers.clone())?;
            // Any broker describes the topic. Only the leader of its partition answers this.
            log.range()?;
            Ok(log)
        };
        let log = AT_START.until_done(is_away, opened)?;
        check_retention(&cluster, log.settings(), snapshots_apart)?;
        if let Some(warning) = backups_apart.and_then(|apart| warning_of_gaps(&cluster, log.settings(), apart)) {
            warn!("{warning}");
        }
        Ok(log)
    }
}

/// Refuses a topic that deletes old records, unless the node has snapshots to start from.
fn check_retention(cluster: &str, topic: &TopicSettings, snapshots_apart: Option<Duration>) -> Result<(), String> {
    let Some(retention) = topic.retention() else { return Ok(()) };
    let Some(apart) = snapshots_apart else {
        return Err(format!(
            "the topic {cluster}.log deletes old records ({retention}): give this node a data directory (--data-dir), or set both to -1"
        ));
    };
    if topic.retention_time().is_some_and(|kept| kept < apart) {
        warn!(
            "the topic {cluster}.log deletes old records ({retention}), and snapshots may be {apart:?} apart: a node may be unable to start from \
             its own snapshot; keep records for longer, or lower --snapshot-interval"
        );
    }
    Ok(())
}

/// Returns a warning if the log may delete records before a backup copies them. One failed run may take twice the interval.
fn warning_of_gaps(cluster: &str, topic: &TopicSettings, every: Duration) -> Option<String> {
    let kept = topic.retention_time().filter(|kept| *kept < every.saturating_mul(BACKUPS_IN_RETENTION))?;
    Some(format!(
        "the topic {cluster}.log keeps records for {kept:?}, and backups are {every:?} apart: records that are deleted before they are copied \
         cannot be restored one by one; keep records for {BACKUPS_IN_RETENTION} times --backup-every, or lower --backup-every"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_may_delete_records_before_they_are_copied_causes_a_warning() {
        let for_ever = TopicSettings::for_replicas(3);
        let for_three_hours = TopicSettings::for_replicas(3).with_retention(Duration::from_secs(3 * 3600));
        for (topic, every_seconds, is_warned_of) in
            [(&for_ever, 1 << 40, false), (&for_three_hours, 3600, false), (&for_three_hours, 3601, true)]
        {
            let warning = warning_of_gaps("feeds", topic, Duration::from_secs(every_seconds));
            assert_eq!(warning.is_some(), is_warned_of, "{warning:?}");
        }
    }

    #[test]
    fn a_log_that_deletes_old_records_needs_a_data_directory() {
        let for_ever = TopicSettings::for_replicas(3);
        let for_a_week = TopicSettings::for_replicas(3).with_retention(Duration::from_secs(7 * 24 * 3600));
        let hourly = Some(Duration::from_secs(3600));
        assert_eq!(check_retention("feeds", &for_ever, None), Ok(()));
        assert_eq!(check_retention("feeds", &for_ever, hourly), Ok(()));
        assert_eq!(check_retention("feeds", &for_a_week, hourly), Ok(()));
        let refused = check_retention("feeds", &for_a_week, None).unwrap_err();
        for part in ["feeds.log", "retention.ms=604800000", "--data-dir"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert_eq!(for_a_week.retention_time(), Some(Duration::from_secs(604_800)));
        assert_eq!(for_ever.retention_time(), None);
    }
}
