//! Metrics of a node in a cluster.

use std::fmt;

use prometheus_client::registry::Unit;

use crate::http::cluster::Cluster;
use crate::http::handlers::metrics::Sheet;
use tidewire::cluster::placement::{Place, Placement};

impl Sheet<'_> {
    /// Adds what this node passes on to others, and what it knows of the cluster.
    pub(super) fn of_cluster(&mut self, cluster: &Cluster) -> fmt::Result {
        let metrics = cluster.metrics();
        let outcomes: Vec<_> = metrics.outcomes().collect();
        let outcomes = outcomes.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("passed_on", "Requests passed on to other nodes, by role and outcome"), outcomes)?;
        let help = "From passing a request on until its answer began, by the role of the other node";
        self.histograms(("passed_on_duration", help), "to", metrics.latency())?;
        self.counter("passed_on_retries", "Reads that were passed on a second time", metrics.retried())?;
        let (live, live_max) = metrics.live();
        self.gauge("passed_on_live", "Live connections that are passed on", None, live as u64)?;
        self.gauge("passed_on_live_limit", "How many there may be", None, live_max as u64)?;
        self.of_node(cluster.placement())?;
        let names = [
            ("inside_under_way", "Requests or bytes of other nodes under way, by gate"),
            ("inside_limit", "How much of other nodes may be under way, by gate"),
            ("inside_refused", "Requests of other nodes refused at the door, by gate"),
        ];
        self.gates(cluster.admission(), names)
    }

    fn of_node(&mut self, placement: &dyn Placement) -> fmt::Result {
        let (view, me) = (placement.view(), placement.me());
        self.gauge(
            "cluster_applied",
            "The last record of the log that this node has applied",
            None,
            placement.applied().0,
        )?;
        self.gauge("cluster_epoch", "How many sequencers there have been", None, view.epoch.0)?;
        // Not one that does not hear from the log: it cannot know.
        let sequences = u64::from(placement.sequencer() == Place::Here);
        self.gauge("cluster_sequencer", "Whether this node takes the writes of the cluster", None, sequences)?;
        self.gauge("cluster_members", "Nodes that own readers", None, view.nodes.len() as u64)?;
        let owned = view.nodes.iter().find(|node| node.name == *me).map_or(0, |node| node.partitions.len() as u64);
        self.gauge("cluster_partitions", "Partitions of the readers that this node owns", None, owned)?;
        if let Some(ago) = placement.heard_ago() {
            let help = "Since this node sent the newest beat that it has read back: without Kafka it only grows";
            self.gauge("cluster_heard_age", help, Some(&Unit::Seconds), ago.as_secs())?;
        }
        let Some(figures) = placement.figures() else { return Ok(()) };
        let help = "Partitions of the readers that got another owner";
        self.counter("cluster_partitions_moved", help, figures.moved())?;
        let help =
            "Records that do not count, such as those of a node that was paused and is not the sequencer any more";
        self.counter("cluster_records_fenced", help, figures.fenced())?;
        let help = "From appending a group of events until the sequencer has read it back";
        self.histogram("cluster_commit_duration", help, &figures.commit_latency)?;
        let help = "From appending a beat until this node has read it back: how far it is behind";
        self.histogram("cluster_beat_duration", help, &figures.beat_latency)
    }
}
