//! The wire protocols of live connections from a client's side, within WebSocket frames. They do no I/O.

use std::io;
use std::time::Instant;

use memchr::memmem;

use crate::live::messages::{Listener, Numbers, Order};
use crate::operation::User;
use crate::target::tidewire::name;

/// The bytes at the beginning of a message of Tidewire that have its type and number.
const HEAD_BYTES: usize = 64;

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
    /// True if the client requests batches: a frame is then an array of messages.
    has_batches: bool,
    /// The epoch and the last number of the previous connection.
    resume: Option<(String, u64)>,
    epoch: String,
    /// The number of `hello` is the first.
    numbers: Numbers,
    posts: usize,
}

impl Tidewire {
    pub(super) fn of(reader: User) -> Self {
        let (resume, epoch, numbers) = (None, String::new(), Numbers::default());
        Self { reader, has_batches: true, resume, epoch, numbers, posts: 0 }
    }

    /// Returns the wire protocol of a reader, as a function of its number alone.
    pub(super) fn boxed(reader: User) -> Box<dyn Wire> {
        Box::new(Self::of(reader))
    }

    /// Returns the wire protocol of a reader who gets each message in its own frame.
    pub(super) fn unbatched(reader: User) -> Box<dyn Wire> {
        Box::new(Self { has_batches: false, ..Self::of(reader) })
    }

    fn take_message(&mut self, message: &[u8], at: Instant, listener: &dyn Listener) {
        // A heartbeat has no event. It repeats the last number.
        if message.starts_with(br#"{"type":"beat""#) {
            return;
        }
        let head = &message[..message.len().min(HEAD_BYTES)];
        let Some(number) = number_after(head, br#""seq":"#) else { return listener.count_unnumbered() };
        let is_hello = !self.numbers.begun();
        let order = self.numbers.take(number);
        listener.count(order);
        if is_hello {
            self.epoch = text_after(message, br#""epoch":""#).unwrap_or_default();
        } else if order != Order::Again && message.starts_with(br#"{"type":"post""#) {
            listener.on_post(self.posts, at);
            self.posts += 1;
        }
    }
}

impl Wire for Tidewire {
    fn path(&self) -> String {
        let resume = self.resume.as_ref().map(|(epoch, number)| format!("&epoch={epoch}&seq={number}"));
        let (reader, batch) = (name(self.reader), self.has_batches);
        format!("/v1/users/{reader}/live?batch={batch}{}", resume.unwrap_or_default())
    }

    fn take(&mut self, frame: &[u8], _: &mut Vec<u8>, listener: &dyn Listener) -> io::Result<()> {
        let at = Instant::now();
        messages(frame).for_each(|message| self.take_message(message, at, listener));
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.numbers.begun()
    }

    fn again(&self) -> Box<dyn Wire> {
        let resume = self.numbers.last().map(|number| (self.epoch.clone(), number));
        Box::new(Self { resume, has_batches: self.has_batches, ..Self::of(self.reader) })
    }
}

/// Returns the messages of a frame: those of an array, or the only one.
///
/// It does not parse JSON, because the clients share the machine with the server. It looks for the bytes between two messages. A message
/// does not contain them, because quotation marks in a string are escaped, and bodies in this tool have no array of objects. After a wrong
/// split, numbers would be missing or repeated, which is reported.
fn messages(frame: &[u8]) -> impl Iterator<Item = &[u8]> {
    let array = frame.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    let list = array.unwrap_or(frame);
    let ends = memmem::find_iter(list, br#",{"type":""#).chain([list.len()]);
    ends.scan(0, |start, end| Some(&list[std::mem::replace(start, end + 1)..end]))
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
    use proptest::prelude::*;
    use serde_json::{Value, from_slice, from_str, to_string};

    #[test]
    fn a_frame_is_one_message_or_an_array_of_messages() {
        let [one, two, quoted] = [r#"{"type":"a"}"#, r#"{"type":"b","seq":2}"#, r#"{"type":"c","t":"],{\"type\":\""}"#];
        for (frame, expected) in [
            (one.to_owned(), &[one][..]),
            (format!("[{one}]"), &[one]),
            (format!("[{one},{two}]"), &[one, two]),
            (format!("[{quoted},{one},{quoted}]"), &[quoted, one, quoted]),
            ("who knows".to_owned(), &["who knows"]),
            (String::new(), &[""]),
        ] {
            let found: Vec<&str> = messages(frame.as_bytes()).map(|bytes| str::from_utf8(bytes).unwrap()).collect();
            assert_eq!(found, expected, "{frame}");
        }
    }

    proptest! {
        #[test]
        fn an_array_is_split_as_a_json_parser_splits_it(
            texts in proptest::collection::vec(r#"([\[\]{}",:\\]|,\{"type":"|\},\{|.){0,12}"#, 1..6),
        ) {
            let message = |text: &String| {
                format!(r#"{{"type":"post","seq":1,"item":{{"post":{{"body":{{"text":{}}}}}}}}}"#, to_string(text).unwrap())
            };
            let frame = format!("[{}]", texts.iter().map(message).collect::<Vec<_>>().join(","));
            let found: Vec<Value> = messages(frame.as_bytes()).map(|message| from_slice(message).unwrap()).collect();
            prop_assert_eq!(found, from_str::<Vec<Value>>(&frame).unwrap());
        }
    }

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
        assert_eq!(wire.again().path(), "/v1/users/u3/live?batch=true");
        for message in [
            r#"{"type":"hello","epoch":"e","seq":4,"recovered":false,"marker":null}"#,
            r#"{"type":"post","seq":5,"item":{}}"#,
            r#"{"type":"beat","seq":5}"#,
            r#"[{"type":"update","seq":6,"post":{}},{"type":"post","seq":5,"item":{}},{"type":"post","seq":9,"item":{}}]"#,
            "who knows",
        ] {
            wire.take(message.as_bytes(), &mut Vec::new(), &audience).unwrap();
        }
        assert_eq!((audience.messages(), wire.posts), (2, 2));
        let reported = ["2 messages lost", "1 messages doubled", "1 messages without a number"].map(str::to_owned);
        assert_eq!(audience.troubles(), (reported.to_vec(), 4));
        assert_eq!(wire.again().path(), "/v1/users/u3/live?batch=true&epoch=e&seq=9");
        assert_eq!(Tidewire::unbatched(3).again().path(), "/v1/users/u3/live?batch=false");
    }
}
