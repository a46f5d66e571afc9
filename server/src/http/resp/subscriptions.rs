//! The live feeds that a connection watches, as channels of publish and subscribe.
//!
//! Each is the event stream of HTTP, so permissions, limits, resuming and the nodes of a cluster are the same.

use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_web::body::MessageBody;
use actix_web::web::{Bytes, BytesMut};
use futures_core::Stream;
use futures_util::FutureExt as _;
use futures_util::stream::{AbortHandle, Abortable, SelectAll, StreamExt as _};
use memchr::memmem;

use crate::http::resp::commands::encoded;
use crate::http::resp::replies::Replies;

/// The beginning of the name of a channel: `feed:USER`, or `feed:USER EPOCH:SEQ` to resume after a message.
const PREFIX: &str = "feed:";

/// Maximum bytes of the name of a channel: those of a user and of a position, with room.
const CHANNEL_BYTES_MAX: usize = 512;

/// Maximum number of channels of a connection, so that one does not take all places for live connections.
const CHANNELS_MAX: usize = 1_024;

/// The end of a server-sent event.
const EVENT_END: &[u8] = b"\n\n";

/// Returns the request of an event stream for the name of a channel, or `None` if it is not a name of a feed.
pub(super) fn target(channel: &str) -> Option<String> {
    let feed = channel.strip_prefix(PREFIX)?;
    let (user, position) = feed.split_once(' ').map_or((feed, None), |(user, position)| (user, Some(position)));
    let position = position.map(|position| format!("?lastEventId={}", encoded(position))).unwrap_or_default();
    (!user.is_empty() && channel.len() <= CHANNEL_BYTES_MAX)
        .then(|| format!("/v1/users/{}/events{position}", encoded(user)))
}

/// The body of an event stream, until it has ended.
type Body<B> = Rc<RefCell<Option<Pin<Box<B>>>>>;

/// The subscribed channels of a connection.
pub(super) struct Subscriptions<B> {
    streams: SelectAll<Abortable<LiveFeed<B>>>,
    channels: HashMap<Rc<str>, (AbortHandle, Body<B>)>,
}

/// The reason why a client cannot subscribe to channels.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ChannelError {
    /// The name is not one of a channel.
    #[error("{0:?} is not a channel: use feed:USER")]
    Unknown(String),
    /// The connection would have too many.
    #[error("a connection has at most {CHANNELS_MAX} channels")]
    TooMany,
}

impl<B: MessageBody> Subscriptions<B> {
    pub(super) fn new() -> Self {
        Self { streams: SelectAll::new(), channels: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Checks that a client may subscribe to these channels together.
    pub(super) fn check(&self, channels: &[String]) -> Result<(), ChannelError> {
        if let Some(unknown) = channels.iter().find(|channel| target(channel).is_none()) {
            return Err(ChannelError::Unknown(unknown.clone()));
        }
        let new = channels.iter().filter(|channel| !self.contains(channel)).count();
        if self.channels.len() + new > CHANNELS_MAX { Err(ChannelError::TooMany) } else { Ok(()) }
    }

    pub(super) fn contains(&self, channel: &str) -> bool {
        self.channels.contains_key(channel)
    }

    /// Adds a channel that receives the events of `body`.
    pub(super) fn add(&mut self, channel: &str, body: B) {
        let (channel, body): (Rc<str>, Body<B>) = (channel.into(), Rc::new(RefCell::new(Some(Box::pin(body)))));
        let feed = LiveFeed { channel: Rc::clone(&channel), body: Rc::clone(&body), rest: BytesMut::new() };
        let (feed, handle) = futures_util::stream::abortable(feed);
        self.streams.push(feed);
        self.channels.insert(channel, (handle, body));
    }

    /// Replies that a channel is subscribed.
    pub(super) fn confirm(&self, channel: &str, replies: &mut Replies) {
        self.reply("subscribe", Some(channel), replies);
    }

    /// Ends the subscriptions of these channels, by default all, and replies to each.
    pub(super) fn remove(&mut self, channels: &[&str], replies: &mut Replies) {
        if channels.is_empty() {
            let all: Vec<Rc<str>> = self.channels.keys().cloned().collect();
            if all.is_empty() {
                return self.reply("unsubscribe", None, replies);
            }
            return self.remove(&all.iter().map(|channel| &**channel).collect::<Vec<_>>(), replies);
        }
        for channel in channels {
            if let Some((handle, body)) = self.channels.remove(*channel) {
                // Its place for a live connection is free at once, even if the stream is polled later.
                body.take();
                handle.abort();
            }
            self.reply("unsubscribe", Some(channel), replies);
        }
        if self.is_empty() {
            // Aborted streams end when they are polled, which nobody does any more.
            self.streams.clear();
        }
    }

    /// Ends all subscriptions without a reply.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    fn reply(&self, kind: &str, channel: Option<&str>, replies: &mut Replies) {
        replies.push(3);
        replies.bulk(kind);
        match channel {
            Some(channel) => replies.bulk(channel),
            None => replies.null(),
        }
        replies.integer(self.channels.len() as i64);
    }

    /// Waits for the next events of any channel. Returns false once one of the streams has ended: the server closed it, and the client has
    /// to subscribe again.
    pub(super) async fn write_next(&mut self, replies: &mut Replies, bytes_max: usize) -> bool {
        if self.is_empty() {
            std::future::pending::<()>().await;
        }
        let mut next = self.streams.next().await;
        loop {
            match next {
                Some((channel, Some(events))) if self.channels.contains_key(&channel) => {
                    messages(&channel, &events, replies);
                }
                Some((channel, None)) if self.channels.contains_key(&channel) => return false,
                // An aborted stream.
                Some(_) | None => {}
            }
            if replies.bytes.len() >= bytes_max {
                return true;
            }
            match self.streams.next().now_or_never() {
                Some(Some(another)) => next = Some(another),
                Some(None) | None => return true,
            }
        }
    }
}

/// Writes server-sent events as messages, but no heartbeats: the client has `PING`.
fn messages(channel: &str, events: &[u8], replies: &mut Replies) {
    let mut begin = 0;
    for end in memmem::find_iter(events, EVENT_END) {
        let event = &events[begin..end];
        begin = end + EVENT_END.len();
        let mut lines = event.split(|byte| *byte == b'\n');
        if lines.next() == Some(b"event: beat") {
            continue;
        }
        let data: Vec<&[u8]> = lines.filter_map(|line| line.strip_prefix(b"data: ")).collect();
        replies.push(3);
        replies.bulk("message");
        replies.bulk(channel);
        replies.bulk(data.join(&b'\n'));
    }
}

/// The event stream of a feed.
struct LiveFeed<B> {
    channel: Rc<str>,
    body: Body<B>,
    /// The beginning of an event whose end has not arrived yet.
    rest: BytesMut,
}

impl<B: MessageBody> Stream for LiveFeed<B> {
    /// The channel with complete events, or with `None` at the end of the stream.
    type Item = (Rc<str>, Option<Bytes>);

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let mut body = this.body.borrow_mut();
        loop {
            let Some(pieces) = &mut *body else { return Poll::Ready(None) };
            let Some(Ok(piece)) = ready!(pieces.as_mut().poll_next(task)) else {
                *body = None;
                return Poll::Ready(Some((Rc::clone(&this.channel), None)));
            };
            if this.rest.is_empty() && piece.ends_with(EVENT_END) {
                return Poll::Ready(Some((Rc::clone(&this.channel), Some(piece))));
            }
            // Another node has sent a part of an event.
            this.rest.extend_from_slice(&piece);
            if let Some(end) = memmem::rfind(&this.rest, EVENT_END) {
                let events = this.rest.split_to(end + EVENT_END.len()).freeze();
                return Poll::Ready(Some((Rc::clone(&this.channel), Some(events))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::resp::replies::Version;

    #[test]
    fn a_channel_names_a_feed_and_a_position() {
        for (channel, expected) in [
            ("feed:ann", Some("/v1/users/ann/events")),
            ("feed:a/b", Some("/v1/users/a%2Fb/events")),
            ("feed:ann 0f:7", Some("/v1/users/ann/events?lastEventId=0f%3A7")),
            ("feed:", None),
            ("ann", None),
        ] {
            assert_eq!(target(channel).as_deref(), expected, "{channel}");
        }
        assert_eq!(target(&format!("feed:ann {}", "x".repeat(CHANNEL_BYTES_MAX))), None);
    }

    #[test]
    fn a_connection_has_a_maximum_of_channels() {
        let mut subscriptions = Subscriptions::new();
        for nth in 0..CHANNELS_MAX - 1 {
            subscriptions.add(&format!("feed:{nth}"), actix_web::body::None::new());
        }
        let check =
            |names: &[&str]| subscriptions.check(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(check(&["feed:0", "feed:1", "feed:a"]), Ok(()));
        assert_eq!(check(&["feed:a", "feed:b"]), Err(ChannelError::TooMany));
        assert_eq!(check(&["feed:a", "news"]), Err(ChannelError::Unknown("news".to_owned())));
    }

    #[test]
    fn events_are_messages_and_heartbeats_are_not() {
        let events = b"event: post\nid: 0f:1\ndata: {\ndata: }\n\nevent: beat\nid: 0f:1\ndata: {}\n\n";
        for (version, head) in [(Version::Two, '*'), (Version::Three, '>')] {
            let mut replies = Replies { version, ..Replies::default() };
            messages("feed:a", events, &mut replies);
            let expected = format!("{head}3\r\n$7\r\nmessage\r\n$6\r\nfeed:a\r\n$3\r\n{{\n}}\r\n");
            assert_eq!(String::from_utf8(replies.bytes).unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn an_event_that_arrives_in_pieces_is_one_message() {
        let pieces = ["event: post\nda", "ta: 1\n", "\nevent: post\ndata: 2\n\nevent", ": post\ndata: 3\n\n"];
        let body = actix_web::body::BodyStream::new(futures_util::stream::iter(
            pieces.map(|piece| Ok::<_, actix_web::Error>(Bytes::from(piece))),
        ));
        let (mut subscriptions, mut replies) = (Subscriptions::new(), Replies::default());
        subscriptions.add("feed:a", body);
        assert!(!subscriptions.write_next(&mut replies, usize::MAX).await, "the stream has ended");
        let text = String::from_utf8(replies.bytes).unwrap();
        let messages: Vec<&str> = text.split("*3\r\n$7\r\nmessage\r\n$6\r\nfeed:a\r\n").collect();
        assert_eq!(messages, ["", "$1\r\n1\r\n", "$1\r\n2\r\n", "$1\r\n3\r\n"]);
    }
}
