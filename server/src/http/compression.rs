//! Compression of responses by gzip, for clients that accept it.
//!
//! Responsible for:
//! - texts that are built into the program, which are compressed once;
//! - other complete responses of at least `--compress-from` bytes. By default none, for the reasons in `docs/http-api.md`.
//!
//! Not responsible for:
//! - event streams and lines of changes, which are never compressed: each message would wait for the next ones;
//! - compressed requests, which are refused (`http::middleware::body`).

use std::collections::HashMap;
use std::io::Write as _;
use std::num::NonZeroUsize;

use actix_web::body::{BodySize, BoxBody, MessageBody as _};
use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use actix_web::web::{self, Bytes};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use tidewire::limits::RESPONSE_PIECE_BYTES;

use crate::http::caching;

/// The level for responses: the usual level, 6, takes up to three times as long and saves a fifth.
const LEVEL: Compression = Compression::fast();

/// Answers with a text that is built into the program, or with 304 if the client has it.
pub(super) fn document(
    request: &HttpRequest,
    mut response: HttpResponseBuilder,
    name: &'static str,
    text: &'static str,
) -> HttpResponse {
    let is_packed = accepts_gzip(request.headers());
    let body = if is_packed { packed(name, text) } else { Bytes::from_static(text.as_bytes()) };
    let mut response = response.body(body);
    let headers = response.headers_mut();
    caching::allow_all(headers, text);
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    caching::validated_by(request.headers(), response)
}

/// Returns the compressed form of a text that is built into the program.
fn packed(name: &'static str, text: &'static str) -> Bytes {
    static PACKED: Mutex<Option<HashMap<&'static str, Bytes>>> = Mutex::new(None);
    let mut packed = PACKED.lock();
    let pack = || gzip(text.as_bytes(), Compression::best()).into();
    packed.get_or_insert_default().entry(name).or_insert_with(pack).clone()
}

/// Compresses a complete response of at least `from_bytes`, if the client accepts it.
pub(super) async fn compressed(response: ServiceResponse, from_bytes: Option<NonZeroUsize>) -> ServiceResponse {
    let Some(from_bytes) = from_bytes.filter(|_| is_text(response.headers())) else { return response };
    let mut response = response;
    if response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
    let BodySize::Sized(bytes) = response.response().body().size() else { return response };
    let is_wanted = response.status() == StatusCode::OK && bytes >= from_bytes.get() as u64;
    if !is_wanted || !accepts_gzip(response.request().headers()) {
        return response;
    }
    let (request, response) = response.into_parts();
    let (mut response, body) = response.into_parts();
    let body = match body.try_into_bytes() {
        Ok(body) => body,
        // Another node sends it, piece by piece.
        Err(body) => return ServiceResponse::new(request, response.set_body(body)),
    };
    let whole = body.clone();
    let packed = match body.len() <= RESPONSE_PIECE_BYTES {
        true => Ok(gzip(&body, LEVEL)),
        // It would delay the other connections of this worker.
        false => web::block(move || gzip(&body, LEVEL)).await,
    };
    let body = packed.map_or(whole, |packed| {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        packed.into()
    });
    ServiceResponse::new(request, response.set_body(BoxBody::new(body)))
}

/// Returns true for the types of text that compress well and are sent as a whole.
fn is_text(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    [&b"application/json"[..], b"application/openmetrics-text", b"text/plain"]
        .iter()
        .any(|text| content_type.starts_with(text))
}

fn gzip(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), level);
    packed.write_all(bytes).and_then(|()| packed.finish()).expect("memory takes all that is written")
}

/// Returns true if the client accepts gzip: by name, or else as one of any encodings.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).filter_map(|line| line.to_str().ok());
    let (mut by_name, mut as_any) = (None, None);
    for one in lines.flat_map(|line| line.split(',')) {
        let mut parts = one.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let is_accepted = weight.is_none_or(|weight| weight.parse().is_ok_and(|weight: f32| weight > 0.0));
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            by_name = Some(is_accepted);
        } else if name == "*" {
            as_any = Some(is_accepted);
        }
    }
    by_name.or(as_any).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header;

    #[test]
    fn gzip_is_accepted_by_name_or_as_any_unless_its_weight_is_nothing() {
        for (lines, expected) in [
            (&[][..], false),
            (&[""], false),
            (&["gzip"], true),
            (&["GZip"], true),
            (&["x-gzip"], true),
            (&["deflate, gzip;q=1.0, *;q=0.5"], true),
            (&["br", "gzip"], true),
            (&["*"], true),
            (&["*;q=0"], false),
            (&["gzip;q=0, *"], false),
            (&["gzip; q=0.000"], false),
            (&["gzip ; Q=0.001"], true),
            (&["gzip;q=what"], false),
            (&["identity, br, zstd"], false),
            (&["gzipped"], false),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::ACCEPT_ENCODING, HeaderValue::from_str(line).unwrap());
            }
            assert_eq!(accepts_gzip(&headers), expected, "{lines:?}");
        }
    }
}
