//! Measures the container inside an inbox: a tree of runs, compared with a tree that has one position per entry.
//!
//! `cargo bench --bench inbox`
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use common::{resident_bytes, size, some};
use tidewire::clock::UnixMicros;
use tidewire::feed::inbox::Inbox;
use tidewire::feed::position::{Direction, Position, PositionRange};
use tidewire::id::PostId;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POSTS_MAX: usize = 300;

/// Average time between two posts of one inbox: 300 posts are two days.
const GAP_US: i64 = 600_000_000;

/// The common interface of both containers.
trait Container {
    fn push(&mut self, position: Position);
    fn newest(&self, max: usize, into: &mut Vec<Position>);
}

impl Container for Inbox {
    fn push(&mut self, position: Position) {
        Inbox::push(self, position);
    }

    fn newest(&self, max: usize, into: &mut Vec<Position>) {
        self.copy(PositionRange::ALL, Direction::Older, max, into);
    }
}

/// A tree with a position per entry.
#[derive(Default)]
struct PlainTree(BTreeMap<Position, ()>);

impl Container for PlainTree {
    fn push(&mut self, position: Position) {
        self.0.insert(position, ());
        if self.0.len() > POSTS_MAX {
            self.0.pop_first();
        }
    }

    fn newest(&self, max: usize, into: &mut Vec<Position>) {
        into.extend(self.0.keys().rev().take(max));
    }
}

/// The origin of post ids.
#[derive(Clone, Copy)]
enum Ids {
    Minted,
    Counted,
    Snowflake,
    Random,
}

const IDS: [(&str, Ids); 4] =
    [("minted", Ids::Minted), ("counted", Ids::Counted), ("snowflake", Ids::Snowflake), ("random", Ids::Random)];

impl Ids {
    /// Returns the position of the `round`-th post of an inbox: at its own instant, up to half a gap early or late.
    fn position(self, inbox: usize, round: usize) -> Position {
        let noise = (((inbox << 32) | round) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
        let noise = noise.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (noise >> 32);
        let micros = 1_763_700_000_000_000 + round as i64 * GAP_US + (noise >> 1) as i64 % GAP_US - GAP_US / 2;
        let id = match self {
            Ids::Minted => (micros as u64) << 12,
            // In a world with 1,200 posts between two posts of one inbox.
            Ids::Counted => micros as u64 / 500_000,
            // The id was made some milliseconds before the post is published here.
            Ids::Snowflake => ((micros as u64 / 1_000 - 1_288_834_974_657 - noise % 50) << 22) | (noise >> 42),
            Ids::Random => noise,
        };
        Position { published_at: UnixMicros(micros), id: PostId(id) }
    }
}

struct Figures {
    entry_bytes: f64,
    filling_ns: f64,
    full_ns: f64,
    newest_ns: f64,
    all_ns: f64,
}

fn main() {
    let inboxes = size(100_000, 50);
    let arguments: Vec<String> = std::env::args().collect();
    let Some((name, ids)) = IDS.iter().find(|(name, _)| arguments.iter().any(|argument| argument == name)) else {
        return each_in_a_process_of_its_own();
    };
    let plain = arguments.iter().any(|argument| argument == "plain");
    let (container, figures) = if plain {
        ("tree of positions", measure(inboxes, *ids, PlainTree::default))
    } else {
        ("tree of runs", measure(inboxes, *ids, || Inbox::new(some(POSTS_MAX))))
    };
    let Figures { entry_bytes, filling_ns, full_ns, newest_ns, all_ns } = figures;
    println!(
        "{container}, {inboxes} inboxes of {POSTS_MAX}, {name} ids: {entry_bytes:.1} B/entry resident, \
         {filling_ns:.0} ns/push filling, {full_ns:.0} ns/push when full, \
         {newest_ns:.0} ns to read the newest 60, {all_ns:.0} ns to read all"
    );
}

/// Runs each measurement in a process of its own, so that memory that one container has released does not affect the next.
fn each_in_a_process_of_its_own() {
    let mode = if common::measuring() { "--bench" } else { "--test" };
    let rows = std::iter::once(("plain", IDS[0].0)).chain(IDS.map(|(name, _)| ("runs", name)));
    for (container, ids) in rows {
        let this = std::env::current_exe().unwrap();
        assert!(std::process::Command::new(this).args([mode, container, ids]).status().unwrap().success());
    }
}

fn measure<C: Container>(inboxes: usize, ids: Ids, make: impl Fn() -> C) -> Figures {
    let before = resident_bytes();
    let mut all: Vec<C> = (0..inboxes).map(|_| make()).collect();
    let filling_ns = push_rounds(&mut all, ids, 0, POSTS_MAX);
    let entry_bytes = (resident_bytes() - before) / (inboxes * POSTS_MAX) as f64;
    let full_ns = push_rounds(&mut all, ids, POSTS_MAX, 50);
    let newest_ns = read(&all, 60);
    let all_ns = read(&all, POSTS_MAX);
    Figures { entry_bytes, filling_ns, full_ns, newest_ns, all_ns }
}

/// Returns the step from one inbox to the next, in an order that caches cannot predict.
fn stride(inboxes: usize) -> usize {
    (inboxes as f64 * 0.618) as usize | 1
}

fn push_rounds<C: Container>(all: &mut [C], ids: Ids, from: usize, rounds: usize) -> f64 {
    let began = Instant::now();
    let mut at = 0;
    for round in from..from + rounds {
        for _ in 0..all.len() {
            at = (at + stride(all.len())) % all.len();
            all[at].push(ids.position(at, round));
        }
    }
    began.elapsed().as_nanos() as f64 / (rounds * all.len()) as f64
}

fn read<C: Container>(all: &[C], max: usize) -> f64 {
    let mut into = Vec::with_capacity(max);
    let began = Instant::now();
    let mut at = 0;
    for _ in 0..all.len() {
        at = (at + stride(all.len())) % all.len();
        into.clear();
        all[at].newest(max, &mut into);
        black_box(&into);
    }
    began.elapsed().as_nanos() as f64 / all.len() as f64
}
