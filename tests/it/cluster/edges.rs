//! A cluster at its edges: clocks that are an hour apart, and the largest event that there can be.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{eventually_async, reached};
use tidewire::clock::Clock;
use tidewire::feed::position::Position;
use tidewire::limits::FOLLOWS_PER_REQUEST_MAX;
use tidewire::storage::log::{LogError, LogRange, LogReader, LogWriter, ReadLog};

use super::faulty_log::{Cut, FaultyLog};
use super::*;

/// The clock of a machine that is wrong by this many microseconds.
struct Wrong(i64);

impl Clock for Wrong {
    fn now(&self) -> UnixMicros {
        UnixMicros(SystemClock.now().0 + self.0)
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }
}

/// A clock whose monotonic time can be stopped.
#[derive(Default)]
struct Stopping(Mutex<Option<Duration>>);

impl Stopping {
    fn set(&self, stopped_at: Option<Duration>) {
        *self.0.lock().unwrap() = stopped_at;
    }
}

impl Clock for Stopping {
    fn now(&self) -> UnixMicros {
        SystemClock.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.lock().unwrap().unwrap_or_else(|| SystemClock.monotonic())
    }
}

const HOUR: i64 = 3_600_000_000;

fn join_with(log: &dyn SharedLog, name: &str, clock: Arc<dyn Clock>) -> Node {
    let options = NodeOptions { name: name.parse().unwrap(), address: format!("http://{name}"), session: SESSION };
    let joined = Engine::join(EngineConfig::default(), log, options, clock);
    joined.map(|(engine, state)| Node { engine, state }).unwrap()
}

/// Publishes through the sequencer. On a busy machine it may have no lease for a moment.
async fn publish(nodes: &[Node], draft: Draft) -> Position {
    let publish = async || match sequencer(nodes).await.engine.publish(draft.clone(), false).await {
        Ok(published) => Some(published.post.position),
        Err(refused) => {
            assert_eq!(refused, Error::NotSequencer);
            None
        }
    };
    eventually_async("the sequencer takes a post", publish).await
}

#[tokio::test]
async fn clocks_an_hour_apart_affect_dates_but_not_event_order_or_node_agreement() {
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(5)).unwrap();
    let mut nodes: Vec<Node> = [("a", HOUR), ("b", 0), ("c", -HOUR)]
        .iter()
        .map(|(name, by)| join_with(&log, name, Arc::new(Wrong(*by))))
        .collect();
    eventually_async("all are members", async || {
        nodes.iter().all(|node| node.state.membership().members().count() == 3)
    })
    .await;
    let mut published = Vec::new();
    while let [_, ..] = &nodes[..] {
        let first = sequencer(&nodes).await;
        first.engine.follow(vec![edge("ann", "bob")]).await.unwrap();
        for _ in 0..20 {
            published.push(publish(&nodes, draft("bob", "{}")).await);
        }
        in_step(&nodes).await;
        let name = first.state.me().clone();
        first.engine.shutdown();
        nodes.retain(|node| *node.state.me() != name);
    }
    assert_eq!(published.len(), 60);
    let ids: Vec<PostId> = published.iter().map(|position| position.id).collect();
    assert!(ids.is_sorted(), "ids and instants never go back: {ids:?}");
    // Posts are dated by the clock of the node that has accepted them, and in feeds by their dates.
    let hours = |nth: usize| (published[nth].published_at.0 - published[0].published_at.0 + HOUR / 2).div_euclid(HOUR);
    assert!([20, 40].map(hours).iter().all(|hours| (1..=2).contains(&hours.abs())), "{published:?}");
    published.sort();
    // The next life of the cluster, with the right time only.
    let again = join_with(&log, "d", Arc::new(Wrong(0)));
    eventually_async("a node is the sequencer", async || again.is_sequencer()).await;
    let newest = again.feed(&id("ann")).await;
    let expected: Vec<PostId> = published.iter().rev().map(|position| position.id).collect();
    assert_eq!(newest, expected);
    again.engine.shutdown();
}

#[tokio::test]
async fn ten_thousand_follows_with_maximum_names_are_one_event_for_all_nodes() {
    let (_, nodes) = cluster();
    eventually_async("all are members", async || {
        nodes.iter().all(|node| node.state.membership().members().count() == 3)
    })
    .await;
    let name = |nth: usize| format!("{nth:0>128}");
    let edges: Vec<_> = (0..FOLLOWS_PER_REQUEST_MAX).map(|nth| edge(&name(nth), "bob")).collect();
    let first = sequencer(&nodes).await;
    assert_eq!(first.engine.follow(edges).await.unwrap().created, FOLLOWS_PER_REQUEST_MAX);
    publish(&nodes, post("bob", 1)).await;
    in_step(&nodes).await;
    for node in &nodes {
        assert_eq!(node.feed(&id(&name(FOLLOWS_PER_REQUEST_MAX - 1))).await, [PostId(1)], "on {}", node.state.me());
        node.engine.shutdown();
    }
}

/// A log that does not answer one of three requests.
struct Reluctant(MemoryLog, AtomicUsize);

impl Reluctant {
    fn answers(&self) -> Result<&MemoryLog, LogError> {
        let is_silent = self.1.fetch_add(1, Ordering::Relaxed).is_multiple_of(3);
        if is_silent { Err(LogError::Unavailable("no answer".to_owned())) } else { Ok(&self.0) }
    }
}

impl SharedLog for Reluctant {
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
        self.answers()?.writer()
    }

    fn to_read(&self) -> Arc<dyn ReadLog> {
        self.0.to_read()
    }
}

impl ReadLog for Reluctant {
    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        self.answers()?.reader(after)
    }

    fn range(&self) -> Result<LogRange, LogError> {
        self.answers()?.range()
    }

    fn place(&self) -> String {
        self.0.place()
    }
}

#[test]
fn a_node_starts_even_if_the_log_fails_intermittently() {
    for silent_at in 0..3 {
        let log = MemoryLog::default();
        bootstrap_log(&log, 16, ClusterId(5)).unwrap();
        let node = join(&Reluctant(log, AtomicUsize::new(silent_at)), "a").unwrap();
        node.engine.shutdown();
    }
}

/// Returns the number of events that are stored in a log.
fn events(log: &MemoryLog) -> usize {
    let mut reader = log.reader(Sequence(0)).unwrap();
    let last = log.range().unwrap().last;
    let (mut read, mut count) = (Sequence(0), 0);
    while read < last {
        for record in reader.read(Duration::ZERO).unwrap() {
            read = record.sequence;
            let (_, content) = decode_header(&record.bytes).unwrap();
            count += usize::from(matches!(decode_content(content), Ok(Content::Event(_))));
        }
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_appended_before_an_earlier_one_is_read_back_unless_it_depends_on_it() {
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(5)).unwrap();
    let faulty = FaultyLog::new(&log);
    let clock = Arc::new(Stopping::default());
    let nodes = [join_with(&faulty, "a", Arc::clone(&clock) as Arc<dyn Clock>)];
    let begin = |author: &'static str, id: u64| {
        let (engine, post) = (nodes[0].engine.clone(), Draft { id: Some(PostId(id)), ..draft(author, "{}") });
        tokio::spawn(async move { engine.publish(post, false).await.map(|published| published.post.id()) })
    };
    // Meanwhile the lease does not end, though the node reads nothing.
    eventually_async("time stops while the node is the sequencer", async || {
        clock.set(Some(SystemClock.monotonic()));
        let is_sequencer = nodes[0].is_sequencer();
        if !is_sequencer {
            clock.set(None);
        }
        is_sequencer
    })
    .await;
    let before = events(&log);
    let appended = async |count: usize| {
        eventually_async("the write is appended", async || reached(&(events(&log) - before), &count)).await;
    };
    faulty.set(Cut::Deaf);
    let one = begin("bob", 1);
    appended(1).await;
    // This one has the id of the first, so its answer depends on it.
    let same = begin("bob", 1);
    let others = [begin("eve", 2), begin("fay", 3)];
    appended(3).await;
    faulty.set(Cut::No);
    clock.set(None);
    assert_eq!([one.await.unwrap(), same.await.unwrap()], [Ok(PostId(1)), Ok(PostId(1))]);
    for (nth, other) in others.into_iter().enumerate() {
        assert_eq!(other.await.unwrap(), Ok(PostId(2 + nth as u64)));
    }
    assert_eq!(events(&log) - before, 3, "a repeated post is no event");
    nodes[0].engine.shutdown();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real time decides whether the nodes hear each other in time"]
async fn a_constantly_slow_log_changes_no_membership() {
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(5)).unwrap();
    let faulty = FaultyLog::new(&log);
    let nodes = [join(&faulty, "a").unwrap(), join(&faulty, "b").unwrap()];
    eventually_async("all are members", async || {
        nodes.iter().all(|node| node.state.membership().members().count() == 2)
    })
    .await;
    faulty.set(Cut::Slow);
    for number in 1..=10 {
        publish(&nodes, post("bob", number)).await;
    }
    let members = |node: &Node| node.state.membership().members().count();
    assert!(nodes.iter().all(|node| members(node) == 2 && node.state.is_leased()), "both go on as they were");
    nodes.iter().for_each(|node| node.engine.shutdown());
}
