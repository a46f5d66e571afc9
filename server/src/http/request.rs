//! Parses requests: path parts, query parameters and JSON bodies. Every refusal is a problem that names the invalid part.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::{self, Display};
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::str::FromStr;

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use actix_web::web::Bytes;
use actix_web::{FromRequest, HttpMessage as _, HttpRequest};
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;

use crate::http::operation::user_in_path;
use crate::http::problem::Problem;
use tidewire::feed::cursor;
use tidewire::feed::page::Range;
use tidewire::id::{PostId, PostName, SourceId};
use tidewire::limits::{PAGE_POSTS_DEFAULT, PAGE_POSTS_MAX};
use tidewire::state::reader::PageRequest;

/// Parses and validates a part of the path.
pub(super) fn path<T: FromStr<Err: Display>>(request: &HttpRequest, part: &str) -> Result<T, Problem> {
    parse_part(request, part, request.match_info().query(part))
}

/// Parses the user id in the path. It does not depend on the router, because some requests bypass it.
pub(super) fn user(request: &HttpRequest) -> Result<SourceId, Problem> {
    parse_part(request, "user", user_in_path(request.match_info().as_str()).map_or("", |(user, _)| user))
}

/// Parses the id or external id of a post in a part of the path.
pub(super) fn post_in_path(request: &HttpRequest, part: &str) -> Result<PostId, Problem> {
    path::<PostName>(request, part).map(|post| post.id)
}

/// Decodes the characters that the router left encoded in a part of a path: `%`, `/` and `+`. Invalid UTF-8 becomes U+FFFD, which no
/// valid name contains.
pub(super) fn decoded(part: &str) -> Cow<'_, str> {
    percent_decode_str(part).decode_utf8_lossy()
}

fn parse_part<T: FromStr<Err: Display>>(request: &HttpRequest, part: &str, text: &str) -> Result<T, Problem> {
    let refuse = |why: &dyn Display| Problem::bad("invalid_path", format!("{part}: {why}")).of_field(part);
    if !is_percent_encoded(request.uri().path()) {
        return Err(refuse(&"a % is not followed by two hexadecimal digits; % itself is %25"));
    }
    decoded(text).parse().map_err(|cause: T::Err| refuse(&cause))
}

/// Returns true if two hexadecimal digits follow each `%`. The router decodes the end of `%2%35`, and [`decoded`] would then decode the
/// result again.
fn is_percent_encoded(path: &str) -> bool {
    path.split('%').skip(1).all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

/// The query parameters of a request. All names are known and none occurs twice.
pub(super) struct Parameters<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

/// Returns true if a client accepts server-sent events, as `EventSource` and its polyfills do.
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    let mut ranges =
        headers.get_all(ACCEPT).filter_map(|accept| accept.to_str().ok()).flat_map(|accept| accept.split(','));
    ranges.any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_events = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("text/event-stream"));
        // A quality of 0 means that the client does not accept the type.
        let quality =
            |part: &str| part.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case("q"))?.1.parse::<f32>().ok();
        is_events && parts.filter_map(quality).all(|quality| quality > 0.0)
    })
}

/// Parses a whole number without sign or leading zeros, so that each number has exactly one spelling.
pub(super) fn whole_number<T: FromStr>(text: &str) -> Option<T> {
    let has_one_spelling = text == "0" || !text.starts_with(['0', '+', '-']);
    has_one_spelling.then(|| text.parse().ok()).flatten()
}

/// Maximum characters of the client's own text in a refusal.
const REFUSAL_CHARS_MAX: usize = 300;

/// Truncates a text that the client may have sent.
fn shortened(text: String) -> String {
    match text.char_indices().nth(REFUSAL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The parameter by which clients of server-sent events resume if they cannot set the header `Last-Event-ID`.
pub(super) const LAST_EVENT_ID: &str = "lastEventId";

/// Returns the `id` of the last event that a client of server-sent events has received, with the name of its header or parameter. The
/// value is empty if the client has not received any event.
pub(super) fn last_event_id<'a>(
    request: &'a HttpRequest,
    parameters: &'a Parameters<'_>,
) -> Option<(&'static str, &'a [u8])> {
    let header = request.headers().get("last-event-id").map(|id| ("Last-Event-ID", id.as_bytes()));
    let parameter = parameters.text(LAST_EVENT_ID).map(|id| (LAST_EVENT_ID, id.as_bytes()));
    header.into_iter().chain(parameter).find(|(_, id)| !id.is_empty())
}

impl<'a> Parameters<'a> {
    /// Parses the query string; only the parameters in `known` are allowed.
    pub(super) fn read(request: &'a HttpRequest, known: &[&str]) -> Result<Self, Problem> {
        Self::of(form_urlencoded::parse(request.query_string().as_bytes()).collect(), known)
    }

    /// Checks names and values; only the parameters in `known` are allowed.
    pub(super) fn of(pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>, known: &[&str]) -> Result<Self, Problem> {
        for (nth, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&&**name) {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let detail = format!("unknown query parameter {name:?}; known here: {known}");
                return Err(Problem::bad("unknown_parameter", detail).of_field(&**name));
            }
            if pairs[..nth].iter().any(|(earlier, _)| earlier == name) {
                return Err(invalid_parameter(name, "given twice"));
            }
        }
        Ok(Self { pairs })
    }

    /// Returns the text of a parameter, if it is present.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Returns true if a parameter with only one allowed value is present.
    pub(super) fn flag(&self, name: &str, value: &str) -> Result<bool, Problem> {
        match self.text(name) {
            None => Ok(false),
            Some(given) if given == value => Ok(true),
            Some(given) => Err(invalid_parameter(name, &format!("{given:?} is not {value:?}"))),
        }
    }

    /// Parses a parameter that is `true` or `false`. The default is false.
    pub(super) fn truth(&self, name: &str) -> Result<bool, Problem> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(given) => Err(invalid_parameter(name, &format!("{given:?} is neither true nor false"))),
        }
    }

    /// Parses a parameter that is a whole number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let parse = |text: &str| {
            whole_number(text).ok_or_else(|| invalid_parameter(name, &format!("{text:?} is not a whole number")))
        };
        self.text(name).map(parse).transpose()
    }

    /// Parses `limit`, or returns its default.
    pub(super) fn limit(&self) -> Result<usize, Problem> {
        self.limit_of(PAGE_POSTS_DEFAULT, PAGE_POSTS_MAX)
    }

    /// Parses `limit` with another default and maximum.
    pub(super) fn limit_of(&self, default: usize, max: usize) -> Result<usize, Problem> {
        let Some(text) = self.text("limit") else { return Ok(default) };
        match whole_number(text) {
            Some(limit) if (1..=max).contains(&limit) => Ok(limit),
            _ => Err(invalid_parameter("limit", &format!("{text:?} is not a whole number from 1 to {max}"))),
        }
    }

    /// Parses a parameter, if it is present.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Problem> {
        let parse = |text: &str| text.parse().map_err(|cause: T::Err| invalid_parameter(name, &cause.to_string()));
        self.text(name).map(parse).transpose()
    }

    /// Parses a parameter that is a cursor, with the given decoder.
    pub(super) fn cursor<T>(
        &self,
        name: &str,
        decode: impl Fn(&str) -> Result<T, cursor::CursorError>,
    ) -> Result<Option<T>, Problem> {
        let decode = |text| decode(text).map_err(|cause| invalid_parameter(name, &cause.to_string()));
        self.text(name).map(decode).transpose()
    }

    /// Parses the page parameters: `limit`, `before` and `after`.
    pub(super) fn page(&self) -> Result<PageRequest, Problem> {
        let range = match (self.cursor("before", cursor::decode_resume)?, self.cursor("after", cursor::decode_resume)?)
        {
            (None, None) => Range::Newest,
            (Some(before), None) => Range::Before(before.position),
            (None, Some(after)) => Range::Resume(after),
            (Some(_), Some(_)) => return Err(invalid_parameter("after", "not together with \"before\"")),
        };
        Ok(PageRequest { range, limit: self.limit()? })
    }
}

/// Creates the refusal of a query parameter.
pub(super) fn invalid_parameter(name: &str, what: &str) -> Problem {
    Problem::bad("invalid_parameter", format!("{name}: {what}")).of_field(name)
}

/// Returns true if the query is `?wait=delivered`.
pub(super) fn wait(request: &HttpRequest) -> Result<bool, Problem> {
    Parameters::read(request, &["wait"])?.flag("wait", "delivered")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// The body of a request, empty if the request has none. The pipeline reads it and stores it in the request, and the handler gets it as
/// an argument.
#[derive(Clone, Default)]
pub(super) struct RequestBody(pub(super) Bytes);

impl RequestBody {
    /// Returns the JSON body and checks its content type.
    pub(super) fn json_bytes(&self, request: &HttpRequest) -> Result<&[u8], Problem> {
        require_json(request)?;
        Ok(&self.0)
    }

    /// Returns the optional JSON body and checks its content type.
    pub(super) fn optional_json_bytes(&self, request: &HttpRequest) -> Result<Option<&[u8]>, Problem> {
        // Some clients send an empty body without a content type instead of no body.
        if self.0.is_empty() { Ok(None) } else { self.json_bytes(request).map(Some) }
    }

    /// Checks that there is no body, or that it is an object without fields.
    pub(super) fn no_fields(&self, request: &HttpRequest) -> Result<(), Problem> {
        self.optional_json_bytes(request)?.map(json::<Nothing>).transpose().map(drop)
    }
}

impl FromRequest for RequestBody {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(request.extensions_mut().remove().unwrap_or_default()))
    }
}

fn require_json(request: &HttpRequest) -> Result<(), Problem> {
    let given = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = given.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = "send the body as Content-Type: application/json";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
}

/// Parses JSON into `T`. An error names the invalid field.
pub(super) fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let Object(value) = serde_path_to_error::deserialize(&mut reader).map_err(|cause| {
        let at = cause.path().to_string();
        // serde_json reports any other type in place of an enum name as a syntax error.
        let is_json = || str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
        if cause.inner().classify() == Category::Data || is_json() {
            return field_problem(cause.inner(), &at);
        }
        Problem::bad("invalid_json", cause.inner().to_string())
    })?;
    reader.end().map_err(|cause| Problem::bad("invalid_json", cause.to_string()))?;
    Ok(value)
}

/// Deserializes `T` from a JSON object only. By default, serde also reads a struct from an array, field by field.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }

        from.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

fn field_problem(cause: &serde_json::Error, path: &str) -> Problem {
    let text = cause.to_string();
    // Quotes only the names of known fields, not names that the client chose.
    let quoted = text.split('`').nth(1).unwrap_or("");
    let (code, named) = if text.starts_with("unknown field") {
        ("unknown_field", "")
    } else if text.starts_with("missing field") {
        ("missing_field", quoted)
    } else if text.starts_with("duplicate field") {
        ("duplicate_field", quoted)
    } else {
        ("invalid_field", "")
    };
    // The path points to the field if it is unknown or has the wrong type, and to its parent object if it is missing.
    let parent = path.strip_suffix(named).unwrap_or(path).trim_end_matches('.');
    let field = match (parent, named) {
        ("" | ".", "") => ".".to_owned(),
        ("" | ".", named) => named.to_owned(),
        (parent, "") => parent.to_owned(),
        (parent, named) => format!("{parent}.{named}"),
    };
    let field = shortened(field);
    Problem::bad(code, format!("{field}: {}", shortened(text))).of_field(field)
}

/// Distinguishes null from a missing field: null is a valid body of a post, and an invalid value of most fields.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    #[test]
    fn event_streams_are_accepted_by_media_type_in_any_case_and_header_line() {
        for (lines, expected) in [
            (vec!["text/event-stream"], true),
            (vec!["TEXT/Event-Stream ; q=0.5"], true),
            (vec!["application/json, text/event-stream"], true),
            (vec!["application/x-ndjson", "text/event-stream"], true),
            (vec!["text/event-stream;q=0, application/x-ndjson"], false),
            (vec!["text/event-stream; q=0.000"], false),
            (vec!["text/event-streams"], false),
            (vec!["*/*"], false),
            (vec![], false),
        ] {
            let mut headers = HeaderMap::new();
            lines.iter().for_each(|line| headers.append(ACCEPT, HeaderValue::from_static(line)));
            assert_eq!(accepts_events(&headers), expected, "{lines:?}");
        }
    }

    #[test]
    fn an_integer_has_exactly_one_spelling() {
        for (text, expected) in [("0", Some(0)), ("40", Some(40)), ("18446744073709551615", Some(u64::MAX))] {
            assert_eq!(whole_number(text), expected);
        }
        for text in ["", "00", "040", "+40", "-1", "4 0", "18446744073709551616"] {
            assert_eq!(whole_number::<u64>(text), None, "{text:?}");
        }
    }
}
