//! Framing: finds the boundaries of HTTP requests in the bytes that a client sends.
//!
//! Responsible for:
//! - finding the end of each request, so that the next one can be deferred ([`super::request_order`]);
//! - invalidating a head or a trailer with a line that ends without a carriage return. Parsers differ about such lines, which allows
//!   request smuggling;
//! - invalidating a chunked body with too many bytes besides its data, which the parser would read without limit;
//! - hiding an offered upgrade from the parser. It would close the connection after the response, although the offer is declined.

use tidewire::limits::CHUNK_OVERHEAD_BYTES_MAX;

/// Maximum bytes of a head line that are examined: enough for the headers that determine the length of the body.
const LINE_BYTES_MAX: usize = 128;

/// Bytes needed for a chunk size line: 16 hexadecimal digits and the line end.
const SIZE_LINE_BYTES: usize = 18;

/// The header `Connection` in lower case, with its colon. It may contain the option [`UPGRADE`].
const CONNECTION: &[u8] = b"connection:";

/// The option that offers an upgrade, in lower case.
const UPGRADE: &[u8] = b"upgrade";

/// The replacement of [`UPGRADE`] that the parser sees.
pub(super) const HIDDEN_UPGRADE: &str = "upgrad_";

/// The state of the request parser of one connection.
#[derive(Debug, Default)]
pub(super) struct Framing {
    state: State,
    /// The number of complete heads.
    heads: usize,
    /// The examined beginning of the current line.
    line: Vec<u8>,
    /// Bytes of the current line so far.
    line_bytes: usize,
    /// Bytes of the current chunked body beyond its data and the necessary size lines.
    overhead_bytes: usize,
    /// The place in the current line of a head; `None` in headers other than `Connection`.
    offer: Option<Offer>,
    head: RequestHead,
}

#[derive(Debug, Clone, Copy)]
enum Offer {
    /// After this many bytes of [`CONNECTION`].
    Name(usize),
    /// After this many bytes of [`UPGRADE`], at the start of an option.
    Upgrade(usize),
    /// In another option.
    Other,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between two requests.
    #[default]
    Between,
    Head,
    /// In a body, or in a chunk and its line end; `left` bytes follow.
    Bytes {
        left: u64,
        then: AfterBytes,
    },
    ChunkSize,
    Trailer,
    /// A byte was replaced by a carriage return. The next byte is replaced by one that is invalid after it.
    Invalidating,
    /// The remaining bytes pass unchanged and are not examined.
    PassThrough,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterBytes {
    Request,
    Chunk,
}

/// The properties of a head that determine the next state.
#[derive(Debug, Default, Clone, Copy)]
struct RequestHead {
    has_request_line: bool,
    length: u64,
    is_chunked: bool,
    is_upgrade: bool,
    is_other: bool,
}

impl Framing {
    /// Returns the number of requests whose head is complete.
    pub(super) fn heads(&self) -> usize {
        self.heads
    }

    /// Returns true if the next byte belongs to a body.
    pub(super) fn is_in_body(&self) -> bool {
        matches!(self.state, State::Bytes { .. } | State::ChunkSize | State::Trailer)
    }

    /// Returns true if the next byte begins a new request.
    pub(super) fn is_between(&self) -> bool {
        self.state == State::Between
    }

    /// Examines the next bytes. Returns the number of bytes to pass to the parser: all of them, or those before the next request if
    /// `may_begin` is false. At most one request begins in each call.
    pub(super) fn pass(&mut self, bytes: &mut [u8], may_begin: bool) -> usize {
        let (mut at, begun) = (0, self.heads);
        while at < bytes.len() {
            let may_begin = may_begin && self.heads == begun;
            if self.state == State::Between && !may_begin {
                break;
            }
            at += self.step(&mut bytes[at..]);
        }
        at
    }

    /// Examines the first of the bytes and returns the number of bytes examined.
    fn step(&mut self, bytes: &mut [u8]) -> usize {
        match self.state {
            State::PassThrough => bytes.len(),
            State::Invalidating => {
                bytes[0] = 0;
                self.state = State::PassThrough;
                1
            }
            State::Bytes { left, then } => {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let left = left - here as u64;
                self.state = match (left, then) {
                    (1.., _) => State::Bytes { left, then },
                    (0, AfterBytes::Request) => State::Between,
                    (0, AfterBytes::Chunk) => State::ChunkSize,
                };
                here
            }
            State::Between => {
                self.head = RequestHead::default();
                self.offer = Some(Offer::Name(0));
                self.state = State::Head;
                0
            }
            State::Head | State::ChunkSize | State::Trailer => self.step_in_line(bytes),
        }
    }

    fn step_in_line(&mut self, bytes: &mut [u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let free = LINE_BYTES_MAX - self.line.len();
        let here = end.unwrap_or(bytes.len());
        if self.state == State::Head {
            self.hide_upgrade(&mut bytes[..here]);
        }
        self.count_overhead(end.map_or(here, |end| end + 1), end.is_some());
        if self.overhead_bytes > CHUNK_OVERHEAD_BYTES_MAX {
            return self.invalidate(bytes, 0);
        }
        let has_return = if here > 0 { bytes[here - 1] == b'\r' } else { self.line.last() == Some(&b'\r') };
        // Most lines arrive in one piece, and are not copied.
        let is_whole = end.is_some() && self.line.is_empty() && here <= free;
        if !is_whole {
            self.line.extend_from_slice(&bytes[..here.min(free)]);
        }
        if here > free {
            // Stores the last byte too, because it decides how the line ends.
            self.line[LINE_BYTES_MAX - 1] = bytes[here - 1];
        }
        let Some(end) = end else { return bytes.len() };
        self.offer = Some(Offer::Name(0));
        let stored = std::mem::take(&mut self.line);
        let line = if is_whole { &bytes[..end] } else { &stored[..] };
        let line = &line[..line.len().saturating_sub(usize::from(has_return))];
        self.state = match (has_return, self.state) {
            (false, State::Head) => {
                // Every parser rejects a zero byte here.
                bytes[end] = 0;
                State::PassThrough
            }
            // The parser reads a trailer up to the next carriage return. It would skip lines and requests that other parsers see there.
            (false, State::Trailer) => return self.invalidate(bytes, end),
            (false, _) => State::PassThrough,
            (true, State::Head) if line.is_empty() && self.head.has_request_line => {
                self.heads += 1;
                self.overhead_bytes = 0;
                self.head.followed_by()
            }
            (true, State::Head) => {
                self.head.line(line);
                State::Head
            }
            // The stored line lacks digits after many leading zeros: the parser would read another size.
            (true, State::ChunkSize) if digits(line).len() >= LINE_BYTES_MAX - 2 => {
                return self.invalidate(bytes, end);
            }
            (true, State::ChunkSize) => chunk(line),
            (true, State::Trailer) if line.is_empty() => State::Between,
            (true, as_before) => as_before,
        };
        end + 1
    }

    /// Replaces the last byte of each option `upgrade` of the header `Connection` in these bytes of a line. [`super::answering`] restores
    /// it for WebSockets, so an option that already equals the replacement is changed too.
    fn hide_upgrade(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            let letter = byte.to_ascii_lowercase();
            self.offer = match self.offer {
                None => return,
                Some(Offer::Name(known)) if letter != CONNECTION[known] => None,
                Some(Offer::Name(known)) if known + 1 == CONNECTION.len() => Some(Offer::Upgrade(0)),
                Some(Offer::Name(known)) => Some(Offer::Name(known + 1)),
                Some(Offer::Upgrade(_) | Offer::Other) if b", \t".contains(&letter) => Some(Offer::Upgrade(0)),
                Some(Offer::Upgrade(known)) if known + 1 == UPGRADE.len() => {
                    match letter {
                        b'e' => *byte = b'_',
                        b'_' => *byte = b'-',
                        _ => {}
                    }
                    Some(Offer::Other)
                }
                Some(Offer::Upgrade(known)) if letter == UPGRADE[known] => Some(Offer::Upgrade(known + 1)),
                Some(Offer::Upgrade(_) | Offer::Other) => Some(Offer::Other),
            };
        }
    }

    /// Counts the bytes of a chunk size line or a trailer beyond the necessary ones. `is_end` is true if the line ends with these bytes.
    fn count_overhead(&mut self, bytes: usize, is_end: bool) {
        let needed = match self.state {
            State::ChunkSize => SIZE_LINE_BYTES,
            State::Trailer => 0,
            _ => return,
        };
        let before = self.line_bytes.max(needed);
        self.line_bytes = self.line_bytes.saturating_add(bytes);
        self.overhead_bytes = self.overhead_bytes.saturating_add(self.line_bytes.max(needed) - before);
        if is_end {
            self.line_bytes = 0;
        }
    }

    /// Invalidates a chunk size line or a trailer at this byte: the parser requires a line feed after every carriage return.
    fn invalidate(&mut self, bytes: &mut [u8], at: usize) -> usize {
        bytes[at] = b'\r';
        self.state = State::Invalidating;
        at + 1
    }
}

impl RequestHead {
    /// Parses a line of the head. Empty lines before the request line are ignored.
    fn line(&mut self, line: &[u8]) {
        if !self.has_request_line {
            self.has_request_line = !line.is_empty();
            self.is_other = line.starts_with(b"CONNECT ");
            return;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let is_cut = line.len() >= LINE_BYTES_MAX - 1;
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()).filter(|_| !is_cut);
            self.is_other |= length.is_none();
            self.length = length.unwrap_or_default();
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.is_chunked = value.eq_ignore_ascii_case(b"chunked");
            self.is_other |= !self.is_chunked;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.is_upgrade |= value.eq_ignore_ascii_case(b"websocket");
        }
    }

    fn followed_by(self) -> State {
        match self {
            Self { is_other: true, .. } => State::PassThrough,
            // The same order as in the parser: a chunked request is chunked even if it also requests an upgrade.
            Self { is_chunked: true, .. } => State::ChunkSize,
            Self { is_upgrade: true, .. } => State::PassThrough,
            Self { length: 0, .. } => State::Between,
            Self { length, .. } => State::Bytes { left: length, then: AfterBytes::Request },
        }
    }
}

/// Returns the digits of a chunk size line, without extensions.
fn digits(line: &[u8]) -> &[u8] {
    line.split(|byte| b"; \t".contains(byte)).next().unwrap_or_default()
}

/// Returns the state after a chunk size line.
fn chunk(line: &[u8]) -> State {
    let size = std::str::from_utf8(digits(line)).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match size.map(|size| (size, size.checked_add(2))) {
        Some((0, _)) => State::Trailer,
        Some((_, Some(left))) => State::Bytes { left, then: AfterBytes::Chunk },
        _ => State::PassThrough,
    }
}

#[cfg(test)]
mod tests;
