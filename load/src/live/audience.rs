//! All who follow one author live: what they have heard together, and when.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::socket::{Reads, Socket};

/// Connections that are opened at the same time.
const OPENING_MAX: usize = 64;

/// How long all of them may take to hear a post.
const HEARING_MAX: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct Audience {
    size: Cell<usize>,
    /// By the number of the post among those the connection has heard.
    posts: RefCell<Vec<Hearing>>,
    /// How many posts all have heard.
    complete: Cell<usize>,
    /// Told when that grows.
    grown: Notify,
    messages: Cell<u64>,
    miscounted: Cell<u64>,
    pings: Cell<u64>,
    left: RefCell<BTreeMap<u16, usize>>,
}

/// Who has heard a post, and since when.
#[derive(Clone, Copy)]
pub struct Hearing {
    by: usize,
    pub first: Instant,
    pub last: Instant,
}

impl Audience {
    /// Connects these readers. They listen until what is returned is dropped.
    pub async fn connect(self: &Rc<Self>, server: SocketAddr, readers: &[String]) -> JoinSet<()> {
        let (mut opening, mut listening) = (JoinSet::new(), JoinSet::new());
        let mut readers = readers.iter().enumerate();
        loop {
            while opening.len() < OPENING_MAX
                && let Some((nth, reader)) = readers.next()
            {
                opening.spawn_local(Socket::open(server, reader.clone(), nth, Reads::Always, Rc::clone(self)));
            }
            let Some(opened) = opening.join_next().await else { return listening };
            let socket = opened.unwrap().unwrap_or_else(|cause| panic!("cannot connect: {cause}"));
            self.size.set(self.size() + 1);
            listening.spawn_local(socket.listen());
        }
    }

    /// A connection has heard its `nth` post.
    pub fn hear(&self, nth: usize, at: Instant) {
        let mut posts = self.posts.borrow_mut();
        if nth == posts.len() {
            posts.push(Hearing { by: 0, first: at, last: at });
        }
        posts[nth].by += 1;
        posts[nth].last = at;
        self.messages.set(self.messages.get() + 1);
        drop(posts);
        self.advance();
    }

    /// Counts the posts that all have heard who are still there.
    fn advance(&self) {
        let posts = self.posts.borrow();
        let heard = posts.iter().skip(self.complete()).take_while(|post| post.by >= self.size()).count();
        if heard > 0 {
            self.complete.set(self.complete() + heard);
            self.grown.notify_waiters();
        }
    }

    /// A message did not have the number after that of the one before.
    pub fn miscounted(&self) {
        self.miscounted.set(self.miscounted.get() + 1);
    }

    pub fn pinged(&self) {
        self.pings.set(self.pings.get() + 1);
    }

    /// A connection was closed with this code. What it has not heard nobody waits for.
    pub fn leave(&self, code: u16) {
        self.size.set(self.size() - 1);
        *self.left.borrow_mut().entry(code).or_default() += 1;
        self.advance();
    }

    /// How many connections there are.
    pub fn size(&self) -> usize {
        self.size.get()
    }

    /// Who has heard the `nth` post, which somebody has.
    pub fn hearing(&self, nth: usize) -> Hearing {
        self.posts.borrow()[nth]
    }

    /// How many posts all have heard.
    pub fn complete(&self) -> usize {
        self.complete.get()
    }

    pub fn messages(&self) -> u64 {
        self.messages.get()
    }

    pub fn pings(&self) -> u64 {
        self.pings.get()
    }

    /// Returns once more posts are complete than were when this was called.
    pub async fn grows(&self) {
        self.grown.notified().await;
    }

    /// Waits until so many posts are complete, as long as they go on being completed. Returns whether they are.
    pub async fn hears(&self, posts: usize) -> bool {
        while self.complete() < posts {
            if timeout(HEARING_MAX, self.grown.notified()).await.is_err() {
                return false;
            }
        }
        true
    }

    /// What went wrong, or a dash.
    pub fn troubles(&self) -> String {
        let mut troubles = Vec::new();
        if self.miscounted.get() > 0 {
            troubles.push(format!("{} gaps", self.miscounted.get()));
        }
        troubles.extend(self.left.borrow().iter().map(|(code, count)| format!("{count} closed with {code}")));
        if troubles.is_empty() { "-".to_owned() } else { troubles.join(", ") }
    }
}
