//! `tidewire cluster status`: prints the nodes of a cluster, as one of them sees it.

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

/// The answer of `GET /v1/cluster`.
#[derive(Debug, Deserialize)]
struct Shown {
    node: String,
    epoch: u64,
    sequencer: Option<String>,
    applied: u64,
    partitions: u32,
    nodes: Vec<ShownNode>,
}

#[derive(Debug, Deserialize)]
struct ShownNode {
    name: String,
    address: String,
    partitions: Vec<u32>,
}

impl ClusterStatus {
    pub(crate) fn run(self) -> Outcome {
        self.call.run(|client| self.print(client))
    }

    fn print(&self, client: &Client) -> Outcome {
        let (_, text) = done(client.get("/v1/cluster"))?;
        let shown: Shown = parsed(&text)?;
        if self.call.json {
            terminal::print_line(&text);
        } else {
            shown.lines().for_each(|line| terminal::print_line(&line));
        }
        // For scripts: a cluster that takes no writes is not well.
        Ok(if shown.sequencer.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Shown {
    /// Returns the state of the cluster, and each node, as a line for people.
    fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let sequencer = self.sequencer.as_deref().unwrap_or("no node");
        let state = format!(
            "epoch {}: {sequencer} takes writes; {} has applied record {}",
            self.epoch, self.node, self.applied
        );
        let of_node = |node: &ShownNode| {
            let owned = node.partitions.len();
            format!("{}  {}  owns {owned} of {} partitions", node.name, node.address, self.partitions)
        };
        std::iter::once(state).chain(self.nodes.iter().map(of_node))
    }
}
