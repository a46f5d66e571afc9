//! Writes replies of the Redis protocol.

use std::fmt::Display;
use std::io::Write as _;

use serde_json::Value;

/// Maximum characters of the text of an error: a client may send long words.
const ERROR_CHARS_MAX: usize = 500;

/// The version of the protocol, which a client chooses with `HELLO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Version {
    #[default]
    Two,
    Three,
}

/// Replies that are sent together.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) bytes: Vec<u8>,
    pub(super) version: Version,
}

impl Replies {
    /// Appends a status such as `OK`.
    pub(super) fn status(&mut self, status: &str) {
        self.line('+', status);
    }

    /// Appends an error: a code in capitals, and a text without line breaks, truncated if it is long.
    pub(super) fn error(&mut self, code: &str, text: impl Display) {
        let text = text.to_string();
        let text: String =
            text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(ERROR_CHARS_MAX).collect();
        self.line('-', format_args!("{} {text}", code.to_ascii_uppercase()));
    }

    /// Appends a text or bytes.
    pub(super) fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.bulk_head(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Appends the beginning of a text of so many bytes, which follow with a line break.
    pub(super) fn bulk_head(&mut self, bytes: u64) {
        self.line('$', bytes);
    }

    /// Appends a number.
    pub(super) fn integer(&mut self, number: i64) {
        self.line(':', number);
    }

    /// Appends the beginning of an array, whose elements follow.
    pub(super) fn array(&mut self, length: usize) {
        self.line('*', length);
    }

    /// Appends the beginning of a map, whose names and values follow. In RESP2 it is an array.
    pub(super) fn map(&mut self, length: usize) {
        match self.version {
            Version::Two => self.array(2 * length),
            Version::Three => self.line('%', length),
        }
    }

    /// Appends the beginning of a message that no command asked for, whose elements follow. In RESP2 it is an array.
    pub(super) fn push(&mut self, length: usize) {
        match self.version {
            Version::Two => self.array(length),
            Version::Three => self.line('>', length),
        }
    }

    /// Appends the absence of a value.
    pub(super) fn null(&mut self) {
        match self.version {
            Version::Two => self.bytes.extend_from_slice(b"$-1\r\n"),
            Version::Three => self.bytes.extend_from_slice(b"_\r\n"),
        }
    }

    /// Appends JSON as values of the protocol: objects as maps, whole numbers as integers, other numbers as texts.
    pub(super) fn json(&mut self, value: &Value) {
        match value {
            Value::Null => self.null(),
            Value::Bool(value) => match self.version {
                Version::Two => self.integer(i64::from(*value)),
                Version::Three => self.line('#', if *value { 't' } else { 'f' }),
            },
            Value::Number(number) => match number.as_i64() {
                Some(number) => self.integer(number),
                None => self.bulk(number.to_string()),
            },
            Value::String(text) => self.bulk(text),
            Value::Array(values) => {
                self.array(values.len());
                values.iter().for_each(|value| self.json(value));
            }
            Value::Object(members) => {
                self.map(members.len());
                for (name, value) in members {
                    self.bulk(name);
                    self.json(value);
                }
            }
        }
    }

    fn line(&mut self, kind: char, content: impl Display) {
        // Writing to memory cannot fail.
        let _ = write!(self.bytes, "{kind}{content}\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(version: Version, write: impl FnOnce(&mut Replies)) -> String {
        let mut replies = Replies { version, ..Replies::default() };
        write(&mut replies);
        String::from_utf8(replies.bytes).unwrap()
    }

    #[test]
    fn values_have_the_form_of_the_version() {
        let value = json!({"a": [1, "x", null], "b": true, "c": 1.5});
        for (version, expected) in [
            (Version::Two, "*6\r\n$1\r\na\r\n*3\r\n:1\r\n$1\r\nx\r\n$-1\r\n$1\r\nb\r\n:1\r\n$1\r\nc\r\n$3\r\n1.5\r\n"),
            (Version::Three, "%3\r\n$1\r\na\r\n*3\r\n:1\r\n$1\r\nx\r\n_\r\n$1\r\nb\r\n#t\r\n$1\r\nc\r\n$3\r\n1.5\r\n"),
        ] {
            assert_eq!(written(version, |replies| replies.json(&value)), expected);
        }
    }

    #[test]
    fn an_error_is_one_line() {
        let error = |text| written(Version::Two, |replies| replies.error("not_found", text));
        assert_eq!(error("no post 7"), "-NOT_FOUND no post 7\r\n");
        assert_eq!(error("a\r\n+OK"), "-NOT_FOUND a  +OK\r\n");
    }
}
