//! Parses WebSocket frames (RFC 6455) of a server from chunks of bytes. It does no I/O.

use std::io;

/// Maximum bytes of a frame. A larger frame exceeds the server's queue for a connection, so it must be an error.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// The close code of a close frame without a code.
const NO_CODE: u16 = 1005;

/// A WebSocket frame of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame<'a> {
    Text(&'a [u8]),
    Binary(&'a [u8]),
    Ping(&'a [u8]),
    Pong,
    Close(u16),
}

/// A buffer for incomplete frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The beginning of an incomplete frame.
    begun: Vec<u8>,
}

impl Frames {
    /// Calls `each` with all frames that are complete now.
    ///
    /// # Errors
    /// If the bytes are not a valid frame of a server, or a frame type that was not negotiated.
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Frame<'_>)) -> io::Result<()> {
        if self.begun.is_empty() {
            let used = whole_frames(bytes, &mut each)?;
            self.begun.extend_from_slice(&bytes[used..]);
        } else {
            self.begun.extend_from_slice(bytes);
            let used = whole_frames(&self.begun, &mut each)?;
            self.begun.drain(..used);
        }
        Ok(())
    }
}

/// The first byte of a frame with a whole text, with whole binary data, or with a pong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Text = 0x81,
    Binary = 0x82,
    Pong = 0x8a,
}

/// Appends a frame of a client.
///
/// Frames of a client must be masked. A mask of zeros leaves the payload unchanged.
pub(super) fn frame_of(kind: Kind, payload: &[u8], into: &mut Vec<u8>) {
    into.push(kind as u8);
    match payload.len() {
        short @ 0..=125 => into.push(0x80 | short as u8),
        middle @ 126..=0xffff => {
            into.push(0x80 | 126);
            into.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            into.push(0x80 | 127);
            into.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    into.extend_from_slice(&[0; 4]);
    into.extend_from_slice(payload);
}

fn whole_frames(bytes: &[u8], each: &mut impl FnMut(Frame<'_>)) -> io::Result<usize> {
    let mut used = 0;
    while let Some((kind, payload, bytes)) = frame(&bytes[used..])? {
        each(match kind {
            0x81 => Frame::Text(payload),
            0x82 => Frame::Binary(payload),
            0x89 if payload.len() <= 125 => Frame::Ping(payload),
            0x8a => Frame::Pong,
            0x88 => Frame::Close(payload.first_chunk().map_or(NO_CODE, |code| u16::from_be_bytes(*code))),
            _ => return Err(strange(&format!("a frame that begins with {kind:#04x}"))),
        });
        used += bytes;
    }
    Ok(used)
}

/// Returns the first frame if it is complete: its first byte, its payload, and its total length in bytes.
fn frame(bytes: &[u8]) -> io::Result<Option<(u8, &[u8], usize)>> {
    let &[kind, short, ref rest @ ..] = bytes else { return Ok(None) };
    let (head, payload_bytes) = match short {
        126 => (4, rest.first_chunk().map(|length| u64::from(u16::from_be_bytes(*length)))),
        127 => (10, rest.first_chunk().map(|length| u64::from_be_bytes(*length))),
        128.. => return Err(strange("a masked frame")),
        short => (2, Some(u64::from(short))),
    };
    let Some(payload_bytes) = payload_bytes else { return Ok(None) };
    if payload_bytes > FRAME_BYTES_MAX as u64 {
        return Err(strange(&format!("a frame of {payload_bytes} bytes")));
    }
    let end = head + payload_bytes as usize;
    Ok(bytes.get(head..end).map(|payload| (kind, payload, end)))
}

fn strange(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the parsed frames, with the input split into chunks of `piece` bytes.
    fn parsed(bytes: &[u8], piece: usize) -> Vec<String> {
        let (mut frames, mut parsed) = (Frames::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            let outcome = frames.feed(piece, |frame| {
                parsed.push(match frame {
                    Frame::Text(text) if text.len() > 20 => format!("{} bytes", text.len()),
                    Frame::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    Frame::Binary(data) => format!("binary {}", String::from_utf8_lossy(data)),
                    Frame::Ping(payload) => format!("ping {}", String::from_utf8_lossy(payload)),
                    other => format!("{other:?}"),
                });
            });
            if let Err(cause) = outcome {
                parsed.push(cause.to_string());
                return parsed;
            }
        }
        parsed
    }

    fn text(length: &[u8], bytes: usize) -> Vec<u8> {
        [&[0x81], length, &vec![b'x'; bytes]].concat()
    }

    #[test]
    fn frames_of_every_length_are_read_from_pieces_of_any_length() {
        let mut bytes = b"\x81\x02hi\x82\x01b\x89\x01p\x8a\x00\x81\x00".to_vec();
        bytes.extend(text(&[125], 125));
        bytes.extend(text(&[126, 0, 126], 126));
        bytes.extend(text(&[126, 255, 255], 65_535));
        bytes.extend(text(&[127, 0, 0, 0, 0, 0, 1, 0, 0], 65_536));
        bytes.extend(b"\x88\x02\x0f\xa8");
        let expected = [
            "hi",
            "binary b",
            "ping p",
            "Pong",
            "",
            "125 bytes",
            "126 bytes",
            "65535 bytes",
            "65536 bytes",
            "Close(4008)",
        ];
        for piece in [3, 7, 1_000, 65_536, bytes.len()] {
            assert_eq!(parsed(&bytes, piece), expected, "pieces of {piece}");
        }
        assert_eq!(parsed(&bytes[..403], 1), expected[..7]);
    }

    #[test]
    fn a_close_frame_may_omit_its_code() {
        assert_eq!(parsed(b"\x88\x00", 2), ["Close(1005)"]);
    }

    #[test]
    fn unexpected_frames_are_errors() {
        for (bytes, expected) in [
            (&b"\x01\x01a"[..], "the server sent a frame that begins with 0x01"),
            (b"\xc1\x01a", "the server sent a frame that begins with 0xc1"),
            (b"HTTP/1.1", "the server sent a frame that begins with 0x48"),
            (b"\x81\x81\0\0\0\0a", "the server sent a masked frame"),
            (b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "the server sent a frame of 18446744073709551615 bytes"),
            (&[&b"\x89\x7e\x00\x7e"[..], &[0; 126]].concat(), "the server sent a frame that begins with 0x89"),
        ] {
            let expected = [expected];
            assert_eq!(parsed(&[bytes, &[0; 128]].concat(), 300), expected, "{bytes:?}");
        }
    }

    #[test]
    fn frames_of_a_client_are_masked_and_have_the_payload_unchanged() {
        let head = |kind, payload: &[u8]| {
            let mut bytes = Vec::new();
            frame_of(kind, payload, &mut bytes);
            let (head, rest) = bytes.split_at(bytes.len() - payload.len());
            assert_eq!(rest, payload);
            head.to_vec()
        };
        assert_eq!(head(Kind::Pong, b"ab"), b"\x8a\x82\0\0\0\0");
        assert_eq!(head(Kind::Text, &[b'x'; 125]), b"\x81\xfd\0\0\0\0");
        assert_eq!(head(Kind::Binary, &[b'x'; 126]), b"\x82\xfe\x00\x7e\0\0\0\0");
        assert_eq!(head(Kind::Text, &[b'x'; 65_536]), b"\x81\xff\0\0\0\0\0\x01\0\0\0\0\0\0");
    }
}
