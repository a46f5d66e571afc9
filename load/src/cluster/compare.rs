//! The same work on clusters of several sizes, beside what the arithmetic of `scale` expects.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::cluster::Row;
use crate::cluster::clients::{Until, closed_loop};
use crate::cluster::figures::{post, wait_applied};
use crate::cluster::nodes::{Node, Nodes, Setup, request};
use crate::scale::{Costs, Demand};

/// Sizes of the clusters.
const SIZES: [usize; 4] = [1, 2, 3, 6];

/// The world, and the work.
const READERS: usize = 20_000;
const FOLLOWED: usize = 20;
const AUTHORS: usize = 1_000;
const FIRST_POSTS: usize = 20_000;
const POSTS: usize = 10_000;
const PAGES: usize = 40_000;

const CLIENTS: usize = 64;

/// Does the same work on clusters of several sizes, and compares what it took with the arithmetic.
///
/// # Errors
/// If a node does not start, or a request fails.
pub async fn compare(setup: &Setup, costs: &Costs) -> io::Result<Vec<Row>> {
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
        let time = || nodes.nodes.iter().map(Node::processor_time).sum::<Duration>();
        let before = time();
        publish(sequencer, &authors, POSTS).await?;
        wait_applied(&nodes).await?;
        let written = time();
        read(PAGES).await?;
        let all = time();
        // One second of demand is the whole work.
        let demand = Demand {
            users: READERS as f64,
            follows: FOLLOWED as f64,
            followers: (READERS * FOLLOWED / AUTHORS) as f64,
            active_share: 1.0,
            online_share: 0.0,
            posts: POSTS as f64,
            pages: PAGES as f64,
            posts_kept: FIRST_POSTS as f64,
            asks_owner: true,
        };
        // The clients write at the sequencer, for authors that it owns, and read at the owners: nothing is passed on.
        let costs = Costs { pass_us: 0.0, ..*costs };
        let expected = demand.cores_of_all(size as f64, &costs);
        let reading = PAGES as f64 * costs.page_us / 1e6;
        let memory = demand.need(size as f64, &costs).memory_bytes;
        rows.push(Row::new(
            format!("nodes: {size}, processor time of all for {POSTS} posts, and for {PAGES} pages"),
            format!(
                "{:.2} s, expected {:.2}; {:.2} s, expected {reading:.2}",
                (written - before).as_secs_f64(),
                expected - reading,
                (all - written).as_secs_f64()
            ),
        ));
        rows.push(Row::new(
            format!("nodes: {size}, memory of the world on each"),
            format!("{:.0} MB, expected {:.0}", full / 1e6, memory / 1e6),
        ));
    }
    Ok(rows)
}

async fn publish(address: SocketAddr, authors: &[usize], count: usize) -> io::Result<()> {
    closed_loop(CLIENTS, Until::Done(count), |client, nth| {
        (address, post(authors[(client + nth * CLIENTS) % authors.len()]))
    })
    .await?;
    Ok(())
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
    publish(address, &Vec::from_iter(0..AUTHORS), FIRST_POSTS).await
}
