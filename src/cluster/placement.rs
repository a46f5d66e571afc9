//! Where a request must be handled: what an engine in a cluster offers to its server.

use std::sync::Arc;

use crate::cluster::record::{Epoch, NodeName};
use crate::id::SourceId;
use crate::storage::journal::Sequence;

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
    /// No node now: the one that did it is gone, and no other has taken over yet. Or this node does not know it, since it has not heard
    /// from the log for too long.
    Nowhere,
}

/// The nodes of a cluster, as one node sees them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// The current epoch.
    pub epoch: Epoch,
    /// The number of partitions of the readers.
    pub partitions: u32,
    /// The node that judges commands.
    pub sequencer: Option<NodeName>,
    /// The nodes that own readers, in the order of their names.
    pub nodes: Vec<NodeView>,
}

/// A node that owns readers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeView {
    /// The name of the node.
    pub name: NodeName,
    /// Its address: scheme, host and port.
    pub address: String,
    /// The partitions that it owns, in ascending order.
    pub partitions: Vec<u32>,
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

    /// Returns all nodes. Not cheap: it is for people and balancers.
    fn view(&self) -> View {
        View::default()
    }
}
