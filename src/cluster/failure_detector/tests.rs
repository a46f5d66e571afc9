//! A simulation of nodes that are paused, cut off from the log, slow or restarted.
#![cfg(test)]

use super::*;
use proptest::prelude::*;
use testkit::cases;

use std::sync::Arc;

use crate::clock::{ManualClock, UnixMicros};
use crate::cluster::membership::PARTITIONS;
use crate::cluster::placement::{Placement as _, Readiness};
use crate::cluster::record::{ClusterId, Epoch, decode_content, decode_header, encode};
use crate::cluster::state::ClusterState;

const SESSION: Duration = Duration::from_secs(6);
const TICK: Duration = Duration::from_millis(250);
const NODES: usize = 3;

/// Number of records that others append in a tick while the log is busy.
const LOAD: usize = 8;

struct Node {
    me: Incarnation,
    membership: Membership,
    failure_detector: FailureDetector,
    applied: usize,
    /// The epoch and the number of its next record as the sequencer.
    next: (Epoch, u64),
    /// Records that were sent and arrive in the log later.
    outgoing: VecDeque<(usize, Vec<u8>)>,
    paused_ticks: usize,
    cut_off_ticks: usize,
    /// Maximum number of records that it reads in a tick.
    reads_max: usize,
}

struct Simulation {
    log: Vec<Vec<u8>>,
    nodes: Vec<Node>,
    now: Duration,
    /// Records without an effect that others append to the log in each tick.
    load: usize,
}

fn header(by: &Incarnation, epoch: Epoch, nth: u64) -> Header {
    Header { cluster: ClusterId(1), by: by.clone(), epoch, nth }
}

impl Simulation {
    fn new() -> Self {
        let founder = Incarnation { node: "init".parse().unwrap(), run: 0 };
        let first =
            encode(&header(&founder, Epoch(0), 0), &Content::Founded { partitions: PARTITIONS, archive: false });
        let mut simulation = Self { log: vec![first], nodes: Vec::new(), now: Duration::ZERO, load: 0 };
        for nth in 0..NODES {
            let node = simulation.node(nth, 1);
            simulation.nodes.push(node);
        }
        simulation
    }

    fn node(&self, nth: usize, run: u64) -> Node {
        let me = Incarnation { node: format!("node-{nth}").parse().unwrap(), run };
        let (header, content) = decode_header(&self.log[0]).unwrap();
        Node {
            membership: Membership::founded(&header, content).unwrap(),
            failure_detector: FailureDetector::new(me.clone(), format!("http://{nth}"), SESSION, self.now),
            me,
            applied: 1,
            next: (Epoch(0), 0),
            outgoing: VecDeque::new(),
            paused_ticks: 0,
            cut_off_ticks: 0,
            reads_max: usize::MAX,
        }
    }

    fn tick(&mut self, delays: usize) {
        self.now += TICK;
        let foreign = Header { cluster: ClusterId(2), ..header(&self.nodes[0].me, Epoch(0), 0) };
        self.log.extend((0..self.load).map(|_| encode(&foreign, &Content::Leave)));
        for nth in 0..NODES {
            let node = &mut self.nodes[nth];
            node.outgoing.iter_mut().for_each(|(wait, _)| *wait = wait.saturating_sub(1));
            if node.cut_off_ticks > 0 {
                node.cut_off_ticks -= 1;
            } else {
                while node.outgoing.front().is_some_and(|(wait, _)| *wait == 0) {
                    self.log.extend(node.outgoing.pop_front().map(|(_, bytes)| bytes));
                }
            }
            if node.paused_ticks > 0 {
                node.paused_ticks -= 1;
                continue;
            }
            // A node that was paused may append before it reads.
            if delays.is_multiple_of(2) {
                node.append(self.now, delays);
            }
            if node.cut_off_ticks == 0 {
                node.read(self.now, &self.log);
            }
            node.append(self.now, delays);
        }
    }

    /// Returns the nodes that consider themselves owners of a partition at this moment, paused or not.
    fn owners(&self, partition: u32) -> Vec<&Node> {
        let owns = |node: &&Node| {
            let is_leased = node.failure_detector.lease_until().is_some_and(|until| self.now < until);
            is_leased && node.membership.owner(partition).is_some_and(|owner| owner.run == node.me)
        };
        self.nodes.iter().filter(owns).collect()
    }

    /// Returns a node that answers for a partition although it was removed. A living node may not have read yet that
    /// another one has joined, but a removed node must know it.
    fn usurper(&self) -> Option<(u32, &Incarnation)> {
        (0..PARTITIONS).step_by(16).find_map(|partition| {
            let owners = self.owners(partition);
            let newest = owners.iter().max_by_key(|node| node.applied)?;
            let removed = owners.iter().find(|owner| !newest.membership.is_member(&owner.me))?;
            Some((partition, &removed.me))
        })
    }
}

impl Node {
    fn read(&mut self, now: Duration, log: &[Vec<u8>]) {
        for bytes in log.iter().skip(self.applied).take(self.reads_max) {
            let (header, content) = decode_header(bytes).unwrap();
            self.applied += 1;
            let counted =
                self.membership.read(Sequence(self.applied as u64), &header, decode_content(content)).unwrap();
            if counted == RecordOutcome::Claimed {
                self.next = (self.membership.epoch(), 1);
            }
            self.failure_detector.note(now, &header, &counted, &self.membership);
        }
        self.failure_detector.set_ready();
    }

    fn append(&mut self, now: Duration, delay: usize) {
        for action in self.failure_detector.actions(now, &self.membership, Sequence(self.applied as u64)) {
            let (header, content) = match action {
                Action::Heartbeat(nth, content) => (header(&self.me, self.membership.epoch(), nth), content),
                Action::Claim => (header(&self.me, self.membership.epoch().next(), 0), Content::Claim),
                Action::AsSequencer(content) => {
                    self.next.1 += 1;
                    (header(&self.me, self.next.0, self.next.1 - 1), content)
                }
            };
            self.outgoing.push_back((delay, encode(&header, &content)));
        }
    }
}

#[derive(Clone, Debug)]
enum Fault {
    Pause(usize, usize),
    CutOff(usize, usize),
    /// The node reads this many records in a tick, while others append more.
    Slow(usize, usize),
    Restart(usize),
    None(usize),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0..NODES, 1..60usize).prop_map(|(node, ticks)| Fault::Pause(node, ticks)),
        (0..NODES, 1..60usize).prop_map(|(node, ticks)| Fault::CutOff(node, ticks)),
        (0..NODES, 0..2 * LOAD).prop_map(|(node, records)| Fault::Slow(node, records)),
        (0..NODES).prop_map(Fault::Restart),
        (1..40usize).prop_map(Fault::None),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64) as u32))]

    #[test]
    fn partitions_have_at_most_one_owner_and_the_cluster_recovers_after_the_last_fault(
        faults in prop::collection::vec((fault(), 1..12usize, 0..4usize), 0..25),
    ) {
        let mut simulation = Simulation::new();
        (0..40).for_each(|_| simulation.tick(1));
        for (run, (fault, ticks, delays)) in faults.into_iter().enumerate() {
            match fault {
                Fault::Pause(node, ticks) => simulation.nodes[node].paused_ticks = ticks,
                Fault::CutOff(node, ticks) => simulation.nodes[node].cut_off_ticks = ticks,
                Fault::Slow(node, records) => (simulation.load, simulation.nodes[node].reads_max) = (LOAD, records),
                Fault::Restart(node) => simulation.nodes[node] = simulation.node(node, run as u64 + 2),
                Fault::None(ticks) => (0..ticks).for_each(|_| simulation.tick(1)),
            }
            for _ in 0..ticks {
                simulation.tick(delays);
                prop_assert_eq!(simulation.usurper(), None);
            }
        }
        for node in &mut simulation.nodes {
            (node.paused_ticks, node.cut_off_ticks, node.reads_max) = (0, 0, usize::MAX);
        }
        simulation.load = 0;
        (0..200).for_each(|_| simulation.tick(1));
        let first = &simulation.nodes[0].membership;
        for node in &simulation.nodes {
            prop_assert_eq!(node.membership.sequencer(), first.sequencer());
            prop_assert!(node.membership.members().eq(first.members()));
            prop_assert!(first.is_member(&node.me) && node.failure_detector.lease_until() > Some(simulation.now));
            prop_assert!(!node.failure_detector.must_give_up_name(simulation.now, &node.membership));
        }
        prop_assert!(first.sequencer().is_some_and(|run| first.is_member(run)));
        let epoch = first.epoch();
        (0..100).for_each(|_| simulation.tick(1));
        prop_assert_eq!(simulation.nodes[0].membership.epoch(), epoch, "nobody claims without need");
    }
}

#[test]
fn a_node_that_reads_too_slowly_is_removed_and_rejoins() {
    for (is_sequencer, reads_max) in (0..LOAD).flat_map(|reads_max| [(false, reads_max), (true, reads_max)]) {
        let mut simulation = Simulation::new();
        (0..40).for_each(|_| simulation.tick(1));
        let sequencer = simulation.nodes[0].membership.sequencer().cloned();
        let slow =
            (0..NODES).find(|nth| (sequencer.as_ref() == Some(&simulation.nodes[*nth].me)) == is_sequencer).unwrap();
        let (me, other) = (simulation.nodes[slow].me.clone(), (slow + 1) % NODES);
        (simulation.load, simulation.nodes[slow].reads_max) = (LOAD, reads_max);
        let is_behind = |simulation: &Simulation| {
            let heard_at = simulation.nodes[slow].failure_detector.heard_at().unwrap();
            simulation.now - heard_at > SESSION
        };
        let mut tick_until = |what: &str, holds: &dyn Fn(&Simulation) -> bool| {
            let began = simulation.now;
            while !holds(&simulation) {
                assert!(simulation.now - began < 40 * SESSION, "{what}: with {reads_max} records a tick");
                simulation.tick(1);
                assert_eq!(simulation.usurper(), None, "with {reads_max} records a tick");
            }
            simulation.now - began
        };
        tick_until("it is a session behind", &is_behind);
        let removed = |simulation: &Simulation| !simulation.nodes[other].membership.is_member(&me);
        let took = tick_until("it is removed", &removed);
        assert!(took <= 2 * SESSION, "removed after {took:?} with {reads_max} records a tick");
        simulation.nodes[slow].reads_max = usize::MAX;
        (0..40).for_each(|_| simulation.tick(1));
        assert!(!removed(&simulation), "it has caught up");
    }
}

#[test]
fn publishing_waits_for_a_lagging_member_until_it_catches_up_or_is_removed() {
    let mut simulation = Simulation::new();
    (0..40).for_each(|_| simulation.tick(1));
    let sequencer = simulation.nodes.iter().position(|node| node.membership.sequencer() == Some(&node.me)).unwrap();
    let slow = (sequencer + 1) % NODES;
    let all: Vec<Incarnation> = simulation.nodes.iter().map(|node| node.me.clone()).collect();
    let by = all[slow].clone();
    // (seconds behind by each of two heartbeats, true if publishing waits, number of members)
    for (behind, waits, members) in [
        (&[0, 0][..], false, 3),
        // A heartbeat right after a pause.
        (&[5, 0], false, 3),
        (&[1, 1], false, 3),
        (&[4, 4], true, 3),
        (&[5, 1], false, 3),
        (&[8, 9], false, 2),
        (&[4, 4], false, 2),
        (&[1, 1], false, 3),
    ] {
        let node = &mut simulation.nodes[sequencer];
        for seconds in behind.iter().copied() {
            simulation.now += SESSION / BEATS_PER_SESSION;
            for run in &all {
                let behind_ms = if *run == by { 1_000 * seconds } else { 0 };
                let is_ready = behind_ms <= 6_000;
                let heartbeat = RecordOutcome::Heartbeat { address: "http://any".to_owned(), is_ready, behind_ms };
                node.failure_detector.note(simulation.now, &header(run, Epoch(0), 0), &heartbeat, &node.membership);
            }
        }
        let waited = node.failure_detector.outruns_members(&node.membership);
        let after = node.failure_detector.changed_members(simulation.now, &node.membership);
        if let Some(changed) = after {
            let members = Content::Members { members: changed, as_of: Sequence(u64::MAX) };
            let nth = node.membership.next_nth();
            let bytes = encode(&header(&node.me, node.membership.epoch(), nth), &members);
            let (header, content) = decode_header(&bytes).unwrap();
            assert_eq!(
                node.membership.read(Sequence(1_000), &header, decode_content(content)),
                Ok(RecordOutcome::Members)
            );
        }
        // Publishing does not wait for a node that was removed.
        let waits_now = waited && node.failure_detector.outruns_members(&node.membership);
        assert_eq!((waits_now, node.membership.members().count()), (waits, members), "{behind:?} s behind");
    }
}

#[test]
fn a_sequencer_that_left_before_this_node_started_is_replaced_at_once() {
    let mut simulation = Simulation::new();
    (0..40).for_each(|_| simulation.tick(1));
    let sequencer = simulation.nodes[0].membership.sequencer().unwrap().clone();
    simulation.log.push(encode(&header(&sequencer, Epoch(0), 0), &Content::Leave));
    // It starts again, from a snapshot of the state after this record. The others are silent.
    let mut membership = simulation.nodes[0].membership.clone();
    let nth = simulation.nodes.iter().position(|node| node.me == sequencer).unwrap();
    let mut node = simulation.node(nth, 2);
    for (at, bytes) in simulation.log.iter().enumerate().skip(simulation.nodes[0].applied) {
        let (header, content) = decode_header(bytes).unwrap();
        membership.read(Sequence(at as u64 + 1), &header, decode_content(content)).unwrap();
    }
    assert!(membership.is_leaving(&sequencer));
    (node.membership, node.applied) = (membership, simulation.log.len());
    let until = simulation.now + SESSION / 2;
    while node.membership.sequencer() != Some(&node.me) {
        simulation.now += TICK;
        assert!(simulation.now < until, "it waits for a node that has left");
        node.append(simulation.now, 0);
        simulation.log.extend(node.outgoing.drain(..).map(|(_, bytes)| bytes));
        node.read(simulation.now, &simulation.log);
    }
    (0..8).for_each(|_| {
        simulation.now += TICK;
        node.append(simulation.now, 0);
        simulation.log.extend(node.outgoing.drain(..).map(|(_, bytes)| bytes));
        node.read(simulation.now, &simulation.log);
    });
    let members: Vec<_> = node.membership.members().map(|member| member.run.clone()).collect();
    assert!(members.contains(&node.me) && !members.contains(&sequencer), "{members:?}");
}

#[test]
fn after_a_claim_lag_is_reset_and_nodes_join_after_a_heartbeat_without_lag() {
    let mut simulation = Simulation::new();
    (0..40).for_each(|_| simulation.tick(1));
    let sequencer = simulation.nodes.iter().position(|node| node.membership.sequencer() == Some(&node.me)).unwrap();
    let member = simulation.nodes[(sequencer + 1) % NODES].me.clone();
    let joins = Incarnation { node: "node-9".parse().unwrap(), run: 1 };
    // (seconds behind by two heartbeats before a claim and by one after it, true if a node that is not a member yet
    // becomes one)
    for (before, after, joined) in [
        ([4, 4], None, false),
        ([0, 4], None, false),
        ([4, 0], None, false),
        ([0, 0], None, true),
        ([4, 4], Some(4), false),
        ([4, 4], Some(1), true),
    ] {
        let (node, mut now) = (&mut simulation.nodes[sequencer], simulation.now);
        let mut note = |run: &Incarnation, counted: &RecordOutcome| {
            now += SESSION / BEATS_PER_SESSION;
            node.failure_detector.note(now, &header(run, Epoch(0), 0), counted, &node.membership);
        };
        let heartbeat = |seconds: u64| RecordOutcome::Heartbeat {
            address: "http://any".to_owned(),
            is_ready: true,
            behind_ms: 1_000 * seconds,
        };
        for seconds in before {
            [&joins, &member].into_iter().for_each(|run| note(run, &heartbeat(seconds)));
        }
        note(&member, &RecordOutcome::Claimed);
        after.into_iter().for_each(|seconds| note(&joins, &heartbeat(seconds)));
        assert!(
            !node.failure_detector.outruns_members(&node.membership),
            "nobody waits for {before:?} after the claim"
        );
        let members = node.failure_detector.changed_members(now, &node.membership).unwrap_or_default();
        assert_eq!(members.iter().any(|member| member.run == joins), joined, "{before:?}, {after:?}");
        node.failure_detector.heard.remove(&joins);
    }
}

#[test]
fn a_heartbeat_reports_how_long_the_node_has_not_read_its_own_heartbeats() {
    let mut node = Simulation::new().node(0, 1);
    node.failure_detector.set_ready();
    let mut beat_at = |seconds| match node
        .failure_detector
        .actions(Duration::from_secs(seconds), &node.membership, Sequence(1))
        .remove(0)
    {
        Action::Heartbeat(_, Content::Heartbeat(heartbeat)) => (heartbeat.behind_ms, heartbeat.is_ready),
        other => panic!("no heartbeat but {other:?}"),
    };
    for (seconds, said) in [(0, (0, true)), (3, (3_000, true)), (7, (7_000, false))] {
        assert_eq!(beat_at(seconds), said, "after {seconds} s");
    }
}

#[test]
fn a_silent_node_is_shown_with_its_silence_and_a_cut_off_node_is_not_ready() {
    let clock = Arc::new(ManualClock::new(UnixMicros(0)));
    let view = ClusterState::new("node-0".parse().unwrap(), clock.clone(), SESSION);
    let mut simulation = Simulation::new();
    simulation.nodes[0] = simulation.node(0, view.run().run);
    let run = |simulation: &mut Simulation, ticks: usize| {
        for _ in 0..ticks {
            simulation.tick(1);
            clock.advance(TICK);
        }
        let Node { membership, failure_detector, .. } = &simulation.nodes[0];
        view.show(membership, Sequence(9), (failure_detector, true), true);
    };
    let silent = || {
        let shown = view.view();
        [0, 1, 2].map(|nth| shown.nodes[nth].heard_ago.unwrap())
    };
    run(&mut simulation, 40);
    let (heartbeat, before) = (SESSION / BEATS_PER_SESSION, silent());
    assert!(before.iter().all(|ago| *ago <= 2 * heartbeat), "{before:?}");
    assert_eq!((view.view().session, view.view().heartbeat, view.readiness()), (SESSION, heartbeat, Readiness::Ready));
    // It stays a member for a session, even while it is paused.
    simulation.nodes[1].paused_ticks = 100;
    run(&mut simulation, 16);
    let after = silent();
    assert!(after[1] >= before[1] + Duration::from_secs(3) && after[0].max(after[2]) <= 2 * heartbeat, "{after:?}");
    assert_eq!(view.readiness(), Readiness::Ready);
    // Times grow while nothing is read.
    clock.advance(SESSION);
    assert_eq!(silent(), after.map(|ago| ago + SESSION));
    assert_eq!(view.readiness(), Readiness::CutOff);
}

#[test]
fn a_node_that_left_is_shown_for_an_hour_or_until_it_returns() {
    let clock = Arc::new(ManualClock::new(UnixMicros(0)));
    let view = ClusterState::new("node-0".parse().unwrap(), clock.clone(), SESSION);
    let mut simulation = Simulation::new();
    simulation.nodes[0] = simulation.node(0, view.run().run);
    let run = |simulation: &mut Simulation, ticks: usize, is_ready: bool| {
        for _ in 0..ticks {
            simulation.tick(1);
            clock.advance(TICK);
            let Node { membership, failure_detector, .. } = &simulation.nodes[0];
            view.show(membership, Sequence(9), (failure_detector, true), is_ready);
        }
    };
    let gone = || view.view().gone.iter().map(|node| (node.name.to_string(), node.gone_ago)).collect::<Vec<_>>();
    run(&mut simulation, 40, false);
    simulation.nodes[2].paused_ticks = 60;
    run(&mut simulation, 60, false);
    run(&mut simulation, 40, true);
    assert_eq!(gone(), [], "what was read before this node was ready is not shown");
    simulation.nodes[1].paused_ticks = 60;
    run(&mut simulation, 60, true);
    let found = gone();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0 == "node-1" && found[0].1 < TICK * 60, "{found:?}");
    clock.advance(Duration::from_secs(3_580));
    assert_eq!(gone().len(), 1);
    clock.advance(Duration::from_secs(20));
    assert_eq!(gone(), [], "after an hour");
    run(&mut simulation, 40, true);
    simulation.nodes[2].paused_ticks = 60;
    run(&mut simulation, 60, true);
    assert_eq!(gone().len(), 1);
    run(&mut simulation, 60, true);
    assert_eq!(gone(), [], "it is back");
}
