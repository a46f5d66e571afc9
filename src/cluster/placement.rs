//! The placement of requests on nodes: the interface of an engine in a cluster for its server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::cluster::figures::ClusterFigures;
use crate::cluster::record::{Epoch, NodeName};
use crate::id::SourceId;
use crate::storage::sequence::Sequence;

/// The node that handles a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// This node handles it.
    Here,
    /// Another node handles it.
    At {
        /// The name of that node.
        node: NodeName,
        /// The address of that node: scheme, host and port.
        address: Arc<str>,
    },
    /// Another node is becoming the sequencer, since the previous one leaves in order. This takes some milliseconds.
    Changing,
    /// No node handles it now: the previous node is gone, and no other has taken over yet. Or this node does not know
    /// the node, since it has read nothing from the log for too long.
    Nowhere,
}

/// The role of a node in its cluster, as load balancers see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It owns readers.
    Ready,
    /// It has read the log, and will own readers next.
    Joining,
    /// It owned readers when it last read from the log, which is too long ago to answer for them.
    CutOff,
    /// It hands over to the others.
    Leaving,
}

/// The nodes of a cluster, as one node sees them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterInfo {
    /// The current epoch.
    pub epoch: Epoch,
    /// The number of partitions of the readers.
    pub partitions: u32,
    /// The node that judges commands.
    pub sequencer: Option<NodeName>,
    /// The nodes that own readers, in the order of their names.
    pub nodes: Vec<NodeInfo>,
    /// The nodes that this process has seen leave in the last hour, the last first.
    pub gone: Vec<GoneNode>,
    /// Time after which a silent node counts as dead, so that other nodes take over its roles.
    pub session: Duration,
    /// The time between two heartbeats of a node.
    pub heartbeat: Duration,
}

/// A node that owns readers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// The name of the node.
    pub name: NodeName,
    /// Its address: scheme, host and port.
    pub address: String,
    /// The partitions that it owns, in ascending order.
    pub partitions: Vec<u32>,
    /// Time since its last heartbeat was read. None if none was read since this process started, or for two sessions.
    pub heard_ago: Option<Duration>,
}

/// A node that was a member and is not one now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoneNode {
    /// The name of the node.
    pub name: NodeName,
    /// Its address: scheme, host and port.
    pub address: String,
    /// Time since this process read its removal.
    pub gone_ago: Duration,
}

/// The places of readers and of the sequencer, as this node knows them now. Cheap enough for each request.
pub trait Placement: Send + Sync + 'static {
    /// Returns the name of this node.
    fn me(&self) -> &NodeName;

    /// Returns the node that answers the reads of a user and forwards the user's writes.
    fn owner(&self, user: &SourceId) -> Place;

    /// Returns the node that judges commands.
    fn sequencer(&self) -> Place;

    /// Returns the last record of the log that this node has applied.
    fn applied(&self) -> Sequence;

    /// Returns a receiver that is notified after this node has applied records. By default it applies none.
    fn applied_changes(&self) -> watch::Receiver<()> {
        watch::channel(()).1
    }

    /// Returns a receiver that is notified after the roles of a node change. By default they do not change.
    fn role_changes(&self) -> watch::Receiver<()> {
        watch::channel(()).1
    }

    /// Records that this node is about to end.
    fn end(&self) {}

    /// Returns the readiness of this node, for load balancers.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// Returns true if other nodes have taken over all roles of this node, or there is no other node.
    fn has_handed_over(&self) -> bool {
        true
    }

    /// Returns the figures of this node, if it has any.
    fn figures(&self) -> Option<&ClusterFigures> {
        None
    }

    /// Returns the time since this node sent the newest of its heartbeats that it has read back. It is behind by at
    /// most this time.
    fn heard_ago(&self) -> Option<Duration> {
        None
    }

    /// Returns the time between two heartbeats of this node. [`Placement::heard_ago`] reaches this time even in a
    /// healthy cluster.
    fn heartbeat_period(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the last event that this node has read. No write that it has answered is after it.
    fn last_event(&self) -> Sequence {
        self.applied()
    }

    /// Returns a sequence at or after every event and every change of the members that this node shows. It may have
    /// applied the last of them only in part.
    fn shown(&self) -> Sequence {
        self.applied().max(self.last_event())
    }

    /// Returns the last event that this node has applied, or None while it applies one. Nodes with the same last event
    /// have the same world.
    fn settled(&self) -> Option<Sequence> {
        None
    }

    /// Returns the names and addresses of all members. Cheap enough for each write.
    fn members(&self) -> Vec<(NodeName, String)> {
        self.view().nodes.into_iter().map(|node| (node.name, node.address)).collect()
    }

    /// Returns all nodes. Not cheap: it is for people and load balancers.
    fn view(&self) -> ClusterInfo {
        ClusterInfo::default()
    }
}
