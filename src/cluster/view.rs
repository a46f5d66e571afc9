//! What other threads see of a cluster: where requests must be handled, and how far this node has applied the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use crate::clock::Clock;
use crate::cluster::membership::Membership;
use crate::cluster::placement::{NodeView, Place, Placement, View};
use crate::cluster::record::{Member, NodeName, NodeRun};
use crate::id::SourceId;
use crate::storage::journal::Sequence;

/// The state of the cluster, as this node knows it.
pub struct ClusterView {
    me: NodeRun,
    clock: Arc<dyn Clock>,
    membership: RwLock<Arc<Membership>>,
    applied: AtomicU64,
    /// Microseconds since the start of the process until which this node may answer for its readers.
    lease_until_us: AtomicU64,
    is_ready: AtomicBool,
    has_failed: AtomicBool,
}

impl ClusterView {
    /// Creates the view of a node that has read the first record.
    pub(super) fn new(me: NodeRun, membership: Membership, clock: Arc<dyn Clock>) -> Self {
        Self {
            me,
            clock,
            membership: RwLock::new(Arc::new(membership)),
            applied: AtomicU64::new(1),
            lease_until_us: AtomicU64::new(0),
            is_ready: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Shows a later state. Only the scribe calls it.
    pub(super) fn show(&self, membership: &Membership, applied: Sequence, lease: Option<Duration>, is_ready: bool) {
        let until = lease.map_or(0, |until| u64::try_from(until.as_micros()).unwrap_or(u64::MAX));
        self.lease_until_us.store(until, Ordering::Relaxed);
        let shown = Arc::clone(&self.membership.read());
        if !shown.places_like(membership) {
            *self.membership.write() = Arc::new(membership.clone());
        }
        self.is_ready.fetch_or(is_ready, Ordering::Relaxed);
        // Last, so that who sees this sequence sees the members of that time, too.
        self.applied.store(applied.0, Ordering::Release);
    }

    /// Records that the log cannot be followed any further.
    pub(super) fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Returns the members, the sequencer and the epoch.
    pub fn membership(&self) -> Arc<Membership> {
        Arc::clone(&self.membership.read())
    }

    /// Returns true if this node has read all that was in the log when it started, and still follows the log.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed) && !self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns true if this node cannot follow the log any further.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns true while this node has heard from the log recently enough to answer for its readers.
    pub fn is_leased(&self) -> bool {
        let now = self.clock.monotonic().as_micros();
        let until = u128::from(self.lease_until_us.load(Ordering::Relaxed));
        now < until && !self.has_failed.load(Ordering::Relaxed)
    }

    fn place(&self, member: Option<&Member>) -> Place {
        match member {
            // A node that does not hear from the log cannot know who took over from whom.
            _ if !self.is_leased() => Place::Nowhere,
            None => Place::Nowhere,
            Some(member) if member.run == self.me => Place::Here,
            Some(member) => Place::At { node: member.run.node.clone(), address: member.address.as_str().into() },
        }
    }
}

impl Placement for ClusterView {
    fn me(&self) -> &NodeName {
        &self.me.node
    }

    fn owner(&self, user: &SourceId) -> Place {
        self.place(self.membership().owner_of(user))
    }

    fn sequencer(&self) -> Place {
        let membership = self.membership();
        let sequencer = membership.sequencer();
        self.place(membership.members().find(|member| Some(&member.run) == sequencer))
    }

    fn view(&self) -> View {
        let membership = self.membership();
        let mut owned: BTreeMap<&NodeName, Vec<u32>> = BTreeMap::new();
        for partition in 0..membership.partitions() {
            if let Some(owner) = membership.owner(partition) {
                owned.entry(&owner.run.node).or_default().push(partition);
            }
        }
        let nodes = membership.members().map(|member| NodeView {
            name: member.run.node.clone(),
            address: member.address.clone(),
            partitions: owned.remove(&member.run.node).unwrap_or_default(),
        });
        let sequencer = membership.sequencer().filter(|run| membership.is_member(run));
        View {
            epoch: membership.epoch(),
            partitions: membership.partitions(),
            sequencer: sequencer.map(|run| run.node.clone()),
            nodes: nodes.collect(),
        }
    }

    fn applied(&self) -> Sequence {
        Sequence(self.applied.load(Ordering::Acquire))
    }
}
