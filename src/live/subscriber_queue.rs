//! A subscriber queue: the bounded queue between the actor of a watched reader and one live connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use crate::id::PostId;
use crate::limits::{LIVE_BEHIND_MAX, LIVE_BURST_MAX, LIVE_QUEUE_BYTES_MAX};
use crate::live::event::{EventKind, LiveEvent};

/// The reason why a live connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// The connection was too far behind.
    TooSlow,
    /// The server stops, or the actor that fed the queue ended. The client can reconnect.
    Restart,
    /// The client closed the connection.
    Gone,
}

/// The queue of one live connection.
#[derive(Debug, Default)]
pub struct SubscriberQueue(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<LiveEvent>,
    bytes: usize,
    /// The time since which events are queued and none was taken. `None` directly after an event was taken.
    behind_since: Option<Instant>,
    closing: Option<Closing>,
    waker: Option<Waker>,
}

/// The result of pushing an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// The event is in the queue.
    Queued,
    /// The connection exceeded a limit and was closed by this push.
    CutOff,
    /// The connection was closed before.
    Closed,
}

impl SubscriberQueue {
    /// Adds an event to the queue. Closes the connection if the queue exceeds the limit of bytes or of time.
    pub fn push(&self, event: LiveEvent, now: Instant) -> Pushed {
        let mut queue = self.0.lock();
        if queue.closing.is_some() {
            return Pushed::Closed;
        }
        if let EventKind::Remove(post) = event.kind {
            queue.retract(post);
        }
        let behind = now.duration_since(*queue.behind_since.get_or_insert(now));
        queue.bytes += event.bytes();
        if queue.bytes > LIVE_QUEUE_BYTES_MAX && behind <= LIVE_BURST_MAX {
            queue.shorten();
        }
        if queue.bytes > LIVE_QUEUE_BYTES_MAX || behind > LIVE_BEHIND_MAX {
            wake(queue.close(Closing::TooSlow), queue);
            return Pushed::CutOff;
        }
        queue.events.push_back(event);
        wake(queue.waker.take(), queue);
        Pushed::Queued
    }

    /// Returns the next event, or the reason why the connection ends.
    pub fn poll_next(&self, task: &mut Context<'_>) -> Poll<Result<LiveEvent, Closing>> {
        let queue = &mut *self.0.lock();
        if let Some(event) = queue.events.pop_front() {
            queue.bytes -= event.bytes();
            queue.behind_since = None;
            return Poll::Ready(Ok(event));
        }
        if let Some(closing) = queue.closing {
            return Poll::Ready(Err(closing));
        }
        if !queue.waker.as_ref().is_some_and(|waker| waker.will_wake(task.waker())) {
            queue.waker = Some(task.waker().clone());
        }
        Poll::Pending
    }

    /// Ends the connection. If it has already ended, the first reason is kept.
    pub fn close(&self, closing: Closing) {
        let mut queue = self.0.lock();
        if queue.closing.is_none() {
            wake(queue.close(closing), queue);
        }
    }

    /// Returns the bytes of the queued events.
    pub fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Returns true if the connection has ended or is about to end.
    pub fn is_closed(&self) -> bool {
        self.0.lock().closing.is_some()
    }
}

impl Queue {
    /// Replaces queued events that show a removed post, so that its text is not sent any more.
    fn retract(&mut self, post: PostId) {
        for event in &mut self.events {
            let shows = match &event.kind {
                EventKind::Post(item) => item.entry.post.id() == post,
                EventKind::Update(updated) => updated.id() == post,
                _ => false,
            };
            if shows {
                self.bytes -= event.bytes();
                event.kind = EventKind::Remove(post);
                self.bytes += event.bytes();
            }
        }
    }

    /// Replaces each queued entry by a request to read the feed again. It replaces every entry, because a client that loses its connection
    /// resumes after the last event that it has received.
    fn shorten(&mut self) {
        for event in self.events.iter_mut().filter(|event| event.kind.is_entry()) {
            self.bytes -= event.bytes();
            event.kind = EventKind::Stale(None);
            self.bytes += event.bytes();
        }
    }

    /// Ends the connection, and returns the task to wake.
    fn close(&mut self, closing: Closing) -> Option<Waker> {
        self.closing = Some(closing);
        (self.events, self.bytes) = (VecDeque::new(), 0);
        self.waker.take()
    }
}

/// Wakes a task after the lock is released, because the task runs on another thread and would wait for the lock.
fn wake(waker: Option<Waker>, queue: MutexGuard<'_, Queue>) {
    drop(queue);
    waker.into_iter().for_each(Waker::wake);
}

/// Closes a subscriber queue when the actor that feeds it is dropped, for whatever reason.
#[derive(Debug)]
pub struct SubscriberGuard(pub Arc<SubscriberQueue>);

impl Drop for SubscriberGuard {
    fn drop(&mut self) {
        self.0.close(Closing::Restart);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::UnixMicros;
    use crate::feed::position::at;
    use crate::feed::post::{Body, Draft, Post};
    use crate::feed::stream::{Epoch, StreamPosition};
    use crate::id::SourceId;

    fn event(last: u64) -> LiveEvent {
        LiveEvent { place: StreamPosition { epoch: Epoch(1), last }, kind: EventKind::Remove(PostId(last)) }
    }

    fn next(subscriber: &SubscriberQueue) -> Poll<Result<u64, Closing>> {
        subscriber.poll_next(&mut Context::from_waker(Waker::noop())).map_ok(|event| event.place.last)
    }

    #[test]
    fn events_are_received_in_order_until_the_queue_is_closed() {
        let subscriber = SubscriberQueue::default();
        assert_eq!(next(&subscriber), Poll::Pending);
        (1..=2).for_each(|last| assert_eq!(subscriber.push(event(last), Instant::now()), Pushed::Queued));
        assert_eq!(next(&subscriber), Poll::Ready(Ok(1)));
        subscriber.close(Closing::Restart);
        subscriber.close(Closing::TooSlow);
        assert_eq!(next(&subscriber), Poll::Ready(Err(Closing::Restart)));
        assert_eq!(subscriber.push(event(3), Instant::now()), Pushed::Closed);
    }

    /// An event with the text of a post of 60 KB.
    fn large(last: u64) -> LiveEvent {
        let body = Body::new(&format!("\"{}\"", "x".repeat(60_000))).unwrap();
        let draft = Draft::new(SourceId::new("bob").unwrap(), body);
        let post = Arc::new(Post::new(at(1, last), &draft, UnixMicros(1)));
        LiveEvent { kind: EventKind::Update(post), ..event(last) }
    }

    #[test]
    fn a_burst_is_replaced_by_a_request_to_reload_without_disconnecting() {
        let (subscriber, start) = (SubscriberQueue::default(), Instant::now());
        let marker = LiveEvent { kind: EventKind::Marker(at(1, 1)), ..event(0) };
        assert_eq!(subscriber.push(marker, start), Pushed::Queued);
        let burst = LIVE_QUEUE_BYTES_MAX as u64 / 60_000 + 2;
        for last in 1..=burst {
            assert_eq!(subscriber.push(large(last), start + LIVE_BURST_MAX), Pushed::Queued);
            assert!(subscriber.bytes() <= LIVE_QUEUE_BYTES_MAX);
        }
        let events = std::mem::take(&mut subscriber.0.lock().events);
        let kinds: Vec<&EventKind> = events.iter().map(|event| &event.kind).collect();
        assert!(events.iter().map(|event| event.place.last).eq(0..=burst), "numbers have no gap");
        assert!(matches!(kinds[0], EventKind::Marker(_)));
        // Wherever the connection breaks, the client has received a request to read the missing entries.
        let stale = kinds[1..].iter().take_while(|kind| matches!(kind, EventKind::Stale(None))).count();
        assert!(stale > 10 && 1 + stale < kinds.len(), "{kinds:?}");
        assert!(kinds[1 + stale..].iter().all(|kind| matches!(kind, EventKind::Update(_))));
    }

    #[test]
    fn a_subscriber_that_reads_nothing_of_a_burst_is_cut_off() {
        let (subscriber, start) = (SubscriberQueue::default(), Instant::now());
        let later = start + LIVE_BURST_MAX + std::time::Duration::from_millis(1);
        assert_eq!(subscriber.push(large(1), start), Pushed::Queued);
        let cut_off = (2..).find(|last| subscriber.push(large(*last), later) == Pushed::CutOff).unwrap();
        assert_eq!(cut_off, LIVE_QUEUE_BYTES_MAX as u64 / 60_000 + 1);
    }

    #[test]
    fn a_subscriber_too_far_behind_is_cut_off_and_its_memory_released() {
        let (by_bytes, start) = (SubscriberQueue::default(), Instant::now());
        let fit = LIVE_QUEUE_BYTES_MAX / event(1).bytes();
        (0..fit as u64).for_each(|last| assert_eq!(by_bytes.push(event(last), start), Pushed::Queued));
        assert_eq!(by_bytes.push(event(0), start), Pushed::CutOff);
        assert_eq!(next(&by_bytes), Poll::Ready(Err(Closing::TooSlow)));
        assert_eq!(by_bytes.0.lock().events.capacity(), 0);

        let (by_time, at_limit) = (SubscriberQueue::default(), start + LIVE_BEHIND_MAX);
        assert_eq!(by_time.push(event(1), start), Pushed::Queued);
        assert_eq!(by_time.push(event(2), at_limit), Pushed::Queued);
        assert_eq!(next(&by_time), Poll::Ready(Ok(1)));
        let later = at_limit + LIVE_BEHIND_MAX;
        assert_eq!(by_time.push(event(3), later), Pushed::Queued, "it took something meanwhile");
        assert_eq!(by_time.push(event(4), later + 2 * LIVE_BEHIND_MAX), Pushed::CutOff);
    }
}
