//! Clients that write through all nodes, and remember what each thing they have written to may be.
//!
//! Each writer has its own authors and readers, and writes to each thing one after the other. So a thing has one state, or two after a write
//! whose outcome is open. Such a thing is left alone until the faults are over and its state is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::balancer::Balancer;
use super::client::{Client, Done, Outcome};

pub const WRITERS: usize = 6;
pub const AUTHORS: usize = 12;
pub const READERS: usize = 204;

/// The time that a client waits after it was refused.
const RETRY: Duration = Duration::from_millis(10);

/// The time within which a post reaches a feed, on a loaded machine. Without a fault it takes milliseconds.
pub const DELIVERED_MAX: Duration = Duration::from_secs(3);

/// The states that a thing may be in.
#[derive(Clone, Debug, PartialEq)]
pub struct States<T>(Vec<T>);

impl<T: PartialEq + std::fmt::Debug> States<T> {
    pub fn new(state: T) -> Self {
        Self(vec![state])
    }

    pub fn known(&self) -> Option<&T> {
        if let [state] = &self.0[..] { Some(state) } else { None }
    }

    fn write(&mut self, state: T, outcome: &Outcome) {
        match outcome {
            Outcome::Done(_) => self.0 = vec![state],
            Outcome::Unreached(_) | Outcome::Refused(_) => {}
            Outcome::Open(_) if self.0.contains(&state) => {}
            Outcome::Open(_) => self.0.push(state),
        }
    }

    /// Takes the state that was read after all writes had ended.
    pub fn settle(&mut self, state: T, what: impl std::fmt::Display) {
        assert!(self.0.contains(&state), "{what} is {state:?} and not one of {:?}", self.0);
        self.0 = vec![state];
    }
}

/// What may become of a post.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// It is not published, or deleted.
    None,
    Hidden(String),
    Shown(String),
}

impl Content {
    /// Returns the text that feeds have.
    pub fn shown(&self) -> Option<&str> {
        if let Self::Shown(text) = self { Some(text) } else { None }
    }
}

/// A change of a post.
#[derive(Clone, Copy)]
enum Change {
    Edit,
    /// Hides it, or shows it again.
    Hide,
    Delete,
}

#[derive(Debug)]
pub struct Post {
    pub author: usize,
    pub content: States<Content>,
    /// Where it stands, once that is known: its time, and its id.
    pub place: Option<(String, u64)>,
    /// False if an earlier attempt to publish it may still be under way.
    may_change: bool,
    /// True if it was written to since the last check.
    pub is_new: bool,
    /// The time of the last write to it.
    pub written: Instant,
}

/// The numbers of writes with each outcome, and of pages.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counts {
    pub done: u64,
    /// Requests to addresses at which no node runs.
    pub unreached: u64,
    /// Writes and reads that a node has refused.
    pub refused: u64,
    pub open: u64,
    pub pages: u64,
}

pub struct Writer {
    number: usize,
    random: fastrand::Rng,
    client: Client,
    balancer: Balancer,
    pub posts: BTreeMap<u64, Post>,
    /// Whether a reader follows an author.
    pub follows: BTreeMap<(usize, usize), States<bool>>,
    /// Whether a reader has muted an author.
    pub mutes: BTreeMap<(usize, usize), States<bool>>,
    /// The kind and the reader of the edges that were written to since the last check.
    pub new_edges: BTreeSet<(&'static str, usize)>,
    /// The numbers that each post without an id may have: 1 if it was acknowledged, 0 if refused, either if that is open. By its text.
    pub unnamed: BTreeMap<String, States<usize>>,
    /// The greatest sequence that a write was answered with.
    pub sequence: u64,
    pub counts: Counts,
    /// The last refusal, to show if there may be none.
    pub refusal: String,
}

impl Writer {
    pub fn new(number: usize, seed: u64, balancer: &Balancer) -> Self {
        Self {
            number,
            random: fastrand::Rng::with_seed(seed.wrapping_add(number as u64)),
            client: Client::new(),
            balancer: balancer.clone(),
            posts: BTreeMap::new(),
            follows: BTreeMap::new(),
            mutes: BTreeMap::new(),
            new_edges: BTreeSet::new(),
            unnamed: BTreeMap::new(),
            sequence: 0,
            counts: Counts::default(),
            refusal: String::new(),
        }
    }

    /// Writes and reads until it is stopped. Adds the writes that were acknowledged.
    pub fn run(&mut self, is_stopped: &AtomicBool, acknowledged: &AtomicU64) {
        while !is_stopped.load(Ordering::Relaxed) {
            let done = self.counts.done;
            match self.random.u32(..100) {
                0..30 => self.publish(),
                30..45 => self.publish_unnamed(),
                45..57 => self.change_post(Change::Edit),
                57..62 => self.change_post(Change::Hide),
                62..68 => self.change_post(Change::Delete),
                68..84 => self.set_edge("following"),
                84..92 => self.set_edge("mutes"),
                _ => self.read_page(),
            }
            acknowledged.fetch_add(self.counts.done - done, Ordering::Relaxed);
        }
    }

    /// Returns the address of any node that is used, and a path at it.
    fn url(&mut self, path: &str) -> String {
        format!("{}{path}", self.balancer.any_url(&mut self.random))
    }

    fn own(&mut self, count: usize) -> usize {
        self.random.usize(..count / WRITERS) * WRITERS + self.number
    }

    fn write(&mut self, method: &str, path: &str, body: &Value) -> Outcome {
        let url = self.url(path);
        let outcome = self.client.send(method, &url, body);
        match &outcome {
            Outcome::Done(Done { status, sequence, .. }) => {
                assert!((200..300).contains(status), "{method} {url} {body}: {outcome:?}");
                // A node that was deposed, and answered from what it believed, would be behind.
                assert!(
                    *sequence >= self.sequence,
                    "{method} {url} is answered with {sequence} after {}",
                    self.sequence
                );
                (self.sequence, self.counts.done) = (*sequence, self.counts.done + 1);
            }
            Outcome::Unreached(_) => {
                self.counts.unreached += 1;
                thread::sleep(RETRY);
            }
            Outcome::Refused(problem) => self.note_refusal(&format!("{method} {url}: {problem}")),
            Outcome::Open(_) => self.counts.open += 1,
        }
        outcome
    }

    fn note_refusal(&mut self, refusal: &str) {
        refusal.clone_into(&mut self.refusal);
        self.counts.refused += 1;
        thread::sleep(RETRY);
    }

    fn publish(&mut self) {
        let id = (self.number as u64 + 1) * 100_000_000 + self.posts.len() as u64;
        let (author, text) = (self.own(AUTHORS), format!("post {id}"));
        let mut post = Post {
            author,
            content: States::new(Content::None),
            place: None,
            may_change: true,
            is_new: true,
            written: Instant::now(),
        };
        let draft = json!({"id": id.to_string(), "author": format!("author-{author}"), "body": {"text": &text}});
        let before = self.sequence;
        let mut outcome = self.write("POST", "/v1/posts", &draft);
        post.content.write(Content::Shown(text.clone()), &outcome);
        if matches!(outcome, Outcome::Open(_)) && self.random.bool() {
            post.may_change = false;
            // The id makes this safe.
            outcome = self.write("POST", "/v1/posts", &draft);
            post.content.write(Content::Shown(text), &outcome);
        }
        if let Outcome::Done(done) = outcome {
            assert!(done.status == 200 || self.sequence > before, "{id} is a new record of the log: {done:?}");
            assert_eq!(done.body["id"], id.to_string());
            post.place = Some((time_of(&done.body), id));
        }
        post.written = Instant::now();
        self.posts.insert(id, post);
    }

    /// Returns the author of this writer's posts without ids, whom nobody follows.
    pub fn unnamed_author(&self) -> String {
        format!("unnamed-{}", self.number)
    }

    /// Publishes a post without an id, once: a node that sent it twice would store it twice.
    fn publish_unnamed(&mut self) {
        let text = format!("post {} without an id", self.unnamed.len());
        let draft = json!({"author": self.unnamed_author(), "body": {"text": &text}});
        let mut count = States::new(0);
        count.write(1, &self.write("POST", "/v1/posts", &draft));
        self.unnamed.insert(text, count);
    }

    fn change_post(&mut self, change: Change) {
        let Some(last) = self.posts.keys().next_back().copied() else { return };
        // One of the last, which are on the first pages.
        let id = last - self.random.u64(..100).min(self.posts.len() as u64 - 1);
        let post = &self.posts[&id];
        let (true, Some(content)) = (post.may_change, post.content.known().cloned()) else { return };
        let (path, edited) = (format!("/v1/posts/{id}"), format!("edited {}", self.random.u32(..)));
        let (becomes, method, body) = match (change, content) {
            (_, Content::None) => return,
            (Change::Edit, Content::Hidden(_)) => {
                (Content::Hidden(edited.clone()), "PATCH", json!({"body": {"text": edited}}))
            }
            (Change::Edit, Content::Shown(_)) => {
                (Content::Shown(edited.clone()), "PATCH", json!({"body": {"text": edited}}))
            }
            (Change::Hide, Content::Hidden(text)) => (Content::Shown(text), "PATCH", json!({"hidden": false})),
            (Change::Hide, Content::Shown(text)) => (Content::Hidden(text), "PATCH", json!({"hidden": true})),
            (Change::Delete, _) => (Content::None, "DELETE", Value::Null),
        };
        let outcome = self.write(method, &path, &body);
        let post = self.posts.get_mut(&id).unwrap();
        post.content.write(becomes, &outcome);
        (post.is_new, post.written) = (true, Instant::now());
    }

    /// Follows or mutes an author, or ends that.
    fn set_edge(&mut self, kind: &'static str) {
        let (reader, author) = (self.own(READERS), self.random.usize(..AUTHORS));
        let edges = if kind == "mutes" { &mut self.mutes } else { &mut self.follows };
        let Some(is_set) = edges.entry((reader, author)).or_insert(States::new(false)).known().copied() else { return };
        let method = if is_set { "DELETE" } else { "PUT" };
        let outcome = self.write(method, &format!("/v1/users/reader-{reader}/{kind}/author-{author}"), &Value::Null);
        let edges = if kind == "mutes" { &mut self.mutes } else { &mut self.follows };
        edges.get_mut(&(reader, author)).unwrap().write(!is_set, &outcome);
        self.new_edges.insert((kind, reader));
    }

    /// Reads a page, which must have all that this writer knows. A post reaches feeds a moment after it was acknowledged, as on one node.
    fn read_page(&mut self) {
        let reader = self.own(READERS);
        let url = self.url(&format!("/v1/users/reader-{reader}/feed?limit=50"));
        let began = Instant::now();
        loop {
            let (status, page, node) = match self.client.get_after(self.sequence, &url) {
                Outcome::Done(Done { status, body, node, .. }) => (status, body, node),
                Outcome::Refused(problem) => return self.note_refusal(&format!("GET {url}: {problem}")),
                Outcome::Unreached(_) | Outcome::Open(_) => return,
            };
            assert_eq!(status, 200, "{url}: {page}");
            self.counts.pages += 1;
            let Some(difference) = self.difference(reader, &page) else { return };
            let after = self.sequence;
            assert!(began.elapsed() < DELIVERED_MAX, "reader-{reader} by {node} after {after}: {difference}");
            thread::sleep(RETRY);
        }
    }

    /// Returns how a page differs from what this writer knows.
    fn difference(&self, reader: usize, page: &Value) -> Option<String> {
        let items = page["items"].as_array().unwrap();
        let shown: BTreeMap<u64, &str> = items.iter().map(entry).collect();
        let last = items.last().map(|item| (time_of(&item["post"]), entry(item).0)).filter(|_| !page["next"].is_null());
        for (id, post) in self.posts.iter().rev().take(500) {
            let edge = (reader, post.author);
            let is_brought = self.follows.get(&edge).map_or(Some(false), |states| states.known().copied());
            let is_muted = self.mutes.get(&edge).map_or(Some(false), |states| states.known().copied());
            let (Some(content), Some(is_brought), Some(is_muted)) = (post.content.known(), is_brought, is_muted) else {
                continue;
            };
            let is_below = post.place.as_ref().is_none_or(|place| last.as_ref().is_some_and(|last| place < last));
            let expected = content.shown().filter(|_| is_brought && !is_muted && !is_below);
            let found = shown.get(id).copied();
            if found != expected {
                return Some(format!("post {id} is shown as {found:?} and not as {expected:?}: {post:?}"));
            }
        }
        None
    }
}

/// Returns the id and the text of an entry.
pub fn entry(item: &Value) -> (u64, &str) {
    let post = &item["post"];
    (post["id"].as_str().unwrap().parse().unwrap(), post["body"]["text"].as_str().unwrap())
}

/// Returns the time of a post, in a form that sorts as text: with all six digits of its microseconds.
pub fn time_of(post: &Value) -> String {
    let time = post["published_at"].as_str().unwrap().trim_end_matches('Z');
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
    format!("{seconds}.{fraction:0<6}")
}
