//! Caching: which responses clients and proxies may store, and the answer 304 to a client that has the response already.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, VARY,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Clients validate cached responses before each use, because a feed changes at any time.
const PRIVATE: &str = "private, no-cache";

/// The same for responses that do not depend on the caller.
const FOR_ALL: &str = "no-cache";

/// A weak entity tag: equal for equivalent responses, and different for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tag(u64);

impl Tag {
    /// Computes the tag of a response that consists of `parts`. The tag is valid while this process runs. The hash has a random seed, so
    /// that no author can write a text that keeps its tag when it is edited.
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
        Self::seeded(*SEED, parts)
    }

    /// Computes the tag of a text that is built into the program.
    fn of_static(text: &str) -> Self {
        Self::seeded(0, &[text.as_bytes()])
    }

    fn seeded(seed: u64, parts: &[&[u8]]) -> Self {
        Self(parts.iter().fold(seed, |hash, part| xxh3_64_with_seed(part, hash)))
    }

    fn header(self) -> HeaderValue {
        // Not formatted, because this runs for each page.
        let mut text = *b"W/\"0000000000000000\"";
        for (digit, nth) in text[3..19].iter_mut().rev().zip(0..) {
            *digit = b"0123456789abcdef"[(self.0 >> (4 * nth)) as usize & 15];
        }
        HeaderValue::from_bytes(&text).expect("hexadecimal digits are a valid header")
    }
}

/// Allows the caller, and no one else, to store a response under its tag.
pub(super) fn allow_caller(headers: &mut HeaderMap, tag: Tag) {
    headers.insert(ETAG, tag.header());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(PRIVATE));
    // Several users of one browser share its cache.
    headers.insert(VARY, HeaderValue::from_static("Authorization"));
}

/// Allows everyone to store a response with this text, which is built into the program.
pub(super) fn allow_all(headers: &mut HeaderMap, text: &str) {
    headers.insert(ETAG, Tag::of_static(text).header());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(FOR_ALL));
}

/// Forbids storing a response that may be out of date, and removes its tag.
#[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "only a node of a cluster may be behind"))]
pub(super) fn forbid(headers: &mut HeaderMap) {
    headers.remove(ETAG);
    headers.remove(VARY);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Forbids storing a response whose handler has not decided otherwise. Caches may store some responses, such as 404, by default.
pub(super) fn forbid_by_default(headers: &mut HeaderMap) {
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

/// Replaces a response by 304 if the client has it already. The caller is authorized and the tag is that of the caller's own response, so
/// `If-None-Match` reveals nothing.
pub(super) fn validated(response: ServiceResponse) -> ServiceResponse {
    if !response.request().headers().contains_key(IF_NONE_MATCH) {
        return response;
    }
    let (request, response) = response.into_parts();
    let response = validated_by(request.headers(), response);
    ServiceResponse::new(request, response)
}

/// Does the same for a response to a request with these headers.
pub(super) fn validated_by(request: &HeaderMap, response: HttpResponse) -> HttpResponse {
    let is_known = response.headers().get(ETAG).is_some_and(|tag| names(request, tag));
    if response.status() != StatusCode::OK || !is_known {
        return response;
    }
    let mut response = response.set_body(BoxBody::new(()));
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.headers_mut().remove(CONTENT_TYPE);
    response.headers_mut().remove(CONTENT_ENCODING);
    response
}

/// Returns true if `If-None-Match` contains a tag, by weak comparison. Tags of this server contain no comma, so lists can be split at
/// commas.
fn names(request: &HeaderMap, tag: &HeaderValue) -> bool {
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    let Ok(own) = tag.to_str().map(opaque) else { return false };
    request.get_all(IF_NONE_MATCH).filter_map(|known| known.to_str().ok()).any(|known| {
        // A star in a list may be part of another server's tag.
        known.trim() == "*" || known.split(',').any(|known| opaque(known.trim()) == own)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header;

    fn known(lines: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::IF_NONE_MATCH, HeaderValue::from_str(line).unwrap());
        }
        names(&headers, &HeaderValue::from_static("W/\"00ff\""))
    }

    #[test]
    fn an_etag_matches_if_any_listed_tag_is_equal_by_weak_comparison() {
        for (lines, expected) in [
            (&["W/\"00ff\""][..], true),
            (&["\"00ff\""], true),
            (&["*"], true),
            (&[" * "], true),
            (&["\"a\", W/\"00ff\" ,\"b\""], true),
            (&["\"a\"", "\"00ff\""], true),
            (&[], false),
            (&[""], false),
            (&["00ff"], false),
            (&["\"00FF\""], false),
            (&["w/\"00ff\""], false),
            (&["\"a,*,b\""], false),
            (&["\"00ff"], false),
            (&["\"a\", \"b\""], false),
        ] {
            assert_eq!(known(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_tag_is_written_as_sixteen_hexadecimal_digits() {
        for (tag, expected) in [(0, "W/\"0000000000000000\""), (0x0123_4567_89ab_cdef, "W/\"0123456789abcdef\"")] {
            assert_eq!(Tag(tag).header(), expected);
        }
    }

    #[test]
    fn an_etag_depends_on_each_part_and_on_their_boundaries() {
        let tags = [&[&b"ab"[..], b"c"][..], &[b"a", b"bc"], &[b"abc"], &[b"ab", b"d"], &[b"", b"abc"], &[b"abc", b""]];
        for (nth, one) in tags.iter().enumerate() {
            assert_eq!(Tag::of(one), Tag::of(one));
            assert!(tags[..nth].iter().all(|other| Tag::of(other) != Tag::of(one)), "{one:?}");
        }
    }
}
