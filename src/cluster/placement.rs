//! Where a request must be handled: what an engine in a cluster offers to its server.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::figures::ClusterFigures;
use crate::cluster::record::{Epoch, NodeName};
use crate::id::SourceId;
use crate::storage::sequence::Sequence;

/// The node that handles a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// This node does.
    Here,
    /// Another node does.
    At {
        /// The name of that node.
        node: NodeName,
        /// The address of that node: scheme, host and port.
        address: Arc<str>,
    },
    /// Another node becomes the sequencer at this moment, since the one that was it leaves in order. It takes some milliseconds.
    Changing,
    /// No node now: the one that did it is gone, and no other has taken over yet. Or this node does not know it, since it has not heard
    /// from the log for too long.
    Nowhere,
}

/// Whether a node has a part in its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It owns readers.
    Ready,
    /// It has read the log, and gets readers next.
    Joining,
    /// It owned readers when it last heard from the log, which is too long ago to answer for them.
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
    /// The nodes that have left in the last hour, as far as this process has seen it, the last first.
    pub gone: Vec<GoneNode>,
    /// Time after which a silent node counts as dead, so that others take over what it does.
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
    /// How long ago its last heartbeat was read. None if none was since this process started, or for two sessions.
    pub heard_ago: Option<Duration>,
}

/// A node that was a member and is not now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoneNode {
    /// The name of the node.
    pub name: NodeName,
    /// Its address: scheme, host and port.
    pub address: String,
    /// How long ago it was seen to go.
    pub gone_ago: Duration,
}

/// The places of readers and of the sequencer, as this node knows them now. Cheap to ask for each request.
pub trait Placement: Send + Sync + 'static {
    /// Returns the name of this node.
    fn me(&self) -> &NodeName;

    /// Returns the node that answers the reads of a user, and through which the user's writes go.
    fn owner(&self, user: &SourceId) -> Place;

    /// Returns the node that judges commands.
    fn sequencer(&self) -> Place;

    /// Returns the last record of the log that this node has applied.
    fn applied(&self) -> Sequence;

    /// Records that this node is about to end.
    fn end(&self) {}

    /// Returns whether load balancers should send requests to this node.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// Returns true if other nodes do all that this node did, or there is no other one.
    fn has_handed_over(&self) -> bool {
        true
    }

    /// Returns what this node measures, if it does.
    fn figures(&self) -> Option<&ClusterFigures> {
        None
    }

    /// Returns how long ago this node sent the newest of its heartbeats that it has read back: by so much at most it is behind.
    fn heard_ago(&self) -> Option<Duration> {
        None
    }

    /// Returns the time between two heartbeats of this node: even in a healthy cluster, [`Placement::heard_ago`] becomes so long.
    fn heartbeat_period(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the last event that this node has read: no write that it has answered is after it.
    fn last_event(&self) -> Sequence {
        self.applied()
    }

    /// Returns a sequence that is at least that of every event, and of every change of the members, that this node shows. It may have applied the
    /// last of them only in part.
    fn shown(&self) -> Sequence {
        self.applied().max(self.last_event())
    }

    /// Returns the last event that this node has applied, or none while it applies some. Nodes for which it is the same have the same world.
    fn settled(&self) -> Option<Sequence> {
        None
    }

    /// Returns the names and addresses of all members. Cheap enough for each write.
    fn members(&self) -> Vec<(NodeName, String)> {
        self.view().nodes.into_iter().map(|node| (node.name, node.address)).collect()
    }

    /// Returns all nodes. Not cheap: it is for people and balancers.
    fn view(&self) -> ClusterInfo {
        ClusterInfo::default()
    }
}
