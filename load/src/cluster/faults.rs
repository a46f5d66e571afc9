//! Measures faults: how long writes and pages fail after a node is killed, and how fast its readers wake on other nodes.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::Row;
use crate::cluster::clients::{Until, closed_loop};
use crate::cluster::figures::next_id;
use crate::cluster::nodes::{Nodes, Setup, request};
use crate::target::tidewire::connection::Connection;

/// The time before and after a fault.
const CALM: Duration = Duration::from_secs(1);

/// Timeout of a client before it retries: longer than the 2 s that a node waits for a role to move.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// Number of awake readers. Each node owns about a third.
const AWAKE: usize = 150_000;

/// Number of authors that each reader follows, and number of all authors.
const FOLLOWED: usize = 5;
const AUTHORS: usize = 1_000;

/// Number of clients that request pages after a takeover.
const CLIENTS: usize = 64;

/// Sends requests until `is_over`, and returns the longest time between two successful answers. A refusal does not count as one.
async fn longest_gap(address: SocketAddr, is_over: &AtomicBool, next: impl Fn() -> String) -> Duration {
    let (mut longest, mut last, mut connection) = (Duration::ZERO, Instant::now(), None);
    while !is_over.load(Ordering::Relaxed) {
        let answered = async {
            let mut open = match connection.take() {
                Some(open) => open,
                None => Connection::open(address).await.ok()?,
            };
            let (status, _) = open.ask(next().as_bytes()).await.ok()?;
            connection = Some(open);
            (200..300).contains(&status).then_some(())
        };
        if let Ok(Some(())) = tokio::time::timeout(ANSWER_MAX, answered).await {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    longest.max(last.elapsed())
}

/// Measures how long writes and pages fail when the sequencer is killed, and when another node is killed.
///
/// # Errors
/// If a node does not start.
pub async fn outages(setup: &Setup) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut nodes = Nodes::start(setup, "outages", 3).await?;
    for is_sequencer in [true, false] {
        nodes.await_members().await?;
        let victim = (nodes.sequencer() + usize::from(!is_sequencer)) % 3;
        // All requests go through a surviving node.
        let through = nodes.nodes[(victim + 1) % 3].address;
        let of = |owner: usize| (0..).map(|nth| format!("reader-{nth}")).find(|reader| nodes.owner(reader) == owner);
        let readers = [of(victim), of((victim + 1) % 3), of((victim + 2) % 3)].map(Option::unwrap_or_default);
        // The author is not one of the readers: users cannot follow themselves.
        let authors = (0..).map(|nth| format!("author-{nth}"));
        let author = authors.into_iter().find(|author| nodes.owner(author) == (victim + 1) % 3).unwrap_or_default();
        for reader in &readers {
            let edge = request(&format!("PUT /v1/users/{reader}/following/{author}"), "");
            closed_loop(1, Until::Done(1), |_, _| (through, edge.clone())).await?;
        }
        let is_over = AtomicBool::new(false);
        // The owner of the author survives as well.
        let write = || {
            request(
                "POST /v1/posts",
                &format!(r#"{{"id":"{}","author":"{author}","body":{{}}}}"#, 1_000_000 + next_id()),
            )
        };
        let page = |reader: &str| request(&format!("GET /v1/users/{reader}/feed?limit=20"), "");
        let fault = async {
            tokio::time::sleep(CALM).await;
            let name = nodes.kill(victim);
            tokio::time::sleep(3 * setup.session + CALM).await;
            is_over.store(true, Ordering::Relaxed);
            name
        };
        let (name, writes, own, first, second) = tokio::join!(
            fault,
            longest_gap(through, &is_over, write),
            longest_gap(through, &is_over, || page(&readers[0])),
            longest_gap(through, &is_over, || page(&readers[1])),
            longest_gap(through, &is_over, || page(&readers[2])),
        );
        let of = if is_sequencer { "the sequencer is killed" } else { "another node is killed" };
        let text = |time: Duration| format!("{:.2} s", time.as_secs_f64());
        rows.push(Row::new(format!("{of} (session {:?}): longest time without a write", setup.session), text(writes)));
        rows.push(Row::new(format!("{of}: without a page for its readers"), text(own)));
        rows.push(Row::new(format!("{of}: for readers of the other nodes"), text(first.max(second))));
        nodes.add(&name).await?;
    }
    Ok(rows)
}

/// Measures the time until the readers of a killed node have pages again.
///
/// # Errors
/// If a node does not start, or a request fails.
pub async fn takeover(setup: &Setup) -> io::Result<Vec<Row>> {
    let mut nodes = Nodes::start(setup, "takeover", 3).await?;
    let first = nodes.nodes[nodes.sequencer()].address;
    let all: Vec<usize> = (0..AWAKE * FOLLOWED).collect();
    for edges in all.chunks(10_000) {
        let edge = |nth: &usize| {
            let (reader, author) = (nth / FOLLOWED, (nth * 7 + nth / FOLLOWED) % AUTHORS);
            format!(r#"{{"follower":"reader-{reader}","source":"author-{author}"}}"#)
        };
        let body = format!(r#"{{"follows":[{}]}}"#, edges.iter().map(edge).collect::<Vec<_>>().join(","));
        closed_loop(1, Until::Done(1), |_, _| (first, request("POST /v1/follows", &body))).await?;
    }
    let post = |nth: usize| {
        let author = nth % AUTHORS;
        request("POST /v1/posts", &format!(r#"{{"author":"author-{author}","body":{{"text":"hello"}}}}"#))
    };
    closed_loop(CLIENTS, Until::Done(20 * AUTHORS), |client, nth| (first, post(client + nth * CLIENTS))).await?;
    let page = |reader: usize| request(&format!("GET /v1/users/reader-{reader}/feed?limit=20"), "");
    let owners: Vec<usize> = (0..AWAKE).map(|reader| nodes.owner(&format!("reader-{reader}"))).collect();
    let addresses = nodes.addresses();
    let woken = closed_loop(CLIENTS, Until::Done(AWAKE), |client, nth| {
        let reader = client + nth * CLIENTS;
        (addresses[owners[reader]], page(reader))
    });
    let woken = woken.await?;
    let victim = (nodes.sequencer() + 1) % 3;
    let lost: Vec<usize> = (0..AWAKE).filter(|reader| owners[*reader] == victim).collect();
    let killed = Instant::now();
    nodes.kill(victim);
    nodes.await_members().await?;
    let known = killed.elapsed();
    let now: Vec<SocketAddr> =
        lost.iter().map(|reader| nodes.nodes[nodes.owner(&format!("reader-{reader}"))].address).collect();
    let taken = closed_loop(CLIENTS, Until::Done(lost.len()), |client, nth| {
        let nth = client + nth * CLIENTS;
        (now[nth], page(lost[nth]))
    });
    let taken = taken.await?;
    let again = closed_loop(CLIENTS, Until::Done(lost.len()), |client, nth| {
        let nth = client + nth * CLIENTS;
        (now[nth], page(lost[nth]))
    });
    let again = again.await?;
    Ok(vec![
        Row::new(format!("first pages of {AWAKE} readers, all asleep"), woken.text()),
        Row::new("a node is killed until the others own its readers", format!("{:.2} s", known.as_secs_f64())),
        Row::new(
            format!("first pages of its {} awake readers on the others", lost.len()),
            format!("{:.1} s; {}", taken.took.as_secs_f64(), taken.text()),
        ),
        Row::new("their second pages, for comparison", again.text()),
    ])
}
