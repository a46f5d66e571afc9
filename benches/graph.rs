//! Measures the memory of follow edges and of sleeping users (reported and resident), and edges per second.
//!
//! `cargo bench --bench graph -- SLEEPERS`: users who each follow one of a thousand sources.
//! `cargo bench --bench graph -- USERS EDGES_PER_USER [uniform|power]`: a generated graph.
//! `cargo bench --bench graph -- FILE`: the graph in a file of lines `follower source`.
//! `-- ... --data`: with a data directory.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{config, follow_all, id, resident_bytes, runtime, size};
use tidewire::clock::SystemClock;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::NewEdge;
use tidewire::id::SourceId;
use tidewire::recovery::RecoveryProgress;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let (options, asked): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
    let directory = options.iter().any(|option| option == "--data").then(|| tempfile::tempdir().unwrap());
    let config = config(300, CelebrityPolicy::PushAll);
    let engine = match &directory {
        Some(directory) => {
            let storage = StorageConfig { directory: directory.path().to_owned(), ..StorageConfig::default() };
            Engine::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
        }
        None => Engine::start(config),
    };
    let number = |nth: usize| asked.get(nth).and_then(|text| text.parse::<usize>().ok());
    runtime().block_on(async {
        match (number(0), number(1)) {
            (None, _) if !asked.is_empty() => from_file(&engine, &asked[0]).await,
            (Some(sleepers), None) => sleeping(&engine, sleepers).await,
            (users, each) => {
                let is_power = asked.get(2).is_some_and(|how| how == "power");
                generated(&engine, users.unwrap_or(size(50_000, 100)), each.unwrap_or(size(200, 5)), is_power).await;
            }
        }
    });
    engine.shutdown();
}

/// Resident bytes, reported bytes, edges and the time of a measurement, for comparison with a later one.
struct Before {
    resident: f64,
    reported: f64,
    edges: usize,
    at: Instant,
}

impl Before {
    fn now(engine: &Engine) -> Self {
        let world = &engine.shared().world;
        Self {
            resident: resident_bytes(),
            reported: world.sources_bytes() as f64,
            edges: world.edges(),
            at: Instant::now(),
        }
    }

    /// Prints the difference since this measurement: the total, and the share of each of `count`, or of each new edge.
    async fn print(&self, engine: &Engine, what: &str, count: Option<usize>) {
        let took = self.at.elapsed().as_secs_f64();
        settle(engine).await;
        let now = Self::now(engine);
        let (resident, reported, edges) =
            (now.resident - self.resident, now.reported - self.reported, now.edges - self.edges);
        let count = count.unwrap_or(edges) as f64;
        println!(
            "{what}: {:.1} bytes resident, {:.1} reported ({:+.1} %); {edges} edges in {took:.2} s, {:.2} M/s; \
             {:.1} MB resident, {:.1} MB reported",
            resident / count,
            reported / count,
            (reported / resident - 1.0) * 100.0,
            edges as f64 / took / 1e6,
            resident / 1e6,
            reported / 1e6,
        );
    }
}

/// Makes the allocator release unused memory. It does so after a second, at the next allocation.
async fn settle(engine: &Engine) {
    for _ in 0..size(4, 0) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let _ = engine.follow((0..1_000).map(|_| NewEdge::new(id("nobody"), id("nobody"))).collect()).await;
    }
}

async fn sleeping(engine: &Engine, sleepers: usize) {
    let author = |nth: usize| id(&format!("a{}", nth % 1_000));
    let before = Before::now(engine);
    follow_all(engine, (0..sleepers).map(|nth| (id(&format!("r{nth}")), author(nth)))).await;
    before.print(engine, "a sleeping user with one edge", Some(sleepers)).await;
}

/// Gives every user one edge first, so that the later steps add only edges: one for each follower in turn.
async fn generated(engine: &Engine, users: usize, each: usize, is_power: bool) {
    let user = |nth: usize| id(&format!("u{nth}"));
    let all = Before::now(engine);
    follow_all(engine, (0..users).map(|nth| (user(nth), user((nth + 1) % users)))).await;
    all.print(engine, "users with an edge in each direction, each", Some(users)).await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut source = move || {
        let uniform = random.f64();
        // With a share of n^-0.8 for the n-th source, the inverse of its distribution is the fifth power.
        let nth = if is_power { uniform.powi(5) } else { uniform } * users as f64;
        (nth as usize * 7_919) % users
    };
    let followers = (1..each).flat_map(|_| 0..users);
    let edges = followers.map(|follower| (follower, source())).filter(|(follower, source)| follower != source);
    let before = Before::now(engine);
    follow_all(engine, edges.map(|(follower, source)| (user(follower), user(source)))).await;
    before.print(engine, "edges, each", None).await;
    all.print(engine, "all, for each edge", None).await;
}

async fn from_file(engine: &Engine, file: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    let edges = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((SourceId::new(words.next()?).unwrap(), SourceId::new(words.next()?).unwrap()))
    });
    let edges = edges.filter(|(follower, source)| follower != source);
    let all = Before::now(engine);
    follow_all(engine, edges).await;
    all.print(engine, "all, for each edge", None).await;
    println!("{} sources", engine.shared().world.sources.len());
}
