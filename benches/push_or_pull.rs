//! Measures the processor time of operations with push or pull by cost, with fixed thresholds, and the costs in the cost model.
//!
//! `cargo bench --bench push_or_pull -- costs`: the constants of `CostModel`.
//! `cargo bench --bench push_or_pull -- read-heavy`, or `write-heavy`, `pequod`, `bots`.
//! `cargo bench --bench push_or_pull -- FOLLOWS ACTIVITY`: recorded activity, from a file with lines `follower source` and a file with
//! lines `user - unix_seconds -`.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use common::{NEWEST, config, draft, follow_all, id, median, power_law, processor_time, runtime, size, some};
use tidewire::clock::{ManualClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::feed::celebrity::{CelebrityPolicy, CostModel};
use tidewire::feed::event::NewEdge;
use tidewire::id::SourceId;
use tidewire::storage::journal::MemoryJournal;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of users of the generated graph.
const USERS: usize = 30_000;

/// Average number of sources that a user follows besides stars.
const FOLLOWED: usize = 20;

/// Number of sources. Each user follows half of them.
const STARS: usize = 20;

/// Number of accounts that publish automatically, in the workload with bots.
const BOTS: usize = 300;

/// Number of posts of a bot for each post of a person.
const POSTS_OF_BOT: usize = 100;

/// Average number of pages that a reader reads in an hour. It sets the clock of the engines.
const PAGES_PER_READER_HOUR: usize = 60;

/// Number of pages that a user reads at each recorded activity. This is an assumption: the recording has no reads.
const PAGES_PER_ACTIVITY: usize = 5;

/// Number of concurrent commands beside pages.
const COMMANDS_AT_ONCE: usize = 64;

#[derive(Clone, Copy)]
enum Op {
    Publish(usize),
    Page(usize),
    Follow(usize, usize),
    Unfollow(usize, usize),
}

/// Operations in order, each at a time in microseconds since the first.
type Ops = Vec<(u64, Op)>;

struct Workload {
    name: String,
    users: usize,
    edges: Vec<(usize, usize)>,
    /// The operations of each round. The first round is the warm-up.
    rounds: Vec<Ops>,
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    match asked[..] {
        ["costs"] => runtime().block_on(costs()),
        [follows, activity] => compare(&recorded(follows, activity)),
        [name] => compare(&generated(name)),
        _ => {
            runtime().block_on(costs());
            for name in ["read-heavy", "write-heavy", "pequod", "bots"] {
                compare(&generated(name));
            }
        }
    }
}

fn user(nth: usize) -> SourceId {
    id(&format!("u{nth}"))
}

/// Returns the edges: each user follows half of the stars, and other sources by a power law.
fn graph(users: usize) -> Vec<(usize, usize)> {
    let mut random = fastrand::Rng::with_seed(7);
    let stars = (0..users).flat_map(|reader| (0..STARS).map(move |star| (reader, star)));
    let mut edges: Vec<_> = stars.filter(|_| random.bool()).collect();
    for (nth, followers) in power_law(users - STARS, FOLLOWED, users / 4).into_iter().enumerate() {
        edges.extend((0..followers).map(|_| (random.usize(0..users), STARS + nth)));
    }
    edges.sort_unstable();
    edges.dedup();
    edges.retain(|(reader, source)| reader != source);
    edges
}

/// Generates a workload. `name` sets the share of each operation.
fn generated(name: &str) -> Workload {
    let users = size(USERS, 60);
    // Numbers of publishes, pages, follows and unfollows, and the operations of a round. In the workload of Pequod (Kate et al., NSDI 2014)
    // a user reads a hundred times for each post.
    let [publishes, pages, follows, unfollows, in_round] = match name {
        "read-heavy" => [1, 300, 0, 0, 300_000],
        "write-heavy" => [10, 1, 0, 0, 55_000],
        "pequod" => [1, 100, 10, 5, 116_000],
        "bots" => [1, 3, 0, 0, 60_000],
        _ => panic!("{name} is no workload"),
    };
    let bots = if name == "bots" { size(BOTS, 3) } else { 0 };
    let (edges, mut random) = (graph(users), fastrand::Rng::with_seed(11));
    // Every hundredth source is a bot, so that bots have few and many followers like people.
    let is_bot = |nth: usize| nth % (users / bots.max(1)).max(1) == STARS && bots > 0;
    let weight = |nth: usize| if is_bot(nth) { POSTS_OF_BOT } else { 1 };
    let authors: Vec<usize> = (0..users).flat_map(|nth| std::iter::repeat_n(nth, weight(nth))).collect();
    let readers: Vec<usize> = (0..users).filter(|nth| !is_bot(*nth)).collect();
    let us_per_page = 3_600_000_000 / (PAGES_PER_READER_HOUR * readers.len()) as u64;
    let of_all = publishes + pages + follows + unfollows;
    let mut now = 0;
    let mut round = |_| {
        let mut op = || {
            let one = random.usize(0..of_all);
            let (reader, source) = (readers[random.usize(0..readers.len())], random.usize(0..users));
            now += us_per_page * pages as u64 / of_all as u64;
            let op = match () {
                () if one < publishes => Op::Publish(authors[random.usize(0..authors.len())]),
                () if one < publishes + pages => Op::Page(reader),
                () if one < publishes + pages + follows => Op::Follow(reader, source),
                () => Op::Unfollow(reader, source),
            };
            (now, op)
        };
        (0..size(in_round, 300)).map(|_| op()).collect()
    };
    Workload { name: name.to_owned(), users, edges, rounds: (0..size(6, 2)).map(&mut round).collect() }
}

/// Reads recorded activity. Each activity is a post, and its author reads pages before it.
fn recorded(follows: &str, activity: &str) -> Workload {
    let mut users = BTreeMap::new();
    let mut user_of = |name: &str| {
        let next = users.len();
        *users.entry(name.parse::<u64>().unwrap()).or_insert(next)
    };
    let lines = |path: &str| std::fs::read_to_string(path).unwrap();
    let (follows, activity) = (lines(follows), lines(activity));
    let rows = |text: &str| -> Vec<Vec<String>> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let edges = rows(&follows).iter().map(|row| (user_of(&row[0]), user_of(&row[1]))).collect();
    let mut posts: Vec<(u64, usize)> =
        rows(&activity).iter().map(|row| (row[2].parse().unwrap(), user_of(&row[0]))).collect();
    posts.sort_unstable();
    posts.dedup();
    let begin = posts[0].0;
    let ops: Ops = posts
        .into_iter()
        .flat_map(|(at, author)| {
            let pages = std::iter::repeat_n(Op::Page(author), PAGES_PER_ACTIVITY);
            pages.chain([Op::Publish(author)]).map(move |op| ((at - begin) * 1_000_000, op))
        })
        .collect();
    let rounds = ops.chunks(ops.len().div_ceil(6)).map(<[_]>::to_vec).collect();
    Workload { name: "recorded".to_owned(), users: users.len(), edges, rounds }
}

struct Side {
    name: &'static str,
    engine: Engine,
    clock: Arc<ManualClock>,
    us_per_op: Vec<f64>,
}

const START: UnixMicros = UnixMicros(1_795_168_800_000_000);

/// Runs a workload under each policy, round by round in turns.
fn compare(workload: &Workload) {
    let above = |followers| CelebrityPolicy::Above(NonZeroU64::new(followers).unwrap());
    let policies = [
        ("pull all", CelebrityPolicy::PullAll),
        ("10", above(10)),
        ("100", above(100)),
        ("1,000", above(1_000)),
        ("10,000", above(10_000)),
        ("push all", CelebrityPolicy::PushAll),
        ("auto", CelebrityPolicy::ByCost(CostModel::default())),
    ];
    runtime().block_on(async {
        let mut sides = Vec::new();
        for (name, policy) in policies {
            let clock = Arc::new(ManualClock::new(START));
            let settings = EngineConfig { fanout_backlog_max: None, ..config(300, policy) };
            let engine = Engine::start_with(settings, MemoryJournal::default(), Arc::clone(&clock) as Arc<_>);
            follow_all(&engine, workload.edges.iter().map(|(reader, source)| (user(*reader), user(*source)))).await;
            let readers = workload.rounds.iter().flatten().filter_map(|(_, op)| match op {
                Op::Page(reader) => Some(*reader),
                _ => None,
            });
            let readers: std::collections::BTreeSet<usize> = readers.collect();
            common::wake_all(&engine, &readers.into_iter().map(user).collect::<Vec<_>>()).await;
            sides.push(Side { name, engine, clock, us_per_op: Vec::new() });
        }
        for ops in &workload.rounds {
            for side in &mut sides {
                let before = processor_time();
                run(side, ops).await;
                side.us_per_op.push((processor_time() - before).as_secs_f64() * 1e6 / ops.len() as f64);
            }
        }
        println!("{}: {} users, {} edges", workload.name, workload.users, workload.edges.len());
        let auto = sides.last().unwrap().us_per_op.clone();
        for Side { name, engine, us_per_op, .. } in sides {
            let pulled = (0..workload.users).filter(|nth| engine.source(&user(*nth)).is_ok_and(|info| info.celebrity));
            let ratios = auto.iter().zip(&us_per_op).skip(1).map(|(auto, other)| auto / other).collect();
            println!(
                "{name:>9}: {:.2} us of processor time an operation; auto takes {:.3} of it ({us_per_op:.2?}, the first to warm up), {} pulled",
                median(us_per_op[1..].to_vec()),
                median(ratios),
                pulled.count()
            );
            engine.shutdown();
        }
    });
}

async fn run(side: &Side, ops: &Ops) {
    let (mut commands, engine) = (JoinSet::new(), &side.engine);
    for (at, op) in ops {
        while commands.len() >= COMMANDS_AT_ONCE {
            commands.join_next().await.unwrap().unwrap();
        }
        let now = START.saturating_add(Duration::from_micros(*at));
        side.clock.set(now);
        match *op {
            Op::Publish(author) => drop(commands.spawn(publish(engine.clone(), author))),
            Op::Page(reader) => drop(engine.feed(&user(reader), NEWEST).await.unwrap()),
            Op::Follow(reader, source) => {
                let (engine, edge) = (engine.clone(), NewEdge::new(user(reader), user(source)));
                commands.spawn(async move { drop(engine.follow(vec![edge]).await) });
            }
            Op::Unfollow(reader, source) => {
                let engine = engine.clone();
                commands.spawn(async move { drop(engine.unfollow(user(reader), user(source)).await) });
            }
        }
    }
    while let Some(published) = commands.join_next().await {
        published.unwrap();
    }
    drain(engine).await;
}

async fn publish(engine: Engine, author: usize) {
    loop {
        match engine.publish(draft(&user(author)), false).await {
            Ok(_) => return,
            Err(Error::Overloaded { .. }) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(other) => panic!("{other}"),
        }
    }
}

async fn drain(engine: &Engine) {
    while engine.queues().iter().any(|queue| queue.depth > 0) {
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

/// Prints the costs of a delivery, a fan-out, and a pulled source in a page.
async fn costs() {
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for _ in 0..size(3, 1) {
        let readers = size(20_000, 60);
        let few = cost_of_post(1, readers).await;
        let many = cost_of_post(readers / 4, readers).await;
        let pulled = cost_of_post(0, readers).await;
        let delivery = (many - few) / (readers / 4 - 1) as f64;
        let [none, some, most] = [cost_of_page(0).await, cost_of_page(10).await, cost_of_page(80).await];
        let pulls = [(some - none) / 10.0, (most - none) / 80.0];
        for (round, ns) in rounds.iter_mut().zip([delivery, few - pulled - delivery, pulls[0], pulls[1]]) {
            round.push(ns);
        }
    }
    let what = ["a delivery", "a fan-out besides", "a pulled source in a page with 10", "one in a page with 80"];
    for (what, rounds) in what.iter().zip(rounds) {
        println!("{what}: {:.0} ns of processor time ({rounds:.0?})", median(rounds.clone()));
    }
}

/// Returns the processor time of a post to this number of followers, among more readers.
async fn cost_of_post(followers: usize, readers: usize) -> f64 {
    let engine = Engine::start(config(300, CelebrityPolicy::PushAll));
    let (authors, mut random) = (20, fastrand::Rng::with_seed(3));
    let mut edges: Vec<_> = (0..readers).map(|reader| (user(reader), id("other"))).collect();
    for author in 0..authors {
        let mut all: Vec<usize> = (0..readers).collect();
        random.shuffle(&mut all);
        edges.extend(all.into_iter().take(followers).map(|reader| (user(reader), user(readers + author))));
    }
    follow_all(&engine, edges.into_iter()).await;
    common::wake_all(&engine, &(0..readers).map(user).collect::<Vec<_>>()).await;
    let posts = (size(40_000_000, 600) / (followers + 400)).max(2);
    let side = Side { name: "", engine, clock: Arc::new(ManualClock::new(START)), us_per_op: Vec::new() };
    let ops: Ops = (0..posts).map(|nth| (0, Op::Publish(readers + nth % authors))).collect();
    let before = processor_time();
    run(&side, &ops).await;
    let spent = processor_time() - before;
    side.engine.shutdown();
    spent.as_nanos() as f64 / posts as f64
}

/// Returns the processor time of a page. Its reader follows 100 sources; the reader pulls `pulled` of them.
async fn cost_of_page(pulled: usize) -> f64 {
    let (readers, sources) = (size(3_000, 20), 100);
    let above = CelebrityPolicy::Above(NonZeroU64::new(readers as u64).unwrap());
    let engine = Engine::start(EngineConfig { active_readers_max: some(1_000_000), ..config(300, above) });
    let author = |nth: usize| user(1_000_000 + nth);
    let follows = (0..readers).flat_map(|reader| (0..sources).map(move |nth| (user(reader), author(nth))));
    follow_all(&engine, follows).await;
    follow_all(&engine, (0..pulled).map(|nth| (user(2_000_000), author(nth)))).await;
    common::wake_all(&engine, &(0..readers).map(user).collect::<Vec<_>>()).await;
    let side = Side { name: "", engine, clock: Arc::new(ManualClock::new(START)), us_per_op: Vec::new() };
    let posts: Ops = (0..5 * sources).map(|nth| (0, Op::Publish(1_000_000 + nth * 7 % sources))).collect();
    run(&side, &posts).await;
    let pages: Ops = (0..size(200_000, 50)).map(|nth| (0, Op::Page(nth * 7_919 % readers))).collect();
    run(&side, &pages[..pages.len() / 10].to_vec()).await;
    let before = processor_time();
    run(&side, &pages).await;
    let spent = processor_time() - before;
    side.engine.shutdown();
    spent.as_nanos() as f64 / pages.len() as f64
}
