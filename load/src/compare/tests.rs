//! Tests of whole comparisons with the mock: no test waits for a server.
#![cfg(test)]

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::initial_load::Posts;
use crate::mint::Ids;
use crate::operation::User;
use crate::target::mock::Mock;
use crate::target::{Client, Later};
use crate::world::generated::Recipe;

fn settings(kinds: &[Kind], rounds: usize) -> Settings {
    let ms = Duration::from_millis;
    Settings {
        kinds: kinds.to_vec(),
        target: TargetSettings { inbox_posts: 20, ..TargetSettings::default() },
        rounds,
        // Long enough that every client is scheduled on a busy machine.
        lasts: ms(150),
        warm_up: ms(10),
        clients: NonZeroUsize::new(2).unwrap(),
        threads: NonZeroUsize::MIN,
        mix: Mix::named("social").unwrap(),
        exponents: (0.0, 0.0),
        burst: (2.0, [ms(10); 3]),
        recorded: None,
        seed: 1,
    }
}

fn load() -> Load {
    let recipe = Recipe {
        users: 50,
        authors: 5,
        mean_followers: 10,
        most_followers: 20,
        exponent: 0.5,
        active_share: 1.0,
        seed: 1,
    };
    let posts = Posts { ids: Ids::default(), gap: Duration::from_secs(60), seed: 1 };
    Load::new(recipe.make(), 20, &posts).unwrap()
}

fn quiet() -> Progress {
    Progress::lines(Box::new(std::io::sink()))
}

const CLOSED_AND_OPEN: [&str; 7] =
    ["deliveries", "mix", "page", "page_alone", "page_pipelined", "pages_together", "visible"];

#[test]
fn each_round_has_every_design_and_over_time_each_one_follows_each_other() {
    let orders: Vec<Vec<usize>> = (0..80).map(|time| turns(4, 1, time)).collect();
    for order in &orders {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3]);
    }
    let pairs: BTreeSet<_> = orders.iter().flat_map(|order| order.windows(2).map(|pair| (pair[0], pair[1]))).collect();
    assert_eq!(pairs.len(), 4 * 3);
    assert_eq!(turns(4, 1, 7), turns(4, 1, 7));
}

#[test]
#[ignore = "takes 4 s of measuring, in which every client has to be scheduled"]
fn every_case_is_measured_in_every_round_on_every_design() {
    let (settings, load) = (settings(&[Kind::Mock, Kind::Mock], 2), load());
    let (reports, environment) = compare(&settings, &load, &quiet()).unwrap();
    assert_eq!((reports.len(), environment.stretches.len()), (2, 2 * 2 * CLOSED_AND_OPEN.len()));
    for report in reports {
        assert_eq!(report.cases.keys().collect::<Vec<_>>(), CLOSED_AND_OPEN);
        for (name, case) in &report.cases {
            assert!(case.rounds.len() == 2 && case.median > 0.0 && case.failed == 0, "{name}: {case:?}");
            assert!(case.over_time.iter().any(|interval| interval.value > 0.0), "{name}: {case:?}");
        }
        assert_eq!((report.failures, report.left_out), (vec![], None));
    }
}

#[test]
fn recorded_activity_is_replayed_once_on_every_design() {
    let recorded = Some(Pacer::recorded(&[(0, 1), (0, 2), (1_000, 3)], 50.0, 9));
    let settings = Settings { recorded, ..settings(&[Kind::Mock, Kind::Mock], 2) };
    let (reports, _) = compare(&settings, &load(), &quiet()).unwrap();
    for case in reports.iter().map(|report| &report.cases["recorded"]) {
        // Three posts and the operations between them, without the first tenth of the time, which is the warm-up.
        let done = case.latencies.values().map(|latency| latency.count).sum::<u64>();
        assert_eq!((case.rounds.len(), case.unit.as_str(), case.failed), (1, "us", 0));
        assert!((20..30).contains(&done), "{case:?}");
    }
}

/// A mock with a process that ends after this number of clients were opened.
struct Mortal {
    mock: Mock,
    process: u32,
    child: Mutex<Child>,
    opened: AtomicUsize,
    lives_for: usize,
}

impl Mortal {
    fn start(lives_for: usize) -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (mock, process, opened) = (Mock::blind(None), child.id(), AtomicUsize::new(0));
        Self { mock, process, child: Mutex::new(child), opened, lives_for }
    }

    fn end(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.end();
    }
}

impl Target for Mortal {
    fn name(&self) -> &'static str {
        "mortal"
    }

    fn settings(&self) -> Vec<String> {
        Vec::new()
    }

    fn open(&self) -> Later<'_, Result<Box<dyn Client>, Failure>> {
        if self.opened.fetch_add(1, Ordering::Relaxed) == self.lives_for {
            self.end();
        }
        self.mock.open()
    }

    fn load_follows<'a>(&'a self, edges: &'a [(User, User)]) -> Later<'a, Result<(), Failure>> {
        self.mock.load_follows(edges)
    }

    fn activate<'a>(&'a self, readers: &'a [User]) -> Later<'a, Result<(), Failure>> {
        self.mock.activate(readers)
    }

    fn process(&self) -> Option<u32> {
        Some(self.process)
    }
}

#[test]
#[ignore = "takes 1 s of measuring, in which every client has to be scheduled"]
fn a_round_whose_server_ended_is_reported_and_not_counted() {
    let (settings, load) = (settings(&[Kind::Mock], 3), load());
    // Two clients in each case, one for a single client, sixteen for an open loop.
    let mortal: Arc<dyn Target> = Arc::new(Mortal::start(2 + 2 + 1 + 2 + 2 + 2 + 16));
    let mut ready = [(0, Cases::new(Prepared::of(Kind::Mock, mortal)))];
    measure(&mut ready, &settings, &load, &quiet());
    let mut report = TargetReport::default();
    let [(_, cases)] = ready;
    cases.add_to_report(&mut report, &settings);
    assert_eq!(report.failures, ["deliveries, round 2: the server ended, and nothing is measured from there on"]);
    assert_eq!(report.cases.keys().collect::<Vec<_>>(), CLOSED_AND_OPEN);
    assert!(report.cases.values().all(|case| case.rounds.len() == 1), "{:?}", report.cases);
}
