//! The same work on several designs, in turns.
//!
//! Responsible for:
//! - starting each design, loading the same world and posts, and checking its answers before anything is timed;
//! - rounds in which each case is measured on each design, one right after the other, so that whatever else the machine does
//!   meets all alike.
//!
//! Not responsible for:
//! - how the work is done (`drive`), or telling what came of it (`report`).

mod cases;
mod prepare;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::compare::cases::Cases;
use crate::compare::prepare::Prepared;
use crate::operation::{Post, User};
use crate::report::TargetReport;
use crate::target::Failure;
use crate::target::kind::{Kind, Settings as TargetSettings};
use crate::workload::{Mint, Mix};
use crate::world::World;

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Designs, in order.
    pub kinds: Vec<Kind>,
    /// What they are set to.
    pub target: TargetSettings,
    /// Rounds of each case.
    pub rounds: usize,
    /// How long a case lasts on a design in one round, beside the warming up.
    pub lasts: Duration,
    /// What is done before it counts.
    pub warm_up: Duration,
    /// Clients at once.
    pub clients: NonZeroUsize,
    /// Threads that clients are spread over.
    pub threads: NonZeroUsize,
    /// The mix of the mixed case.
    pub mix: Mix,
    /// Exponents of Zipf's law by which authors publish, and readers read.
    pub exponents: (f64, f64),
    /// The burst: so many times the average, before, during and after it.
    pub burst: (f64, [Duration; 3]),
    /// Seed of everything random.
    pub seed: u64,
}

/// What goes on, for whoever watches.
pub trait Watch {
    /// A design is at something now.
    fn step(&self, target: &str, what: &str);
}

/// The world that all designs are loaded with.
#[derive(Clone, Debug)]
pub struct Load {
    /// Users and edges.
    pub world: Arc<World>,
    /// What is published before anyone is active, by author, oldest first.
    pub posts: Arc<BTreeMap<User, Vec<Post>>>,
    /// Makes more posts.
    pub mint: Arc<Mint>,
}

impl Load {
    /// A load of enough posts to fill the inboxes of nearly all readers.
    pub fn new(world: World, inbox_posts: usize) -> Self {
        let mint = Mint::default();
        // A tenth more than what fills them on average, since chance deals unequally.
        let wanted = world.users() as f64 * inbox_posts as f64 * 1.1 / world.mean_followers().max(1.0);
        let rounds = (wanted / world.authors.len().max(1) as f64).ceil() as usize;
        let mut posts: BTreeMap<User, Vec<Post>> = BTreeMap::new();
        for _ in 0..rounds.max(1) {
            for author in &world.authors {
                posts.entry(*author).or_default().push(mint.post(*author));
            }
        }
        Self { world: Arc::new(world), posts: Arc::new(posts), mint: Arc::new(mint) }
    }
}

/// Compares.
///
/// # Errors
/// Only if none of the designs can take part; those that cannot are told with the reason.
pub fn compare(settings: &Settings, load: &Load, watch: &dyn Watch) -> Result<Vec<TargetReport>, Failure> {
    let told = Arc::new(AtomicU64::new(0));
    let mut reports = Vec::new();
    let mut ready = Vec::new();
    for kind in &settings.kinds {
        let report = TargetReport { name: kind.name().to_owned(), ..TargetReport::default() };
        match Prepared::new(*kind, settings, load, watch) {
            Ok(prepared) => {
                let case = prepared.memory.map(|memory| ("memory".to_owned(), memory.case()));
                reports.push(TargetReport {
                    settings: prepared.target.settings(),
                    pages_checked: prepared.pages_checked,
                    cases: case.into_iter().collect(),
                    ..report
                });
                ready.push((reports.len() - 1, Cases::new(prepared)));
            }
            Err(cause) => reports.push(TargetReport { left_out: Some(cause.to_string()), ..report }),
        }
    }
    if ready.is_empty() {
        let reasons = reports.iter().filter_map(|report| report.left_out.as_deref()).collect::<Vec<_>>();
        return Err(Failure::Failed(format!("no design can take part: {}", reasons.join("; "))));
    }
    for round in 0..settings.rounds {
        for case in cases::TIMED {
            for (_, cases) in &mut ready {
                watch.step(cases.name(), &format!("{}, round {} of {}", case.label(), round + 1, settings.rounds));
                cases.measure(*case, round, settings, load, &told);
            }
        }
    }
    for (nth, cases) in ready {
        cases.tell(&mut reports[nth], settings);
    }
    Ok(reports)
}
