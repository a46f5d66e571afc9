//! The container inside an inbox: runs in a tree, against a tree with a position per entry.
//!
//! `cargo bench --bench inbox`
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::time::Instant;

use common::{resident_bytes, size, some};
use tidewire::clock::UnixMicros;
use tidewire::feed::inbox::Inbox;
use tidewire::feed::position::Position;
use tidewire::id::PostId;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POSTS_MAX: usize = 300;

/// What both containers can do.
trait Container {
    fn push(&mut self, position: Position);
}

impl Container for Inbox {
    fn push(&mut self, position: Position) {
        Inbox::push(self, position);
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
}

fn main() {
    let inboxes = size(100_000, 50);
    let container = std::env::args().find(|argument| argument == "plain" || argument == "runs");
    let (name, (entry_bytes, filling, full)) = match container.as_deref() {
        Some("plain") => ("tree of positions", measure(inboxes, |_| PlainTree::default())),
        Some(_) => ("tree of runs", measure(inboxes, |_| Inbox::new(some(POSTS_MAX)))),
        None => return each_in_a_process_of_its_own(),
    };
    println!(
        "{name}, {inboxes} inboxes of {POSTS_MAX}: {entry_bytes:.1} B/entry resident, \
         {filling:.0} ns/push filling, {full:.0} ns/push when full"
    );
}

/// Memory that one container gave back must not count for the other.
fn each_in_a_process_of_its_own() {
    let mode = if common::measuring() { "--bench" } else { "--test" };
    for container in ["plain", "runs"] {
        let this = std::env::current_exe().unwrap();
        assert!(std::process::Command::new(this).args([mode, container]).status().unwrap().success());
    }
}

/// Bytes per entry, and nanoseconds per push before and after the cap is reached.
fn measure<C: Container>(inboxes: usize, make: impl Fn(usize) -> C) -> (f64, f64, f64) {
    let before = resident_bytes();
    let mut all: Vec<C> = (0..inboxes).map(make).collect();
    let filling = push_rounds(&mut all, 0, POSTS_MAX);
    let entry_bytes = (resident_bytes() - before) / (inboxes * POSTS_MAX) as f64;
    let full = push_rounds(&mut all, POSTS_MAX, 50);
    (entry_bytes, filling, full)
}

fn push_rounds<C: Container>(all: &mut [C], from: usize, rounds: usize) -> f64 {
    let began = Instant::now();
    let stride = (all.len() as f64 * 0.618) as usize | 1;
    let mut at = 0;
    for round in from..from + rounds {
        for _ in 0..all.len() {
            at = (at + stride) % all.len();
            all[at].push(Position { published_at: UnixMicros(round as i64), id: PostId(at as u64) });
        }
    }
    began.elapsed().as_nanos() as f64 / (rounds * all.len()) as f64
}
