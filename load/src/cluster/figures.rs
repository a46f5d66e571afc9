//! Measures a cluster without faults: writes, forwarding, replicas, pages.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::clients::{Measured, Until, closed_loop, milliseconds, new_histogram, thousands};
use crate::cluster::nodes::{Node, Nodes, Setup, get, request};
use crate::cluster::{Row, unexpected};
use crate::report::Latency;

/// Numbers of clients that publish.
const CLIENTS: [usize; 3] = [1, 64, 1_000];

/// Duration of each measurement.
const LASTS: Duration = Duration::from_secs(3);

/// Time after which a post that is missing on another node counts as lost.
const LAG_MAX: Duration = Duration::from_secs(10);

/// Number of clients of measurements with a fixed number.
const SOME: usize = 64;

/// Numbers of readers, of authors that each reader follows, and of posts of each author, for pages.
const READERS: usize = 3_000;
const FOLLOWED: usize = 10;
const AUTHORS: usize = 1_000;
const POSTS: usize = 10;

/// Returns a request that publishes a post with a body of about a hundred bytes.
pub(super) fn post(author: usize) -> String {
    let text = "Just setting up a feed, in a text as long as people write. And so it goes on for a while.";
    request("POST /v1/posts", &format!(r#"{{"author":"author-{author}","body":{{"text":"{text}"}}}}"#))
}

fn page(reader: usize) -> String {
    request(&format!("GET /v1/users/reader-{reader}/feed?limit=20"), "")
}

async fn publish(addresses: &[SocketAddr], authors: &[usize], clients: usize) -> io::Result<Measured> {
    let next = |client: usize, nth: usize| {
        (addresses[client % addresses.len()], post(authors[(client + nth) % authors.len()]))
    };
    // Connections and threads start before the measurement.
    closed_loop(clients, Until::Elapsed(LASTS / 6), next).await?;
    closed_loop(clients, Until::Elapsed(LASTS), next).await
}

/// Measures publishing on one node alone, and through all nodes of a cluster.
///
/// # Errors
/// If a node does not start, or a request fails.
pub async fn publishes(setup: &Setup) -> io::Result<Vec<Row>> {
    let (mut rows, all) = (Vec::new(), Vec::from_iter(0..AUTHORS));
    for durability in ["always", "everysec"] {
        let node = Node::alone(&setup.program, durability).await?;
        for clients in CLIENTS {
            let measured = publish(&[node.address], &all, clients).await?;
            rows.push(Row::new(
                format!("one node alone, `--durability {durability}`, {clients} clients"),
                measured.text(),
            ));
        }
    }
    let nodes = Nodes::start(setup, "publishes", 3).await?;
    let sequencer = [nodes.nodes[nodes.sequencer()].address];
    let own = nodes.authors_of(nodes.sequencer(), AUTHORS);
    for clients in CLIENTS {
        let through_all = publish(&nodes.addresses(), &all, clients).await?;
        rows.push(Row::new(format!("three nodes, {clients} clients through all of them"), through_all.text()));
        let through_owners = publish(&sequencer, &all, clients).await?;
        rows.push(Row::new(
            format!("three nodes, {clients} clients at the sequencer, which passes to the author's owner and back"),
            through_owners.text(),
        ));
        let direct = publish(&sequencer, &own, clients).await?;
        rows.push(Row::new(
            format!("three nodes, {clients} clients at the sequencer, for authors that it owns"),
            direct.text(),
        ));
    }
    Ok(rows)
}

/// Measures the cost of an event on the sequencer and on the other nodes, its bytes in the log, and the delay until it is applied.
///
/// # Errors
/// If a node does not start, or a request fails.
pub async fn replicas(setup: &Setup, log_bytes: impl Fn(&str) -> Option<u64>) -> io::Result<Vec<Row>> {
    let nodes = Nodes::start(setup, "replicas", 3).await?;
    let sequencer = nodes.sequencer();
    let direct = [nodes.nodes[sequencer].address];
    let times = || nodes.nodes.iter().map(Node::processor_time).collect::<Vec<_>>();
    let (before, bytes_before, idle) = (times(), log_bytes("replicas"), LASTS / 2);
    // Heartbeats have a cost as well.
    tokio::time::sleep(idle).await;
    let idle_share = |node: usize, after: &[Duration]| (after[node] - before[node]).as_secs_f64() / idle.as_secs_f64();
    let after_idle = times();
    let applied_before = applied(direct[0]).await?;
    let began = Instant::now();
    // The sequencer owns these authors, so that no request is forwarded.
    let own = nodes.authors_of(sequencer, AUTHORS);
    let measured = publish(&direct, &own, SOME).await?;
    let took = began.elapsed().as_secs_f64();
    tokio::time::sleep(LASTS / 6).await;
    let after = times();
    let events = (applied(direct[0]).await? - applied_before) as f64;
    let mut rows = vec![Row::new(format!("publishes at the sequencer, {SOME} clients"), measured.text())];
    for node in 0..nodes.nodes.len() {
        let (is, idle) = (
            if node == sequencer { "the sequencer, HTTP included" } else { "another node" },
            idle_share(node, &after_idle),
        );
        let busy = (after[node] - after_idle[node]).as_secs_f64() - idle * took;
        rows.push(Row::new(format!("processor time of an event on {is}"), format!("{:.1} µs", busy / events * 1e6)));
        rows.push(Row::new(format!("processor time without load on {is}"), format!("{:.1} % of a core", idle * 100.0)));
    }
    if let Some((before, after)) = bytes_before.zip(log_bytes("replicas")) {
        rows.push(Row::new("bytes of an event in the log", format!("{:.0}", (after - before) as f64 / events)));
    }
    rows.extend(lag(&nodes).await?);
    Ok(rows)
}

async fn applied(address: SocketAddr) -> io::Result<u64> {
    let (_, body) = get(address, "/v1/cluster").await?;
    serde_json::from_slice::<crate::cluster::nodes::ClusterInfo>(&body)
        .map(|view| view.applied)
        .map_err(io::Error::other)
}

/// Waits until all nodes have applied the last record of the sequencer.
pub(super) async fn wait_applied(nodes: &Nodes) -> io::Result<()> {
    let last = applied(nodes.nodes[nodes.sequencer()].address).await?;
    for node in &nodes.nodes {
        while applied(node.address).await? < last {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // Deliveries follow after that.
    tokio::time::sleep(LASTS / 6).await;
    Ok(())
}

/// Measures, under load, the time from the answer to a publish until another node has the post.
async fn lag(nodes: &Nodes) -> io::Result<Vec<Row>> {
    let sequencer = nodes.sequencer();
    let (writer, reader) = (nodes.nodes[sequencer].address, nodes.nodes[(sequencer + 1) % nodes.nodes.len()].address);
    let own = nodes.authors_of(sequencer, AUTHORS);
    let probe = async {
        let mut times = new_histogram()?;
        let mut writer = crate::target::tidewire::connection::Connection::open(writer).await?;
        let mut reader = crate::target::tidewire::connection::Connection::open(reader).await?;
        let began = Instant::now();
        let mut id = 1_000_000_u64;
        while began.elapsed() < LASTS {
            id += 1;
            let author = own[id as usize % own.len()];
            let json = format!(r#"{{"id":"{id}","author":"author-{author}","body":{{}}}}"#);
            let (status, body) = writer.ask(request("POST /v1/posts", &json).as_bytes()).await?;
            if status != 201 {
                return Err(unexpected("POST /v1/posts", status, body));
            }
            let answered = Instant::now();
            let read = request(&format!("GET /v1/posts/{id}"), "");
            loop {
                let (status, body) = reader.ask(read.as_bytes()).await?;
                match status {
                    200 => break,
                    404 if answered.elapsed() < LAG_MAX => {}
                    _ => return Err(unexpected(&format!("post {id} on another node"), status, body)),
                }
            }
            times.saturating_record(u64::try_from(answered.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        io::Result::Ok(Latency::of(&times))
    };
    let at = [writer];
    let load = publish(&at, &own, SOME);
    let (probed, load) = tokio::join!(probe, load);
    let (probed, load) = (probed?, load?);
    let what = format!(
        "another node has a post after its answer, at {} publishes/s, one read included",
        thousands(load.rate())
    );
    Ok(vec![Row::new(what, format!("p50 {}, p99 {}", milliseconds(probed.p50_us), milliseconds(probed.p99_us)))])
}

/// Creates a world of readers with full first pages on these nodes, and wakes them.
async fn fill(addresses: &[SocketAddr]) -> io::Result<()> {
    let first = addresses[0];
    let edge = |nth: usize| {
        let (reader, author) = (nth / FOLLOWED, (nth * 7 + nth / FOLLOWED) % AUTHORS);
        format!(r#"{{"follower":"reader-{reader}","source":"author-{author}"}}"#)
    };
    let all: Vec<usize> = (0..READERS * FOLLOWED).collect();
    for edges in all.chunks(5_000) {
        let edges: Vec<String> = edges.iter().map(|nth| edge(*nth)).collect();
        let body = format!(r#"{{"follows":[{}]}}"#, edges.join(","));
        closed_loop(1, Until::Done(1), |_, _| (first, request("POST /v1/follows", &body))).await?;
    }
    closed_loop(SOME, Until::Done(AUTHORS * POSTS), |client, nth| (first, post((client + nth * SOME) % AUTHORS)))
        .await?;
    Ok(())
}

/// Measures pages of clusters with one, two and three nodes. Each request goes to the owner of the reader.
///
/// # Errors
/// If a node does not start, or a request fails.
pub async fn pages(setup: &Setup) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for count in 1..=3 {
        let nodes = Nodes::start(setup, &format!("pages-{count}"), count).await?;
        fill(&nodes.addresses()).await?;
        let owners: Vec<SocketAddr> =
            (0..READERS).map(|reader| nodes.nodes[nodes.owner(&format!("reader-{reader}"))].address).collect();
        let next = |client: usize, nth: usize| {
            let reader = (client * 97 + nth * 31) % READERS;
            (owners[reader], page(reader))
        };
        // Wake all readers.
        closed_loop(SOME, Until::Done(READERS), |client, nth| (owners[client + nth * SOME], page(client + nth * SOME)))
            .await?;
        let before: Duration = nodes.nodes.iter().map(Node::processor_time).sum();
        let measured = closed_loop(SOME, Until::Elapsed(LASTS), next).await?;
        let used = nodes.nodes.iter().map(Node::processor_time).sum::<Duration>() - before;
        let each = measured.latency.count as f64 / used.as_secs_f64();
        let text = format!("{}; {} for a processor second of all nodes", measured.text(), thousands(each));
        rows.push(Row::new(format!("pages, nodes: {count}"), text));
        if count == 3 {
            rows.extend(passing_on(&nodes).await?);
        }
    }
    Ok(rows)
}

/// Measures a page at the owner and through another node, in turns.
async fn passing_on(nodes: &Nodes) -> io::Result<Vec<Row>> {
    let reader = 1;
    let owner = nodes.owner(&format!("reader-{reader}"));
    let (here, there) = (nodes.nodes[owner].address, nodes.nodes[(owner + 1) % nodes.nodes.len()].address);
    let mut times = [new_histogram()?, new_histogram()?];
    for _ in 0..10 {
        for (address, times) in [here, there].into_iter().zip(&mut times) {
            let mut connection = crate::target::tidewire::connection::Connection::open(address).await?;
            for _ in 0..300 {
                let sent = Instant::now();
                connection.ask(page(reader).as_bytes()).await?;
                times.saturating_record(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
            }
        }
    }
    let text = |times| {
        let latency = Latency::of(times);
        format!("p50 {}, p99 {}", milliseconds(latency.p50_us), milliseconds(latency.p99_us))
    };
    Ok(vec![
        Row::new("a page at the owner, one client", text(&times[0])),
        Row::new("a page through another node, one client", text(&times[1])),
    ])
}

/// Returns the size of a cluster's log in the data directories of brokers, counting one replica.
pub fn log_bytes(data: &Path, cluster: &str) -> Option<u64> {
    let directory = data.join(format!("{cluster}.log-0"));
    let files = std::fs::read_dir(directory).ok()?.filter_map(Result::ok);
    let segments = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "log"));
    Some(segments.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum())
}

/// Returns a number for a post id, unique in this process.
pub(super) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
