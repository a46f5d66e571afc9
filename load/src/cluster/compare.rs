//! Runs the same work on clusters of several sizes, and compares it with the simulation.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::cluster::Row;
use crate::cluster::clients::{Measured, Until, closed_loop, milliseconds, thousands};
use crate::cluster::figures::{post, wait_applied};
use crate::cluster::nodes::{Node, Nodes, Setup, request};
use crate::report::Latency;
use crate::scale::Demand;
use crate::simulation::costs::Costs;
use crate::simulation::{Clients, Machines, Outcome, Scenario, Work, simulate};

/// Sizes of the clusters.
const SIZES: [usize; 4] = [1, 2, 3, 6];

/// The sizes of the world and of the work.
const READERS: usize = 20_000;
const FOLLOWED: usize = 20;
const AUTHORS: usize = 1_000;
const FIRST_POSTS: usize = 20_000;
const POSTS: usize = 10_000;
const PAGES: usize = 40_000;

/// The number of clients that publish, and the number of posts of a single client.
const CLIENTS: usize = 64;
const POSTS_OF_ONE: usize = 2_000;

/// Runs the same work on clusters of several sizes, and compares its cost with a simulation on a machine with this many cores.
///
/// # Errors
/// If a node does not start, or a request fails.
pub async fn compare(setup: &Setup, costs: &Costs, cores: usize) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for size in SIZES {
        let nodes = Nodes::start(setup, &format!("compare-{size}"), size).await?;
        let sequencer = nodes.nodes[nodes.sequencer()].address;
        let resident = || nodes.nodes.iter().map(|node| node.resident_bytes() as f64).sum::<f64>() / size as f64;
        let empty = resident();
        let authors = nodes.authors_of(nodes.sequencer(), AUTHORS);
        fill(sequencer).await?;
        let owners: Vec<SocketAddr> =
            (0..READERS).map(|reader| nodes.nodes[nodes.owner(&format!("reader-{reader}"))].address).collect();
        let page = |reader: usize| request(&format!("GET /v1/users/reader-{reader}/feed?limit=20"), "");
        let read = |count: usize| {
            closed_loop(CLIENTS, Until::Done(count), |client, nth| {
                let reader = (client + nth * CLIENTS) * 7 % READERS;
                (owners[reader], page(reader))
            })
        };
        read(READERS).await?;
        wait_applied(&nodes).await?;
        let full = resident() - empty;
        let expected = |clients| expect(size, clients, costs, cores);
        for (clients, posts) in [(1, POSTS_OF_ONE), (CLIENTS, POSTS)] {
            let before = processor_time(&nodes);
            let measured = publish(sequencer, &authors, clients, posts).await?;
            wait_applied(&nodes).await?;
            let used = processor_time(&nodes) - before;
            let outcome = expected(Clients::Publish { count: clients, requests: posts });
            let what = format!("nodes: {size}, clients: {clients}, publishes");
            rows.push(row(what, &measured, used, &outcome, &outcome.publishes));
        }
        let before = processor_time(&nodes);
        let measured = read(PAGES).await?;
        let used = processor_time(&nodes) - before;
        let outcome = expected(Clients::Read { count: CLIENTS, requests: PAGES });
        rows.push(row(format!("nodes: {size}, pages"), &measured, used, &outcome, &outcome.pages));
        let memory = demand().memory_bytes(1.0 / size as f64, costs);
        rows.push(Row::new(
            format!("nodes: {size}, memory of the world on each"),
            format!("{:.0} MB, expected {:.0}", full / 1e6, memory / 1e6),
        ));
    }
    Ok(rows)
}

fn processor_time(nodes: &Nodes) -> Duration {
    nodes.nodes.iter().map(Node::processor_time).sum()
}

/// Simulates the same work. Clients write at the sequencer, for authors that it owns, and read at the owners: no request is forwarded.
fn expect(nodes: usize, clients: Clients, costs: &Costs, cores: usize) -> Outcome {
    let work = Work {
        clients,
        followers: (READERS * FOLLOWED / AUTHORS) as f64,
        online_share: 0.0,
        spread: 0.0,
        asks_owner: true,
    };
    let machines = Machines::Shared { cores };
    let (warm_up, lasts) = (Duration::ZERO, Duration::ZERO);
    simulate(&Scenario { nodes, machines, costs: *costs, work, warm_up, lasts, seed: 1 })
}

fn demand() -> Demand {
    Demand {
        users: READERS as f64,
        follows: FOLLOWED as f64,
        followers: (READERS * FOLLOWED / AUTHORS) as f64,
        active_share: 1.0,
        online_share: 0.0,
        spread: 0.0,
        posts: 0.0,
        pages: 0.0,
        posts_kept: FIRST_POSTS as f64,
        asks_owner: true,
    }
}

/// Returns a row with the rate, the times, and the processor time of all nodes for a request, measured and simulated.
fn row(what: String, measured: &Measured, used: Duration, outcome: &Outcome, expected: &Latency) -> Row {
    let text = |rate: f64, latency: &Latency, us: f64| {
        format!(
            "{}/s, p50 {}, p99 {}, {us:.0} µs",
            thousands(rate),
            milliseconds(latency.p50_us),
            milliseconds(latency.p99_us)
        )
    };
    let used_us = used.as_secs_f64() / measured.latency.count as f64 * 1e6;
    let count = outcome.answered.max(1) as f64;
    let expected_us = outcome.processor_time() / count * 1e6;
    Row::new(
        what,
        format!(
            "{} | {}",
            text(measured.rate(), &measured.latency, used_us),
            text(count / outcome.answered_after, expected, expected_us)
        ),
    )
}

async fn publish(address: SocketAddr, authors: &[usize], clients: usize, count: usize) -> io::Result<Measured> {
    closed_loop(clients, Until::Done(count), |client, nth| {
        (address, post(authors[(client + nth * clients) % authors.len()]))
    })
    .await
}

async fn fill(address: SocketAddr) -> io::Result<()> {
    let all: Vec<usize> = (0..READERS * FOLLOWED).collect();
    for edges in all.chunks(10_000) {
        let edge = |nth: &usize| {
            let (reader, author) = (nth / FOLLOWED, (nth * 7 + nth / FOLLOWED) % AUTHORS);
            format!(r#"{{"follower":"reader-{reader}","source":"author-{author}"}}"#)
        };
        let body = format!(r#"{{"follows":[{}]}}"#, edges.iter().map(edge).collect::<Vec<_>>().join(","));
        closed_loop(1, Until::Done(1), |_, _| (address, request("POST /v1/follows", &body))).await?;
    }
    publish(address, &Vec::from_iter(0..AUTHORS), CLIENTS, FIRST_POSTS).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::costs::MEASURED;

    /// Measurements of real clusters on a machine with two cores (docs/scale.md): the number of nodes; for each workload the rate, and the
    /// microseconds of all nodes per operation. Workloads: one client that publishes, 64 that publish, 64 that read.
    const REAL: [(usize, [(f64, f64); 3]); 4] = [
        (1, [(1_850.0, 330.0), (21_900.0, 103.0), (75_200.0, 15.0)]),
        (2, [(1_590.0, 495.0), (17_500.0, 140.0), (83_100.0, 16.0)]),
        (3, [(1_470.0, 630.0), (13_000.0, 185.0), (75_500.0, 18.0)]),
        (6, [(912.0, 1_105.0), (7_650.0, 264.0), (45_500.0, 32.0)]),
    ];

    #[test]
    fn the_simulation_agrees_with_real_clusters() {
        for (nodes, real) in REAL {
            let requests = 4_000;
            let all = [
                Clients::Publish { count: 1, requests: requests / 4 },
                Clients::Publish { count: CLIENTS, requests },
                Clients::Read { count: CLIENTS, requests },
            ];
            for (clients, (rate, us)) in all.into_iter().zip(real) {
                let outcome = expect(nodes, clients, &MEASURED, 2);
                let answered = outcome.answered as f64;
                let ratios = [answered / outcome.answered_after / rate, outcome.processor_time() / answered * 1e6 / us];
                // Two runs on real clusters differ as much.
                assert!(
                    ratios.iter().all(|ratio| (0.7..1.3).contains(ratio)),
                    "{nodes} nodes, {clients:?}: {ratios:?}"
                );
            }
        }
    }
}
