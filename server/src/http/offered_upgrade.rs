//! The upgrade that a request offers.

use actix_web::http::header::{HeaderMap, UPGRADE};

/// Returns true if the request asks for an upgrade to a WebSocket, and to nothing else: this is what the HTTP parser upgrades for.
pub(in crate::http) fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get_all(UPGRADE).any(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket"))
}
