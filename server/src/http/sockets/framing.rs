//! Framing: where one request ends and the next begins, in what a client sends.
//!
//! Responsible for:
//! - finding the ends of requests, so that a later one can be held back ([`super::turns`]);
//! - making a head or a trailer invalid that has a line without a carriage return, which some readers take for a line and others do not;
//! - making a body in parts invalid that has too much beside its parts, which the parser would read on and on.
//!
//! Not responsible for:
//! - refusing anything itself: the HTTP parser behind reads the same bytes and decides. Whatever is no HTTP goes through as it is.

use tidewire::limits::CHUNK_OVERHEAD_BYTES_MAX;

/// Longest line of a head that is looked at: one that says how long a body is.
const LINE_BYTES_MAX: usize = 128;

/// What the size of a part needs: 16 digits, and the end of the line.
const SIZE_LINE_BYTES: usize = 18;

/// Where in the requests of a connection a client is.
#[derive(Debug, Default)]
pub(super) struct Framing {
    state: State,
    /// Heads that have come to their end.
    heads: usize,
    /// What came of a line, as far as it is looked at.
    line: Vec<u8>,
    /// Bytes of the line so far.
    line_bytes: usize,
    /// Bytes of a body in parts beside these.
    overhead_bytes: usize,
    head: Head,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between two requests.
    #[default]
    Between,
    Head,
    /// In a body, or a chunk and its end, of which so many bytes are to come.
    Bytes {
        left: u64,
        then: Then,
    },
    ChunkSize,
    Trailer,
    /// A carriage return was put in place of a byte, and the next becomes one that must not follow it.
    Spoiling,
    /// What follows is not looked at.
    Through,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Request,
    Chunk,
}

/// What a head says of what follows.
#[derive(Debug, Default, Clone, Copy)]
struct Head {
    has_request_line: bool,
    length: u64,
    is_chunked: bool,
    is_other: bool,
}

impl Framing {
    /// How many requests have come, at least up to the end of their heads.
    pub(super) fn heads(&self) -> usize {
        self.heads
    }

    /// Whether what comes next belongs to a body.
    pub(super) fn is_in_body(&self) -> bool {
        matches!(self.state, State::Bytes { .. } | State::ChunkSize | State::Trailer)
    }

    /// Whether what comes next belongs to a request that has not begun.
    pub(super) fn is_between(&self) -> bool {
        self.state == State::Between
    }

    /// Looks at what came next, and returns how much of it goes on to the parser: if no request `may_begin`, what comes before the next.
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

    /// Looks at the next of them, and returns how many that were.
    fn step(&mut self, bytes: &mut [u8]) -> usize {
        match self.state {
            State::Through => bytes.len(),
            State::Spoiling => {
                bytes[0] = 0;
                self.state = State::Through;
                1
            }
            State::Bytes { left, then } => {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let left = left - here as u64;
                self.state = match (left, then) {
                    (1.., _) => State::Bytes { left, then },
                    (0, Then::Request) => State::Between,
                    (0, Then::Chunk) => State::ChunkSize,
                };
                here
            }
            State::Between => {
                self.head = Head::default();
                self.state = State::Head;
                0
            }
            State::Head | State::ChunkSize | State::Trailer => self.step_in_line(bytes),
        }
    }

    fn step_in_line(&mut self, bytes: &mut [u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let room = LINE_BYTES_MAX - self.line.len();
        let here = end.unwrap_or(bytes.len());
        self.count_overhead(end.map_or(here, |end| end + 1), end.is_some());
        if self.overhead_bytes > CHUNK_OVERHEAD_BYTES_MAX {
            return self.spoil(bytes, 0);
        }
        let has_return = if here > 0 { bytes[here - 1] == b'\r' } else { self.line.last() == Some(&b'\r') };
        self.line.extend_from_slice(&bytes[..here.min(room)]);
        if here > room {
            // The last is kept, by which a line ends.
            self.line[LINE_BYTES_MAX - 1] = bytes[here - 1];
        }
        let Some(end) = end else { return bytes.len() };
        let mut line = std::mem::take(&mut self.line);
        line.truncate(line.len().saturating_sub(usize::from(has_return)));
        self.state = match (has_return, self.state) {
            (false, State::Head) => {
                // No parser takes this for anything.
                bytes[end] = 0;
                State::Through
            }
            // The parser takes a trailer to the next carriage return, through lines and requests that others see there.
            (false, State::Trailer) => return self.spoil(bytes, end),
            (false, _) => State::Through,
            (true, State::Head) if line.is_empty() && self.head.has_request_line => {
                self.heads += 1;
                self.overhead_bytes = 0;
                self.head.followed_by()
            }
            (true, State::Head) => {
                self.head.line(&line);
                State::Head
            }
            (true, State::ChunkSize) => chunk(&line),
            (true, State::Trailer) if line.is_empty() => State::Between,
            (true, as_before) => as_before,
        };
        end + 1
    }

    /// Counts bytes of a line, which may end with them, of what is around the parts of a body.
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

    /// Makes what the parser reads at a place of a size or a trailer invalid: in all of them a line feed follows a carriage return.
    fn spoil(&mut self, bytes: &mut [u8], at: usize) -> usize {
        bytes[at] = b'\r';
        self.state = State::Spoiling;
        at + 1
    }
}

impl Head {
    /// Takes a line in. Empty ones before a request are nothing.
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
            self.is_other |= value.eq_ignore_ascii_case(b"websocket");
        }
    }

    fn followed_by(self) -> State {
        match self {
            Self { is_other: true, .. } => State::Through,
            Self { is_chunked: true, .. } => State::ChunkSize,
            Self { length: 0, .. } => State::Between,
            Self { length, .. } => State::Bytes { left: length, then: Then::Request },
        }
    }
}

/// What follows the line of a chunk's size.
fn chunk(line: &[u8]) -> State {
    let digits = line.split(|byte| b"; \t".contains(byte)).next().unwrap_or_default();
    let size = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match size.map(|size| (size, size.checked_add(2))) {
        Some((0, _)) => State::Trailer,
        Some((_, Some(left))) => State::Bytes { left, then: Then::Chunk },
        _ => State::Through,
    }
}

#[cfg(test)]
mod tests;
