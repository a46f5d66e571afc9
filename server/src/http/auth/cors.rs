//! CORS: pages of which other origins may read answers.
//!
//! Credentials go by header and never by cookie, so that browsers need not be allowed to send any by themselves.

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

use crate::http::Api;
use tidewire::limits::CORS_ORIGINS_MAX;

/// Origins whose pages may read answers, as browsers name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(Vec<String>);

/// What pages send beside what every page may.
const REQUEST_HEADERS: &str = "authorization, content-type, last-event-id";

/// What pages read beside what every page may.
const RESPONSE_HEADERS: &str = "retry-after, www-authenticate";

/// How long browsers may remember what is allowed.
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

/// Origins are compared as text, so that one in another form would never be met.
fn check(origin: &str) -> Result<(), String> {
    let wrong =
        |what: &str| Err(format!("{origin:?} {what}; write it as https://example.org or http://localhost:3000"));
    let (Some((scheme, host)), true) = (origin.split_once("://"), origin.is_ascii()) else {
        return wrong("is no origin");
    };
    let default_port = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return wrong("is neither of https nor of http"),
    };
    if host.is_empty() || host.bytes().any(|letter| b"/?#@*\\ ".contains(&letter)) {
        return wrong("is more or less than an origin");
    }
    if host.bytes().any(|letter| letter.is_ascii_uppercase() || letter.is_ascii_control()) {
        return wrong("is not in lower case, as browsers send it");
    }
    if host.ends_with(default_port) {
        return wrong("names the port that browsers leave out");
    }
    Ok(())
}

impl Origins {
    /// Says in an answer whether the page that asked may read it.
    pub(in crate::http) fn tell(&self, asked: &HeaderMap, answer: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        // To everybody: what is cached for one origin must not be shown to another.
        answer.append(VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = self.allowed(asked) {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(RESPONSE_HEADERS));
        }
    }

    /// Whether a page asks whose origin is named.
    pub(super) fn allow(&self, asked: &HeaderMap) -> bool {
        self.allowed(asked).is_some()
    }

    /// Whether a page asks that is neither of the server's own origin nor of one that is named.
    pub(in crate::http) fn are_foreign_to(&self, asked: &HeaderMap) -> bool {
        let Some(origin) = asked.get(ORIGIN) else { return false };
        // Behind what speaks TLS for the server the scheme is another.
        let place = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
        let own = asked.get(HOST).and_then(|host| host.to_str().ok());
        (place.is_none() || place != own) && self.allowed(asked).is_none()
    }

    fn allowed(&self, asked: &HeaderMap) -> Option<HeaderValue> {
        let origin = asked.get(ORIGIN)?;
        self.0.iter().any(|known| known.as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }

    /// Answers a browser that asks before a page asks, if the page may; `methods` are those of the path.
    pub(in crate::http) fn preflight(&self, request: &HttpRequest, methods: &str) -> Option<HttpResponse> {
        let asked = request.headers();
        let is_one = request.method() == Method::OPTIONS && asked.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let origin = self.allowed(asked).filter(|_| is_one)?;
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

/// [`Origins::tell`], of a request that is through.
pub(in crate::http) fn tell(answered: &mut ServiceResponse) {
    let api = answered.request().app_data::<Data<Api>>();
    if api.is_some_and(|api| !api.access.origins().0.is_empty()) {
        let request = answered.request().clone();
        told(&request, answered.headers_mut());
    }
}

/// The same, of an answer that is still being made.
pub(in crate::http) fn told(request: &HttpRequest, answer: &mut HeaderMap) {
    if let Some(api) = request.app_data::<Data<Api>>() {
        api.access.origins().tell(request.headers(), answer);
    }
}
