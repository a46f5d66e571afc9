//! All followers of one author with live connections: the posts that they received, and when.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::live::Error;
use crate::live::messages::{Counts, Listener, Order};
use crate::live::socket::{Reads, Socket};
use crate::live::wire::Wire;
use crate::operation::User;

/// Maximum number of connections that are opened concurrently.
const OPENING_MAX: usize = 64;

/// Timeout until all followers have received one more post.
const RECEIVE_MAX: Duration = Duration::from_secs(30);

/// The live followers of one author.
#[derive(Default)]
pub(super) struct Audience {
    size: Cell<usize>,
    /// By the index of the post among those received on a connection.
    posts: RefCell<Vec<Receipt>>,
    /// Number of posts that all have received.
    complete: Cell<usize>,
    /// Notified when `complete` increases.
    grown: Notify,
    counts: RefCell<Counts>,
}

/// The number of readers who received a post, and the times of the first and the last one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receipt {
    by: usize,
    pub(super) first: Instant,
    pub(super) last: Instant,
}

impl Audience {
    /// Connects these readers. They listen until the returned task set is dropped.
    pub(super) async fn connect(
        self: &Rc<Self>,
        server: SocketAddr,
        readers: Range<User>,
        wire: impl Fn(User) -> Box<dyn Wire>,
    ) -> Result<JoinSet<()>, Error> {
        let mut listening = JoinSet::new();
        open_all(server, readers, wire, Reads::Always, self, |socket| {
            self.size.set(self.size() + 1);
            listening.spawn_local(socket.listen());
        })
        .await?;
        Ok(listening)
    }

    /// Counts the posts that all remaining connections have received.
    fn advance(&self) {
        let posts = self.posts.borrow();
        let heard = posts.iter().skip(self.complete()).take_while(|post| post.by >= self.size()).count();
        if heard > 0 {
            self.complete.set(self.complete() + heard);
            self.grown.notify_waiters();
        }
    }

    /// Returns the number of connections.
    pub(super) fn size(&self) -> usize {
        self.size.get()
    }

    /// Returns the state of the `nth` post, or `None` if no reader has received it.
    pub(super) fn receipt(&self, nth: usize) -> Option<Receipt> {
        self.posts.borrow().get(nth).copied()
    }

    /// Returns the number of posts that all have received.
    pub(super) fn complete(&self) -> usize {
        self.complete.get()
    }

    /// Returns the number of messages received, summed over all connections.
    pub(super) fn messages(&self) -> u64 {
        self.counts.borrow().messages
    }

    /// Returns the number of answered pings.
    pub(super) fn pings(&self) -> u64 {
        self.counts.borrow().pings
    }

    /// Waits until more posts are complete than at the time of the call.
    pub(super) async fn wait_for_progress(&self) {
        self.grown.notified().await;
    }

    /// Waits until this many posts are complete, as long as there is progress. Returns true if they are.
    pub(super) async fn wait_until_complete(&self, posts: usize) -> bool {
        while self.complete() < posts {
            if timeout(RECEIVE_MAX, self.grown.notified()).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Returns descriptions of all errors, and their total number.
    pub(super) fn troubles(&self) -> (Vec<String>, u64) {
        self.counts.borrow().troubles()
    }
}

impl Listener for Audience {
    fn on_post(&self, nth: usize, at: Instant) {
        let mut posts = self.posts.borrow_mut();
        // Each connection counts from 0, so none is more than one ahead.
        if nth == posts.len() {
            posts.push(Receipt { by: 0, first: at, last: at });
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

    /// Stops waiting for the posts that the closed connection has not received.
    fn leave(&self, code: u16) {
        self.size.set(self.size().saturating_sub(1));
        self.counts.borrow_mut().leave(code);
        self.advance();
    }
}

/// Connects readers, several at a time, and hands over each connection once it is ready.
pub(super) async fn open_all(
    server: SocketAddr,
    readers: Range<User>,
    wire: impl Fn(User) -> Box<dyn Wire>,
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
            opening.spawn_local(Socket::open(server, reader, wire(reader), reads, Rc::clone(audience) as _));
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
    fn a_post_is_complete_when_all_readers_received_it() {
        let audience = of(2);
        let began = Instant::now();
        let at = |millis: u64| began + Duration::from_millis(millis);
        audience.on_post(0, at(1));
        audience.on_post(1, at(2));
        assert_eq!(audience.complete(), 0);
        audience.on_post(0, at(5));
        assert_eq!((audience.complete(), audience.messages()), (1, 3));
        let Receipt { first, last, .. } = audience.receipt(0).unwrap();
        assert_eq!((first, last), (at(1), at(5)));
        assert!(audience.receipt(2).is_none());
    }

    #[test]
    fn a_disconnected_reader_is_not_waited_for() {
        let audience = of(2);
        audience.on_post(0, Instant::now());
        audience.leave(4008);
        assert_eq!((audience.complete(), audience.size()), (1, 1));
        assert_eq!(audience.troubles(), (vec!["1 connections closed with 4008".to_owned()], 1));
    }

    #[test]
    fn lost_and_unnumbered_messages_are_reported() {
        let audience = of(1);
        assert_eq!(audience.troubles(), (Vec::new(), 0));
        audience.count(Order::Gap(2));
        audience.count_unnumbered();
        let reported = ["2 messages lost", "1 messages without a number"].map(str::to_owned);
        assert_eq!(audience.troubles(), (reported.to_vec(), 3));
    }

    #[test]
    fn the_wait_ends_when_the_last_reader_received_the_post() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let audience = of(1);
        runtime.block_on(async {
            let (heard, ()) = tokio::join!(audience.wait_until_complete(1), async {
                tokio::task::yield_now().await;
                audience.on_post(0, Instant::now());
            });
            assert!(heard);
        });
    }
}
