//! MQTT 3.1.1 from a client's side, with a topic for each author, at QoS 0 and in clean sessions. It does no I/O.

use std::io;

use super::posts::{Pieces, Posts, broken};
use crate::live::frames::{Kind, frame_of};
use crate::live::messages::Listener;
use crate::live::wire::Wire;
use crate::operation::User;
use crate::target::tidewire::name;

/// First bytes of the packets. The upper four bits are the type.
const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;

/// Maximum number of bytes of a packet's length.
const LENGTH_BYTES_MAX: usize = 4;

/// A client of a broker.
pub(super) struct Mqtt {
    client: User,
    /// The author whose topic it subscribes to; `None` for a publisher.
    follows: Option<User>,
    pieces: Pieces,
    posts: Posts,
    is_ready: bool,
}

impl Mqtt {
    pub(super) fn of(client: User, follows: Option<User>) -> Self {
        Self { client, follows, pieces: Pieces::default(), posts: Posts::default(), is_ready: false }
    }
}

impl Wire for Mqtt {
    fn path(&self) -> String {
        "/mqtt".to_owned()
    }

    fn protocol(&self) -> Option<&'static str> {
        Some("mqtt")
    }

    fn greet(&mut self, out: &mut Vec<u8>) {
        // Protocol level 4, a clean session, no keep-alive.
        let mut fields = b"\x00\x04MQTT\x04\x02\x00\x00".to_vec();
        text(&name(self.client), &mut fields);
        packet_of(CONNECT, &fields, out);
    }

    fn take(&mut self, payload: &[u8], out: &mut Vec<u8>, listener: &dyn Listener) -> io::Result<()> {
        let Self { follows, posts, is_ready, .. } = self;
        self.pieces.feed(payload, |bytes| {
            let Some((first, fields, used)) = packet(bytes)? else { return Ok(None) };
            match (first & 0xf0, fields) {
                (CONNACK, [_, 0]) => match follows {
                    Some(author) => subscribe(*author, out),
                    None => *is_ready = true,
                },
                (CONNACK, [_, code]) => return Err(io::Error::other(format!("CONNACK with {code:#04x}"))),
                (SUBACK, [_, _, 0]) => *is_ready = true,
                (SUBACK, [_, _, code]) => return Err(io::Error::other(format!("SUBACK with {code:#04x}"))),
                (PUBLISH, &[high, low, ref rest @ ..]) => {
                    let topic_bytes = usize::from(u16::from_be_bytes([high, low]));
                    let body = rest.get(topic_bytes..).ok_or_else(|| broken("a PUBLISH without a whole topic"))?;
                    posts.take(body, listener);
                }
                _ => return Err(broken(&format!("a packet that begins with {first:#04x}"))),
            }
            Ok(Some(used))
        })
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn publish(&mut self, author: User, body: &str, out: &mut Vec<u8>) {
        let mut fields = Vec::with_capacity(32 + body.len());
        text(&topic(author), &mut fields);
        fields.extend_from_slice(body.as_bytes());
        packet_of(PUBLISH, &fields, out);
    }

    fn again(&self) -> Box<dyn Wire> {
        Box::new(Self::of(self.client, self.follows))
    }
}

fn topic(author: User) -> String {
    format!("posts/{}", name(author))
}

fn subscribe(author: User, out: &mut Vec<u8>) {
    let mut fields = b"\x00\x01".to_vec();
    text(&topic(author), &mut fields);
    fields.push(0);
    packet_of(SUBSCRIBE, &fields, out);
}

/// Appends a text after its length.
fn text(text: &str, into: &mut Vec<u8>) {
    into.extend_from_slice(&(text.len() as u16).to_be_bytes());
    into.extend_from_slice(text.as_bytes());
}

/// Appends a packet in a frame of its own.
fn packet_of(first: u8, fields: &[u8], out: &mut Vec<u8>) {
    let mut packet = vec![first];
    let mut left = fields.len();
    loop {
        let low = (left & 0x7f) as u8;
        left >>= 7;
        packet.push(if left > 0 { low | 0x80 } else { low });
        if left == 0 {
            break;
        }
    }
    packet.extend_from_slice(fields);
    frame_of(Kind::Binary, &packet, out);
}

/// Returns the first packet if it is complete: its first byte, its fields, and its total length in bytes.
fn packet(bytes: &[u8]) -> io::Result<Option<(u8, &[u8], usize)>> {
    let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
    let mut length = 0;
    for (nth, byte) in rest.iter().take(LENGTH_BYTES_MAX).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * nth);
        if byte & 0x80 == 0 {
            let (head, end) = (2 + nth, 2 + nth + length);
            return Ok(bytes.get(head..end).map(|fields| (*first, fields, end)));
        }
    }
    if rest.len() >= LENGTH_BYTES_MAX { Err(broken("a packet without an end of its length")) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::super::posts::tests::{check_refusals, follow, payloads};
    use super::*;

    #[test]
    fn a_follower_connects_subscribes_and_counts_posts() {
        let mut mqtt = Mqtt::of(7, Some(1));
        let mut out = Vec::new();
        mqtt.greet(&mut out);
        assert_eq!(payloads(&out), [b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x00\x00\x02u7"]);
        let asked = follow(&mut mqtt, &[b"\x20\x02\x00\x00"], 0);
        assert_eq!(payloads(&asked), [b"\x82\x0d\x00\x01\x00\x08posts/u1\x00"]);
        follow(&mut mqtt, &[b"\x90\x03\x00\x01\x00"], 0);
        assert!(mqtt.is_ready());
        let post = |number| {
            let mut out = Vec::new();
            mqtt_post(&format!(r#"{{"text":"{number:010} {}"}}"#, "x".repeat(200)), &mut out);
            payloads(&out).concat()
        };
        follow(&mut mqtt, &[&post(0), &post(1), &[post(2), post(3)].concat()], 4);
        for split in [1, 2, 3, 100] {
            let mut mqtt = Mqtt::of(7, Some(1));
            let (begin, end) = (&post(8)[..split], &post(8)[split..]);
            follow(&mut mqtt, &[begin, end], 1);
        }
    }

    fn mqtt_post(body: &str, out: &mut Vec<u8>) {
        Mqtt::of(0, None).publish(1, body, out);
    }

    #[test]
    fn a_publisher_is_ready_without_a_subscription() {
        let mut mqtt = Mqtt::of(7, None);
        assert!(follow(&mut mqtt, &[b"\x20\x02\x00\x00"], 0).is_empty());
        assert!(mqtt.is_ready());
        let mut out = Vec::new();
        mqtt.publish(1, "{}", &mut out);
        assert_eq!(payloads(&out), [b"\x30\x0c\x00\x08posts/u1{}"]);
    }

    #[test]
    fn refusals_and_invalid_packets_are_errors() {
        check_refusals(
            || Box::new(Mqtt::of(7, Some(1))),
            &[
                (b"\x20\x02\x00\x05", "CONNACK with 0x05"),
                (b"\x90\x03\x00\x01\x80", "SUBACK with 0x80"),
                (b"\x30\x03\x00\x08a", "the server sent a PUBLISH without a whole topic"),
                (b"\x60\x02\x00\x01", "the server sent a packet that begins with 0x60"),
                (b"\x30\xff\xff\xff\xff\x01", "the server sent a packet without an end of its length"),
            ],
        );
    }
}
