//! Checks of the WebSocket frames that a live client sends (RFC 6455), and limits on their number.

use std::time::Instant;

use actix_http::ws::{OpCode, Parser};

/// Bytes that a frame counts in addition to its payload.
const LIVE_FRAME_COST_BYTES: usize = 256;

/// Bytes that a live client may send per second after the burst [`LIVE_RECEIVED_BYTES_AT_ONCE`].
const LIVE_RECEIVED_BYTES_PER_SECOND: usize = 8 * 1024;

/// Burst of bytes that a live client may send: far more than the answers to heartbeats need.
const LIVE_RECEIVED_BYTES_AT_ONCE: usize = 128 * 1024;

/// The rule that a frame violates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Violation {
    /// The frame is not allowed, or not allowed now: close code 1002.
    Protocol,
    /// The text is not valid UTF-8: close code 1007.
    Text,
}

/// The state of the current fragmented message, if there is one.
#[derive(Default)]
pub(super) struct FrameChecks {
    coming: Option<Coming>,
}

enum Coming {
    /// Text; holds the bytes of an incomplete last character.
    Text(Vec<u8>),
    Binary,
}

impl FrameChecks {
    /// Checks the next frame.
    pub(super) fn check(&mut self, is_last: bool, op: OpCode, payload: &[u8]) -> Result<(), Violation> {
        let coming = match (op, self.coming.take()) {
            (OpCode::Ping | OpCode::Pong | OpCode::Close, _) if !is_last => return Err(Violation::Protocol),
            (OpCode::Ping | OpCode::Pong, coming) => {
                self.coming = coming;
                return Ok(());
            }
            (OpCode::Close, _) => return close(payload),
            (OpCode::Text, None) => Coming::Text(Vec::new()),
            (OpCode::Binary, None) => Coming::Binary,
            (OpCode::Continue, Some(coming)) => coming,
            (OpCode::Continue, None) | (OpCode::Text | OpCode::Binary, Some(_)) | (OpCode::Bad, _) => {
                return Err(Violation::Protocol);
            }
        };
        let coming = match coming {
            Coming::Text(begun) => Coming::Text(text(begun, is_last, payload)?),
            Coming::Binary => Coming::Binary,
        };
        self.coming = (!is_last).then_some(coming);
        Ok(())
    }
}

/// Checks a fragment of text; `begun` holds the incomplete character before it. Returns the incomplete character at its end.
fn text(mut begun: Vec<u8>, is_last: bool, piece: &[u8]) -> Result<Vec<u8>, Violation> {
    let at = begun.len();
    let rest = if at == 0 {
        piece
    } else {
        begun.extend_from_slice(piece);
        &begun
    };
    match std::str::from_utf8(rest) {
        Ok(_) => Ok(Vec::new()),
        Err(cause) if cause.error_len().is_none() && !is_last => Ok(rest[cause.valid_up_to()..].to_vec()),
        Err(_) => Err(Violation::Text),
    }
}

/// Checks the code and the reason of a close frame.
fn close(payload: &[u8]) -> Result<(), Violation> {
    let (code, reason) = payload.split_at(payload.len().min(2));
    Parser::try_parse_close_payload(code).map_err(|_| Violation::Protocol)?;
    std::str::from_utf8(reason).map(drop).map_err(|_| Violation::Text)
}

/// A token bucket that limits the bytes a client may send.
pub(super) struct Meter {
    left_bytes: usize,
    since: Instant,
}

impl Meter {
    /// Creates a full bucket.
    pub(super) fn new(now: Instant) -> Self {
        Self { left_bytes: LIVE_RECEIVED_BYTES_AT_ONCE, since: now }
    }

    /// Counts a frame with this number of bytes. Returns false if the limit is exceeded.
    pub(super) fn take(&mut self, bytes: usize, now: Instant) -> bool {
        let earned = now.duration_since(self.since).as_secs_f64() * LIVE_RECEIVED_BYTES_PER_SECOND as f64;
        // Fractions of a byte accumulate until a later call.
        if earned >= 1.0 {
            self.left_bytes = self.left_bytes.saturating_add(earned as usize).min(LIVE_RECEIVED_BYTES_AT_ONCE);
            self.since = now;
        }
        let left = self.left_bytes.checked_sub(bytes + LIVE_FRAME_COST_BYTES);
        self.left_bytes = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const FIN: bool = true;
    const MORE: bool = false;

    /// Returns the result of checking the last frame. The frames before it must be valid.
    fn last(frames: &[(bool, OpCode, &[u8])]) -> Result<(), Violation> {
        let (mut checks, mut last) = (FrameChecks::default(), Ok(()));
        for (is_last, op, payload) in frames {
            assert_eq!(last, Ok(()), "{frames:?}");
            last = checks.check(*is_last, *op, payload);
        }
        last
    }

    #[test]
    fn fragments_must_be_contiguous_and_control_frames_unfragmented() {
        use OpCode::{Binary, Close, Continue, Ping, Pong, Text};
        let good: &[&[(bool, OpCode, &[u8])]] = &[
            &[(FIN, Text, b"a"), (FIN, Binary, b"\xff"), (FIN, Text, b"")],
            &[
                (MORE, Text, b"a"),
                (FIN, Ping, b"\xff"),
                (MORE, Continue, b""),
                (FIN, Continue, b"b"),
                (FIN, Text, b"c"),
            ],
            &[(MORE, Binary, b"\xff"), (FIN, Continue, b"\xfe")],
            &[(FIN, Close, b"")],
            &[(FIN, Close, b"\x03\xe8")],
            &[(FIN, Close, b"\x03\xefbye")],
            &[(FIN, Close, b"\x0f\xa0bye")],
        ];
        for frames in good {
            assert_eq!(last(frames), Ok(()), "{frames:?}");
        }
        let wrong: &[&[(bool, OpCode, &[u8])]] = &[
            &[(MORE, Ping, b"")],
            &[(MORE, Pong, b"")],
            &[(MORE, Close, b"")],
            &[(FIN, Continue, b"")],
            &[(MORE, Text, b"a"), (FIN, Text, b"b")],
            &[(MORE, Binary, b"a"), (MORE, Binary, b"b")],
            &[(MORE, Text, b"a"), (FIN, Continue, b"b"), (FIN, Continue, b"c")],
            &[(FIN, Close, b"\x03")],
            &[(FIN, Close, b"\x00\x00")],
            &[(FIN, Close, b"\x03\xed")],
            &[(FIN, Close, b"\x07\xd0")],
        ];
        for frames in wrong {
            assert_eq!(last(frames), Err(Violation::Protocol), "{frames:?}");
        }
    }

    #[test]
    fn fragmented_text_must_be_utf8() {
        let text = "aé€🦀".as_bytes();
        for cut in 0..=text.len() {
            let (first, second) = text.split_at(cut);
            assert_eq!(last(&[(MORE, OpCode::Text, first), (FIN, OpCode::Continue, second)]), Ok(()), "{cut}");
            let is_whole = std::str::from_utf8(first).is_ok();
            assert_eq!(last(&[(FIN, OpCode::Text, first)]).is_ok(), is_whole, "{cut}");
        }
        for bad in [&b"\xff"[..], b"a\xc3(", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"] {
            assert_eq!(last(&[(FIN, OpCode::Text, bad)]), Err(Violation::Text));
            assert_eq!(
                last(&[(MORE, OpCode::Text, bad)]),
                Err(Violation::Text),
                "what can be no text is not waited for"
            );
            assert_eq!(last(&[(FIN, OpCode::Close, &[b"\x03\xe8", bad].concat())]), Err(Violation::Text));
        }
    }

    #[test]
    fn received_bytes_are_limited_by_a_burst_and_a_rate() {
        let start = Instant::now();
        let at_once = |bytes: usize| LIVE_RECEIVED_BYTES_AT_ONCE / (bytes + LIVE_FRAME_COST_BYTES);
        for bytes in [0, 125, 4_096] {
            let mut meter = Meter::new(start);
            assert_eq!((0..100_000).take_while(|_| meter.take(bytes, start)).count(), at_once(bytes));
            let later = start + Duration::from_secs(100_000);
            assert_eq!((0..100_000).take_while(|_| meter.take(bytes, later)).count(), at_once(bytes));
        }
        let mut meter = Meter::new(start);
        let every = Duration::from_secs_f64(LIVE_FRAME_COST_BYTES as f64 / LIVE_RECEIVED_BYTES_PER_SECOND as f64);
        let sent = (0..100_000).take_while(|nth| meter.take(0, start + every * *nth)).count();
        assert_eq!(sent, 100_000, "at that rate it may go on for ever");
    }
}
