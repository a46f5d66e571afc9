//! The faults of nodes, of brokers and of the network between them, in an order that a seed decides.

use std::thread;
use std::time::{Duration, Instant};

use super::{NAMES, Nodes, PATIENCE, SESSION, signal};
use testkit::eventually;

/// A fault, which ends when it is healed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process of a node is killed, and started again.
    Killed(Of),
    /// The process of a node is stopped for longer than its session, and continued.
    Paused(Of),
    /// A node is cut off from Kafka, while clients and other nodes reach it.
    CutOff(Of),
    /// A node leaves in order, and joins again.
    Leaves(Of),
    /// A further node joins, and leaves in order.
    Joins,
    /// A broker is killed, and started again.
    BrokerKilled,
    /// A broker is stopped for longer than its session, and continued.
    BrokerPaused,
    /// All brokers are killed, and started again.
    BrokersKilled,
}

/// Which node has a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    Sequencer,
    Another,
}

/// All faults. A run goes through them in one order after the other; a short one has each of them once.
pub const FAULTS: [Fault; 12] = [
    Fault::Killed(Of::Sequencer),
    Fault::Killed(Of::Another),
    Fault::Paused(Of::Sequencer),
    Fault::Paused(Of::Another),
    Fault::CutOff(Of::Sequencer),
    Fault::CutOff(Of::Another),
    Fault::Leaves(Of::Sequencer),
    Fault::Leaves(Of::Another),
    Fault::Joins,
    Fault::BrokerKilled,
    Fault::BrokerPaused,
    Fault::BrokersKilled,
];

/// One fault, or two at once.
#[derive(Clone, Debug)]
pub struct Round {
    pub faults: Vec<Fault>,
    /// The broker of a fault of one broker; the second such fault has the next one.
    broker: usize,
    /// The time between two faults.
    apart: Duration,
    /// The time from the last fault until all are healed.
    pub lasts: Duration,
}

/// Returns rounds with this many faults.
pub fn rounds(random: &mut fastrand::Rng, faults: usize) -> Vec<Round> {
    let mut order = Vec::new();
    while order.len() < faults {
        let mut all = FAULTS;
        random.shuffle(&mut all);
        order.extend(all);
    }
    order.truncate(faults);
    // A long run also waits until clients and nodes have given up.
    let gone = if faults < 100 { 3 } else { 15 };
    let mut rounds = Vec::new();
    while !order.is_empty() {
        let may_pair = order.len() > 1 && random.u32(..100) < 40 && !exclude(order[0], order[1]);
        let at_once = if may_pair { 2 } else { 1 };
        let faults: Vec<Fault> = order.drain(..at_once).collect();
        let sessions = if faults.contains(&Fault::BrokersKilled) { f64::from(gone) } else { 1.2 + 2.0 * random.f64() };
        let (apart, lasts) = (SESSION.mul_f64(random.f64()), SESSION.mul_f64(sessions));
        rounds.push(Round { faults, broker: random.usize(..3), apart, lasts });
    }
    rounds
}

/// Returns true for two faults that do not happen at once: a broker that is killed already cannot be again, and a node cannot join without any.
fn exclude(one: Fault, other: Fault) -> bool {
    let needs_brokers = |fault| matches!(fault, Fault::Joins | Fault::BrokerKilled | Fault::BrokerPaused);
    (one == Fault::BrokersKilled && needs_brokers(other)) || (other == Fault::BrokersKilled && needs_brokers(one))
}

/// Where a fault is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Node(usize),
    Broker(usize),
    AllBrokers,
}

impl Nodes {
    /// Inflicts the faults of a round, and returns which they were, and where: while the sequencer has a fault, the next one is another node's.
    pub fn inflict(&mut self, round: &Round) -> Vec<(Fault, Place)> {
        let mut inflicted: Vec<(Fault, Place)> = Vec::new();
        for fault in &round.faults {
            if !inflicted.is_empty() {
                thread::sleep(round.apart);
            }
            let is_free = |place: &Place| inflicted.iter().all(|(_, other)| other != place);
            let of_node = |kind: fn(Of) -> Fault, of| {
                let (of, place) = self.victim(of, is_free);
                (kind(of), place)
            };
            let (fault, place) = match fault {
                Fault::Killed(of) => of_node(Fault::Killed, *of),
                Fault::Paused(of) => of_node(Fault::Paused, *of),
                Fault::CutOff(of) => of_node(Fault::CutOff, *of),
                Fault::Leaves(of) => of_node(Fault::Leaves, *of),
                Fault::Joins => (*fault, Place::Node(NAMES.len() - 1)),
                Fault::BrokerKilled | Fault::BrokerPaused => {
                    let brokers = (0..3).map(|nth| Place::Broker((round.broker + nth) % 3 + 1));
                    (*fault, brokers.into_iter().find(is_free).unwrap())
                }
                Fault::BrokersKilled => (*fault, Place::AllBrokers),
            };
            self.begin(fault, place);
            inflicted.push((fault, place));
        }
        inflicted
    }

    /// Returns the sequencer or another node, which has no fault yet, and which of both it is.
    fn victim(&self, of: Of, is_free: impl Fn(&Place) -> bool) -> (Of, Place) {
        let sequencer = self.sequencer();
        let of_whom = |node: usize| if Some(node) == sequencer { Of::Sequencer } else { Of::Another };
        let free: Vec<usize> = self.running().filter(|node| is_free(&Place::Node(*node))).collect();
        let victim = free.iter().copied().find(|node| of_whom(*node) == of).unwrap_or(free[0]);
        (of_whom(victim), Place::Node(victim))
    }

    /// Checks, while the faults last, that they were effective: the other nodes have removed each victim, and a new sequencer follows one.
    /// Without all brokers nodes cannot know.
    pub fn check_inflicted(&self, faults: &[(Fault, Place)], epoch_before: u64) {
        if faults.iter().any(|(_, place)| !matches!(place, Place::Node(_))) {
            return;
        }
        let is_at =
            |node: usize| faults.iter().any(|(fault, place)| *place == Place::Node(node) && *fault != Fault::Joins);
        let survivors: Vec<usize> = self.running().filter(|node| !is_at(*node)).collect();
        for (fault, place) in faults {
            let (Fault::Killed(of) | Fault::Paused(of) | Fault::CutOff(of) | Fault::Leaves(of), Place::Node(victim)) =
                (fault, place)
            else {
                continue;
            };
            eventually(&format!("{fault:?} is effective"), || {
                survivors.iter().filter_map(|node| self.known(*node)).any(|known| {
                    !known.members.iter().any(|name| name == self.slots[*victim].name)
                        && (*of == Of::Another || known.epoch > epoch_before)
                })
            });
        }
    }

    fn begin(&mut self, fault: Fault, place: Place) {
        match (fault, place) {
            (Fault::Killed(_), Place::Node(node)) => self.kill_node(node),
            (Fault::Paused(_), Place::Node(node)) => signal(self.slots[node].process.as_ref().unwrap(), "STOP"),
            (Fault::CutOff(_), Place::Node(node)) => self.slots[node].door.set_open(false),
            (Fault::Leaves(_), Place::Node(node)) => self.leave(node),
            (Fault::Joins, Place::Node(node)) => self.start_node(node),
            (Fault::BrokerKilled, Place::Broker(broker)) => self.brokers.kill(broker),
            (Fault::BrokerPaused, Place::Broker(broker)) => self.brokers.pause(broker),
            _ => (1..=self.brokers.count()).for_each(|broker| self.brokers.kill(broker)),
        }
    }

    pub fn leave(&mut self, node: usize) {
        if let Some(mut process) = self.slots[node].process.take() {
            signal(&process, "TERM");
            let began = Instant::now();
            let ended = loop {
                match process.try_wait().unwrap() {
                    Some(ended) => break ended,
                    None if began.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(5)),
                    None => {
                        process.kill().unwrap();
                        panic!("node {} does not leave: {}", self.slots[node].name, self.logs());
                    }
                }
            };
            assert!(ended.success(), "node {} leaves in order: {ended} {}", self.slots[node].name, self.logs());
        }
    }

    /// Ends the faults. Brokers come first, since a node does not start without them.
    pub fn heal(&mut self, faults: &[(Fault, Place)]) {
        if faults.iter().any(|(_, place)| !matches!(place, Place::Node(_))) {
            self.brokers.restore();
        }
        for (fault, place) in faults {
            match (fault, place) {
                (Fault::Killed(_) | Fault::Leaves(_), Place::Node(node)) => self.start_node(*node),
                (Fault::Paused(_), Place::Node(node)) => signal(self.slots[*node].process.as_ref().unwrap(), "CONT"),
                (Fault::CutOff(_), Place::Node(node)) => self.slots[*node].door.set_open(true),
                _ => {}
            }
        }
        // It leaves a cluster without faults.
        if let Some((_, Place::Node(node))) = faults.iter().find(|(fault, _)| *fault == Fault::Joins) {
            self.all_are_members();
            self.leave(*node);
        }
    }
}
