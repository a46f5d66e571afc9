//! Parts that are late or cannot be read: the rest is shown, and what is missing is said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use testkit::eventually;
use tidewire::clock::{Clock, ManualClock, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::limits::SLOW_SOURCE_PROBE_MAX;
use tidewire::storage::archive::faulty::{FaultyArchive, Plan};
use tidewire::storage::archive::{Archive, ArchiveError, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;

use super::{all, feed, figure, follow_all, numbers};
use crate::personal::publish;
use crate::server::Server;
use testkit::histories::{open_before, storage};
use testkit::observed_archive::{ObservedArchive, Read};
use testkit::world::{above, config, some};

/// What reading one source's archived posts meets.
#[derive(Clone, Copy)]
enum Trouble {
    Fails,
    /// It succeeds after so long.
    Takes(Duration),
}

/// Longer than any page may take.
const FOR_EVER: Trouble = Trouble::Takes(Duration::from_secs(60));

/// Which sources are in trouble, and how often those were read.
#[derive(Default)]
struct Troubles {
    by_source: Mutex<BTreeMap<&'static str, Trouble>>,
    reads: AtomicU64,
}

impl Troubles {
    fn meet(&self, read: &Read<'_>, clock: &ManualClock) -> Result<(), ArchiveError> {
        let Read::Outbox(source) = read else { return Ok(()) };
        let trouble = self.by_source.lock().unwrap().get(source.as_str()).copied();
        self.reads.fetch_add(u64::from(trouble.is_some()), Ordering::SeqCst);
        match trouble {
            None => Ok(()),
            Some(Trouble::Takes(time)) => {
                clock.advance(time);
                Ok(())
            }
            Some(Trouble::Fails) => {
                let source = std::io::Error::other("the disk failed").into();
                Err(ArchiveError::Failed { action: "read", place: "memory".to_owned(), source })
            }
        }
    }

    fn set(&self, troubles: &[(&'static str, Trouble)]) {
        *self.by_source.lock().unwrap() = troubles.iter().copied().collect();
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }
}

const LATE: &str = "late";

/// A feed read down to its end, whatever is missing of it.
#[derive(Default)]
struct Walk {
    met: BTreeSet<u64>,
    partial: BTreeSet<String>,
    reads: u64,
    partial_pages: u64,
}

fn read_down(server: &Server, path: &str, reads_max: u64) -> Walk {
    let (mut walk, mut before) = (Walk::default(), String::new());
    loop {
        walk.reads += 1;
        assert!(walk.reads <= reads_max, "{} reads without coming to an end: {:?}", walk.reads, walk.met);
        let answer = server.get(&format!("{path}?limit=10{before}"));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let page = answer.json();
        walk.met.extend(numbers(page["items"].as_array().unwrap()));
        let partial = page["partial"].as_array().unwrap();
        walk.partial.extend(partial.iter().map(|source| source.as_str().unwrap().to_owned()));
        walk.partial_pages += u64::from(!partial.is_empty());
        let Some(next) = page["next"].as_str() else { return walk };
        let next = format!("&before={next}");
        assert!(next != before, "read {} goes on where it began: {page}", walk.reads);
        before = next;
    }
}

/// Ann follows six sources with 20 posts each, most of them archived, and some of the sources are in trouble.
struct Troubled {
    server: Server,
    clock: Arc<ManualClock>,
    troubles: Arc<Troubles>,
}

const AUTHORS: [&str; 6] = [LATE, "a", "b", "m", "y", "z"];

impl Troubled {
    fn new(policy: CelebrityPolicy, troubles: &[(&'static str, Trouble)]) -> Self {
        let clock = Arc::new(ManualClock::new(SystemClock.now()));
        let met = Arc::new(Troubles::default());
        let meet = {
            let (met, clock) = (Arc::clone(&met), Arc::clone(&clock));
            move |read: &Read<'_>| met.meet(read, &clock)
        };
        let archive = Arc::new(ObservedArchive::new(MemoryArchive::default(), meet)) as Arc<dyn Archive>;
        let small = EngineConfig { outbox_posts: some(4), inbox_posts: some(10), ..config(1, policy) };
        let options = storage(Durability::Always, 1 << 20);
        let time = Arc::clone(&clock) as Arc<dyn Clock>;
        let opened = open_before(small, MemoryFiles::default(), Some(&archive), &options, time);
        let server = Server::of(opened.unwrap().0);
        follow_all(&server, AUTHORS.map(|source| ("ann", source)));
        for body in 0..120 {
            publish(&server, AUTHORS[body as usize % 6], body, &json!({}));
        }
        eventually("most posts are archived", || figure(&server, "posts") <= 6 * 8);
        met.set(troubles);
        Self { server, clock, troubles: met }
    }

    /// What the others posted.
    fn posts_but_of(sources: &[&str]) -> BTreeSet<u64> {
        (0..120).filter(|body| !sources.contains(&AUTHORS[*body as usize % 6])).collect()
    }

    fn walk(&self) -> Walk {
        read_down(&self.server, &feed("ann"), 40)
    }
}

fn set_of(sources: &[&str]) -> BTreeSet<String> {
    sources.iter().map(|source| (*source).to_owned()).collect()
}

#[test]
fn r20_a_failing_or_late_source_is_named_and_its_posts_appear_later() {
    let others = Troubled::posts_but_of(&[LATE]);
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll, above(2)] {
        for trouble in [Trouble::Fails, FOR_EVER] {
            let troubled = Troubled::new(policy, &[(LATE, trouble)]);
            for nth in 1..=3 {
                let walk = troubled.walk();
                assert_eq!(others.difference(&walk.met).count(), 0, "{policy:?}, walk {nth}: {:?}", walk.met);
                assert_eq!(walk.partial, set_of(&[LATE]), "nobody else is named");
                assert!(walk.met.len() < 120 && walk.partial_pages > 0);
            }
            assert!(troubled.troubles.reads() > 0 && figure(&troubled.server, "partial_pages") > 0, "it is counted");
            troubled.troubles.set(&[]);
            troubled.clock.advance(SLOW_SOURCE_PROBE_MAX);
            for _ in 0..2 {
                let walk = troubled.walk();
                assert_eq!((walk.met.len(), walk.partial), (120, BTreeSet::new()));
            }
        }
    }
}

/// A read of the archive cannot be broken off: one that takes more than a page's whole time takes none of the others' posts with it, the
/// first time and ever after, and is not begun for every page.
#[test]
fn sources_that_never_answer_are_named_and_every_walk_reaches_all_other_posts() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll, above(2)] {
        for late in [&[LATE][..], &[LATE, "m"]] {
            let troubles: Vec<_> =
                late.iter().map(|source| (if *source == LATE { LATE } else { "m" }, FOR_EVER)).collect();
            let (troubled, others) = (Troubled::new(policy, &troubles), Troubled::posts_but_of(late));
            for nth in 1..=8 {
                let walk = troubled.walk();
                let missing: Vec<_> = others.difference(&walk.met).collect();
                assert!(missing.is_empty(), "{policy:?}, walk {nth} lacks {missing:?}");
                assert!(walk.partial_pages > 0, "what is missing is said");
                assert_eq!(walk.partial, set_of(late), "nobody else is named");
                // Probes are minutes apart once a read took a minute.
                troubled.clock.advance(Duration::from_secs(20));
            }
            let reads = troubled.troubles.reads();
            assert!(reads <= 4 * late.len() as u64, "{policy:?}: {reads} reads of late sources in eight walks");
            assert!(figure(&troubled.server, "partial_pages") > 0, "it is counted");
        }
    }
}

#[test]
fn posts_in_memory_are_shown_even_if_the_rest_of_the_source_is_unreadable() {
    for trouble in [Trouble::Fails, FOR_EVER] {
        let troubled = Troubled::new(CelebrityPolicy::PushAll, &[(LATE, trouble)]);
        // The first page finds out.
        for _ in 0..2 {
            troubled.server.get(&format!("{}?limit=100", feed("ann")));
        }
        let page = troubled.server.get(&format!("{}?limit=100", feed("ann"))).json();
        let met = BTreeSet::from_iter(numbers(page["items"].as_array().unwrap()));
        assert_eq!(page["partial"], json!([LATE]));
        assert!([96, 102, 108, 114].iter().all(|body| met.contains(body)), "{met:?}");
    }
}

/// Its own page has no others' posts that would have to wait.
#[test]
fn the_own_page_of_a_slow_source_is_read_without_a_time_limit() {
    let troubled = Troubled::new(CelebrityPolicy::PushAll, &[(LATE, FOR_EVER)]);
    for _ in 0..3 {
        let walk = read_down(&troubled.server, &format!("/v1/users/{LATE}/posts"), 10);
        assert_eq!((walk.met.len(), walk.partial), (20, BTreeSet::new()));
    }
}

/// Somewhat slow is not too slow: what comes in a page's time is shown.
#[test]
fn a_slow_source_that_answers_in_time_is_never_omitted() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll] {
        let slow = Duration::from_millis(1_200);
        let troubled = Troubled::new(policy, &[(LATE, Trouble::Takes(slow))]);
        for nth in 1..=3 {
            let walk = troubled.walk();
            assert_eq!(walk.met, (0..120).collect(), "{policy:?}, walk {nth}");
        }
    }
}

#[test]
fn n9_a_partial_page_names_and_counts_missing_sources_and_a_later_page_has_them() {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let archive = FaultyArchive::<MemoryArchive>::default();
    let archive = Arc::new(archive);
    let kept = Arc::clone(&archive) as Arc<dyn Archive>;
    let small = EngineConfig { outbox_posts: some(4), inbox_posts: some(10), ..config(1, above(2)) };
    let opened = open_before(small, MemoryFiles::default(), Some(&kept), &storage(Durability::Always, 1 << 20), clock);
    let server = Server::of(opened.unwrap().0);
    follow_all(&server, [("ann", "star"), ("eve", "star"), ("fay", "star"), ("ann", "bob")]);
    for body in 0..60 {
        publish(&server, ["star", "bob"][body as usize % 2], body, &json!({}));
    }
    eventually("most posts are archived", || figure(&server, "posts") <= 16);
    let fail_copies = 1..u64::MAX;
    archive.set_plan(Plan { fail_copies, ..Plan::default() });
    let lacking = server.get(&format!("{}?limit=30", feed("ann"))).json();
    assert!(!lacking["partial"].as_array().unwrap().is_empty(), "{lacking}");
    assert!(!lacking["items"].as_array().unwrap().is_empty(), "the rest is returned");
    assert_eq!(figure(&server, "partial_pages"), 1);
    archive.set_plan(Plan::default());
    assert_eq!(all(&server, "ann"), (0..60).rev().collect::<Vec<_>>());
    assert_eq!(figure(&server, "partial_pages"), 1);
}
