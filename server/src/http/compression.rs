//! Compression of responses by gzip, for clients that accept it.

use std::collections::HashMap;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::sync::LazyLock;

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
use tokio::sync::Semaphore;

use crate::http::admission::Reservation;
use crate::http::caching;

/// The level for responses. The default level, 6, takes up to three times as long and saves a fifth.
const LEVEL: Compression = Compression::fast();

/// Answers with a text that is built into the program, or with 304 if the client has it already.
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

/// Adds `Vary: Accept-Encoding` to a response whose form depends on the encodings that the client accepts. A 304 in its place needs the
/// header too.
pub(super) fn varying(mut response: ServiceResponse, from_bytes: Option<NonZeroUsize>) -> ServiceResponse {
    let is_packed = response.headers().contains_key(CONTENT_ENCODING);
    let varies = |line: &HeaderValue| line.as_bytes().eq_ignore_ascii_case(b"accept-encoding");
    // The response may be from another node, which has added the header.
    let is_said = response.headers().get_all(VARY).any(varies);
    if from_bytes.is_some() && !is_packed && !is_said && is_text(response.headers()) {
        response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// Compresses a complete response of at least `from_bytes`, if the client accepts it. Also returns the reservation, which still has the
/// bytes of the uncompressed response.
pub(super) async fn compressed(
    response: ServiceResponse,
    reservation: Option<Reservation>,
    from_bytes: Option<NonZeroUsize>,
) -> (ServiceResponse, Option<Reservation>) {
    let Some(from_bytes) = from_bytes.filter(|_| is_text(response.headers())) else { return (response, reservation) };
    if response.headers().contains_key(CONTENT_ENCODING) {
        return (response, reservation);
    }
    let BodySize::Sized(bytes) = response.response().body().size() else { return (response, reservation) };
    let is_wanted = response.status() == StatusCode::OK && bytes >= from_bytes.get() as u64;
    if !is_wanted || !accepts_gzip(response.request().headers()) {
        return (response, reservation);
    }
    let (request, response) = response.into_parts();
    let (mut response, body) = response.into_parts();
    let body = match body.try_into_bytes() {
        Ok(body) => body,
        // The body is a stream from another node.
        Err(body) => return (ServiceResponse::new(request, response.set_body(body)), reservation),
    };
    let (packed, reservation) = packed_body(&body, reservation).await;
    let body = packed.map_or(body, |packed| {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        packed
    });
    (ServiceResponse::new(request, response.set_body(BoxBody::new(body))), reservation)
}

/// Returns the compressed form of a body. Returns `None` for a large body if one per core is already being compressed; it is then sent
/// uncompressed.
async fn packed_body(body: &Bytes, reservation: Option<Reservation>) -> (Option<Bytes>, Option<Reservation>) {
    static LARGE: LazyLock<Semaphore> = LazyLock::new(|| {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Semaphore::new(cores)
    });
    if body.len() <= RESPONSE_PIECE_BYTES {
        return (Some(gzip(body, LEVEL).into()), reservation);
    }
    pack_large(body.clone(), reservation, &LARGE).await
}

/// Compresses a body on a thread for blocking work, where it delays no other connections. The permit and the reservation move to this
/// thread, because the work and its memory remain in use when the client disconnects.
async fn pack_large<R: Send + 'static>(
    body: Bytes,
    reservation: Option<R>,
    permits: &'static Semaphore,
) -> (Option<Bytes>, Option<R>) {
    let Ok(permit) = permits.try_acquire() else { return (None, reservation) };
    let packing = web::block(move || {
        let packed = gzip(&body, LEVEL).into();
        drop(permit);
        (Some(packed), reservation)
    });
    packing.await.unwrap_or_default()
}

/// Returns true for complete responses of text types, which compress well.
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

/// Returns true if the client accepts gzip, by name or by a wildcard.
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
    use std::sync::Arc;
    use testkit::eventually_async;

    #[test]
    fn compression_of_a_large_body_holds_permit_and_reservation_even_if_abandoned() {
        static PERMITS: Semaphore = Semaphore::const_new(1);
        actix_web::rt::System::new().block_on(async {
            let (body, reserved) = (Bytes::from(vec![b'a'; 10_000_000]), Arc::new(()));
            let (packed, reservation) = pack_large(body.clone(), Some(Arc::clone(&reserved)), &PERMITS).await;
            assert!(packed.is_some_and(|packed| packed.len() < 100_000) && reservation.is_some());
            drop(reservation);
            // Compressing random bytes takes far longer than the checks below.
            let slow = Bytes::from_iter(std::iter::repeat_with(|| fastrand::u8(..)).take(30_000_000));
            let mut abandoned = Box::pin(pack_large(slow, Some(Arc::clone(&reserved)), &PERMITS));
            let polled =
                std::future::poll_fn(|task| std::task::Poll::Ready(abandoned.as_mut().poll(task).is_ready())).await;
            drop(abandoned);
            assert_eq!((polled, Arc::strong_count(&reserved), PERMITS.available_permits()), (false, 2, 0));
            let (packed, other) = pack_large(body.clone(), Some(()), &PERMITS).await;
            assert!(packed.is_none() && other.is_some(), "there is no permit for it");
            let is_free = async || Arc::strong_count(&reserved) == 1 && PERMITS.available_permits() > 0;
            eventually_async("what is done occupies nothing", is_free).await;
        });
    }

    #[test]
    fn gzip_is_accepted_by_name_or_wildcard_unless_its_weight_is_zero() {
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
