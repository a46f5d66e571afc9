//! The fuzz target of WebSocket frames.

use actix_web::web::BytesMut;

use crate::http::live::frame_checks::FrameChecks;
use crate::http::live::handshake;
use crate::http::live::wire::{Frame, Received, frame};
use tidewire::limits::LIVE_FRAME_BYTES_MAX;

/// Parses `data` as WebSocket frames, at once and in small pieces.
///
/// # Panics
/// Panics if the result depends on the pieces, if the replies are longer than `data`, or if a message is accepted that is too long.
pub fn frames(data: &[u8]) {
    let (parsed, answers) = receive(data, data.len().max(1));
    assert!(answers.len() <= data.len(), "{} bytes are answered by {}", data.len(), answers.len());
    for piece_bytes in [1, 7] {
        assert_eq!(receive(data, piece_bytes), (parsed.clone(), answers.clone()), "in pieces of {piece_bytes}");
    }
    for frame in &parsed {
        if let Frame::Data { payload, .. } = frame {
            assert!(payload.len() <= LIVE_FRAME_BYTES_MAX, "a frame of {} bytes is accepted", payload.len());
            check_token(payload);
        }
    }
    // Also parses the whole input as a message without a frame, because the fuzzer would have to find valid frames first.
    check_token(data);
}

fn receive(data: &[u8], piece_bytes: usize) -> (Vec<Frame>, BytesMut) {
    let (mut received, mut answers, mut parsed) = (BytesMut::new(), BytesMut::new(), Vec::new());
    let mut checks = FrameChecks::default();
    for piece in data.chunks(piece_bytes) {
        received.extend_from_slice(piece);
        while let Some(frame) = frame(&mut checks, &mut received, &mut answers) {
            let is_last = matches!(frame, Frame::Other(Received::Closed | Received::Invalid | Received::NotText));
            parsed.push(frame);
            if is_last {
                return (parsed, answers);
            }
        }
    }
    (parsed, answers)
}

fn check_token(text: &[u8]) {
    if let Some(token) = handshake::token(text) {
        let start = text.iter().find(|byte| !byte.is_ascii_whitespace());
        assert_eq!(start, Some(&b'{'), "only an object says who it is");
        let again = serde_json::json!({"type": "auth", "token": token}).to_string();
        assert_eq!(handshake::token(again.as_bytes()), Some(token));
    }
}
