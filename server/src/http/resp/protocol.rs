//! Parses commands of the Redis protocol: arrays of bulk strings, or words in a line.
//!
//! Written by hand, because libraries parse any reply: nested arrays of any length, which they allocate before a limit can be checked.

use std::ops::Range;

/// Maximum number of words of a command.
const WORDS_MAX: usize = 1_024;

/// Maximum bytes of a command: that of a request with its names and lengths.
pub(super) const COMMAND_BYTES_MAX: usize = tidewire::limits::REQUEST_BYTES_MAX + 16 * WORDS_MAX;

/// Maximum bytes of a command in one line.
const LINE_BYTES_MAX: usize = 1_024;

/// Maximum bytes of a length with its type and its end.
const LENGTH_BYTES_MAX: usize = 32;

/// The words with which a line of HTTP begins, even a cut one.
const HTTP_WORDS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PRI"];

/// The limits on a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    words: usize,
    bytes: usize,
}

impl Limits {
    /// Of a client without a valid key: enough to send one.
    pub(super) const UNAUTHENTICATED: Self = Self { words: 16, bytes: 1_024 };
    /// Of a client that may send feed commands.
    pub(super) const FULL: Self = Self { words: WORDS_MAX, bytes: COMMAND_BYTES_MAX };
}

/// The reason why the bytes of a client are not a command. The server then closes the connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ProtocolError {
    /// The client speaks HTTP.
    #[error("this port speaks the Redis protocol, not HTTP")]
    Http,
    /// A length is missing, too large or not a number.
    #[error("invalid {0} length")]
    Length(&'static str),
    /// An array has an element that is not a bulk string.
    #[error("expected '$', got '{0}'")]
    NotBulk(char),
    /// A bulk string is longer than announced.
    #[error("a bulk string does not end where its length says")]
    Unterminated,
    /// The client speaks a protocol of bytes, such as TLS.
    #[error("this port speaks the Redis protocol without TLS")]
    Binary,
    /// A line is too long.
    #[error("too big inline request")]
    Line,
    /// The command is too large.
    #[error("a command may have at most {0} bytes")]
    Large(usize),
}

/// The words of the last command, as ranges of the input. The memory is used again for each command.
#[derive(Debug, Default)]
pub(super) struct Parser {
    words: Vec<Range<usize>>,
    /// The bytes that the input must have before its command can be complete.
    needed: usize,
}

impl Parser {
    /// Parses the command at the beginning of `input`, and returns its length; or `None` if it is incomplete. An empty command has no words.
    ///
    /// # Errors
    /// Fails if the input is not a command.
    pub(super) fn parse(&mut self, input: &[u8], limits: Limits) -> Result<Option<usize>, ProtocolError> {
        if input.len() < self.needed {
            return Ok(None);
        }
        self.words.clear();
        self.needed = 0;
        match input.first() {
            None => Ok(None),
            Some(b'*') => self.array(input, limits),
            Some(byte) if byte.is_ascii_graphic() || byte.is_ascii_whitespace() => self.line(input),
            Some(_) => Err(ProtocolError::Binary),
        }
    }

    /// Returns the words of the last command in the same input.
    pub(super) fn words<'a>(&self, input: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a, '_> {
        self.words.iter().map(|range| &input[range.clone()])
    }

    fn array(&mut self, input: &[u8], limits: Limits) -> Result<Option<usize>, ProtocolError> {
        let Some((count, mut at)) = length(input, 0, "multibulk")? else { return Ok(None) };
        // An array of no or of -1 words is an empty command.
        let count = usize::try_from(count).unwrap_or(0);
        if count > limits.words {
            return Err(ProtocolError::Length("multibulk"));
        }
        for _ in 0..count {
            match input.get(at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(other) => {
                    return Err(ProtocolError::NotBulk(char::from(*other).escape_default().next().unwrap_or('?')));
                }
            }
            let Some((bytes, begin)) = length(input, at, "bulk")? else { return Ok(None) };
            let bytes = usize::try_from(bytes).map_err(|_| ProtocolError::Length("bulk"))?;
            let end = begin.saturating_add(bytes);
            if end > limits.bytes {
                return Err(ProtocolError::Large(limits.bytes));
            }
            match input.get(end..end + 2) {
                None => {
                    self.needed = end + 2;
                    return Ok(None);
                }
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::Unterminated),
            }
            self.words.push(begin..end);
            at = end + 2;
        }
        Ok(Some(at))
    }

    /// Parses a command that a person types, as with telnet.
    fn line(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(end) = memchr::memchr(b'\n', &input[..input.len().min(LINE_BYTES_MAX)]) else {
            let is_http = HTTP_WORDS.iter().any(|word| input.starts_with(word.as_bytes()));
            return match input.len() < LINE_BYTES_MAX {
                true => Ok(None),
                false => Err(if is_http { ProtocolError::Http } else { ProtocolError::Line }),
            };
        };
        if input[..end].iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace()) {
            return Err(ProtocolError::Binary);
        }
        let mut begin = 0;
        // The line feed ends the last word.
        for (at, _) in input[..=end].iter().enumerate().filter(|(_, byte)| byte.is_ascii_whitespace()) {
            if at > begin {
                self.words.push(begin..at);
            }
            begin = at + 1;
        }
        let word = |range: Option<&Range<usize>>| {
            range.map_or_else(Vec::new, |range| input[range.clone()].to_ascii_uppercase())
        };
        let (first, last) = (word(self.words.first()), word(self.words.last()));
        let is_method = HTTP_WORDS.iter().any(|word| first == word.as_bytes());
        if is_method || first.starts_with(b"HOST:") || last.starts_with(b"HTTP/") {
            return Err(ProtocolError::Http);
        }
        Ok(Some(end + 1))
    }
}

/// Parses the length behind the type at `at`. Returns it with the place behind its line, or `None` if the line is incomplete.
fn length(input: &[u8], at: usize, what: &'static str) -> Result<Option<(i64, usize)>, ProtocolError> {
    let line = &input[at + 1..input.len().min(at + LENGTH_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\r', line) else {
        return if line.len() + 1 >= LENGTH_BYTES_MAX { Err(ProtocolError::Length(what)) } else { Ok(None) };
    };
    let number = str::from_utf8(&line[..end]).ok().and_then(|digits| digits.parse().ok());
    let number = number.ok_or(ProtocolError::Length(what))?;
    match input.get(at + 1 + end + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((number, at + 1 + end + 2))),
        Some(_) => Err(ProtocolError::Length(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(input: &[u8]) -> Result<Option<(Vec<String>, usize)>, ProtocolError> {
        let mut parser = Parser::default();
        let length = parser.parse(input, Limits::FULL)?;
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        Ok(length.map(|length| (parser.words(input).map(text).collect(), length)))
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings_or_a_line() {
        for (input, words) in [
            ("*1\r\n$4\r\nPING\r\n", &["PING"][..]),
            ("*2\r\n$8\r\nFEED.GET\r\n$3\r\nann\r\n", &["FEED.GET", "ann"]),
            ("*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\n", &["ECHO", "a\r\nb"]),
            ("*1\r\n$0\r\n\r\n", &[""]),
            ("*0\r\n", &[]),
            ("*-1\r\n", &[]),
            ("PING\r\n", &["PING"]),
            ("  feed.get  ann\t20 \n", &["feed.get", "ann", "20"]),
            ("\r\n", &[]),
        ] {
            let (parsed, length) = parse(input.as_bytes()).unwrap().unwrap();
            assert_eq!(
                (parsed, length),
                (words.iter().map(|word| (*word).to_owned()).collect(), input.len()),
                "{input:?}"
            );
            let more = format!("{input}*1\r\n$4\r\nPING\r\n");
            assert_eq!(parse(more.as_bytes()).unwrap().unwrap().1, input.len(), "a pipelined command follows");
            for cut in 0..input.len() {
                assert_eq!(parse(&input.as_bytes()[..cut]), Ok(None), "{input:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn other_input_is_refused_without_waiting_for_its_end() {
        let long_line = "x".repeat(LINE_BYTES_MAX);
        for (input, refused) in [
            ("*1025\r\n", ProtocolError::Length("multibulk")),
            ("*9999999999999999999999\r\n", ProtocolError::Length("multibulk")),
            ("*99999999999999999999999999999999999999", ProtocolError::Length("multibulk")),
            ("*one\r\n", ProtocolError::Length("multibulk")),
            ("*1\rx", ProtocolError::Length("multibulk")),
            ("*1\r\n*1\r\n", ProtocolError::NotBulk('*')),
            ("*1\r\n:1\r\n", ProtocolError::NotBulk(':')),
            ("*1\r\n$-1\r\n", ProtocolError::Length("bulk")),
            ("*1\r\n$999999999\r\n", ProtocolError::Large(COMMAND_BYTES_MAX)),
            ("*1\r\n$1\r\nab\r\n", ProtocolError::Unterminated),
            ("GET / HTTP/1.1\r\n", ProtocolError::Http),
            ("post /v1/posts HTTP/1.1\r\n", ProtocolError::Http),
            ("Host:a\r\n", ProtocolError::Http),
            ("PROPFIND / HTTP/1.1\r\n", ProtocolError::Http),
            ("\u{16}\u{3}\u{1}", ProtocolError::Binary),
            ("a\u{1}b\r\nFEED.DEL 7\r\n", ProtocolError::Binary),
            (&long_line, ProtocolError::Line),
        ] {
            assert_eq!(parse(input.as_bytes()), Err(refused), "{input:?}");
        }
        let many = format!("*3\r\n$60000\r\n{}\r\n$90000\r\n", "x".repeat(60_000));
        assert_eq!(parse(many.as_bytes()), Err(ProtocolError::Large(COMMAND_BYTES_MAX)));
        let unauthenticated = |input: &str| Parser::default().parse(input.as_bytes(), Limits::UNAUTHENTICATED);
        assert_eq!(unauthenticated("*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n"), Ok(Some(21)));
        assert_eq!(unauthenticated("*17\r\n"), Err(ProtocolError::Length("multibulk")));
        assert_eq!(unauthenticated("*1\r\n$2000\r\n"), Err(ProtocolError::Large(1_024)));
    }

    #[test]
    fn changed_bytes_are_parsed_or_refused() {
        let valid = b"*3\r\n$8\r\nFEED.GET\r\n$3\r\nann\r\n$2\r\n20\r\n";
        for at in 0..valid.len() {
            for byte in 0..=u8::MAX {
                let mut changed = valid.to_vec();
                changed[at] = byte;
                if let Ok(Some((words, length))) = parse(&changed) {
                    assert!(length <= changed.len() && words.len() <= 3, "{changed:?}");
                }
            }
        }
    }
}
