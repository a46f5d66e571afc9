//! Extracts the credentials of a request.

use actix_web::http::header::{AUTHORIZATION, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL};

use crate::http::auth::denial::Denial;

/// The name of the live protocol in `Sec-WebSocket-Protocol`.
pub(in crate::http) const PROTOCOL: &str = "tidewire";

/// The prefix of the WebSocket protocol name that contains a credential.
const PROTOCOL_PREFIX: &str = "bearer.";

/// Returns the credential of an `Authorization: Bearer …` header, if there is one. Ignores other schemes, because proxies may add headers
/// such as `Basic`.
pub(super) fn of_header(headers: &HeaderMap) -> Result<Option<&str>, Denial> {
    let mut given = headers.get_all(AUTHORIZATION).filter_map(bearer);
    let credential = given.next();
    if given.next().is_some() { Err(Denial::Unknown("more than one Bearer credential")) } else { Ok(credential) }
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, credential) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then_some(credential.trim())
}

/// Returns the credential that a WebSocket offers as the protocol `bearer.…`, because browser pages cannot set other headers.
pub(super) fn of_protocols(headers: &HeaderMap) -> Option<&str> {
    protocols(headers).find_map(|protocol| protocol.strip_prefix(PROTOCOL_PREFIX))
}

/// Returns true if a WebSocket offers the live protocol. If a client offers protocols, the server must select one of them.
pub(in crate::http) fn offers_protocol(headers: &HeaderMap) -> bool {
    protocols(headers).any(|protocol| protocol == PROTOCOL)
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}
