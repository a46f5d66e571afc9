//! Metrics of a node in a cluster.

use std::fmt;

use prometheus_client::registry::Unit;

use crate::http::cluster::Cluster;
use crate::http::handlers::metrics::Sheet;
use tidewire::cluster::placement::{Place, Placement};

impl Sheet<'_> {
    /// Adds the metrics of forwarded requests and of this node's knowledge of the cluster.
    pub(super) fn of_cluster(&mut self, cluster: &Cluster) -> fmt::Result {
        let metrics = cluster.metrics();
        let outcomes: Vec<_> = metrics.outcomes().collect();
        let outcomes = outcomes.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("passed_on", "Number of requests forwarded to other nodes, by role and outcome"), outcomes)?;
        let help = "Time in seconds from forwarding a request until its response begins, by role of the other node";
        self.histograms(("passed_on_duration", help), "to", metrics.latency())?;
        self.counter("passed_on_retries", "Number of reads that were forwarded a second time", metrics.retried())?;
        let (live, live_max) = metrics.live();
        self.gauge("passed_on_live", "Open live connections that are forwarded", None, live as u64)?;
        self.gauge("passed_on_live_limit", "Maximum number of forwarded live connections", None, live_max as u64)?;
        self.of_node(cluster.placement())?;
        let names = [
            ("inside_under_way", "Requests or bytes of other nodes in progress, by gate"),
            ("inside_limit", "Maximum number of requests or bytes of other nodes in progress, by gate"),
            ("inside_refused", "Number of requests of other nodes that the server refused before any work, by gate"),
        ];
        self.gates(cluster.admission(), names)
    }

    fn of_node(&mut self, placement: &dyn Placement) -> fmt::Result {
        let (view, me) = (placement.view(), placement.me());
        self.gauge(
            "cluster_applied",
            "Sequence of the last record of the log that this node has applied",
            None,
            placement.applied().0,
        )?;
        self.gauge("cluster_epoch", "Number of sequencers so far", None, view.epoch.0)?;
        // 0 for a node that is cut off from the log, because it cannot know its role.
        let sequences = u64::from(placement.sequencer() == Place::Here);
        self.gauge("cluster_sequencer", "1 if this node is the sequencer, which accepts all writes", None, sequences)?;
        self.gauge("cluster_members", "Nodes that own readers", None, view.nodes.len() as u64)?;
        let owned = view.nodes.iter().find(|node| node.name == *me).map_or(0, |node| node.partitions.len() as u64);
        self.gauge("cluster_partitions", "Partitions of readers that this node owns", None, owned)?;
        if let Some(ago) = placement.heard_ago() {
            let help = "Age in seconds of the newest heartbeat that this node has read back; it grows without Kafka";
            self.gauge("cluster_heard_age", help, Some(&Unit::Seconds), ago.as_secs())?;
        }
        let Some(figures) = placement.figures() else { return Ok(()) };
        let help = "Number of partitions of readers that changed owner";
        self.counter("cluster_partitions_moved", help, figures.moved())?;
        let help = "Number of fenced records, such as those of a paused node that is no longer the sequencer";
        self.counter("cluster_records_fenced", help, figures.fenced())?;
        let help = "Time in seconds from appending a group of events until the sequencer reads it back";
        self.histogram("cluster_commit_duration", help, &figures.commit_latency)?;
        let help = "Time in seconds from appending a heartbeat until this node reads it back, which is its lag";
        self.histogram("cluster_beat_duration", help, &figures.beat_latency)
    }
}
