//! `tidewire cluster status`: prints the nodes of a cluster, as reported by one of them.

use std::process::ExitCode;

use serde::Deserialize;

use crate::cli::calls::{Call, done, parsed};
use crate::cli::client::Client;
use crate::cli::{Outcome, terminal};

/// Arguments of `tidewire cluster status`. The server is any node of the cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterStatus {
    #[command(flatten)]
    call: Call,
}

/// Advice for the case that the node does not answer.
const ADVICE: &str = "; is this node down? ask another node of the cluster: --server URL";

/// Number of heartbeats without a record after which a node counts as silent in the output. A delay occurs now and then, as after a pause
/// of the log.
const SILENT_BEATS: u64 = 3;

/// The answer of `GET /v1/cluster`.
#[derive(Debug, Deserialize)]
struct Shown {
    node: String,
    epoch: u64,
    sequencer: Option<String>,
    applied: u64,
    partitions: u32,
    nodes: Vec<ShownNode>,
    /// Zero if a server of an earlier version answers. Its answer also lacks `beat_ms` and `heard_ms`.
    #[serde(default)]
    session_ms: u64,
    #[serde(default)]
    beat_ms: u64,
}

#[derive(Debug, Deserialize)]
struct ShownNode {
    name: String,
    address: String,
    partitions: Vec<u32>,
    #[serde(default)]
    heard_ms: Option<u64>,
}

impl ClusterStatus {
    pub(crate) fn run(self) -> Outcome {
        self.call.run(|client| self.print(&client.clone().advising(ADVICE)))
    }

    fn print(&self, client: &Client) -> Outcome {
        let (_, text) = done(client.get("/v1/cluster"))?;
        let shown: Shown = parsed(&text)?;
        if self.call.json {
            terminal::print_line(&text);
        } else {
            shown.lines().for_each(|line| terminal::print_line(&line));
        }
        // Report a failure to scripts if the cluster does not accept writes.
        Ok(if shown.takes_writes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Shown {
    fn takes_writes(&self) -> bool {
        self.sequencer.as_deref().is_some_and(|sequencer| self.silent_ms(sequencer).is_none())
    }

    /// Returns the silence of a node if it is longer than in a healthy cluster.
    fn silent_ms(&self, name: &str) -> Option<u64> {
        let heard_ms = self.nodes.iter().find(|node| node.name == name)?.heard_ms?;
        (self.beat_ms > 0 && heard_ms > SILENT_BEATS * self.beat_ms).then_some(heard_ms)
    }

    /// Returns the state of the cluster and of each node, one line each, for people.
    fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let writes = match (&self.sequencer, self.silent_ms(&self.node)) {
            (_, Some(silent_ms)) => {
                format!(
                    "{} has not received a record of the log for {}; this output may be outdated",
                    self.node,
                    seconds(silent_ms)
                )
            }
            (None, None) => "no node accepts writes".to_owned(),
            (Some(sequencer), None) => match self.silent_ms(sequencer) {
                None => format!("{sequencer} accepts writes"),
                Some(silent_ms) => format!(
                    "{sequencer} accepted writes, last heartbeat {} ago; another node takes over after {} of silence",
                    seconds(silent_ms),
                    seconds(self.session_ms)
                ),
            },
        };
        let state = format!("epoch {}: {writes}; {} has applied record {}", self.epoch, self.node, self.applied);
        let of_node = |node: &ShownNode| {
            let owned = node.partitions.len();
            let heard = match node.heard_ms {
                Some(heard_ms) => format!("  last heartbeat {} ago", seconds(heard_ms)),
                None if self.session_ms > 0 => "  no heartbeat yet".to_owned(),
                None => String::new(),
            };
            format!("{}  {}  owns {owned} of {} partitions{heard}", node.name, node.address, self.partitions)
        };
        std::iter::once(state).chain(self.nodes.iter().map(of_node))
    }
}

fn seconds(time_ms: u64) -> String {
    format!("{}.{} s", time_ms / 1000, time_ms % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sequencer: &str, heard: [&str; 2], times: &str) -> Shown {
        let [a, b] = ["a", "b"].map(|name| format!(r#""name":"{name}","address":"http://{name}","partitions":[1]"#));
        let nodes = format!("[{{{a}{}}},{{{b}{}}}]", heard[0], heard[1]);
        let text = format!(
            r#"{{"node":"a","epoch":7,"sequencer":{sequencer},"applied":9,"partitions":2,"nodes":{nodes}{times}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_silent_sequencer_does_not_count_as_accepting_writes() {
        let times = r#","session_ms":6000,"beat_ms":500"#;
        let heard = |ms: &str| format!(r#","heard_ms":{ms}"#);
        let silent = "b accepted writes, last heartbeat 4.1 s ago; another node takes over after 6.0 s of silence";
        let cut_off = "a has not received a record of the log for 4.1 s; this output may be outdated";
        for (sequencer, of_a, of_b, writes, takes_writes) in [
            (r#""b""#, "300", "1500", "b accepts writes", true),
            (r#""b""#, "300", "4199", silent, false),
            (r#""b""#, "300", "null", "b accepts writes", true),
            (r#""b""#, "4100", "4100", cut_off, false),
            ("null", "300", "300", "no node accepts writes", false),
        ] {
            let shown = shown(sequencer, [&heard(of_a), &heard(of_b)], times);
            assert_eq!(shown.lines().next().unwrap(), format!("epoch 7: {writes}; a has applied record 9"));
            assert_eq!(shown.takes_writes(), takes_writes, "{writes}");
        }
    }

    #[test]
    fn each_node_has_a_last_heartbeat_unless_an_earlier_version_answers() {
        let times = r#","session_ms":6000,"beat_ms":500"#;
        let lines = |shown: &Shown| shown.lines().skip(1).collect::<Vec<_>>();
        assert_eq!(
            lines(&shown(r#""b""#, [r#","heard_ms":250"#, r#","heard_ms":null"#], times)),
            [
                "a  http://a  owns 1 of 2 partitions  last heartbeat 0.2 s ago",
                "b  http://b  owns 1 of 2 partitions  no heartbeat yet"
            ]
        );
        let earlier = shown(r#""b""#, ["", ""], "");
        assert_eq!(lines(&earlier)[1], "b  http://b  owns 1 of 2 partitions");
        assert!(earlier.takes_writes());
    }
}
