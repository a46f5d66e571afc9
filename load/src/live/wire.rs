//! The wire protocols of live connections from a client's side, within WebSocket frames. They do no I/O.

use std::io;
use std::time::Instant;

use memchr::memmem;

use crate::live::messages::{Listener, Numbers, Order};
use crate::operation::User;
use crate::target::tidewire::name;

/// The wire protocol of one client.
pub(super) trait Wire {
    /// Returns the path of the handshake.
    fn path(&self) -> String;

    /// Returns the subprotocol of the handshake.
    fn protocol(&self) -> Option<&'static str> {
        None
    }

    /// Appends the frames that follow the handshake.
    fn greet(&mut self, _out: &mut Vec<u8>) {}

    /// Processes the payload of a text or binary frame: notifies the listener of posts, and appends frames of answers.
    ///
    /// # Errors
    /// `InvalidData` if the payload breaks the protocol, another kind if the server refuses something.
    fn take(&mut self, payload: &[u8], out: &mut Vec<u8>, listener: &dyn Listener) -> io::Result<()>;

    /// Returns true once the client receives all posts that are published from now on.
    fn is_ready(&self) -> bool;

    /// Appends the frames that publish a post. Tidewire's clients publish over HTTP instead.
    fn publish(&mut self, _author: User, _body: &str, _out: &mut Vec<u8>) {}

    /// Returns the wire protocol of this client when it reconnects.
    fn again(&self) -> Box<dyn Wire>;
}

/// A follower of Tidewire.
pub(super) struct Tidewire {
    reader: User,
    /// The epoch and the last number of the previous connection.
    resume: Option<(String, u64)>,
    epoch: String,
    /// The number of `hello` is the first.
    numbers: Numbers,
    posts: usize,
}

impl Tidewire {
    pub(super) fn of(reader: User) -> Self {
        Self { reader, resume: None, epoch: String::new(), numbers: Numbers::default(), posts: 0 }
    }

    /// Returns the wire protocol of a reader, as a function of its number alone.
    pub(super) fn boxed(reader: User) -> Box<dyn Wire> {
        Box::new(Self::of(reader))
    }
}

impl Wire for Tidewire {
    fn path(&self) -> String {
        let resume = self.resume.as_ref().map(|(epoch, number)| format!("?epoch={epoch}&seq={number}"));
        format!("/v1/users/{}/live{}", name(self.reader), resume.unwrap_or_default())
    }

    fn take(&mut self, message: &[u8], _: &mut Vec<u8>, listener: &dyn Listener) -> io::Result<()> {
        // A heartbeat has no event. It repeats the last number.
        if message.starts_with(br#"{"type":"beat""#) {
            return Ok(());
        }
        let Some(number) = number_after(message, br#""seq":"#) else {
            listener.count_unnumbered();
            return Ok(());
        };
        let is_hello = !self.numbers.begun();
        let order = self.numbers.take(number);
        listener.count(order);
        if is_hello {
            self.epoch = text_after(message, br#""epoch":""#).unwrap_or_default();
        } else if order != Order::Again && message.starts_with(br#"{"type":"post""#) {
            listener.on_post(self.posts, Instant::now());
            self.posts += 1;
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.numbers.begun()
    }

    fn again(&self) -> Box<dyn Wire> {
        let resume = self.numbers.last().map(|number| (self.epoch.clone(), number));
        Box::new(Self { resume, ..Self::of(self.reader) })
    }
}

/// Returns the number after the first occurrence of the key.
pub(super) fn number_after(text: &[u8], key: &[u8]) -> Option<u64> {
    let digits = &text[memmem::find(text, key)? + key.len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// Returns the text between the first occurrence of the key and the next quotation mark.
fn text_after(text: &[u8], key: &[u8]) -> Option<String> {
    let rest = &text[memmem::find(text, key)? + key.len()..];
    let end = memchr::memchr(b'"', rest)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::audience::Audience;

    #[test]
    fn numbers_are_found_in_messages() {
        let of = |text: &str| number_after(text.as_bytes(), br#""seq":"#);
        assert_eq!(of(r#"{"type":"post","seq":12,"item":{"post":{"body":{"seq":7}}}}"#), Some(12));
        assert_eq!(of(r#"{"type":"stale","seq":0}"#), Some(0));
        for text in ["", r#"{"type":"post"}"#, r#"{"seq":"12"}"#, r#"{"seq":12"#, r#"{"seq":99999999999999999999}"#] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn posts_count_once_beats_do_not_count_and_a_client_resumes_at_the_last_number() {
        let (audience, mut wire) = (Audience::default(), Tidewire::of(3));
        assert_eq!(wire.again().path(), "/v1/users/u3/live");
        for message in [
            r#"{"type":"hello","epoch":"e","seq":4,"recovered":false,"marker":null}"#,
            r#"{"type":"post","seq":5,"item":{}}"#,
            r#"{"type":"beat","seq":5}"#,
            r#"{"type":"update","seq":6,"post":{}}"#,
            r#"{"type":"post","seq":5,"item":{}}"#,
            r#"{"type":"post","seq":9,"item":{}}"#,
            "who knows",
        ] {
            wire.take(message.as_bytes(), &mut Vec::new(), &audience).unwrap();
        }
        assert_eq!((audience.messages(), wire.posts), (2, 2));
        let reported = ["2 messages lost", "1 messages doubled", "1 messages without a number"].map(str::to_owned);
        assert_eq!(audience.troubles(), (reported.to_vec(), 4));
        assert_eq!(wire.again().path(), "/v1/users/u3/live?epoch=e&seq=9");
    }
}
