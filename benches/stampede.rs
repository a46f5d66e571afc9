//! Measures a celebrity stampede: the latency of pages of unrelated readers while a celebrity publishes, crosses the threshold in both
//! directions, and all its followers read at once.
//!
//! `cargo bench --bench stampede -- FOLLOWERS`
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{NEWEST, config, draft, follow_all, id, print_latency, publish, read_steadily, size, wake_all};
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::NewEdge;
use tidewire::id::SourceId;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of readers who follow other authors.
const OTHERS: usize = 1_000;

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let fans = asked.first().copied().unwrap_or(size(20_000, 200));
    let threads = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    // On a shared runtime, other readers and the celebrity would wait for the tasks of the followers before their requests reach the
    // engine.
    let (runtime, crowd, celebrity) = (threads(), threads(), threads());
    runtime.block_on(async {
        let world = World::new(fans, [crowd.handle().clone(), celebrity.handle().clone()]).await;
        for _ in 0..size(3, 1) {
            world.others_read("others alone").await;
            world.others_beside_busy_cores().await;
            world.stampede(&[Stampede::Reads]).await;
            world.stampede(&[Stampede::Posts, Stampede::Crossings]).await;
            world.stampede(&[Stampede::Reads, Stampede::Posts, Stampede::Crossings]).await;
        }
        world.engine.shutdown();
    });
}

/// The work of a celebrity and its followers.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stampede {
    /// All followers read their feeds at once, again and again.
    Reads,
    /// The celebrity publishes one post after the other.
    Posts,
    /// Followers unfollow and follow again, so that the source crosses the threshold in both directions.
    Crossings,
}

struct World {
    engine: Engine,
    /// The runtime of the celebrity's followers.
    crowd: Handle,
    /// The runtime of the celebrity.
    celebrity: Handle,
    star: SourceId,
    fans: Vec<SourceId>,
    others: Vec<SourceId>,
}

impl World {
    /// Creates the world. With all its followers the source is a celebrity; without a quarter of them it is not.
    async fn new(fans: usize, [crowd, celebrity]: [Handle; 2]) -> Self {
        let engine =
            Engine::start(config(300, CelebrityPolicy::Above(std::num::NonZeroU64::new(fans as u64 - 1).unwrap())));
        let named = |name: &str, count: usize| (0..count).map(|n| id(&format!("{name}{n}"))).collect::<Vec<_>>();
        let (star, fans, others) = (id("star"), named("f", fans), named("o", OTHERS));
        // Fans and others follow different authors. With a common author, both would share a flow of the fair queue once the fans have left
        // the celebrity.
        let (of_fans, of_others) = (named("a", 50), named("b", 50));
        let edges = |readers: &[SourceId], authors: &[SourceId], each: usize| {
            let edge = |(nth, reader): (usize, &SourceId)| {
                (0..each).map(|n| (reader.clone(), authors[(nth * 7 + n) % 50].clone())).collect::<Vec<_>>()
            };
            readers.iter().enumerate().flat_map(edge).collect::<Vec<_>>()
        };
        follow_all(&engine, edges(&others, &of_others, 20).into_iter().chain(edges(&fans, &of_fans, 5))).await;
        for author in of_fans.iter().chain(&of_others).cycle().take(1_000) {
            publish(&engine, author, true).await;
        }
        follow_all(&engine, fans.iter().map(|fan| (fan.clone(), star.clone()))).await;
        wake_all(&engine, &others).await;
        wake_all(&engine, &fans).await;
        Self { engine, crowd, celebrity, star, fans, others }
    }

    async fn stampede(&self, what: &[Stampede]) {
        let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new([const { AtomicU64::new(0) }; 4]));
        let mut running = JoinSet::new();
        for what in what.iter().copied() {
            let (engine, star, fans) = (self.engine.clone(), self.star.clone(), self.fans.clone());
            let (over, done) = (Arc::clone(&over), Arc::clone(&done));
            let stampede = async move {
                while !over.load(Ordering::Relaxed) {
                    match what {
                        Stampede::Reads => read_all(&engine, &fans, &done).await,
                        Stampede::Posts => {
                            publish(&engine, &star, true).await;
                            done[2].fetch_add(1, Ordering::Relaxed);
                        }
                        Stampede::Crossings => {
                            cross(&engine, &star, &fans[..fans.len() / 4]).await;
                            done[3].fetch_add(2, Ordering::Relaxed);
                        }
                    }
                }
            };
            running.spawn_on(stampede, if what == Stampede::Reads { &self.crowd } else { &self.celebrity });
        }
        self.others_read(&format!("beside {what:?}")).await;
        over.store(true, Ordering::Relaxed);
        while let Some(ended) = running.join_next().await {
            ended.unwrap();
        }
        let [pages, refused, posts, crossings] = [0, 1, 2, 3].map(|nth| done[nth].load(Ordering::Relaxed));
        println!("    meanwhile {pages} pages of followers, {refused} refused, {posts} posts, {crossings} crossings");
    }

    /// Reads as the other readers while all cores are busy with unrelated work, to measure the effect of busy cores alone.
    async fn others_beside_busy_cores(&self) {
        let over = Arc::new(AtomicBool::new(false));
        let spin = |_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || while !over.load(Ordering::Relaxed) {})
        };
        let busy: Vec<_> = (0..std::thread::available_parallelism().unwrap().get()).map(spin).collect();
        self.others_read("beside busy cores").await;
        over.store(true, Ordering::Relaxed);
        busy.into_iter().for_each(|busy| busy.join().unwrap());
    }

    async fn others_read(&self, what: &str) {
        let pages = size(5_000, 20);
        print_latency(what, &read_steadily(&self.engine, &self.others, |nth| nth < pages).await);
    }
}

/// Reads all feeds at once, without retries.
async fn read_all(engine: &Engine, readers: &[SourceId], done: &[AtomicU64; 4]) {
    let read = |reader: &SourceId| {
        let (engine, reader) = (engine.clone(), reader.clone());
        async move { engine.feed(&reader, NEWEST).await }
    };
    let mut reading: JoinSet<_> = readers.iter().map(read).collect();
    while let Some(page) = reading.join_next().await {
        match page.unwrap() {
            Ok(_) => done[0].fetch_add(1, Ordering::Relaxed),
            Err(Error::Overloaded { .. }) => done[1].fetch_add(1, Ordering::Relaxed),
            Err(other) => panic!("{other}"),
        };
    }
}

/// Removes some followers and adds them again. The star publishes once below the threshold and once above it.
async fn cross(engine: &Engine, star: &SourceId, followers: &[SourceId]) {
    for follower in followers {
        while let Err(cause) = engine.unfollow(follower.clone(), star.clone()).await {
            wait_for_room(&cause).await;
        }
    }
    publish_once(engine, star).await;
    for batch in followers.chunks(10_000) {
        let edges: Vec<_> = batch.iter().map(|follower| NewEdge::new(follower.clone(), star.clone())).collect();
        while let Err(cause) = engine.follow(edges.clone()).await {
            wait_for_room(&cause).await;
        }
    }
    publish_once(engine, star).await;
}

async fn wait_for_room(cause: &Error) {
    assert!(matches!(cause, Error::Overloaded { .. }), "{cause}");
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Publishes one post, and ignores an overload.
async fn publish_once(engine: &Engine, star: &SourceId) {
    if let Err(cause) = engine.publish(draft(star), false).await {
        assert!(matches!(cause, Error::Overloaded { .. }), "{cause}");
    }
}
