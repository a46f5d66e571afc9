//! Responses that several handlers share.

use std::fmt::Write as _;

use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};

use crate::http::problem::Problem;
use crate::http::request::Parameters;
use tidewire::clock::UnixMicros;
use tidewire::engine::{Listed, RouteCost};
use tidewire::feed::celebrity::RouteBasis;
use tidewire::feed::cursor;
use tidewire::feed::rules::Rules;
use tidewire::id::PostId;

/// Answers a `PUT` request: 201 if the item was created, 200 if it existed before.
pub(super) fn put(created: bool) -> HttpResponse {
    let mut response = if created { HttpResponse::Created() } else { HttpResponse::Ok() };
    response.json(json!({"created": created}))
}

/// Answers a `DELETE` request: 204, even if there was nothing to delete.
pub(super) fn deleted() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// Answers with an encoded JSON document.
pub(super) fn json_text(json: String) -> HttpResponse {
    let content_type = HeaderValue::from_static("application/json");
    HttpResponse::Ok().insert_header((CONTENT_TYPE, content_type)).body(json)
}

/// Appends an array to a JSON text that is written piece by piece. `push` appends one element.
pub(super) fn push_array<T>(
    json: &mut String,
    elements: impl IntoIterator<Item = T>,
    mut push: impl FnMut(&mut String, T),
) {
    json.push('[');
    for (nth, element) in elements.into_iter().enumerate() {
        json.push_str(if nth > 0 { "," } else { "" });
        push(json, element);
    }
    json.push(']');
}

/// Appends an array of post ids, which contain no character that JSON escapes.
pub(super) fn push_ids<'a>(json: &mut String, ids: impl IntoIterator<Item = &'a PostId>) {
    push_array(json, ids, |json, id| {
        // Writing to a `String` cannot fail.
        let _ = write!(json, r#""{id}""#);
    });
}

/// Returns all rules of a reader.
pub(super) fn rules(rules: &Rules) -> Value {
    let mut all = json!(rules);
    // `Rules` is serialized with `notify` only if it is set.
    all["notify"] = json!(rules.notify);
    all
}

/// Returns the costs of both routes of a source, in microseconds per hour, rounded to a thousandth.
pub(super) fn route_cost(cost: RouteCost) -> Value {
    let rounded = |us: f64| (us * 1_000.0).round() / 1_000.0;
    json!({
        "push_us_per_hour": rounded(cost.push_us_per_hour),
        "pull_us_per_hour": rounded(cost.pull_us_per_hour),
        "decided_by": decided_by(cost.decided_by),
    })
}

/// Returns the name of the basis on which the route of a source was decided.
pub(super) fn decided_by(basis: RouteBasis) -> &'static str {
    match basis {
        RouteBasis::Setting => "setting",
        RouteBasis::Followers => "followers",
        RouteBasis::Cost => "cost",
    }
}

/// Answers with one page of a list. `found` has one item more than `limit` if there is a next page; `cursor` encodes the position of the
/// last item of this page.
pub(super) fn listing<T>(
    found: &[T],
    limit: usize,
    item: impl Fn(&T) -> Value,
    cursor: impl Fn(&T) -> String,
) -> HttpResponse {
    let page = &found[..found.len().min(limit)];
    let next = page.last().filter(|_| found.len() > limit).map(cursor);
    HttpResponse::Ok().json(json!({"items": page.iter().map(item).collect::<Vec<_>>(), "next": next}))
}

/// Answers with one page of a list of sources, newest first. `read` takes the upper time limit (exclusive) and the maximum number of
/// items.
pub(super) fn sources(
    parameters: &Parameters,
    read: impl FnOnce(UnixMicros, usize) -> Result<Vec<Listed>, Problem>,
) -> Result<HttpResponse, Problem> {
    let limit = parameters.limit()?;
    let before = parameters.cursor("cursor", cursor::decode_edge)?.unwrap_or(UnixMicros(i64::MAX));
    let item = |listed: &Listed| json!({"id": listed.id.as_str(), "since": listed.shown.to_string()});
    Ok(listing(&read(before, limit + 1)?, limit, item, |last| cursor::encode_edge(last.since)))
}
