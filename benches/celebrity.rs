//! Measures the cost of shared memory between cores: readers on several cores read the outboxes and posts of the same celebrities, compared
//! with readers who follow other celebrities on each core.
//!
//! `cargo bench --bench celebrity -- THREADS`
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{NEWEST, config, follow_all, id, median, publish, runtime, size, some};
use tidewire::clock::UnixMicros;
use tidewire::engine::{Engine, Shared};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::inbox::Inbox;
use tidewire::feed::outbox::{OutboxQuery, Part, ReadGap};
use tidewire::feed::position::{Direction, Position, PositionRange};
use tidewire::id::SourceId;
use tidewire::state::read_clock::ReadClock;
use tidewire::state::reader::{PageStart, Reader};
use tidewire::state::sources::Source;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Celebrities that each reader follows.
const STARS: usize = 5;

const READERS: usize = 200;

fn main() {
    let asked = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let threads = asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from));
    let engine = Engine::start(config(300, CelebrityPolicy::PullAll));
    runtime().block_on(fill(&engine, threads));
    println!(
        "{threads} threads; medians of rounds in turns, quiet or while the celebrities publish a post each millisecond or two"
    );
    for publishing in [false, true] {
        let beside = if publishing { "publishing" } else { "quiet" };
        let works = [("outboxes under their locks", locked_pulls as Work), ("outboxes", pulls), ("pages of 20", pages)];
        for (what, work) in works {
            let [mut alone, mut same, mut others] = [const { Vec::new() }; 3];
            for _ in 0..size(7, 1) {
                alone.push(per_second(&engine, 1, work, |_| 0, publishing));
                same.push(per_second(&engine, threads, work, |_| 0, publishing));
                others.push(per_second(&engine, threads, work, |thread| thread, publishing));
            }
            let [alone, same, others] = [alone, same, others].map(median);
            println!(
                "{beside}, {what}: one thread {alone:.0}/s; of the same celebrities {same:.0}/s for each thread, of \
                 others {others:.0}/s, ratio {:.2}",
                same / others
            );
        }
    }
    engine.shutdown();
}

fn star(thread: usize, nth: usize) -> SourceId {
    id(&format!("star{thread}_{nth}"))
}

/// Returns a reader of one thread, who follows the celebrities of thread `of`.
fn reader(thread: usize, of: usize, nth: usize) -> SourceId {
    id(&format!("r{thread}_{of}_{nth}"))
}

/// Creates celebrities for each thread, readers who follow them, and readers who follow the celebrities of the first thread.
async fn fill(engine: &Engine, threads: usize) {
    for thread in 0..threads {
        for of in BTreeSet::from([0, thread]) {
            let follows = |nth| (0..STARS).map(move |star_nth| (reader(thread, of, nth), star(of, star_nth)));
            follow_all(engine, (0..READERS).flat_map(follows)).await;
        }
        for nth in 0..20 * STARS {
            publish(engine, &star(thread, nth % STARS), false).await;
        }
    }
}

/// Work of a thread that reads posts of the celebrities `of`. Returns the number of operations.
type Work = fn(&Shared, thread: usize, of: usize, &AtomicBool) -> usize;

/// Returns the average number of operations of a thread per second.
fn per_second(engine: &Engine, threads: usize, work: Work, of: fn(usize) -> usize, publishing: bool) -> f64 {
    let (lasts, is_over, start) =
        (Duration::from_millis(size(500, 5) as u64), AtomicBool::new(false), Barrier::new(threads + 1));
    let (shared, is_over, start) = (engine.shared(), &is_over, &start);
    std::thread::scope(|scope| {
        let begin = |thread: usize| {
            scope.spawn(move || {
                start.wait();
                let began = Instant::now();
                work(shared, thread, of(thread), is_over) as f64 / began.elapsed().as_secs_f64()
            })
        };
        let working: Vec<_> = (0..threads).map(begin).collect();
        start.wait();
        runtime().block_on(async {
            let until = Instant::now() + lasts;
            for nth in 0.. {
                if Instant::now() >= until {
                    break;
                }
                if publishing {
                    publish(engine, &star(nth % threads, nth / threads % STARS), false).await;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        is_over.store(true, Ordering::Relaxed);
        let done: f64 = working.into_iter().map(|thread| thread.join().unwrap()).sum();
        done / threads as f64
    })
}

/// Reads the newest posts of one outbox after the other, as pages do.
fn pulls(shared: &Shared, _: usize, of: usize, is_over: &AtomicBool) -> usize {
    pull_all(shared, of, is_over, |star, into| star.pull(NEWEST_20, into))
}

/// Does the same under the lock of each outbox.
fn locked_pulls(shared: &Shared, _: usize, of: usize, is_over: &AtomicBool) -> usize {
    pull_all(shared, of, is_over, |star, into| star.outbox().pull(NEWEST_20, into))
}

const NEWEST_20: OutboxQuery =
    OutboxQuery { part: Part::Pulled, span: PositionRange::ALL, direction: Direction::Older, max: 20 };

fn pull_all(
    shared: &Shared,
    of: usize,
    is_over: &AtomicBool,
    pull: impl Fn(&Source, &mut Vec<Position>) -> Result<(), ReadGap>,
) -> usize {
    let stars: Vec<_> = (0..STARS).map(|nth| shared.world.sources.get(&star(of, nth)).unwrap()).collect();
    let (mut into, mut done) = (Vec::with_capacity(20), 0);
    while !is_over.load(Ordering::Relaxed) {
        for star in &stars {
            into.clear();
            pull(star, &mut into).unwrap();
            assert_eq!(into.len(), 20);
        }
        done += STARS;
    }
    done
}

/// Reads pages of one reader after the other.
fn pages(shared: &Shared, thread: usize, of: usize, is_over: &AtomicBool) -> usize {
    let mut readers: Vec<(Reader, Inbox)> = (0..READERS)
        .map(|nth| (Reader::new(shared.world.sources.get(&reader(thread, of, nth)).unwrap()), Inbox::new(some(300))))
        .collect();
    let time = ReadClock { clock: &*shared.clock, deadline: UnixMicros(i64::MAX) };
    let mut done = 0;
    while !is_over.load(Ordering::Relaxed) {
        let (reader, inbox) = &mut readers[done % READERS];
        let start = PageStart::of(reader.source(), &shared.world);
        start.synchronize(inbox, &shared.world, UnixMicros(i64::MIN));
        let page = reader.page(&start, inbox, &shared.world, NEWEST, time);
        assert_eq!(page.items.len(), 20);
        done += 1;
    }
    done
}
