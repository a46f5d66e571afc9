//! A live connection as a response body: the connection's task polls it whenever the socket accepts more data.
//!
//! So messages for a slow client wait only in its subscriber queue, where they are counted. When the socket accepts data, the task writes
//! all waiting messages at once.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::rt::time::{Instant, Sleep, sleep};
use actix_web::web::{Bytes, BytesMut};

use crate::http::auth::SessionExpiry;
use crate::http::live::text;
use crate::http::live::unread::UnreadCount;
use crate::http::live::wire::{Close, Received, Wire};
use tidewire::engine::Watcher;
use tidewire::feed::stream::StreamPosition;
use tidewire::live::event::{EventKind, LiveEvent};
use tidewire::storage::sequence::Sequence;

/// The shortest and the longest time after a batch in which messages wait for the next one. The longest is about two frames of a display.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(32);

/// Maximum bytes of messages that are written to a live connection with one call.
const LIVE_WRITE_BYTES: usize = 16 * 1024;

/// A live connection over one of the two wire formats.
pub(super) struct Connection<W> {
    wire: W,
    state: State,
    /// The expiry of the session; `None` if the server has no keys.
    session_expiry: Option<Box<SessionExpiry>>,
    /// The sequence for the first message, until that message is written. `None` without a cluster.
    sequence: Option<Sequence>,
    /// The stream position of the client, once it is known.
    place: Option<StreamPosition>,
    /// The number of unread entries, if the client requested it.
    unread: Option<Box<UnreadCount>>,
    heartbeat: Duration,
    next_beat: Pin<Box<Sleep>>,
    batches: Batches,
}

/// Whether a connection sends messages in batches, with a pause after each.
///
/// While every pause ends with messages that wait, each pause is twice as long as the one before: a write costs the server as much time as
/// several messages, and a client that receives hundreds of messages in a second does not need each at once.
pub(super) enum Batches {
    /// It sends each as soon as it can.
    None,
    /// It sends the next messages as soon as it can. `last_pause` has ended; it is zero if nothing was waiting at its end. `has_written` is
    /// true after a write that was full.
    Open { last_pause: Duration, has_written: bool },
    /// It has sent a batch, and waits for the messages of the next one.
    Paused { pause: Duration, end: Pin<Box<Sleep>> },
}

impl Batches {
    /// Batches for a client that asks for them.
    pub(super) fn of(has_batches: bool) -> Self {
        if has_batches { Self::Open { last_pause: Duration::ZERO, has_written: false } } else { Self::None }
    }

    /// Returns true if the client asked for them.
    fn are_enabled(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns true while messages have to wait.
    fn is_paused(&mut self, task: &mut Context<'_>) -> bool {
        if let Self::Paused { pause, end } = self
            && end.as_mut().poll(task).is_ready()
        {
            *self = Self::Open { last_pause: *pause, has_written: false };
        }
        matches!(self, Self::Paused { .. })
    }

    /// Begins a pause after all messages that waited were written. `writes` is true if some were, `has_more` if others did not fit.
    fn after_write(&mut self, writes: bool, has_more: bool, task: &mut Context<'_>) {
        let Self::Open { last_pause, has_written } = self else { return };
        *has_written |= writes;
        // Messages that did not fit into this write follow without a pause.
        if has_more {
            return;
        }
        if !*has_written {
            *last_pause = Duration::ZERO;
            return;
        }
        let pause = (*last_pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        let mut end = Box::pin(sleep(pause));
        // Polled, so that its end wakes the task. It has not passed yet.
        let _ = end.as_mut().poll(task);
        *self = Self::Paused { pause, end };
    }
}

enum State {
    Open(Watcher),
    Refused(Close),
    Over,
}

impl<W: Wire> Connection<W> {
    /// Creates a connection that sends the events of `watcher` over `wire`, and a heartbeat at every interval, until the session expires.
    /// In a cluster, `sequence` is the position of the log after the watcher began to watch the reader's feed.
    pub(super) fn new(
        wire: W,
        (watcher, sequence): (Watcher, Option<Sequence>),
        heartbeat: Duration,
        session_expiry: Option<Box<SessionExpiry>>,
        unread: Option<UnreadCount>,
        batches: Batches,
    ) -> Self {
        let (state, next_beat) = (State::Open(watcher), Box::pin(sleep(heartbeat)));
        let unread = unread.map(Box::new);
        Self { wire, state, session_expiry, sequence, place: None, unread, heartbeat, next_beat, batches }
    }

    /// Creates a connection that is closed at once.
    pub(super) fn refused(wire: W, why: Close) -> Self {
        let next_beat = Box::pin(sleep(Duration::MAX));
        Self {
            wire,
            state: State::Refused(why),
            session_expiry: None,
            sequence: None,
            place: None,
            unread: None,
            heartbeat: Duration::MAX,
            next_beat,
            batches: Batches::None,
        }
    }

    /// Collects the data to write now. Returns the reason if the connection must end.
    fn collect(&mut self, task: &mut Context<'_>, out: &mut BytesMut) -> Option<Close> {
        let watcher = match &mut self.state {
            State::Open(watcher) => watcher,
            State::Refused(why) => return Some(*why),
            State::Over => return None,
        };
        if let Some(why) = self.session_expiry.as_mut().and_then(|session_expiry| session_expiry.ended(task)) {
            return Some(Close::Unauthenticated(why));
        }
        match self.wire.receive(task, out) {
            Received::Nothing => {}
            Received::Closed => return Some(Close::Client),
            Received::Invalid => return Some(Close::Protocol),
            Received::NotText => return Some(Close::NotText),
            Received::TooMuch => return Some(Close::TooMuch),
        }
        let (is_paused, mut has_written, mut has_more) = (self.batches.is_paused(task), false, true);
        let mut nobody = Context::from_waker(Waker::noop());
        while !is_paused && out.len() + self.wire.waiting_bytes() < LIVE_WRITE_BYTES {
            // Messages of the pause after a batch need not wake the task: the end of the pause does.
            let wakes = if has_written && self.batches.are_enabled() { &mut nobody } else { &mut *task };
            match watcher.poll_next(wakes) {
                Poll::Ready(Ok(event)) => {
                    has_written = true;
                    self.place = Some(event.place);
                    self.unread.iter_mut().for_each(|unread| unread.note(&event.kind));
                    self.wire.write(&event, self.sequence.take(), out);
                }
                Poll::Ready(Err(closing)) => return Some(Close::Engine(closing)),
                Poll::Pending => {
                    has_more = false;
                    break;
                }
            }
        }
        if let (Some(unread), Some(place)) = (&mut self.unread, self.place)
            && let Poll::Ready(count) = unread.poll_changed(task)
        {
            self.wire.write_text("unread", place, &text::unread(place, &count), out);
        }
        if !is_paused {
            self.batches.after_write(has_written, has_more, task);
        }
        while self.next_beat.as_mut().poll(task).is_ready() {
            self.next_beat.as_mut().reset(Instant::now() + self.heartbeat);
            if !self.wire.ping(out) {
                return Some(Close::Dead);
            }
            if self.session_expiry.as_ref().is_some_and(|session_expiry| !session_expiry.is_key_valid()) {
                return Some(Close::Unauthenticated("invalid_token: the key is no longer valid"));
            }
            // Scripts in a browser see this message; they do not see pings.
            if let Some(place) = self.place {
                self.wire.write(&LiveEvent { place, kind: EventKind::Beat }, None, out);
            }
        }
        self.wire.flush(out);
        None
    }
}

impl<W: Wire> MessageBody for Connection<W> {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let connection = self.get_mut();
        let mut out = BytesMut::new();
        if let Some(close) = connection.collect(task, &mut out) {
            connection.wire.close(close, &mut out);
            connection.state = State::Over;
        }
        match connection.state {
            _ if !out.is_empty() => Poll::Ready(Some(Ok(out.freeze()))),
            State::Over => Poll::Ready(None),
            State::Open(_) | State::Refused(_) => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// Sends the waiting messages, unless there is a pause. Returns true if it sent some.
    fn send(batches: &mut Batches, is_waiting: bool, task: &mut Context<'_>) -> bool {
        let is_sent = !batches.is_paused(task);
        if is_sent {
            batches.after_write(is_waiting, false, task);
        }
        is_sent && is_waiting
    }

    /// Waits until the end of the pause wakes the task. Returns the length of the pause, or `None` if there is none.
    async fn end_of_pause(batches: &mut Batches) -> Option<Duration> {
        let &mut Batches::Paused { pause, .. } = batches else { return None };
        tokio::time::advance(pause / 2).await;
        assert!(poll_fn(|task| Poll::Ready(batches.is_paused(task))).await);
        poll_fn(|task| if batches.is_paused(task) { Poll::Pending } else { Poll::Ready(()) }).await;
        Some(pause)
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_message_is_sent_at_once_and_pauses_lengthen_while_messages_wait_at_their_ends() {
        let mut batches = Batches::of(true);
        for _ in 0..2 {
            for expected_ms in [1, 2, 4, 8, 16, 32, 32] {
                assert!(poll_fn(|task| Poll::Ready(send(&mut batches, true, task))).await);
                assert!(!poll_fn(|task| Poll::Ready(send(&mut batches, true, task))).await, "a pause");
                assert_eq!(end_of_pause(&mut batches).await, Some(Duration::from_millis(expected_ms)));
            }
            // No message waits at the end of this pause.
            poll_fn(|task| Poll::Ready(send(&mut batches, false, task))).await;
            assert_eq!(end_of_pause(&mut batches).await, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn messages_that_do_not_fit_into_a_write_follow_without_a_pause() {
        let mut batches = Batches::of(true);
        // The next write has exactly the rest, or there is nothing left.
        for has_rest in [true, false] {
            let is_paused = poll_fn(|task| {
                batches.after_write(true, true, task);
                let is_paused = batches.is_paused(task);
                batches.after_write(has_rest, false, task);
                Poll::Ready((is_paused, batches.is_paused(task)))
            });
            assert_eq!(is_paused.await, (false, true));
            assert!(end_of_pause(&mut batches).await.is_some());
        }
    }

    #[tokio::test]
    async fn without_batches_there_are_no_pauses() {
        let mut batches = Batches::of(false);
        for _ in 0..2 {
            assert!(poll_fn(|task| Poll::Ready(send(&mut batches, true, task))).await);
        }
    }
}
