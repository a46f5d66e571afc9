//! Socket.IO 5 over Engine.IO 4 from a client's side: a room for each author, an event for each post. It does no I/O.

use std::io;

use super::posts::{Posts, broken};
use crate::live::frames::{Kind, frame_of};
use crate::live::messages::Listener;
use crate::live::wire::Wire;
use crate::operation::User;
use crate::target::tidewire::name;

/// A client of `rivals/socket-io.js`.
pub(super) struct SocketIo {
    /// The author whose room it joins; `None` for a publisher.
    follows: Option<User>,
    posts: Posts,
    is_ready: bool,
}

impl SocketIo {
    pub(super) fn of(follows: Option<User>) -> Self {
        Self { follows, posts: Posts::default(), is_ready: false }
    }
}

impl Wire for SocketIo {
    fn path(&self) -> String {
        "/socket.io/?EIO=4&transport=websocket".to_owned()
    }

    fn take(&mut self, payload: &[u8], out: &mut Vec<u8>, listener: &dyn Listener) -> io::Result<()> {
        match payload {
            // Engine.IO: open, ping.
            [b'0', ..] => send("40", out),
            b"2" => send("3", out),
            // Socket.IO: connected, event, acknowledgement, refusal.
            [b'4', b'0', ..] => match self.follows {
                Some(author) => send(&format!(r#"420["follow","{}"]"#, name(author)), out),
                None => self.is_ready = true,
            },
            [b'4', b'2', event @ ..] if event.starts_with(br#"["post","#) => self.posts.take(event, listener),
            b"430[]" => self.is_ready = true,
            [b'4', b'4', why @ ..] => return Err(io::Error::other(String::from_utf8_lossy(why))),
            other => return Err(broken(&format!("a message {:?}", String::from_utf8_lossy(other)))),
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn publish(&mut self, author: User, body: &str, out: &mut Vec<u8>) {
        send(&format!(r#"42["publish","{}",{body}]"#, name(author)), out);
    }

    fn again(&self) -> Box<dyn Wire> {
        Box::new(Self::of(self.follows))
    }
}

fn send(text: &str, out: &mut Vec<u8>) {
    frame_of(Kind::Text, text.as_bytes(), out);
}

#[cfg(test)]
mod tests {
    use super::super::posts::tests::{check_refusals, follow, payloads};
    use super::*;

    #[test]
    fn a_follower_joins_answers_pings_and_counts_posts() {
        let mut client = SocketIo::of(Some(1));
        let opened = follow(&mut client, &[br#"0{"sid":"a","upgrades":[],"pingInterval":25000}"#], 0);
        assert_eq!(payloads(&opened), [b"40"]);
        let joined = follow(&mut client, &[br#"40{"sid":"b"}"#, b"2"], 0);
        assert_eq!(payloads(&joined), [&br#"420["follow","u1"]"#[..], b"3"]);
        assert!(!client.is_ready());
        follow(&mut client, &[b"430[]", br#"42["post",{"text":"0000000000"}]"#], 1);
        assert!(client.is_ready());
    }

    #[test]
    fn a_publisher_is_ready_once_connected() {
        let mut client = SocketIo::of(None);
        follow(&mut client, &[b"0{}", br#"40{"sid":"b"}"#], 0);
        assert!(client.is_ready());
        let mut out = Vec::new();
        client.publish(1, r#"{"text":"a"}"#, &mut out);
        assert_eq!(payloads(&out), [br#"42["publish","u1",{"text":"a"}]"#]);
    }

    #[test]
    fn refusals_and_unknown_messages_are_errors() {
        check_refusals(
            || Box::new(SocketIo::of(Some(1))),
            &[
                (br#"44{"message":"no"}"#, r#"{"message":"no"}"#),
                (b"1", "the server sent a message \"1\""),
                (br#"42["other"]"#, r#"the server sent a message "42[\"other\"]""#),
            ],
        );
    }
}
