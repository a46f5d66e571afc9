//! CORS: the origins whose pages may read responses.
//!
//! Clients send credentials in a header and never in a cookie, so browsers need no permission to send credentials on their own.

use std::str::FromStr;

use actix_web::dev::ServiceResponse;
use actix_web::http::Method;
use actix_web::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderMap, HeaderValue,
    ORIGIN, VARY,
};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use tracing::warn;

use crate::http::auth::Access;
use crate::http::auth::host::Host;
use tidewire::throttle::Throttle;

/// Maximum number of origins whose pages may use the server.
const CORS_ORIGINS_MAX: usize = 64;

/// The origins whose pages may read responses, in the form browsers send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(Vec<String>);

/// Allowed non-simple request headers.
const REQUEST_HEADERS: &str = "authorization, cache-control, content-type, if-none-match, last-event-id, pragma, tidewire-after, x-request-id, x-requested-with";

/// Response headers that pages may read in addition to the CORS-safelisted ones.
const RESPONSE_HEADERS: &str = "etag, retry-after, tidewire-sequence, www-authenticate, x-request-id";

/// Maximum seconds that browsers cache a preflight response.
const MAX_AGE: &str = "600";

impl FromStr for Origins {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut origins: Vec<String> = Vec::new();
        for origin in text.split(',').map(str::trim).filter(|origin| !origin.is_empty()) {
            check(origin)?;
            if !origins.iter().any(|known| known == origin) {
                origins.push(origin.to_owned());
            }
        }
        if origins.len() > CORS_ORIGINS_MAX {
            return Err(format!("{} origins are more than the {CORS_ORIGINS_MAX} allowed", origins.len()));
        }
        Ok(Self(origins))
    }
}

/// Validates an origin. Origins are compared as text, so an origin in a different form would never match.
fn check(origin: &str) -> Result<(), String> {
    let wrong =
        |what: &str| Err(format!("{origin:?} {what}; write it as https://example.org or http://localhost:3000"));
    let (Some((scheme, host)), true) = (origin.split_once("://"), origin.is_ascii()) else {
        return wrong("is not an origin");
    };
    // Apps have their own schemes, such as capacitor://localhost.
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"+-.".contains(&letter));
    if !is_scheme {
        return wrong("is not an origin");
    }
    if host.is_empty() || host.bytes().any(|letter| b"/?#@*\\ ".contains(&letter)) {
        return wrong("has more or fewer parts than an origin");
    }
    if origin.bytes().any(|letter| letter.is_ascii_uppercase() || letter.is_ascii_control()) {
        return wrong("is not in lower case, as browsers send it");
    }
    if default_port(scheme).is_some_and(|port| host.ends_with(&format!(":{port}"))) {
        return wrong("names the default port, which browsers omit");
    }
    Ok(())
}

/// Returns the port that browsers leave out of origins of this scheme.
fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    }
}

/// Maximum number of characters of an origin in the log.
const LOGGED_CHARS_MAX: usize = 200;

impl Origins {
    /// Adds the CORS headers that allow the requesting page to read the response.
    pub(in crate::http) fn add_headers(&self, headers: &HeaderMap, answer: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        // Always sets `Vary`, because a response that is cached for one origin must not be served to another. A response of another node
        // has it already.
        if !answer.get_all(VARY).any(|varies| varies == "Origin") {
            answer.append(VARY, HeaderValue::from_static("Origin"));
        }
        if let Some(origin) = self.allowed(headers) {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(RESPONSE_HEADERS));
        }
    }

    /// Returns true if the request comes from an allowed origin.
    pub(super) fn allow(&self, headers: &HeaderMap) -> bool {
        self.allowed(headers).is_some()
    }

    /// Returns true if the request comes from a page whose origin is neither the server's own nor an allowed one.
    pub(in crate::http) fn are_foreign_to(&self, headers: &HeaderMap) -> bool {
        let Some(origin) = headers.get(ORIGIN) else { return false };
        // Compares only host and port, because the scheme differs behind a TLS proxy. A proxy may add the port that browsers leave out.
        let own = headers.get(HOST).and_then(|host| Host::parse(host.to_str().ok()?));
        let is_own = |origin: &str| {
            let (scheme, place) = origin.split_once("://")?;
            Some(Host::parse(place)?.is_same(own.as_ref()?, default_port(scheme)?))
        };
        origin.to_str().ok().and_then(is_own) != Some(true) && self.allowed(headers).is_none()
    }

    fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        self.0.iter().any(|known| known.as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }

    /// Answers a CORS preflight request of an allowed origin; `methods` are the methods of the path.
    pub(in crate::http) fn preflight(&self, request: &HttpRequest, methods: &str) -> Option<HttpResponse> {
        let headers = request.headers();
        let is_one = request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if is_one && self.are_foreign_to(headers) {
            log_refused(headers);
        }
        let origin = self.allowed(headers).filter(|_| is_one)?;
        let mut answer = HttpResponse::NoContent();
        answer
            .insert_header((ACCESS_CONTROL_ALLOW_ORIGIN, origin))
            .insert_header((ACCESS_CONTROL_ALLOW_METHODS, methods))
            .insert_header((ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS))
            .insert_header((ACCESS_CONTROL_MAX_AGE, MAX_AGE))
            .insert_header((VARY, "Origin"));
        Some(answer.finish())
    }
}

/// Logs that the pages of an origin are refused. Their users only see a missing response, so the owner of the pages finds the reason
/// here.
fn log_refused(headers: &HeaderMap) {
    static LOGGED: Throttle = Throttle::new();
    if let Some(left_out) = LOGGED.due() {
        let origin = headers.get(ORIGIN).map(|origin| String::from_utf8_lossy(origin.as_bytes()));
        let origin: String = origin.unwrap_or_default().chars().take(LOGGED_CHARS_MAX).collect();
        warn!(origin, more_since_last = left_out, "refused a page: its origin is not in --cors-origins");
    }
}

/// Adds the CORS headers to a finished response.
pub(in crate::http) fn add_headers_to(answered: &mut ServiceResponse) {
    let access = answered.request().app_data::<Data<Access>>();
    if access.is_some_and(|access| !access.origins().0.is_empty()) {
        let request = answered.request().clone();
        add_headers(&request, answered.headers_mut());
    }
}

/// Adds the CORS headers to the headers of a response that is not finished.
pub(in crate::http) fn add_headers(request: &HttpRequest, answer: &mut HeaderMap) {
    if let Some(access) = request.app_data::<Data<Access>>() {
        access.origins().add_headers(request.headers(), answer);
    }
}
