//! All who follow one author live: what they have heard together, and when.
//!
//! Responsible for:
//! - connecting them, and counting who has heard which post.
//!
//! Not responsible for:
//! - one connection (`socket`), what went wrong with its messages (`heard`).

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::live::Error;
use crate::live::heard::Counts;
use crate::live::numbers::Order;
use crate::live::socket::{Listener, Reads, Socket};
use crate::operation::User;

/// Connections that are opened at the same time.
const OPENING_MAX: usize = 64;

/// How long all of them may take to hear one more post.
const HEARING_MAX: Duration = Duration::from_secs(30);

/// An audience.
#[derive(Default)]
pub(super) struct Audience {
    size: Cell<usize>,
    /// By the number of the post among those the connection has heard.
    posts: RefCell<Vec<Hearing>>,
    /// How many posts all have heard.
    complete: Cell<usize>,
    /// Documentation when that grows.
    grown: Notify,
    counts: RefCell<Counts>,
}

/// Who has heard a post, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hearing {
    by: usize,
    pub(super) first: Instant,
    pub(super) last: Instant,
}

impl Audience {
    /// Connects these readers. They listen until what is returned is dropped.
    pub(super) async fn connect(
        self: &Rc<Self>,
        server: SocketAddr,
        readers: Range<User>,
    ) -> Result<JoinSet<()>, Error> {
        let mut listening = JoinSet::new();
        open_all(server, readers, Reads::Always, self, |socket| {
            self.size.set(self.size() + 1);
            listening.spawn_local(socket.listen());
        })
        .await?;
        Ok(listening)
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

    /// How many connections there are.
    pub(super) fn size(&self) -> usize {
        self.size.get()
    }

    /// Who has heard the `nth` post, if anybody has.
    pub(super) fn hearing(&self, nth: usize) -> Option<Hearing> {
        self.posts.borrow().get(nth).copied()
    }

    /// How many posts all have heard.
    pub(super) fn complete(&self) -> usize {
        self.complete.get()
    }

    /// Posts that were heard, by each connection.
    pub(super) fn messages(&self) -> u64 {
        self.counts.borrow().messages
    }

    /// Pings that were answered.
    pub(super) fn pings(&self) -> u64 {
        self.counts.borrow().pings
    }

    /// Returns once more posts are complete than were when this was called.
    pub(super) async fn grows(&self) {
        self.grown.notified().await;
    }

    /// Waits until so many posts are complete, as long as they go on being completed. Returns whether they are.
    pub(super) async fn hears(&self, posts: usize) -> bool {
        while self.complete() < posts {
            if timeout(HEARING_MAX, self.grown.notified()).await.is_err() {
                return false;
            }
        }
        true
    }

    /// What went wrong, in words, and how many times something did.
    pub(super) fn troubles(&self) -> (Vec<String>, u64) {
        self.counts.borrow().troubles()
    }
}

impl Listener for Audience {
    fn hear(&self, nth: usize, at: Instant) {
        let mut posts = self.posts.borrow_mut();
        // Each counts from nought, so nobody is more than one ahead.
        if nth == posts.len() {
            posts.push(Hearing { by: 0, first: at, last: at });
        }
        if let Some(post) = posts.get_mut(nth) {
            post.by += 1;
            post.last = at;
        }
        drop(posts);
        self.counts.borrow_mut().messages += 1;
        self.advance();
    }

    fn count(&self, order: Order) {
        self.counts.borrow_mut().tally.add(order);
    }

    fn count_unnumbered(&self) {
        self.counts.borrow_mut().tally.unnumbered += 1;
    }

    fn pinged(&self) {
        self.counts.borrow_mut().pings += 1;
    }

    /// What it has not heard nobody waits for.
    fn leave(&self, code: u16) {
        self.size.set(self.size().saturating_sub(1));
        self.counts.borrow_mut().leave(code);
        self.advance();
    }
}

/// Connects readers, some at a time, and hands over each that has its `hello`.
pub(super) async fn open_all(
    server: SocketAddr,
    readers: Range<User>,
    reads: Reads,
    audience: &Rc<Audience>,
    mut each: impl FnMut(Socket),
) -> Result<(), Error> {
    let mut opening = JoinSet::new();
    let mut readers = readers.into_iter();
    loop {
        while opening.len() < OPENING_MAX
            && let Some(reader) = readers.next()
        {
            opening.spawn_local(Socket::open(server, reader, reads, Rc::clone(audience) as _));
        }
        let Some(opened) = opening.join_next().await else { return Ok(()) };
        each(opened.map_err(|_| Error::Crashed)??);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(size: usize) -> Audience {
        let audience = Audience::default();
        audience.size.set(size);
        audience
    }

    #[test]
    fn a_post_is_complete_when_all_have_heard_it() {
        let audience = of(2);
        let began = Instant::now();
        let at = |millis: u64| began + Duration::from_millis(millis);
        audience.hear(0, at(1));
        audience.hear(1, at(2));
        assert_eq!(audience.complete(), 0);
        audience.hear(0, at(5));
        assert_eq!((audience.complete(), audience.messages()), (1, 3));
        let Hearing { first, last, .. } = audience.hearing(0).unwrap();
        assert_eq!((first, last), (at(1), at(5)));
        assert!(audience.hearing(2).is_none());
    }

    #[test]
    fn nobody_waits_for_one_who_has_left() {
        let audience = of(2);
        audience.hear(0, Instant::now());
        audience.leave(4008);
        assert_eq!((audience.complete(), audience.size()), (1, 1));
        assert_eq!(audience.troubles(), (vec!["1 connections closed with 4008".to_owned()], 1));
    }

    #[test]
    fn what_is_wrong_with_messages_is_told() {
        let audience = of(1);
        assert_eq!(audience.troubles(), (Vec::new(), 0));
        audience.count(Order::Gap(2));
        audience.count_unnumbered();
        let told = ["2 messages lost", "1 messages without a number"].map(str::to_owned);
        assert_eq!(audience.troubles(), (told.to_vec(), 3));
    }

    #[test]
    fn waiting_ends_when_the_last_has_heard() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let audience = of(1);
        runtime.block_on(async {
            let (heard, ()) = tokio::join!(audience.hears(1), async {
                tokio::task::yield_now().await;
                audience.hear(0, Instant::now());
            });
            assert!(heard);
        });
    }
}
