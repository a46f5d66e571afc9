//! Tests that compare the simulation with sums computed by hand.
#![cfg(test)]

use std::time::Duration;

use super::*;
use crate::simulation::costs::{Costs, MEASURED};

/// Costs that are easy to add up: no costs per group, and no random spread.
const COSTS: Costs = Costs {
    wake_us: 0.0,
    judge_us: 100.0,
    append_us: 0.0,
    processor_append_us: 0.0,
    read_us: 0.0,
    apply_us: 20.0,
    processor_us: 4.0,
    broker_us: 0.0,
    commit_us: 1_000.0,
    commit_spread: 0.0,
    delivery_us: 0.5,
    message_us: 10.0,
    page_us: 30.0,
    pass_us: 40.0,
    client_us: 0.0,
    hop_us: 50.0,
    idle_cores: 0.0,
    ..MEASURED
};

fn open(nodes: usize, posts: f64, pages: f64) -> Scenario {
    Scenario {
        nodes,
        machines: Machines::Own { cores: 16, network_bytes: 1e12 },
        costs: COSTS,
        work: Work {
            clients: Clients::Open { posts, pages },
            followers: 100.0,
            online_share: 0.0,
            spread: 0.0,
            asks_owner: true,
        },
        warm_up: Duration::from_secs(1),
        lasts: Duration::from_secs(10),
        seed: 7,
    }
}

fn cores(outcome: &Outcome) -> f64 {
    outcome.nodes.iter().map(|node| node.cores).sum()
}

#[track_caller]
fn assert_near(one: f64, other: f64) {
    assert!((one - other).abs() <= 0.03 * other.abs(), "{one} and {other} differ by more than 3 %");
}

#[test]
fn the_processor_time_is_the_sum_of_all_steps() {
    // Judging, applying on each node, deliveries; pages.
    for nodes in [1_usize, 2, 5] {
        let outcome = simulate(&open(nodes, 300.0, 1_000.0));
        let posts = 300.0 * (100.0 - 2.0 + 2.0 + nodes as f64 * 20.0 + 100.0 * 0.5);
        // Publishes of authors that the sequencer does not own are forwarded once.
        let passed = 300.0 * (1.0 - scenario::owned_shares(nodes)[0]) * 40.0;
        assert_near(cores(&outcome), (posts + passed + 1_000.0 * 30.0) / 1e6);
        assert!(outcome.keeps_up());
    }
    let anywhere = Scenario { work: Work { asks_owner: false, ..open(2, 0.0, 0.0).work }, ..open(2, 0.0, 0.0) };
    let work = Work { clients: Clients::Open { posts: 0.0, pages: 2_000.0 }, ..anywhere.work };
    // Half of the pages are forwarded.
    assert_near(cores(&simulate(&Scenario { work, ..anywhere })), 2_000.0 * (30.0 + 0.5 * 40.0) / 1e6);
}

#[test]
fn an_uncontended_request_takes_the_sum_of_its_steps() {
    let outcome = simulate(&open(1, 1.0, 1.0));
    // Two hops; judging, storing, a hop from the log, applying.
    assert_near(outcome.publishes.p50_us, 2.0 * 50.0 + 100.0 + 1_000.0 + 50.0 + 20.0);
    assert_near(outcome.pages.p50_us, 2.0 * 50.0 + 30.0);
}

#[test]
fn the_records_of_a_group_share_its_cost() {
    let costs = Costs { read_us: 200.0, append_us: 200.0, processor_append_us: 50.0, ..COSTS };
    let publish = |count| {
        let work = Work { clients: Clients::Publish { count, requests: 5_000 }, ..open(3, 0.0, 0.0).work };
        simulate(&Scenario {
            costs,
            work,
            machines: Machines::Shared { cores: 2 },
            warm_up: Duration::ZERO,
            ..open(3, 0.0, 0.0)
        })
    };
    let (one, many) = (publish(1), publish(64));
    assert_near(one.records_per_read, 1.0);
    assert!(many.records_per_read > 4.0, "{}", many.records_per_read);
    assert!(many.processor_time() < one.processor_time() / 1.5, "{one:?} {many:?}");
    assert!(many.answered_after < one.answered_after / 3.0 && many.answered == 5_000);
}

#[test]
fn an_overload_shows_in_the_latencies() {
    let too_many = Scenario { machines: Machines::Own { cores: 1, network_bytes: 1e12 }, ..open(1, 0.0, 40_000.0) };
    let outcome = simulate(&too_many);
    assert!(!outcome.keeps_up() && outcome.pages.p99_us > 1e6, "{outcome:?}");
    let slow = Scenario { machines: Machines::Own { cores: 16, network_bytes: 1e6 }, ..open(1, 0.0, 1_000.0) };
    assert!(!simulate(&slow).keeps_up(), "pages of 6 KB need 6 MB in a second");
}

#[test]
fn the_same_seed_has_the_same_outcome_and_another_seed_has_another() {
    let spread =
        Scenario { work: Work { spread: 1.5, asks_owner: false, ..open(3, 500.0, 500.0).work }, ..open(3, 0.0, 0.0) };
    let outcome = |seed| format!("{:?}", simulate(&Scenario { seed, ..spread.clone() }));
    assert_eq!(outcome(1), outcome(1));
    assert_ne!(outcome(1), outcome(2));
}

#[test]
fn uneven_follower_counts_delay_deliveries_at_equal_cost() {
    let with = |spread| {
        let scenario = open(2, 400.0, 0.0);
        simulate(&Scenario { work: Work { spread, followers: 1_000.0, ..scenario.work }, ..scenario })
    };
    let (even, uneven) = (with(0.0), with(1.0));
    assert!((cores(&uneven) / cores(&even) - 1.0).abs() < 0.1, "{} {}", cores(&even), cores(&uneven));
    assert!(uneven.deliveries.p99_us > even.deliveries.p99_us);
}
