//! The living nodes of a cluster, which a starting node finds by their heartbeats before it joins.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crate::clock::Clock;
use crate::cluster::record::{ClusterId, Content, Heartbeat, NodeName, decode_content, decode_header};
use crate::storage::log::{LogError, LogReader, LogRecord, SharedLog};

/// Minimum time for which a node waits for the first heartbeat of another node. It includes connecting to the log.
const LISTEN_MIN: Duration = Duration::from_secs(3);

/// Pause after the log did not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// Returns the addresses of the other nodes of a cluster that have read the log, in a random order. If the cluster is
/// not known, returns those of all clusters that write to the log. Listens for at most a session, and for only a
/// quarter of a session after the first heartbeat: each living node writes several in that time. A log that does not
/// answer counts as one without heartbeats.
///
/// # Errors
/// Fails if the log cannot be read.
pub fn listen(
    log: &dyn SharedLog,
    cluster: Option<ClusterId>,
    me: &NodeName,
    session: Duration,
    clock: &dyn Clock,
) -> Result<Vec<String>, LogError> {
    let mut until = clock.monotonic() + session.max(LISTEN_MIN);
    let (mut reader, mut heard, mut is_heard) = (None, BTreeMap::new(), false);
    while let left = until.saturating_sub(clock.monotonic())
        && !left.is_zero()
    {
        let records = match read(log, &mut reader, left) {
            Err(LogError::Unavailable(_)) => {
                thread::park_timeout(PAUSE);
                continue;
            }
            records => records?,
        };
        for record in records {
            // Other records, and damaged ones, contain no address.
            let Ok((header, content)) = decode_header(&record.bytes) else { continue };
            if cluster.is_none_or(|cluster| header.cluster == cluster)
                && header.by.node != *me
                && let Ok(Content::Heartbeat(Heartbeat { address, is_ready, .. })) = decode_content(content)
            {
                heard.insert((header.cluster.0, header.by.node), is_ready.then_some(address));
            }
        }
        if !is_heard && heard.values().any(Option::is_some) {
            (is_heard, until) = (true, until.min(clock.monotonic() + session / 4));
        }
    }
    let mut addresses: Vec<String> = heard.into_values().flatten().collect();
    // Otherwise all starting nodes would ask the same node.
    fastrand::shuffle(&mut addresses);
    Ok(addresses)
}

/// Reads the records after the end that the log had at the first call.
fn read(
    log: &dyn SharedLog,
    reader: &mut Option<Box<dyn LogReader>>,
    wait: Duration,
) -> Result<Vec<LogRecord>, LogError> {
    match reader {
        Some(reader) => reader.read(wait),
        None => reader.insert(log.reader(log.range()?.last)?).read(wait),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::clock::{ManualClock, UnixMicros};
    use crate::cluster::record::{Epoch, Header, Incarnation, encode};
    use crate::storage::log::{LogRange, LogWriter, ReadLog};
    use crate::storage::sequence::Sequence;

    /// A log whose brokers do not answer at first, and which then returns one of these records in each read.
    #[derive(Clone)]
    struct Late {
        clock: Arc<ManualClock>,
        reads: Arc<AtomicUsize>,
        records: Arc<[Vec<u8>]>,
    }

    /// Number of reads that are not answered.
    const UNANSWERED: usize = 3;

    impl SharedLog for Late {
        fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
            Err(LogError::Unavailable("nobody writes".to_owned()))
        }

        fn to_read(&self) -> Arc<dyn ReadLog> {
            Arc::new(self.clone())
        }
    }

    impl ReadLog for Late {
        fn reader(&self, _: Sequence) -> Result<Box<dyn LogReader>, LogError> {
            Ok(Box::new(self.clone()))
        }

        fn range(&self) -> Result<LogRange, LogError> {
            Ok(LogRange { first: Sequence(1), last: Sequence(9) })
        }

        fn place(&self) -> String {
            "late".to_owned()
        }
    }

    impl LogReader for Late {
        fn read(&mut self, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
            let nth = self.reads.fetch_add(1, Ordering::Relaxed).checked_sub(UNANSWERED);
            let nth = nth.ok_or_else(|| LogError::Unavailable("no answer".to_owned()))?;
            if nth >= self.records.len() {
                self.clock.advance(wait);
            }
            let record = self.records.get(nth).map(|bytes| LogRecord { sequence: Sequence(10), bytes: bytes.clone() });
            Ok(record.into_iter().collect())
        }
    }

    #[test]
    fn a_node_listens_until_it_has_read_a_heartbeat_of_a_ready_peer() {
        let heartbeat = |node: &str, cluster: u64, is_ready: bool| {
            let by = Incarnation { node: node.parse().unwrap(), run: 1 };
            let header = Header { cluster: ClusterId(cluster), by, epoch: Epoch(0), nth: 1 };
            encode(
                &header,
                &Content::Heartbeat(Heartbeat { address: format!("http://{node}"), is_ready, behind_ms: 0 }),
            )
        };
        let records = [
            heartbeat("starts", 5, false),
            b"a damaged record".to_vec(),
            heartbeat("me", 5, true),
            heartbeat("ready", 5, true),
            heartbeat("foreign", 6, true),
        ];
        let me = "me".parse().unwrap();
        for (cluster, expected) in
            [(Some(ClusterId(5)), &["http://ready"][..]), (None, &["http://foreign", "http://ready"])]
        {
            let clock = Arc::new(ManualClock::new(UnixMicros(0)));
            let log = Late { clock: Arc::clone(&clock), reads: Arc::default(), records: records.clone().into() };
            let mut heard = listen(&log, cluster, &me, LISTEN_MIN, &*clock).unwrap();
            heard.sort();
            assert_eq!(heard, expected);
            assert_eq!(clock.monotonic(), LISTEN_MIN / 4, "after the first heartbeat of a node that is ready");
        }
    }
}
