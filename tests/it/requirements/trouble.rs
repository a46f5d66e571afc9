//! What holds in every mode, under load, with parts that are late or fail, and after a crash.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidewire::api::admission::AdmissionLimits;
use tidewire::clock::{Clock, ManualClock, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::outbox::Part;
use tidewire::feed::policy::Policy;
use tidewire::feed::position::{Direction, Position, Span};
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{Archive, ArchiveError, Batch, Kept, MemoryArchive, Shelf};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::{Durability, Sequence};
use tidewire::storage::recovery::Progress;

use super::{all, feed, figure, follow_all, numbers, walk};
use crate::kept::{open_before, storage};
use crate::kill::Program;
use crate::overload::{begun_publish, is_refused, status as answered, stuck, wait_for};
use crate::personal::{bodies, follow, posts, publish};
use crate::server::Server;
use crate::world::{above, config, some};

const PATIENCE: Duration = Duration::from_secs(20);

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::yield_now();
    }
}

#[test]
fn r19_push_pull_and_hybrid_are_chosen_by_configuration_and_show_the_same_feed() {
    let table: [(&str, Policy, u64, [bool; 2]); 3] = [
        // Deliveries of four posts by someone with three followers and four by someone with one; who of them is a celebrity.
        ("push only", Policy::PushAll, 4 * 3 + 4, [false, false]),
        ("hybrid", above(2), 4, [true, false]),
        ("pull only", Policy::PullAll, 0, [true, true]),
    ];
    for (mode, policy, deliveries, celebrities) in table {
        let server = Server::start(config(2, policy));
        follow_all(&server, [("ann", "star"), ("eve", "star"), ("fay", "star"), ("ann", "bob")]);
        ["ann", "eve", "fay"].iter().for_each(|reader| assert_eq!(bodies(&server, &feed(reader)), [0; 0]));
        for body in 0..8 {
            publish(&server, ["star", "bob"][body as usize % 2], body, &json!({}));
        }
        assert_eq!(figure(&server, "deliveries"), deliveries, "{mode}");
        assert_eq!(all(&server, "ann"), [7, 6, 5, 4, 3, 2, 1, 0], "{mode}");
        assert_eq!(all(&server, "eve"), [6, 4, 2, 0], "{mode}");
        let is_celebrity = |source| server.get(&format!("/v1/users/{source}")).json()["celebrity"] == json!(true);
        assert_eq!(["star", "bob"].map(is_celebrity), celebrities, "{mode}");
    }
}

/// An archive in which one source is out of reach for ever: reading it takes longer than any page may, or fails.
struct OutOfReach {
    archive: MemoryArchive,
    clock: Arc<ManualClock>,
    fails: bool,
    /// Reads of that source.
    tries: AtomicU64,
}

const LATE: &str = "late";

impl Archive for OutOfReach {
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        self.archive.write(batch)
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        self.archive.persist(through)
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        self.archive.through()
    }

    fn post(&self, id: PostId) -> Result<Option<Kept>, ArchiveError> {
        self.archive.post(id)
    }

    fn copy(
        &self,
        source: &SourceId,
        part: Part,
        span: Span,
        direction: Direction,
        max: usize,
        into: &mut Vec<Position>,
    ) -> Result<(), ArchiveError> {
        if source.as_str() == LATE {
            self.tries.fetch_add(1, Ordering::SeqCst);
            if self.fails {
                let source = std::io::Error::other("the disk failed").into();
                return Err(ArchiveError::Failed { action: "read", path: self.place(), source });
            }
            self.clock.advance(Duration::from_secs(60));
        }
        self.archive.copy(source, part, span, direction, max, into)
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Vec<PostId>, ArchiveError> {
        self.archive.ids_from(from, max)
    }

    fn shelves(&self) -> Result<Vec<(SourceId, Shelf)>, ArchiveError> {
        self.archive.shelves()
    }

    fn close(&self) {}

    fn place(&self) -> PathBuf {
        self.archive.place()
    }

    fn largest_id(&self) -> Option<PostId> {
        self.archive.largest_id()
    }
}

/// A feed read down to its end, whatever is missing of it.
#[derive(Default)]
struct Walk {
    met: BTreeSet<u64>,
    partial: BTreeSet<String>,
    reads: u64,
    partial_pages: u64,
}

fn read_down(server: &Server, reader: &str, reads_max: u64) -> Walk {
    let (mut walk, mut before) = (Walk::default(), String::new());
    loop {
        walk.reads += 1;
        assert!(walk.reads <= reads_max, "{} reads without coming to an end: {:?}", walk.reads, walk.met);
        let answer = server.get(&format!("{}?limit=10{before}", feed(reader)));
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

/// A server on which ann follows the source out of reach and five others, with 20 posts each, most of them archived. Returns what the
/// others posted.
fn with_one_out_of_reach(fails: bool, policy: Policy) -> (Server, Arc<OutOfReach>, BTreeSet<u64>) {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let (archive, tries) = (MemoryArchive::default(), AtomicU64::new(0));
    let archive = Arc::new(OutOfReach { archive, clock: Arc::clone(&clock), fails, tries });
    let kept = Arc::clone(&archive) as Arc<dyn Archive>;
    let small = EngineConfig { outbox_posts: some(4), inbox_posts: some(10), ..config(1, policy) };
    let options = storage(Durability::Always, 1 << 20);
    let server = Server::of(open_before(small, MemoryFiles::default(), Some(&kept), &options, clock).unwrap().0);
    let authors = [LATE, "a", "b", "m", "y", "z"];
    follow_all(&server, authors.map(|source| ("ann", source)));
    for body in 0..120 {
        publish(&server, authors[body as usize % 6], body, &json!({}));
    }
    until("most posts are archived", || figure(&server, "posts") <= 6 * 8);
    (server, archive, (0..120).filter(|body| body % 6 != 0).collect())
}

#[test]
fn r20_a_source_that_can_never_be_read_is_named_and_reading_on_reaches_everything_else() {
    for policy in [Policy::PushAll, Policy::PullAll, above(2)] {
        let (server, archive, others) = with_one_out_of_reach(true, policy);
        for nth in 1..=3 {
            let walk = read_down(&server, "ann", 40);
            assert_eq!(others.difference(&walk.met).count(), 0, "{policy:?}, walk {nth}: {:?}", walk.met);
            assert_eq!(walk.partial, BTreeSet::from([LATE.to_owned()]), "nobody else is named");
            assert!(walk.met.len() < 120 && walk.partial_pages > 0);
        }
        assert!(archive.tries.load(Ordering::SeqCst) > 0 && figure(&server, "partial_pages") > 0, "it is counted");
    }
}

/// A read of the archive cannot be broken off: whatever a page has yet to read once one took all of its time is left out and named,
/// others each time, and comes with a later read.
#[test]
fn r20_a_source_that_is_late_for_ever_sends_nobody_in_circles_and_later_reads_bring_the_rest() {
    for policy in [Policy::PushAll, Policy::PullAll] {
        let (server, _, mut missing) = with_one_out_of_reach(false, policy);
        let mut walks = 0;
        while !missing.is_empty() {
            walks += 1;
            assert!(walks <= 100, "{policy:?}: never shown: {missing:?}");
            let walk = read_down(&server, "ann", 60);
            let is_whole = missing.is_subset(&walk.met);
            assert!(is_whole || walk.partial_pages > 0, "{policy:?}: what is missing is said: {missing:?}");
            missing.retain(|body| !walk.met.contains(body));
        }
        assert!(figure(&server, "partial_pages") > 0, "it is counted");
    }
}

#[test]
fn r20_what_was_missing_comes_with_a_later_read() {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let archive = tidewire::storage::archive::faulty::FaultyArchive::<MemoryArchive>::default();
    let archive = Arc::new(archive);
    let kept = Arc::clone(&archive) as Arc<dyn Archive>;
    let small = EngineConfig { outbox_posts: some(4), inbox_posts: some(10), ..config(1, above(2)) };
    let opened = open_before(small, MemoryFiles::default(), Some(&kept), &storage(Durability::Always, 1 << 20), clock);
    let server = Server::of(opened.unwrap().0);
    follow_all(&server, [("ann", "star"), ("eve", "star"), ("fay", "star"), ("ann", "bob")]);
    for body in 0..60 {
        publish(&server, ["star", "bob"][body as usize % 2], body, &json!({}));
    }
    until("most posts are archived", || figure(&server, "posts") <= 16);
    let fail_copies = 1..u64::MAX;
    archive.set_plan(tidewire::storage::archive::faulty::Plan { fail_copies, ..Default::default() });
    let lacking = server.get(&format!("{}?limit=30", feed("ann"))).json();
    assert!(!lacking["partial"].as_array().unwrap().is_empty(), "{lacking}");
    assert!(!lacking["items"].as_array().unwrap().is_empty(), "the rest is returned");
    archive.set_plan(Default::default());
    assert_eq!(all(&server, "ann"), (0..60).rev().collect::<Vec<_>>());
}

#[test]
fn r21_an_overloaded_server_refuses_the_excess_and_goes_on_with_the_rest() {
    let (server, let_go) = stuck(AdmissionLimits { writes: 4, ..AdmissionLimits::default() });
    let accepted = [(); 4].map(|()| begun_publish(&server));
    wait_for(&server, "writes", 4);
    let excess = || server.post("/v1/posts", &json!({"id": "7", "author": "bob", "body": 1}));
    for _ in 0..50 {
        let refused = excess();
        assert!(is_refused(&refused), "{refused:?}");
    }
    assert_eq!(server.get("/v1/posts/7").status, 404, "nothing of what was refused was done");
    assert_eq!(server.get(&feed("ann")).status, 200, "reads go on");
    assert_eq!(server.get("/readyz").status, 200);
    drop(let_go);
    assert_eq!(accepted.map(|socket| answered(&socket)), [201; 4], "what was let in is served");
    wait_for(&server, "writes", 0);
    assert_eq!(excess().status, 201, "what comes again is served as well");
    assert_eq!(bodies(&server, "/v1/users/ann/posts"), [1; 4]);
    assert_eq!(server.get("/v1/stats").json()["admission"]["writes"]["refused"], json!(50));
}

fn send(program: &Program, method: &str, path: &str, body: &str) -> (u16, Value) {
    let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", program.url));
    let mut answer = if body.is_empty() {
        program.agent.run(request.body(()).unwrap()).unwrap()
    } else {
        program.agent.run(request.header("content-type", "application/json").body(body.to_owned()).unwrap()).unwrap()
    };
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null))
}

#[test]
fn r22_acknowledged_posts_deletes_and_follow_edits_survive_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    let ask = |program: &Program, method: &str, path: &str| send(program, method, path, "").0;
    for source in ["bob", "cas", "dan"] {
        assert_eq!(ask(&program, "PUT", &format!("/v1/users/ann/following/{source}")), 201);
    }
    for body in 1..=9 {
        let post = json!({"id": body.to_string(), "author": (["bob", "cas", "dan"][body % 3]), "body": body});
        assert_eq!(send(&program, "POST", "/v1/posts", &post.to_string()).0, 201);
    }
    // Between here and there an inbox was built, which is not what survives.
    assert_eq!(program.get(&feed("ann")).unwrap().0, 200);
    assert_eq!(ask(&program, "DELETE", "/v1/posts/9"), 204);
    assert_eq!(ask(&program, "DELETE", "/v1/users/ann/following/cas"), 204);
    assert_eq!(send(&program, "PATCH", "/v1/posts/8", r#"{"body":80}"#).0, 200);
    let read = |program: &Program| numbers(program.get(&feed("ann")).unwrap().1["items"].as_array().unwrap());
    let expected = [80, 6, 5, 3, 2];
    assert_eq!(read(&program), expected);
    for _ in 0..2 {
        program.signal("KILL");
    }
    program.kill();
    let program = Program::start(directory.path(), &[]);
    assert_eq!(read(&program), expected);
    assert_eq!(program.get("/v1/posts/9").unwrap().0, 404);
    let following = program.get("/v1/users/ann/following").unwrap().1;
    assert_eq!(crate::personal::ids(&following), ["dan", "bob"]);
    let verdict = send(&program, "POST", "/v1/users/ann/feed/verify", "").1;
    assert_eq!(verdict["good"], json!(true), "inboxes can always be rebuilt: {verdict}");
    program.kill();
}

fn kept_in(directory: &Path) -> Server {
    let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
    let small = EngineConfig { outbox_posts: some(4), inbox_posts: some(5), ..config(2, above(2)) };
    Server::of(Engine::open(small, &storage, Arc::new(SystemClock), &Progress::default()).unwrap().0)
}

#[test]
fn r24_posts_too_old_for_memory_are_read_from_a_second_level_by_the_same_api() {
    let directory = tempfile::tempdir().unwrap();
    let server = kept_in(directory.path());
    follow_all(&server, [("ann", "star"), ("eve", "star"), ("fay", "star"), ("ann", "bob")]);
    let mut published = Vec::new();
    for body in 0..60 {
        published.push(publish(&server, ["star", "bob"][body as usize % 2], body, &json!({})));
    }
    until("old posts leave memory", || figure(&server, "posts") <= 16);
    let expected: Vec<u64> = (0..60).rev().collect();
    let check = |server: &Server, expected: &[u64]| {
        assert_eq!(numbers(&walk(server, &feed("ann"), 9)), expected);
        let own: Vec<u64> = expected.iter().copied().filter(|body| body % 2 == 1).collect();
        assert_eq!(numbers(&walk(server, "/v1/users/bob/posts", 9)), own);
    };
    check(&server, &expected);
    let metrics = server.get("/metrics").text;
    let archived = metrics.lines().find_map(|line| line.strip_prefix("tidewire_archive_pages_total "));
    assert!(archived.unwrap().parse::<f64>().unwrap() > 0.0, "pages came from there");
    let old = format!("/v1/posts/{}", published[1]);
    assert_eq!(server.get(&old).json()["body"], json!(1));
    assert_eq!(server.json("PATCH", &old, &json!({"body": 61})).status, 200);
    assert_eq!(server.send("DELETE", &format!("/v1/posts/{}", published[3]), None, "").status, 204);
    let mut expected: Vec<u64> = expected.into_iter().filter(|body| *body != 3).collect();
    expected[57] = 61;
    check(&server, &expected);
    drop(server);
    check(&kept_in(directory.path()), &expected);
}

#[test]
fn n12_operators_inspect_verify_and_rebuild_a_feed_and_see_memory_and_latency() {
    let server = Server::start(config(2, Policy::PushAll));
    follow(&server, "ann", "bob");
    server.get(&feed("ann"));
    posts(&server, "bob", 1..=5);
    for what in ["verify", "rebuild", "verify"] {
        let verdict = server.send("POST", &format!("/v1/users/ann/feed/{what}"), None, "").json();
        let figures = ["good", "entries", "rebuilt"].map(|name| verdict[name].clone());
        assert_eq!(figures, [json!(true), json!(5), json!(5)], "{what}");
    }
    assert_eq!(bodies(&server, &feed("ann")), [5, 4, 3, 2, 1]);
    let stats = server.get("/v1/stats").json();
    assert!(stats["memory"]["resident_bytes"].as_u64() > Some(0));
    let latency = &stats["fanout_latency"][0];
    assert_eq!((&latency["followers"], &latency["count"]), (&json!("1-9"), &json!(5)), "{stats}");
}
