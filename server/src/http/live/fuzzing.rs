//! What a fuzzer may say over a WebSocket.

use actix_web::web::BytesMut;

use crate::http::live::handshake;
use crate::http::live::rules::Rules;
use crate::http::live::wire::{Frame, Heard, frame};
use tidewire::limits::LIVE_FRAME_BYTES_MAX;

/// Receives `data` at once and in small pieces.
///
/// # Panics
/// If the pieces matter, if an answer is longer than what it answers, or if a message is taken that is too long.
pub fn frames(data: &[u8]) {
    let (heard, answers) = receive(data, data.len().max(1));
    assert!(answers.len() <= data.len(), "{} bytes are answered by {}", data.len(), answers.len());
    for piece_bytes in [1, 7] {
        assert_eq!(receive(data, piece_bytes), (heard.clone(), answers.clone()), "in pieces of {piece_bytes}");
    }
    for text in heard.iter().filter_map(|frame| if let Frame::Text(text) = frame { Some(text) } else { None }) {
        assert!(text.len() <= LIVE_FRAME_BYTES_MAX, "a message of {} bytes is taken", text.len());
        introduced(text);
    }
    // Without a frame around it as well, which would have to be found first.
    introduced(data);
}

fn receive(data: &[u8], piece_bytes: usize) -> (Vec<Frame>, BytesMut) {
    let (mut received, mut answers, mut heard) = (BytesMut::new(), BytesMut::new(), Vec::new());
    let mut rules = Rules::default();
    for piece in data.chunks(piece_bytes) {
        received.extend_from_slice(piece);
        while let Some(frame) = frame(&mut rules, &mut received, &mut answers) {
            let is_last = matches!(frame, Frame::Other(Heard::Gone | Heard::Nonsense | Heard::NotText));
            heard.push(frame);
            if is_last {
                return (heard, answers);
            }
        }
    }
    (heard, answers)
}

fn introduced(text: &[u8]) {
    if let Some(token) = handshake::token(text) {
        let start = text.iter().find(|byte| !byte.is_ascii_whitespace());
        assert_eq!(start, Some(&b'{'), "only an object says who it is");
        let again = serde_json::json!({"type": "auth", "token": token}).to_string();
        assert_eq!(handshake::token(again.as_bytes()), Some(token));
    }
}
