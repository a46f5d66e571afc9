//! The cluster state that other threads see: the nodes that handle requests, and the progress of this node in the log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::cluster::failure_detector::{BEATS_PER_SESSION, FailureDetector};
use crate::cluster::figures::ClusterFigures;
use crate::cluster::membership::Membership;
use crate::cluster::placement::{ClusterInfo, GoneNode, NodeInfo, Place, Placement, Readiness};
use crate::cluster::record::{Incarnation, Member, NodeName};
use crate::id::SourceId;
use crate::storage::sequence::Sequence;

/// Time for which a node is shown after it has gone.
const GONE_SHOWN: Duration = Duration::from_secs(3_600);

/// Maximum number of nodes that are shown after they have gone.
const GONE_MAX: usize = 64;

/// The state of the cluster, as this node knows it.
pub struct ClusterState {
    me: Incarnation,
    clock: Arc<dyn Clock>,
    session: Duration,
    membership: RwLock<Arc<Membership>>,
    /// The time at which the last heartbeat of each process was read, since the start of this process. These are times
    /// rather than ages, since they are also shown while nothing is read.
    heard: Mutex<Vec<(Incarnation, Duration)>>,
    /// The members that have gone, with the time at which this was read, the last first.
    gone: Mutex<VecDeque<(Member, Duration)>>,
    applied: AtomicU64,
    /// Microseconds since the start of the process at which this node sent the newest heartbeat that it has read back;
    /// 0 before the first.
    heard_at_us: AtomicU64,
    /// The last record that changes the state shown here. It is stored before the state changes; `applied` is stored
    /// after it.
    shown: AtomicU64,
    /// The last event that this node began to apply, and the last one that is applied.
    begun: AtomicU64,
    settled: AtomicU64,
    /// Microseconds since the start of the process until which this node may answer for its readers.
    lease_until_us: AtomicU64,
    is_ready: AtomicBool,
    has_failed: AtomicBool,
    /// True if another living node could take over.
    has_company: AtomicBool,
    is_ending: AtomicBool,
    /// Notifies after `applied` has changed.
    applied_changes: watch::Sender<()>,
    /// Notifies after the members, the sequencer, `is_ready`, `has_company` or `has_failed` has changed.
    role_changes: watch::Sender<()>,
    pub(super) figures: ClusterFigures,
}

impl ClusterState {
    /// Creates the cluster state of a node that has read nothing yet.
    pub fn new(name: NodeName, clock: Arc<dyn Clock>, session: Duration) -> Self {
        Self {
            me: Incarnation { node: name, run: fastrand::u64(..) },
            clock,
            session,
            membership: RwLock::new(Arc::new(Membership::unknown())),
            heard: Mutex::default(),
            gone: Mutex::default(),
            applied: AtomicU64::new(0),
            heard_at_us: AtomicU64::new(0),
            shown: AtomicU64::new(0),
            begun: AtomicU64::new(1),
            settled: AtomicU64::new(1),
            lease_until_us: AtomicU64::new(0),
            is_ready: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            has_company: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            applied_changes: watch::Sender::new(()),
            role_changes: watch::Sender::new(()),
            figures: ClusterFigures::default(),
        }
    }

    /// Returns this process.
    pub(super) fn run(&self) -> &Incarnation {
        &self.me
    }

    /// Replaces the state by a later one. Only the command processor calls it.
    pub(super) fn show(
        &self,
        membership: &Membership,
        applied: Sequence,
        (failure_detector, has_company): (&FailureDetector, bool),
        is_ready: bool,
    ) {
        self.shown.store(applied.0, Ordering::SeqCst);
        let in_us = |at: Duration| u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let (until, heard_at) = (failure_detector.lease_until().map_or(0, in_us), failure_detector.heard_at());
        self.lease_until_us.store(until, Ordering::Relaxed);
        self.heard_at_us.store(heard_at.map_or(0, in_us), Ordering::Relaxed);
        let shown = Arc::clone(&self.membership.read());
        let mut has_changed = !shown.places_like(membership);
        if has_changed {
            if shown.cluster() == membership.cluster() {
                self.figures.note_moved(membership.moved_since(&shown));
            }
            // Nodes that had gone before this process was ready are not shown.
            if self.is_ready.load(Ordering::Relaxed) {
                self.note_gone(&shown, membership);
            }
            *self.membership.write() = Arc::new(membership.clone());
        }
        self.note_heard(failure_detector);
        has_changed |= is_ready && !self.is_ready.swap(true, Ordering::Relaxed);
        has_changed |= self.has_company.swap(has_company, Ordering::Relaxed) != has_company;
        self.settled.store(self.begun.load(Ordering::SeqCst), Ordering::SeqCst);
        // Last, so that a thread that sees this sequence also sees the members of that time.
        if self.applied.swap(applied.0, Ordering::AcqRel) != applied.0 {
            self.applied_changes.send_replace(());
        }
        if has_changed {
            self.role_changes.send_replace(());
        }
    }

    fn note_heard(&self, failure_detector: &FailureDetector) {
        let mut heard = self.heard.lock();
        if !heard.iter().map(|(run, at)| (run, *at)).eq(failure_detector.heard()) {
            *heard = failure_detector.heard().map(|(run, at)| (run.clone(), at)).collect();
        }
    }

    fn note_gone(&self, before: &Membership, now: &Membership) {
        let at = self.clock.monotonic();
        let is_member = |node: &NodeName| now.members().any(|member| member.run.node == *node);
        let mut gone = self.gone.lock();
        gone.retain(|(member, since)| at.saturating_sub(*since) < GONE_SHOWN && !is_member(&member.run.node));
        for member in before.members().filter(|member| !is_member(&member.run.node)) {
            gone.push_front((member.clone(), at));
        }
        gone.truncate(GONE_MAX);
    }

    /// Records that an event is about to be applied. Only the command processor calls it.
    pub(super) fn begin(&self, sequence: Sequence) {
        self.begun.store(sequence.0, Ordering::SeqCst);
    }

    /// Records that the log cannot be followed any further.
    pub(super) fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.role_changes.send_replace(());
    }

    /// Returns the members, the sequencer and the epoch.
    pub fn membership(&self) -> Arc<Membership> {
        Arc::clone(&self.membership.read())
    }

    /// Returns true if this node has read all records that were in the log when it started, and still follows the log.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed) && !self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns true if this node cannot follow the log any further.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns true if the state belongs to this process.
    pub fn is_me(&self, run: &Incarnation) -> bool {
        *run == self.me
    }

    /// Returns true while this node has read from the log recently enough to answer for its readers.
    pub fn is_leased(&self) -> bool {
        self.lease_left() > Duration::ZERO && !self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns the time for which [`Self::is_leased`] stays true if this node reads nothing more from the log.
    pub fn lease_left(&self) -> Duration {
        let until = Duration::from_micros(self.lease_until_us.load(Ordering::Relaxed));
        until.saturating_sub(self.clock.monotonic())
    }

    fn place(&self, member: Option<&Member>) -> Place {
        match member {
            // A node that reads nothing from the log cannot know the owners.
            _ if !self.is_leased() => Place::Nowhere,
            None => Place::Nowhere,
            Some(member) if member.run == self.me => Place::Here,
            Some(member) => Place::At { node: member.run.node.clone(), address: member.address.as_str().into() },
        }
    }
}

impl Placement for ClusterState {
    fn me(&self) -> &NodeName {
        &self.me.node
    }

    fn owner(&self, user: &SourceId) -> Place {
        self.place(self.membership().owner_of(user))
    }

    fn sequencer(&self) -> Place {
        let membership = self.membership();
        let Some(sequencer) = membership.sequencer() else { return Place::Nowhere };
        // A process that has just claimed is about to become a member.
        let is_seated = membership.is_member(sequencer) && !membership.is_leaving(sequencer);
        if !is_seated && self.is_leased() {
            return Place::Changing;
        }
        self.place(membership.members().find(|member| member.run == *sequencer))
    }

    fn figures(&self) -> Option<&ClusterFigures> {
        Some(&self.figures)
    }

    fn heard_ago(&self) -> Option<Duration> {
        let heard = Duration::from_micros(self.heard_at_us.load(Ordering::Relaxed));
        (heard > Duration::ZERO).then(|| self.clock.monotonic().saturating_sub(heard))
    }

    fn heartbeat_period(&self) -> Duration {
        self.session / BEATS_PER_SESSION
    }

    fn members(&self) -> Vec<(NodeName, String)> {
        self.membership().members().map(|member| (member.run.node.clone(), member.address.clone())).collect()
    }

    fn applied_changes(&self) -> watch::Receiver<()> {
        self.applied_changes.subscribe()
    }

    fn role_changes(&self) -> watch::Receiver<()> {
        self.role_changes.subscribe()
    }

    fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    fn readiness(&self) -> Readiness {
        match self.is_ending.load(Ordering::Relaxed) {
            true => Readiness::Leaving,
            false if !self.membership().is_member(&self.me) => Readiness::Joining,
            false if self.is_leased() => Readiness::Ready,
            false => Readiness::CutOff,
        }
    }

    fn has_handed_over(&self) -> bool {
        let membership = self.membership();
        let has_role = membership.sequencer() == Some(&self.me) || membership.is_member(&self.me);
        // Only a node that is alone keeps its roles. It waits until its `Leave` record is read back, too.
        let is_alone = !self.has_company.load(Ordering::Relaxed) && membership.is_leaving(&self.me);
        !has_role || is_alone || self.has_failed()
    }

    fn view(&self) -> ClusterInfo {
        let membership = self.membership();
        let mut owned: BTreeMap<&NodeName, Vec<u32>> = BTreeMap::new();
        for partition in 0..membership.partitions() {
            if let Some(owner) = membership.owner(partition) {
                owned.entry(&owner.run.node).or_default().push(partition);
            }
        }
        let (heard, now) = (self.heard.lock().clone(), self.clock.monotonic());
        let heard_ago =
            |run: &Incarnation| heard.iter().find(|(of, _)| of == run).map(|(_, at)| now.saturating_sub(*at));
        let nodes = membership.members().map(|member| NodeInfo {
            name: member.run.node.clone(),
            address: member.address.clone(),
            partitions: owned.remove(&member.run.node).unwrap_or_default(),
            heard_ago: heard_ago(&member.run),
        });
        let gone = self.gone.lock().clone();
        let gone = gone.iter().filter_map(|(member, since)| {
            let gone_ago = now.saturating_sub(*since);
            let node = || GoneNode { name: member.run.node.clone(), address: member.address.clone(), gone_ago };
            (gone_ago < GONE_SHOWN).then(node)
        });
        let sequencer = membership.sequencer().filter(|run| membership.is_member(run));
        ClusterInfo {
            epoch: membership.epoch(),
            partitions: membership.partitions(),
            sequencer: sequencer.map(|run| run.node.clone()),
            nodes: nodes.collect(),
            gone: gone.collect(),
            session: self.session,
            heartbeat: self.heartbeat_period(),
        }
    }

    fn applied(&self) -> Sequence {
        Sequence(self.applied.load(Ordering::Acquire))
    }

    fn shown(&self) -> Sequence {
        Sequence(self.shown.load(Ordering::SeqCst)).max(self.last_event())
    }

    fn last_event(&self) -> Sequence {
        Sequence(self.begun.load(Ordering::SeqCst))
    }

    fn settled(&self) -> Option<Sequence> {
        let settled = self.settled.load(Ordering::SeqCst);
        (settled == self.begun.load(Ordering::SeqCst)).then_some(Sequence(settled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn an_event_is_shown_before_it_is_applied() {
        let view = ClusterState::new("a".parse().unwrap(), Arc::new(SystemClock), Duration::from_secs(1));
        view.begin(Sequence(9));
        assert_eq!((view.shown(), view.applied()), (Sequence(9), Sequence(0)));
    }
}
