//! Common code of the wire protocols of the other designs: packets across frames, and the numbers of posts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::time::Instant;

use crate::live::messages::{Listener, Numbers, Order};
use crate::live::wire::number_after;
use crate::operation::User;

/// The beginning of every body.
const TEXT: &str = r#""text":""#;

/// Digits of the number at the beginning of a text.
const DIGITS: usize = 10;

/// Minimum bytes of a body with a number.
pub(super) const BODY_BYTES_MIN: usize = r#"{"text":""}"#.len() + DIGITS;

/// A buffer for an incomplete packet.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    begun: Vec<u8>,
}

impl Pieces {
    /// Calls `each` with the received bytes until it returns `None`. `each` returns the length of the first packet if that packet is
    /// complete.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> io::Result<Option<usize>>,
    ) -> io::Result<()> {
        let mut take_all = |bytes: &[u8]| {
            let mut used = 0;
            while let Some(more) = each(&bytes[used..])? {
                used += more;
            }
            Ok::<_, io::Error>(used)
        };
        if self.begun.is_empty() {
            let used = take_all(bytes)?;
            self.begun.extend_from_slice(&bytes[used..]);
        } else {
            self.begun.extend_from_slice(bytes);
            let used = take_all(&self.begun)?;
            self.begun.drain(..used);
        }
        Ok(())
    }
}

/// The posts that a follower has received.
#[derive(Debug, Default)]
pub(super) struct Posts {
    numbers: Numbers,
    count: usize,
}

impl Posts {
    /// Processes a message that contains the body of a post.
    pub(super) fn take(&mut self, message: &[u8], listener: &dyn Listener) {
        let Some(number) = number_after(message, TEXT.as_bytes()) else { return listener.count_unnumbered() };
        let order = self.numbers.take(number);
        listener.count(order);
        if order != Order::Again {
            listener.on_post(self.count, Instant::now());
            self.count += 1;
        }
    }
}

/// The numbers of the next posts, by author.
#[derive(Debug, Default)]
pub(super) struct Stamps(RefCell<HashMap<User, u64>>);

impl Stamps {
    /// Returns the body with the number of the author's next post instead of the first characters of its text. It must have at least
    /// [`BODY_BYTES_MIN`] bytes.
    pub(super) fn stamp(&self, author: User, body: &str) -> String {
        let mut next = self.0.borrow_mut();
        let number = next.entry(author).or_default();
        let mut stamped = format!(r#"{{{TEXT}{number:0DIGITS$}"#);
        stamped.push_str(body.get(stamped.len()..).unwrap_or_default());
        *number += 1;
        stamped
    }
}

/// Returns the error for data that violates a protocol.
pub(super) fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sent {what}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::live::api::body;
    use crate::live::audience::Audience;
    use crate::live::wire::Wire;

    /// Returns the payloads of frames of a client, none of which has more than 16 bits of length.
    pub(in super::super) fn payloads(mut frames: &[u8]) -> Vec<Vec<u8>> {
        let mut payloads = Vec::new();
        while let [_, short, rest @ ..] = frames {
            let (length, rest) = match short & 0x7f {
                126 => (usize::from(u16::from_be_bytes(*rest.first_chunk().unwrap())), &rest[2..]),
                short => (usize::from(short), rest),
            };
            let (payload, rest) = rest[4..].split_at(length);
            payloads.push(payload.to_vec());
            frames = rest;
        }
        payloads
    }

    /// Passes payloads to a client, checks how many posts it received in order, and returns the frames that it sends.
    pub(in super::super) fn follow(wire: &mut dyn Wire, received: &[&[u8]], posts: u64) -> Vec<u8> {
        let (audience, mut out) = (Audience::default(), Vec::new());
        for payload in received {
            wire.take(payload, &mut out, &audience).unwrap();
        }
        assert_eq!((audience.messages(), audience.troubles()), (posts, (Vec::new(), 0)));
        out
    }

    /// Checks the error of a new client for each of these payloads.
    pub(in super::super) fn check_refusals(new: impl Fn() -> Box<dyn Wire>, table: &[(&[u8], &str)]) {
        for (payload, expected) in table {
            let failed = new().take(payload, &mut Vec::new(), &Audience::default()).unwrap_err();
            assert_eq!(failed.to_string(), *expected);
        }
    }

    #[test]
    fn posts_are_numbered_by_author_and_bodies_keep_their_length() {
        let (stamps, body) = (Stamps::default(), body(100));
        assert!(stamps.stamp(1, &body).starts_with(r#"{"text":"0000000000ng up"#));
        assert_eq!(stamps.stamp(1, &body)[9..19], *"0000000001");
        let other = stamps.stamp(2, &body);
        assert_eq!((&other[9..19], other.len()), ("0000000000", 100));
        assert_eq!(stamps.stamp(3, &crate::live::api::body(BODY_BYTES_MIN)), r#"{"text":"0000000000"}"#);
    }

    #[test]
    fn lost_duplicate_and_reordered_posts_are_reported() {
        let (audience, mut posts) = (Audience::default(), Posts::default());
        for number in ["7", "8", "8", "11", "10"] {
            posts.take(format!(r#"{{"text":"{number} x"}}"#).as_bytes(), &audience);
        }
        posts.take(b"{}", &audience);
        assert_eq!((audience.messages(), posts.count), (4, 4));
        let expected =
            ["1 messages lost", "1 messages doubled", "1 messages out of order", "1 messages without a number"];
        assert_eq!(audience.troubles().0, expected);
    }
}
