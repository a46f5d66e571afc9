//! The text protocol of NATS from a client's side, with a subject for each author. It does no I/O.

use std::io;

use memchr::memmem;

use super::posts::{Pieces, Posts, broken};
use crate::live::frames::{Kind, frame_of};
use crate::live::messages::Listener;
use crate::live::wire::Wire;
use crate::operation::User;
use crate::target::tidewire::name;

/// Maximum bytes of a line.
const LINE_BYTES_MAX: usize = 16 * 1_024;

/// A client of a server.
pub(super) struct Nats {
    /// The author whose subject it subscribes to; `None` for a publisher.
    follows: Option<User>,
    pieces: Pieces,
    posts: Posts,
    is_ready: bool,
}

impl Nats {
    pub(super) fn of(follows: Option<User>) -> Self {
        Self { follows, pieces: Pieces::default(), posts: Posts::default(), is_ready: false }
    }
}

impl Wire for Nats {
    fn path(&self) -> String {
        "/".to_owned()
    }

    fn greet(&mut self, out: &mut Vec<u8>) {
        let connect = r#"CONNECT {"verbose":false,"pedantic":false,"lang":"rust","version":"1","protocol":1}"#;
        let subscribe = self.follows.map(|author| format!("SUB {} 1\r\n", subject(author))).unwrap_or_default();
        // The server answers PING after it has processed all earlier commands.
        send(&format!("{connect}\r\n{subscribe}PING\r\n"), out);
    }

    fn take(&mut self, payload: &[u8], out: &mut Vec<u8>, listener: &dyn Listener) -> io::Result<()> {
        let Self { posts, is_ready, .. } = self;
        self.pieces.feed(payload, |bytes| {
            let Some(end) = memmem::find(bytes, b"\r\n") else {
                return if bytes.len() > LINE_BYTES_MAX { Err(broken("a line without an end")) } else { Ok(None) };
            };
            let (line, after) = (&bytes[..end], end + 2);
            if line.starts_with(b"MSG ") {
                let length = line.rsplit(|byte| *byte == b' ').next().and_then(|text| std::str::from_utf8(text).ok());
                let length = length.and_then(|text| text.parse::<u32>().ok());
                let body_end = after + length.ok_or_else(|| broken("a MSG without a length"))? as usize;
                if bytes.len() < body_end + 2 {
                    return Ok(None);
                }
                posts.take(&bytes[after..body_end], listener);
                return Ok(Some(body_end + 2));
            }
            match line {
                b"PONG" => *is_ready = true,
                b"PING" => send("PONG\r\n", out),
                b"+OK" => {}
                _ if line.starts_with(b"INFO ") => {}
                _ if line.starts_with(b"-ERR") => return Err(io::Error::other(String::from_utf8_lossy(line))),
                _ => return Err(broken(&format!("a line {:?}", String::from_utf8_lossy(line)))),
            }
            Ok(Some(after))
        })
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn publish(&mut self, author: User, body: &str, out: &mut Vec<u8>) {
        send(&format!("PUB {} {}\r\n{body}\r\n", subject(author), body.len()), out);
    }

    fn again(&self) -> Box<dyn Wire> {
        Box::new(Self::of(self.follows))
    }
}

fn subject(author: User) -> String {
    format!("posts.{}", name(author))
}

fn send(text: &str, out: &mut Vec<u8>) {
    frame_of(Kind::Binary, text.as_bytes(), out);
}

#[cfg(test)]
mod tests {
    use super::super::posts::tests::{check_refusals, follow, payloads};
    use super::*;

    const MESSAGES: &[u8] =
        b"MSG posts.u1 1 21\r\n{\"text\":\"0000000000\"}\r\nMSG posts.u1 1 21\r\n{\"text\":\"0000000001\"}\r\n";

    #[test]
    fn a_follower_subscribes_answers_pings_and_counts_posts() {
        let mut nats = Nats::of(Some(1));
        let mut out = Vec::new();
        nats.greet(&mut out);
        let sent = String::from_utf8(payloads(&out).concat()).unwrap();
        assert!(sent.starts_with("CONNECT {") && sent.ends_with("}\r\nSUB posts.u1 1\r\nPING\r\n"), "{sent}");
        assert!(!nats.is_ready());
        let answered = follow(&mut nats, &[b"INFO {\"a\":1}\r\nPO", b"NG\r\nPING\r\n"], 0);
        assert_eq!(payloads(&answered), [b"PONG\r\n"]);
        assert!(nats.is_ready());
        follow(&mut nats, &[MESSAGES], 2);
        for split in 1..MESSAGES.len() {
            follow(&mut Nats::of(Some(1)), &[&MESSAGES[..split], &MESSAGES[split..]], 2);
        }
    }

    #[test]
    fn a_publisher_sends_the_length_and_the_body() {
        let mut out = Vec::new();
        Nats::of(None).greet(&mut out);
        assert!(!String::from_utf8(payloads(&out).concat()).unwrap().contains("SUB"));
        out.clear();
        Nats::of(None).publish(1, "{}", &mut out);
        assert_eq!(payloads(&out), [b"PUB posts.u1 2\r\n{}\r\n"]);
    }

    #[test]
    fn refusals_and_unknown_lines_are_errors() {
        check_refusals(
            || Box::new(Nats::of(Some(1))),
            &[
                (b"-ERR 'Authorization Violation'\r\n", "-ERR 'Authorization Violation'"),
                (b"MSG posts.u1 1 many\r\n", "the server sent a MSG without a length"),
                (b"HTTP\r\n", "the server sent a line \"HTTP\""),
                (&[b'x'; LINE_BYTES_MAX + 1], "the server sent a line without an end"),
            ],
        );
    }
}
