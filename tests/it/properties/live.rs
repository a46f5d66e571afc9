//! Live clients in random histories: what they put together must be what the oracle says.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use tidewire::engine::{Engine, Watcher};
use tidewire::feed::page::Range;
use tidewire::feed::position::Position;
use tidewire::feed::stream::StreamPosition;
use tidewire::live::event::{EventKind, LiveEvent};
use tidewire::live::subscriber_queue::Closing;
use tidewire::state::feed_filter::Entry;
use tidewire::state::reader::PageRequest;

use crate::properties::ops::PEOPLE;
use testkit::eventually_async;
use testkit::oracle::{Expected, Oracle};
use testkit::world::{expected, id, next_event};

/// What a live client does.
#[derive(Clone, Copy, Debug)]
pub enum LiveOp {
    /// Comes, or comes back where it was.
    Connect,
    /// Goes, and remembers where it was.
    Drop,
    /// Reads the newest entries anew.
    Read(usize),
    /// Reads on below.
    Older(usize),
    /// Has what it should have.
    Check,
}

/// A client as `docs/live.md` says it should be: entries complete from a bound up.
pub struct LiveClient {
    reader: &'static str,
    watcher: Option<Watcher>,
    place: Option<StreamPosition>,
    entries: BTreeMap<Position, Expected>,
    bound: Position,
}

impl LiveClient {
    pub fn new(reader: &'static str) -> Self {
        Self { reader, watcher: None, place: None, entries: BTreeMap::new(), bound: Position::MAX }
    }

    pub async fn apply(&mut self, op: LiveOp, engine: &Engine, oracle: &Oracle) {
        match op {
            LiveOp::Connect => self.connect(engine).await,
            LiveOp::Drop => self.watcher = None,
            LiveOp::Read(limit) => self.read(engine, limit).await,
            LiveOp::Older(limit) => self.older(engine, limit).await,
            LiveOp::Check => self.check(oracle).await,
        }
    }

    /// The process ended, and the connection with it.
    pub fn lose_connection(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            drop(watcher);
        }
    }

    async fn connect(&mut self, engine: &Engine) {
        if self.watcher.is_some() {
            return;
        }
        let mut watcher = engine.watch(&id(self.reader), self.place).await.unwrap();
        let hello = next_event(&mut watcher).await;
        let EventKind::Hello { recovered, .. } = hello.kind else { panic!("the first event is {hello:?}") };
        assert!(!recovered || Some(hello.place) == self.place, "exactly what is missing follows");
        self.place = Some(hello.place);
        self.watcher = Some(watcher);
        if !recovered {
            self.read(engine, 5).await;
        }
    }

    async fn read(&mut self, engine: &Engine, limit: usize) {
        if self.watcher.is_none() {
            return;
        }
        // What was told before the page was read is in it. What comes while it is read may not be, and is applied after it.
        self.drain();
        (self.entries, self.bound) = (BTreeMap::new(), Position::MAX);
        self.fetch(engine, Range::Newest, limit).await;
    }

    async fn older(&mut self, engine: &Engine, limit: usize) {
        if self.watcher.is_some() && self.bound > Position::MIN {
            self.drain();
            let range = if self.bound == Position::MAX { Range::Newest } else { Range::Before(self.bound) };
            self.fetch(engine, range, limit).await;
        }
    }

    async fn fetch(&mut self, engine: &Engine, range: Range, limit: usize) {
        let page = engine.feed(&id(self.reader), PageRequest { range, limit }).await.unwrap().page;
        self.bound = page.next.unwrap_or(Position::MIN);
        for (at, entry) in &page.items {
            self.put(*at, entry);
        }
    }

    fn put(&mut self, at: Position, entry: &Entry) {
        let entry = expected(at, entry);
        self.entries.retain(|_, other| other.post != entry.post);
        self.entries.insert(at, entry);
    }

    /// Takes in all that waits. Returns whether there was anything.
    fn drain(&mut self) -> bool {
        let mut any = false;
        while let Some(watcher) = &mut self.watcher {
            match watcher.poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(event)) => self.take_in(event),
                Poll::Ready(Err(closing)) => {
                    assert_eq!(closing, Closing::Restart);
                    self.watcher = None;
                }
                Poll::Pending => break,
            }
            any = true;
        }
        any
    }

    fn take_in(&mut self, event: LiveEvent) {
        let before = self.place.replace(event.place).unwrap();
        assert_eq!(event.place, StreamPosition { last: before.last + 1, ..before }, "numbers count up by one");
        match event.kind {
            EventKind::Hello { .. } | EventKind::Beat => panic!("{event:?} is none of the stream's"),
            EventKind::Post(item) => self.put(item.at, &item.entry),
            EventKind::Update(post) => {
                let text = post.body().to_owned();
                self.entries
                    .values_mut()
                    .filter(|entry| entry.post == post.id())
                    .for_each(|entry| entry.body.clone_from(&text));
            }
            EventKind::Remove(post) => self.entries.retain(|_, entry| entry.post != post),
            EventKind::Stale(below) => self.bound = self.bound.max(below.unwrap_or(Position::MAX)),
            EventKind::Marker(_) => {}
        }
        self.entries = self.entries.split_off(&self.bound);
    }

    /// Waits until the client has what the oracle says, from its bound up.
    pub async fn check(&mut self, oracle: &Oracle) {
        // Pages with such a limit leave entries out, and live clients are told of them.
        let is_capped = oracle.rules_of(self.reader).per_source_max.is_some();
        if is_capped || self.watcher.is_none() {
            return;
        }
        let feed = oracle.feed(self.reader);
        eventually_async("the client has what the oracle says", async || {
            self.drain();
            let bound = (self.bound.published_at.0, self.bound.id.0);
            let expected = feed.iter().filter(|entry| entry.at >= bound);
            if self.watcher.is_none() || self.entries.values().rev().eq(expected.clone()) {
                return Ok(());
            }
            let (told, expected) = (self.entries.values().rev().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            Err(format!("{} from {bound:?} up: {told:?}, not {expected:?}", self.reader))
        })
        .await;
    }
}

/// One client for some of the readers; two devices of the first.
pub fn clients() -> Vec<LiveClient> {
    [0, 0, 1, 2].map(|reader| LiveClient::new(PEOPLE[reader])).into()
}
