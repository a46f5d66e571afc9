//! A simulation of nodes that are paused, cut off from the log, slow or restarted.
#![cfg(test)]

use super::*;
use proptest::prelude::*;

use crate::cluster::membership::PARTITIONS;
use crate::cluster::record::{ClusterId, Epoch, decode_header, encode};

const SESSION: Duration = Duration::from_secs(6);
const TICK: Duration = Duration::from_millis(250);
const NODES: usize = 3;

struct Node {
    me: NodeRun,
    membership: Membership,
    presence: Presence,
    applied: usize,
    /// The number that its next record as the sequencer has, and in which epoch.
    next: (Epoch, u64),
    /// Records that were sent, and arrive in the log later.
    outgoing: VecDeque<(usize, Vec<u8>)>,
    paused_ticks: usize,
    cut_off_ticks: usize,
}

struct Simulation {
    log: Vec<Vec<u8>>,
    nodes: Vec<Node>,
    now: Duration,
}

fn header(by: &NodeRun, epoch: Epoch, nth: u64) -> Header {
    Header { cluster: ClusterId(1), by: by.clone(), epoch, nth }
}

impl Simulation {
    fn new() -> Self {
        let founder = NodeRun { node: "init".parse().unwrap(), run: 0 };
        let first = encode(&header(&founder, Epoch(0), 0), &Content::Founded { partitions: PARTITIONS });
        let mut simulation = Self { log: vec![first], nodes: Vec::new(), now: Duration::ZERO };
        for nth in 0..NODES {
            let node = simulation.node(nth, 1);
            simulation.nodes.push(node);
        }
        simulation
    }

    fn node(&self, nth: usize, run: u64) -> Node {
        let me = NodeRun { node: format!("node-{nth}").parse().unwrap(), run };
        let (header, content) = decode_header(&self.log[0]).unwrap();
        Node {
            membership: Membership::founded(&header, content).unwrap(),
            presence: Presence::new(me.clone(), format!("http://{nth}"), SESSION, self.now),
            me,
            applied: 1,
            next: (Epoch(0), 0),
            outgoing: VecDeque::new(),
            paused_ticks: 0,
            cut_off_ticks: 0,
        }
    }

    fn tick(&mut self, delays: usize) {
        self.now += TICK;
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

    /// Returns the owners of each partition, by what each node knows at this moment, paused or not.
    fn owners(&self, partition: u32) -> Vec<&Node> {
        let owns = |node: &&Node| {
            let is_leased = node.presence.lease_until().is_some_and(|until| self.now < until);
            is_leased && node.membership.owner(partition).is_some_and(|owner| owner.run == node.me)
        };
        self.nodes.iter().filter(owns).collect()
    }
}

impl Node {
    fn read(&mut self, now: Duration, log: &[Vec<u8>]) {
        while let Some(bytes) = log.get(self.applied) {
            let (header, content) = decode_header(bytes).unwrap();
            self.applied += 1;
            let counted = self.membership.read(Sequence(self.applied as u64), &header, content).unwrap();
            if counted == Counted::Claimed {
                self.next = (self.membership.epoch(), 1);
            }
            self.presence.note(now, &header, &counted);
        }
        self.presence.set_ready();
    }

    fn append(&mut self, now: Duration, delay: usize) {
        for duty in self.presence.duties(now, &self.membership, Sequence(self.applied as u64)) {
            let (header, content) = match duty {
                Duty::Beat(nth, content) => (header(&self.me, self.membership.epoch(), nth), content),
                Duty::Claim => (header(&self.me, self.membership.epoch().next(), 0), Content::Claim),
                Duty::AsSequencer(content) => {
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
    Restart(usize),
    None(usize),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0..NODES, 1..60usize).prop_map(|(node, ticks)| Fault::Pause(node, ticks)),
        (0..NODES, 1..60usize).prop_map(|(node, ticks)| Fault::CutOff(node, ticks)),
        (0..NODES).prop_map(Fault::Restart),
        (1..40usize).prop_map(Fault::None),
    ]
}

proptest! {
    #[test]
    fn a_cut_off_node_never_owns_what_another_owns_and_all_is_well_after_the_last_fault(
        faults in prop::collection::vec((fault(), 1..12usize, 0..4usize), 0..25),
    ) {
        let mut simulation = Simulation::new();
        (0..40).for_each(|_| simulation.tick(1));
        for (run, (fault, ticks, delays)) in faults.into_iter().enumerate() {
            match fault {
                Fault::Pause(node, ticks) => simulation.nodes[node].paused_ticks = ticks,
                Fault::CutOff(node, ticks) => simulation.nodes[node].cut_off_ticks = ticks,
                Fault::Restart(node) => simulation.nodes[node] = simulation.node(node, run as u64 + 2),
                Fault::None(ticks) => (0..ticks).for_each(|_| simulation.tick(1)),
            }
            for _ in 0..ticks {
                simulation.tick(delays);
                for partition in (0..PARTITIONS).step_by(16) {
                    let owners = simulation.owners(partition);
                    let newest = owners.iter().max_by_key(|node| node.applied);
                    for other in &owners {
                        // A living node may have not read yet that another one has joined. One that was removed must know it.
                        let is_member = newest.is_some_and(|newest| newest.membership.is_member(&other.me));
                        prop_assert!(is_member, "{:?} still answers for {partition}", other.me);
                    }
                }
            }
        }
        for node in &mut simulation.nodes {
            (node.paused_ticks, node.cut_off_ticks) = (0, 0);
        }
        (0..200).for_each(|_| simulation.tick(1));
        let first = &simulation.nodes[0].membership;
        for node in &simulation.nodes {
            prop_assert_eq!(node.membership.sequencer(), first.sequencer());
            prop_assert!(node.membership.members().eq(first.members()));
            prop_assert!(first.is_member(&node.me) && node.presence.lease_until() > Some(simulation.now));
            prop_assert!(!node.presence.must_give_up_name(simulation.now, &node.membership));
        }
        prop_assert!(first.sequencer().is_some_and(|run| first.is_member(run)));
        let epoch = first.epoch();
        (0..100).for_each(|_| simulation.tick(1));
        prop_assert_eq!(simulation.nodes[0].membership.epoch(), epoch, "nobody claims without need");
    }
}
