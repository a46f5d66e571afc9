//! Measures the cost of personal feeds: pages with mutes, with reposts, and at depth, compared with a plain page.
//!
//! `cargo bench --bench personal`
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::time::Instant;

use common::{config, draft, follow_all, histogram, id, print_latency, runtime, size, some};
use hdrhistogram::Histogram;
use tidewire::clock::UnixMicros;
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::MuteOrBlock;
use tidewire::feed::inbox::Inbox;
use tidewire::feed::page::Range;
use tidewire::feed::position::Position;
use tidewire::feed::post::Draft;
use tidewire::id::{PostId, SourceId};
use tidewire::state::read_clock::ReadClock;
use tidewire::state::reader::{PageRequest, PageStart, Reader};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FOLLOWED: usize = 100;
const AUTHORS: usize = 600;
const CELEBRITIES: usize = 5;

fn main() {
    runtime().block_on(async {
        let plain = world(0).await;
        let reposted = world(30).await;
        let (mutes, reposts) = (mutes(&plain).await, mutes(&reposted).await);
        for (depth, name) in [(Depth::First, "page 1"), (Depth::Tenth, "page 10"), (Depth::End, "the last page")] {
            measure(&plain, &reposted, (&mutes, &reposts), depth, name);
        }
        plain.shutdown();
        reposted.shutdown();
    });
}

/// Creates readers who follow 100 authors and 5 celebrities. `reposts_in_100` percent of the posts repeat one of the last thousand posts.
async fn world(reposts_in_100: u64) -> Engine {
    let threshold = std::num::NonZeroU64::new(readers(0).len() as u64 * 3 - 1).unwrap();
    let engine = Engine::start(config(300, CelebrityPolicy::Above(threshold)));
    let follows = (0..3).flat_map(readers).enumerate().flat_map(|(nth, reader)| {
        let followed = (0..FOLLOWED).map(move |n| author((nth * 13 + n * 5) % AUTHORS));
        followed.chain((0..CELEBRITIES).map(celebrity)).map(move |source| (reader.clone(), source))
    });
    follow_all(&engine, follows).await;
    let mut random = fastrand::Rng::with_seed(1);
    for nth in 1..=size(30_000, 700) as u64 {
        let by = if nth % 20 == 0 { celebrity(random.usize(0..CELEBRITIES)) } else { author(random.usize(0..AUTHORS)) };
        let repost_of = (random.u64(0..100) < reposts_in_100 && nth > 1).then(|| {
            let among_last = random.u64(1..nth.min(1_000));
            PostId(nth - among_last)
        });
        engine.publish(Draft { id: Some(PostId(nth)), repost_of, ..draft(&by) }, true).await.unwrap();
    }
    engine
}

fn author(nth: usize) -> SourceId {
    id(&format!("a{nth}"))
}

fn celebrity(nth: usize) -> SourceId {
    id(&format!("star{nth}"))
}

fn readers(group: usize) -> Vec<SourceId> {
    (0..size(300, 4)).map(|n| id(&format!("r{group}-{n}"))).collect()
}

/// Returns groups of readers by the number of sources that they mute. They follow a tenth of these sources.
async fn mutes(engine: &Engine) -> Vec<(usize, Vec<SourceId>)> {
    let mut groups = Vec::new();
    for (group, mutes) in [0, 50, 500].into_iter().enumerate() {
        for reader in readers(group) {
            let source = engine.shared().world.sources.get(&reader).unwrap();
            let followed: Vec<SourceId> =
                source.following().sources().map(|slot| engine.shared().world.sources.at(slot).id.clone()).collect();
            for nth in 0..mutes {
                let muted = if nth % 10 == 0 { followed[nth / 10].clone() } else { id(&format!("tag:t{nth}")) };
                engine.silence(reader.clone(), muted, MuteOrBlock::Mute, true).await.unwrap();
            }
        }
        groups.push((mutes, readers(group)));
    }
    groups
}

#[derive(Clone, Copy, PartialEq)]
enum Depth {
    First,
    Tenth,
    End,
}

struct Prepared {
    reader: Reader,
    inbox: Inbox,
    range: Range,
}

fn prepare(engine: &Engine, reader: &SourceId, depth: Depth) -> Prepared {
    let world = &engine.shared().world;
    let mut reader = Reader::new(world.sources.get(reader).unwrap());
    let mut inbox = Inbox::new(some(300));
    reader.rebuild(&mut inbox, world);
    let mut prepared = Prepared { reader, inbox, range: Range::Newest };
    let pages = match depth {
        Depth::First => 0,
        Depth::Tenth => 9,
        Depth::End => usize::MAX,
    };
    for _ in 0..pages {
        match page(engine, &mut prepared).1 {
            Some(next) => prepared.range = Range::Before(next),
            None => break,
        }
    }
    prepared
}

fn page(engine: &Engine, of: &mut Prepared) -> (usize, Option<Position>) {
    let shared = engine.shared();
    let time = ReadClock { clock: &*shared.clock, deadline: UnixMicros(i64::MAX) };
    let request = PageRequest { range: of.range, limit: 20 };
    let start = PageStart::of(of.reader.source(), &shared.world);
    let page = of.reader.page(&start, &of.inbox, &shared.world, request, time);
    (page.items.len(), page.next)
}

type Groups = Vec<(usize, Vec<SourceId>)>;

/// Measures all kinds of readers in turns, so that other load on the machine affects them equally.
fn measure(plain: &Engine, reposted: &Engine, groups: (&Groups, &Groups), depth: Depth, name: &str) {
    let mut kinds: Vec<(String, &Engine, Vec<Prepared>, Histogram<u64>)> = Vec::new();
    for (engine, groups, what) in [(plain, groups.0, "no reposts"), (reposted, groups.1, "30 % reposts")] {
        for (mutes, readers) in groups {
            let prepared = readers.iter().map(|reader| prepare(engine, reader, depth)).collect();
            kinds.push((format!("{name}, {what}, {mutes} mutes"), engine, prepared, histogram()));
        }
    }
    for _ in 0..size(100, 1) {
        for nth in 0..readers(0).len() {
            for (_, engine, prepared, latencies) in &mut kinds {
                let began = Instant::now();
                let (items, _) = page(engine, &mut prepared[nth]);
                latencies.record(began.elapsed().as_nanos() as u64).unwrap();
                assert!(items > 0);
            }
        }
    }
    let base = kinds[0].3.value_at_quantile(0.5) as f64;
    for (what, _, _, latencies) in &kinds {
        print_latency(what, latencies);
        println!("    {:.2} times the plain page", latencies.value_at_quantile(0.5) as f64 / base);
    }
}
