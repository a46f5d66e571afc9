//! What all nodes must have, from the writes that were acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Done, Outcome};
use super::watchers::Watchers;
use super::writers::{Content, DELIVERED_MAX, READERS, States, Writer, entry, time_of};
use super::{Nodes, PATIENCE};
use testkit::{PageCount, eventually};

/// Number of entries that are compared of each feed.
const ENTRIES: usize = 250;

/// Number of edges of a reader on one page.
const EDGES: usize = 100;

impl Nodes {
    /// Reads what a node has after a sequence, as soon as it has applied that.
    pub fn read(&self, node: usize, after: u64, path: &str) -> Done {
        eventually(path, || match self.client.get_after(after, &self.url(node, path)) {
            Outcome::Done(done) if done.body["partial"].as_array().is_none_or(Vec::is_empty) => Ok(done),
            // What it lacks of the archive comes later.
            Outcome::Done(done) => Err(format!("node {node} lacks {}", done.body["partial"])),
            refused => Err(format!("node {node}: {refused:?}")),
        })
    }

    /// Appends a record behind all others, through each node, and returns the last sequence.
    pub fn mark_end(&self) -> u64 {
        let mut last = 0;
        for node in self.running() {
            let url = self.url(node, "/v1/posts");
            eventually("a write is done", || {
                let post = json!({"author": "the-last", "body": {"text": "the end"}});
                if let Outcome::Done(done) = self.client.send("POST", &url, &post) {
                    last = last.max(done.sequence);
                    return done.status == 201;
                }
                false
            });
        }
        last
    }

    /// Finds out what became of the writes whose outcome is open, and checks those that were acknowledged: all new edges, and on all nodes
    /// the new posts that `sample` chooses.
    pub fn settle(&self, writers: &mut [Writer], after: u64, sample: &Sample) {
        thread::scope(|scope| {
            for writer in writers {
                scope.spawn(move || self.settle_writer(writer, after, sample));
            }
        });
    }

    fn settle_writer(&self, writer: &mut Writer, after: u64, sample: &Sample) {
        let running: Vec<usize> = self.running().collect();
        for (id, post) in writer.posts.iter_mut().filter(|(_, post)| post.is_new) {
            post.is_new = false;
            if post.content.known().is_some() && !sample.has(*id, post.written) {
                continue;
            }
            for node in &running {
                let Done { status, body, .. } = self.read(*node, after, &format!("/v1/posts/{id}"));
                assert!(status == 200 || status == 404, "post {id}: {status} {body}");
                let text = || body["body"]["text"].as_str().unwrap().to_owned();
                let content = match (status, body["hidden"].as_bool().unwrap_or(false)) {
                    (404, _) => Content::None,
                    (_, true) => Content::Hidden(text()),
                    (_, false) => Content::Shown(text()),
                };
                post.content.settle(content, format!("post {id} on {}", self.slots[*node].name));
                if status == 200 {
                    let place = (time_of(&body), *id);
                    assert_eq!(*post.place.get_or_insert_with(|| place.clone()), place);
                }
            }
        }
        for (kind, reader) in std::mem::take(&mut writer.new_edges) {
            let edges = if kind == "mutes" { &mut writer.mutes } else { &mut writer.follows };
            self.settle_edges(running[reader % running.len()], after, kind, reader, edges);
        }
    }

    fn settle_edges(
        &self,
        node: usize,
        after: u64,
        kind: &str,
        reader: usize,
        edges: &mut BTreeMap<(usize, usize), States<bool>>,
    ) {
        let Done { status, body, .. } =
            self.read(node, after, &format!("/v1/users/reader-{reader}/{kind}?limit={EDGES}"));
        assert_eq!(status, 200, "{kind} of reader-{reader}: {body}");
        let set = body.to_string();
        for ((_, author), states) in edges.range_mut((reader, 0)..(reader + 1, 0)) {
            states
                .settle(set.contains(&format!("\"author-{author}\"")), format!("{kind} of reader-{reader}, {author}"));
        }
    }

    /// Checks that each post without an id is there once if it was acknowledged, and never if it was refused.
    pub fn check_unnamed(&self, writers: &mut [Writer], after: u64) {
        let node = self.running().next().unwrap();
        for writer in writers {
            let (author, mut found, mut before) =
                (writer.unnamed_author(), BTreeMap::<String, usize>::new(), String::new());
            let mut pages = PageCount::default();
            loop {
                pages.count();
                let path = format!("/v1/users/{author}/posts?limit=100{before}");
                let Done { status, body: page, .. } = self.read(node, after, &path);
                assert_eq!(status, 200, "{path}: {page}");
                for (_, text) in page["items"].as_array().unwrap().iter().map(entry) {
                    *found.entry(text.to_owned()).or_default() += 1;
                }
                let Some(next) = page["next"].as_str() else { break };
                before = format!("&before={next}");
            }
            for (text, count) in &mut writer.unnamed {
                count.settle(found.remove(text).unwrap_or_default(), format!("the number of {text:?} by {author}"));
            }
            assert_eq!(found, BTreeMap::new(), "posts by {author} that nobody has published");
        }
    }

    /// Checks that all nodes have the same state.
    pub fn check_digests(&self) {
        let mut worlds = Vec::new();
        eventually("all nodes have applied the same events", || {
            let world = |node| match self.client.get(&self.url(node, "/v1/cluster?digest=true")) {
                Outcome::Done(Done { status: 200, body, .. }) => body["world"].clone(),
                _ => Value::Null,
            };
            worlds = self.running().map(world).collect();
            worlds.iter().all(|world| !world.is_null() && world["sequence"] == worlds[0]["sequence"])
        });
        let first = &worlds[0]["digest"];
        assert!(first.is_string() && worlds.iter().all(|world| world["digest"] == *first), "{worlds:?}");
    }

    /// Checks the feeds of some readers, as each node returns them.
    pub fn check_feeds(&self, writers: &[Writer], readers: impl Iterator<Item = usize>, after: u64) {
        let expected = Expected::new(writers);
        for reader in readers {
            let feed = expected.feed(reader);
            for node in self.running() {
                let (began, name) = (Instant::now(), self.slots[node].name);
                loop {
                    let found = self.feed(node, reader, after);
                    if found == feed {
                        break;
                    }
                    let first = found.iter().zip(&feed).find(|(found, expected)| found != expected);
                    let lengths = (found.len(), feed.len());
                    assert!(
                        began.elapsed() < DELIVERED_MAX,
                        "reader-{reader} by {name}: {lengths:?} entries, {first:?}"
                    );
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    fn feed(&self, node: usize, reader: usize, after: u64) -> Vec<(u64, String)> {
        let (mut feed, mut before) = (Vec::new(), String::new());
        while feed.len() < ENTRIES {
            let path = format!("/v1/users/reader-{reader}/feed?limit=100{before}");
            let Done { status, body: page, .. } = self.read(node, after, &path);
            assert_eq!(status, 200, "{path}: {page}");
            let entries = page["items"].as_array().unwrap().iter().map(entry);
            feed.extend(entries.map(|(id, text)| (id, text.to_owned())));
            let Some(next) = page["next"].as_str() else { break };
            before = format!("&before={next}");
        }
        feed.truncate(ENTRIES);
        feed
    }

    /// Checks that each watcher has the feed of its reader, without having to ask for it.
    pub fn check_watchers(&self, writers: &[Writer], watchers: &Watchers) {
        let expected = Expected::new(writers);
        for (reader, held) in &watchers.held {
            let feed = expected.feed(*reader);
            let began = Instant::now();
            loop {
                watchers.check();
                let held = held.lock().unwrap().clone();
                let entries: Vec<_> = held.entries.values().rev().take(ENTRIES).cloned().collect();
                // A client has a page at least, or the whole feed.
                if entries.len() >= feed.len().min(20) && feed.starts_with(&entries) {
                    break;
                }
                assert!(
                    began.elapsed() < PATIENCE / 3,
                    "the client of reader-{reader} has {} entries of {} and a bound {:?}: {:?}",
                    entries.len(),
                    feed.len(),
                    held.bound,
                    entries.iter().zip(&feed).find(|(held, expected)| held != expected),
                );
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// The acknowledged posts that are read from all nodes.
pub struct Sample {
    /// All posts that were written to in this time.
    pub all_of: Option<(Instant, Instant)>,
    /// One of this many of the others.
    pub of_every: u64,
}

impl Sample {
    fn has(&self, id: u64, written: Instant) -> bool {
        id.is_multiple_of(self.of_every) || self.all_of.is_some_and(|(first, last)| (first..=last).contains(&written))
    }
}

/// A place in the feed, the author, the id and the text of a post.
type Entry<'a> = (&'a (String, u64), usize, u64, &'a str);

/// What was acknowledged, of all writers.
struct Expected<'a> {
    /// All posts that are there, newest first.
    posts: Vec<Entry<'a>>,
    /// The authors that each reader follows and has not muted.
    sources: Vec<BTreeSet<usize>>,
}

impl<'a> Expected<'a> {
    fn new(writers: &'a [Writer]) -> Self {
        let mut posts: Vec<Entry<'a>> = Vec::new();
        let mut sources = vec![BTreeSet::new(); READERS];
        for writer in writers {
            for (id, post) in &writer.posts {
                if let Some(text) = post.content.known().unwrap().shown() {
                    posts.push((post.place.as_ref().unwrap(), post.author, *id, text));
                }
            }
            let is_set = |(_, states): &(&(usize, usize), &States<bool>)| *states.known().unwrap();
            for ((reader, author), _) in writer.follows.iter().filter(is_set) {
                sources[*reader].insert(*author);
            }
            for ((reader, author), _) in writer.mutes.iter().filter(is_set) {
                sources[*reader].remove(author);
            }
        }
        posts.sort_unstable_by(|one, other| other.cmp(one));
        Self { posts, sources }
    }

    fn feed(&self, reader: usize) -> Vec<(u64, String)> {
        let comes = |(_, author, ..): &&Entry<'_>| self.sources[reader].contains(author);
        self.posts.iter().filter(comes).take(ENTRIES).map(|(_, _, id, text)| (*id, (*text).to_owned())).collect()
    }
}

/// Returns the edges that readers have at first, as the body of a request, and remembers them.
pub fn first_edges(writers: &mut [Writer]) -> Value {
    let mut follows = Vec::new();
    for reader in 0..READERS {
        for author in (0..super::writers::AUTHORS).filter(|author| (author + reader) % 3 == 0) {
            follows.push(json!({"follower": format!("reader-{reader}"), "source": format!("author-{author}")}));
            let owner = reader % writers.len();
            writers[owner].follows.insert((reader, author), States::new(true));
        }
    }
    json!({ "follows": follows })
}
