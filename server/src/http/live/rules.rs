//! Rules for what a live client sends over its WebSocket (RFC 6455), and how much of it.
//!
//! Responsible for:
//! - messages in pieces: which piece may follow which, and that text is UTF-8 across them (section 5.4, 8.1);
//! - control frames and what a close frame says (5.5, 7.4);
//! - bounding what one connection may send: it has nothing to say but that it is alive.
//!
//! Not responsible for:
//! - the layout of frames (`actix_http`), what messages say.

use std::time::Instant;

use actix_http::ws::{OpCode, Parser};

use tidewire::limits::{LIVE_FRAME_COST_BYTES, LIVE_RECEIVED_BYTES_AT_ONCE, LIVE_RECEIVED_BYTES_PER_SECOND};

/// What is wrong with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    /// It must not come, or not now: close code 1002.
    Protocol,
    /// It is no text: 1007.
    Text,
}

/// The message that is coming in pieces, if one is.
#[derive(Default)]
pub(super) struct Rules {
    coming: Option<Coming>,
}

enum Coming {
    /// Of its last character so many bytes have come.
    Text(Vec<u8>),
    Binary,
}

impl Rules {
    /// Looks at the next frame.
    pub(super) fn check(&mut self, is_last: bool, op: OpCode, payload: &[u8]) -> Result<(), Wrong> {
        let coming = match (op, self.coming.take()) {
            (OpCode::Ping | OpCode::Pong | OpCode::Close, _) if !is_last => return Err(Wrong::Protocol),
            (OpCode::Ping | OpCode::Pong, coming) => {
                self.coming = coming;
                return Ok(());
            }
            (OpCode::Close, _) => return close(payload),
            (OpCode::Text, None) => Coming::Text(Vec::new()),
            (OpCode::Binary, None) => Coming::Binary,
            (OpCode::Continue, Some(coming)) => coming,
            (OpCode::Continue, None) | (OpCode::Text | OpCode::Binary, Some(_)) | (OpCode::Bad, _) => {
                return Err(Wrong::Protocol);
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

/// Looks at a piece of text behind the beginning of a character. Returns what has come of its last one.
fn text(mut begun: Vec<u8>, is_last: bool, piece: &[u8]) -> Result<Vec<u8>, Wrong> {
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
        Err(_) => Err(Wrong::Text),
    }
}

/// Looks at what a close frame says.
fn close(payload: &[u8]) -> Result<(), Wrong> {
    let (code, reason) = payload.split_at(payload.len().min(2));
    Parser::try_parse_close_payload(code).map_err(|_| Wrong::Protocol)?;
    std::str::from_utf8(reason).map(drop).map_err(|_| Wrong::Text)
}

/// How much a client may send yet.
pub(super) struct Meter {
    left_bytes: usize,
    since: Instant,
}

impl Meter {
    /// Nothing was sent by now.
    pub(super) fn new(now: Instant) -> Self {
        Self { left_bytes: LIVE_RECEIVED_BYTES_AT_ONCE, since: now }
    }

    /// Counts a frame with so many bytes in it. False if that is too much.
    pub(super) fn take(&mut self, bytes: usize, now: Instant) -> bool {
        let earned = now.duration_since(self.since).as_secs_f64() * LIVE_RECEIVED_BYTES_PER_SECOND as f64;
        // Less than one byte is not lost, but earned later.
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

    /// What becomes of the last of these frames; those before it are fine.
    fn last(frames: &[(bool, OpCode, &[u8])]) -> Result<(), Wrong> {
        let (mut rules, mut last) = (Rules::default(), Ok(()));
        for (is_last, op, payload) in frames {
            assert_eq!(last, Ok(()), "{frames:?}");
            last = rules.check(*is_last, *op, payload);
        }
        last
    }

    #[test]
    fn pieces_of_messages_follow_each_other_and_control_frames_come_whole() {
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
            assert_eq!(last(frames), Err(Wrong::Protocol), "{frames:?}");
        }
    }

    #[test]
    fn text_is_utf8_wherever_it_is_cut() {
        let text = "aé€🦀".as_bytes();
        for cut in 0..=text.len() {
            let (first, second) = text.split_at(cut);
            assert_eq!(last(&[(MORE, OpCode::Text, first), (FIN, OpCode::Continue, second)]), Ok(()), "{cut}");
            let is_whole = std::str::from_utf8(first).is_ok();
            assert_eq!(last(&[(FIN, OpCode::Text, first)]).is_ok(), is_whole, "{cut}");
        }
        for bad in [&b"\xff"[..], b"a\xc3(", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"] {
            assert_eq!(last(&[(FIN, OpCode::Text, bad)]), Err(Wrong::Text));
            assert_eq!(last(&[(MORE, OpCode::Text, bad)]), Err(Wrong::Text), "what can be no text is not waited for");
            assert_eq!(last(&[(FIN, OpCode::Close, &[b"\x03\xe8", bad].concat())]), Err(Wrong::Text));
        }
    }

    #[test]
    fn a_client_may_send_so_much_at_once_and_then_so_much_a_second() {
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
