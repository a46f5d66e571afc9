//! Where a request carries its credentials.

use actix_web::http::header::{AUTHORIZATION, HeaderMap, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

use crate::http::auth::denial::Denial;

/// The protocol that live messages are, as WebSockets name it.
pub(in crate::http) const PROTOCOL: &str = "tidewire";

/// What stands before a credential among the protocols that a WebSocket offers.
const PROTOCOL_PREFIX: &str = "bearer.";

/// What `Authorization: Bearer …` has, if there is one.
pub(super) fn of_header(headers: &HeaderMap) -> Result<Option<&str>, Denial> {
    let mut given = headers.get_all(AUTHORIZATION);
    let Some(value) = given.next() else { return Ok(None) };
    if given.next().is_some() {
        return Err(Denial::Unknown("there is more than one Authorization"));
    }
    let parts = value.to_str().ok().and_then(|text| text.split_once(' '));
    match parts {
        Some((scheme, credential)) if scheme.eq_ignore_ascii_case("Bearer") => Ok(Some(credential.trim())),
        _ => Err(Denial::Unknown("Authorization is not Bearer and a key or token")),
    }
}

/// What a WebSocket offers as the protocol `bearer.…`: pages in browsers cannot set other headers.
pub(super) fn of_protocols(headers: &HeaderMap) -> Option<&str> {
    protocols(headers).find_map(|protocol| protocol.strip_prefix(PROTOCOL_PREFIX))
}

/// Whether a WebSocket offers the protocol that live messages are: one that offers any must be answered with one.
pub(in crate::http) fn offers_protocol(headers: &HeaderMap) -> bool {
    protocols(headers).any(|protocol| protocol == PROTOCOL)
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Whether a request asks for a WebSocket.
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get_all(UPGRADE).any(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket"))
}
