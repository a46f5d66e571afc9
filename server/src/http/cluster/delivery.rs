//! Waits until all nodes have delivered posts. Each node delivers to the readers that it owns.
//!
//! This process sends each other node one request at a time, for all its publishers together. So waiting publishers use up neither the
//! passes to other nodes, nor the limits on work for other nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::rt;
use actix_web::rt::time::sleep;
use actix_web::web::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::debug;

use crate::http::auth::Caller;
use crate::http::cluster::peer_auth::PeerRole;
use crate::http::cluster::peers::{Outgoing, Peers};
use crate::http::cluster::{Cluster, relay};
use tidewire::cluster::record::NodeName;
use tidewire::engine::Engine;
use tidewire::storage::sequence::Sequence;

/// Maximum time that a publisher waits for the deliveries of other nodes. After it, the publisher gets its answer anyway, because the
/// post is stored.
const DELIVERED_WAIT_MAX: Duration = Duration::from_secs(5);

/// Intervals between two checks of the deliveries of this node: the first one, and the longest.
const DELIVERED_LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(8)];

/// Time after which this node repeats its request to a node that has not reported success.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The nodes with an open delivery request: at most all members.
#[derive(Default)]
pub(super) struct Deliveries(Mutex<BTreeMap<NodeName, Asked>>);

/// A node with an open delivery request.
struct Asked {
    /// The highest sequence that a publisher waits for.
    wanted: Sequence,
    /// The sequence that the node has delivered. Publishers stop waiting when this sender is dropped.
    delivered: watch::Sender<Sequence>,
}

impl Deliveries {
    /// Adds a publisher that waits for a sequence, and returns its receiver. The flag is true if no request to the node is open yet.
    fn want(&self, node: &NodeName, sequence: Sequence) -> (watch::Receiver<Sequence>, bool) {
        let mut all = self.0.lock();
        if let Some(asked) = all.get_mut(node) {
            asked.wanted = asked.wanted.max(sequence);
            return (asked.delivered.subscribe(), false);
        }
        let (delivered, receiver) = watch::channel(Sequence(0));
        all.insert(node.clone(), Asked { wanted: sequence, delivered });
        (receiver, true)
    }

    /// Returns the next sequence for a request to a node. Returns `None` and closes the entry if no publisher waits any more.
    fn next(&self, node: &NodeName) -> Option<Sequence> {
        let mut all = self.0.lock();
        let asked = all.get(node)?;
        if asked.delivered.receiver_count() > 0 && *asked.delivered.borrow() < asked.wanted {
            return Some(asked.wanted);
        }
        all.remove(node);
        None
    }

    /// Records the sequence that a node has delivered.
    fn note(&self, node: &NodeName, sequence: Sequence) {
        if let Some(asked) = self.0.lock().get(node) {
            asked.delivered.send_replace(sequence);
        }
    }

    /// Ends the wait for a node.
    fn give_up(&self, node: &NodeName) {
        self.0.lock().remove(node);
    }
}

impl Peers {
    /// Waits until the other nodes have delivered all events that this node has read. Stops waiting for a node that does not answer: a
    /// dead node has no readers, and a slow node delivers the posts to its readers later.
    pub(in crate::http) async fn delivered_elsewhere(&self) {
        let (placement, sequence) = (self.cluster.placement(), self.cluster.placement().last_event());
        let others = placement.members().into_iter().filter(|(node, _)| node != placement.me());
        let delivered = others.map(|(node, _)| async move {
            let (mut delivered, is_first) = self.cluster.deliveries.want(&node, sequence);
            if is_first {
                rt::spawn(self.clone().ask_delivered(node));
            }
            // An error means that waiting for the node has ended.
            let _ = delivered.wait_for(|delivered| *delivered >= sequence).await;
        });
        if timeout(DELIVERED_WAIT_MAX, join_all(delivered)).await.is_err() {
            debug!(sequence = sequence.0, "another node did not deliver in time");
        }
    }

    /// Sends requests to a node while publishers wait for it.
    async fn ask_delivered(self, node: NodeName) {
        let deliveries = &self.cluster.deliveries;
        while let Some(sequence) = deliveries.next(&node) {
            let members = self.cluster.placement().members();
            let Some((_, address)) = members.into_iter().find(|(name, _)| *name == node) else {
                return deliveries.give_up(&node);
            };
            match self.has_delivered(&address, sequence).await {
                Some(true) => deliveries.note(&node, sequence),
                Some(false) => sleep(ASK_AGAIN).await,
                None => return deliveries.give_up(&node),
            }
        }
    }

    /// Returns true if the node at `address` has delivered a sequence, and false if it has not or if it refuses the request. Returns
    /// `None` if it does not answer.
    async fn has_delivered(&self, address: &str, sequence: Sequence) -> Option<bool> {
        let outgoing = Outgoing {
            method: http1::Method::GET,
            path_and_query: format!("/v1/cluster?delivered={}", sequence.0),
            headers: self.inside_headers(Caller::Anybody, None, PeerRole::Owner).ok()?,
            body: Bytes::new(),
            is_read: true,
        };
        // `send_without_pass` logs a failure.
        let answer = self.send_without_pass(address, &outgoing).await.ok()?;
        // Reads the whole answer, so that the connection can be reused.
        let answer = relay::whole(answer, self.cluster.options.answer_timeout).await.ok()?;
        Some(answer.status() == StatusCode::OK)
    }
}

impl Cluster {
    /// Waits until this node has applied a sequence and delivered its posts to its awake readers. Returns false if this takes too long.
    pub(in crate::http) async fn has_delivered(&self, engine: &Engine, sequence: Sequence) -> bool {
        let delivery = &engine.shared().world.delivery;
        let delivered = async {
            self.wait_applied(sequence).await;
            let due = delivery.applied().through;
            let [mut interval, longest] = DELIVERED_LOOKS;
            while delivery.settled().through < due {
                sleep(interval).await;
                interval = longest.min(interval * 2);
            }
        };
        timeout(DELIVERED_WAIT_MAX, delivered).await.is_ok()
    }
}
