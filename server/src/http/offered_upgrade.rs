//! The upgrade that a request offers.

use actix_web::http::header::{HeaderMap, UPGRADE};

/// Returns true if the request offers an upgrade to a WebSocket and to no other protocol, which is also the condition of the HTTP parser.
pub(in crate::http) fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get_all(UPGRADE).any(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket"))
}
