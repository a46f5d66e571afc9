//! The home feeds of many readers in one request: `POST /v1/feeds`.

use std::collections::{HashMap, HashSet};
use std::ops::Range as Span;

#[cfg(feature = "cluster")]
use actix_web::HttpMessage as _;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::http::admission::turn::Turn;
use crate::http::answer;
use crate::http::auth::caller::client_of;
use crate::http::auth::{Access, Caller};
#[cfg(feature = "cluster")]
use crate::http::cluster::{self, Elsewhere, FeedsRequest, PeerRole, Peers};
use crate::http::engine_cell::ReadyEngine;
use crate::http::handlers::feeds;
use crate::http::operation::WorkKind;
use crate::http::page_json;
use crate::http::parsed::Parsed;
use crate::http::post_json::{Fields, FieldsName};
use crate::http::problem::{Failures, Problem};
use crate::http::request::{self, Parameters, RequestBody};
use crate::http::request_metrics::RequestMetrics;
use tidewire::engine::FeedPage;
use tidewire::feed::page::Range;
use tidewire::id::SourceId;
use tidewire::json::{Name, Whole};
use tidewire::limits::{FEEDS_ANSWER_BYTES, FEEDS_PER_REQUEST_MAX, PAGE_POSTS_DEFAULT, PAGE_POSTS_MAX};
use tidewire::state::reader::PageRequest;

/// Number of pages of one request that are built at the same time. Pages of awake readers are built one after the other regardless, so
/// this is the number of sleeping readers that the request wakes concurrently.
const PAGES_AT_ONCE: usize = 8;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FeedsRequest")]
pub(in crate::http) struct Feeds {
    #[schemars(length(max = FEEDS_PER_REQUEST_MAX))]
    users: Vec<Parsed<SourceId>>,
    #[serde(default = "limit_default", deserialize_with = "limit")]
    #[schemars(range(min = 1, max = PAGE_POSTS_MAX))]
    limit: usize,
    #[serde(default)]
    #[schemars(schema_with = "Fields::schema")]
    fields: Option<Name<FieldsName>>,
}

fn limit_default() -> usize {
    PAGE_POSTS_DEFAULT
}

fn limit<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let Whole(limit) = Whole::deserialize(from)?;
    let is_valid = (1..=PAGE_POSTS_MAX).contains(&limit);
    is_valid
        .then_some(limit)
        .ok_or_else(|| D::Error::custom(format!("{limit} is not a whole number from 1 to {PAGE_POSTS_MAX}")))
}

/// Parses the body.
fn parse(bytes: &[u8]) -> Result<Feeds, Problem> {
    let feeds: Feeds = request::json(bytes)?;
    if feeds.users.len() <= FEEDS_PER_REQUEST_MAX {
        return Ok(feeds);
    }
    let detail =
        format!("users: a request may have at most {FEEDS_PER_REQUEST_MAX}, this one has {}", feeds.users.len());
    Err(Problem::bad("invalid_field", detail).of_field("users"))
}

/// Handles `POST /v1/feeds`.
pub(in crate::http) async fn read(
    request: HttpRequest,
    body: RequestBody,
    caller: Caller,
    engine: ReadyEngine,
    access: Data<Access>,
    metrics: Data<RequestMetrics>,
) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let Feeds { users, limit, fields } = parse(body.json_bytes(&request)?)?;
    let turn = Turn::of(&request)?;
    let (peer, newest) = (request.peer_addr(), PageRequest { range: Range::Newest, limit });
    let client = client_of(Some(&caller), peer);
    let (caller, engine, access, admission) = (&caller, &engine, &access, turn.admission());
    let is_inside = is_inside(&request);
    // The node that received the client's request counts the readers against the rate.
    let count = |nth: usize, user: &SourceId| {
        access.enter_named(caller, (if is_inside { 0 } else { nth }, user), peer).map_err(Problem::from)
    };
    let fields = fields.map(|Name(fields)| Fields::from(fields)).unwrap_or_default();
    // A token may read only one feed. A body that repeats its user a hundred times must not make the server build the page a hundred
    // times.
    let mut named = HashSet::new();
    let distinct: Vec<_> =
        users.iter().map(|Parsed(user)| user).enumerate().filter(|(_, user)| named.insert(*user)).collect();
    #[cfg(feature = "cluster")]
    let (admit, mut elsewhere, _reserved) = {
        let elsewhere = elsewhere(&request, caller, (limit, fields), &distinct, count, &turn).await;
        if is_inside && !elsewhere.entries.is_empty() {
            return Ok(cluster::not_owner(&PeerRole::Owner.unavailable()));
        }
        let Elsewhere { entries, admitted, reserved, .. } = elsewhere;
        let admit = move |nth: usize, user: &SourceId| if admitted.contains(user) { Ok(()) } else { count(nth, user) };
        turn.resume()?;
        (admit, entries, reserved)
    };
    #[cfg(not(feature = "cluster"))]
    let (admit, mut elsewhere) = (count, HashMap::<SourceId, Result<String, Problem>>::new());
    let page = async |(nth, user): (usize, &SourceId)| -> Result<FeedPage, Problem> {
        admit(nth, user)?;
        feeds::home_page(engine, admission, user, newest).await
    };
    let here: Vec<_> = distinct.into_iter().filter(|(_, user)| !elsewhere.contains_key(*user)).collect();
    // The pipeline has admitted one page, which suffices for a token. Other nodes admit the pages that they read.
    let further = if caller.is_user() { 0 } else { here.len().saturating_sub(1) };
    let _more = admission.enter_many(WorkKind::BulkRead, further)?;
    let mut pages = stream::iter(here).map(page).buffered(PAGES_AT_ONCE);
    let (mut json, mut failures) = (String::from(r#"{"feeds":["#), Failures::of("feeds"));
    // The bytes are reserved from here on, because pages in `json` wait for those of sleeping readers.
    let mut reserved = Vec::new();
    let mut answered: HashMap<&SourceId, Span<usize>> = HashMap::new();
    for (nth, Parsed(user)) in users.iter().enumerate() {
        if nth > 0 {
            json.push(',');
        }
        let end = json.len();
        let before = answered.get(user).cloned();
        let appended = match before {
            _ if end >= FEEDS_ANSWER_BYTES => Err(answer_full()),
            Some(before) => count(nth, user).map(|()| json.extend_from_within(before)),
            None if elsewhere.contains_key(user) => {
                let entry = elsewhere.remove(user).unwrap_or_else(|| Err(answer_full()));
                entry.map(|entry| json.push_str(&entry))
            }
            None => pages.next().await.unwrap_or_else(|| Err(answer_full())).map(|page| {
                page_json::page_of(&mut json, user, &page, fields.of(engine));
            }),
        };
        let appended = appended.and_then(|()| admission.answer(WorkKind::BulkRead, client, json.len() - end));
        match appended {
            Ok(reservation) => reserved.push(reservation),
            Err(problem) => {
                json.truncate(end);
                metrics.count_refusal(problem.code());
                refused(&mut json, user, failures.noted(problem), !caller.is_user());
            }
        }
        answered.entry(user).or_insert(end..json.len());
    }
    json.push_str("]}");
    Ok(answer::json_text(json))
}

/// Returns true if another node of the cluster has forwarded the request.
#[cfg(feature = "cluster")]
fn is_inside(request: &HttpRequest) -> bool {
    request.extensions().contains::<PeerRole>()
}

#[cfg(not(feature = "cluster"))]
fn is_inside(_: &HttpRequest) -> bool {
    false
}

/// Returns the feeds of the readers whom other nodes own.
#[cfg(feature = "cluster")]
async fn elsewhere(
    request: &HttpRequest,
    caller: &Caller,
    (limit, fields): (usize, Fields),
    users: &[(usize, &SourceId)],
    admit: impl FnMut(usize, &SourceId) -> Result<(), Problem>,
    turn: &Turn,
) -> Elsewhere {
    let Some(peers) = request.app_data::<Data<Peers>>() else { return Elsewhere::default() };
    let asked = FeedsRequest {
        caller,
        peer: request.peer_addr(),
        role: request.extensions().get().copied(),
        limit,
        fields,
        after: request.headers().get("tidewire-after"),
        turn,
    };
    let elsewhere = peers.feeds(&asked, users.iter().copied(), admit).await;
    request.extensions_mut().insert(elsewhere.stale);
    elsewhere
}

/// Creates the problem for a reader whose page does not fit into the answer.
fn answer_full() -> Problem {
    let detail = format!("the answer has {FEEDS_ANSWER_BYTES} bytes without this feed: ask for it in another request");
    Problem::unavailable("answer_full", detail)
}

/// Appends the refusal of one reader.
fn refused(json: &mut String, user: &SourceId, problem: Problem, shows_failures: bool) {
    let problem = if shows_failures { problem.in_full() } else { problem };
    page_json::problem_of(json, user, &problem.entry());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_readers_in_a_request_is_limited() {
        let body = |readers: usize| {
            let readers: Vec<String> = (0..readers).map(|nth| format!(r#""ann{nth}""#)).collect();
            format!(r#"{{"users":[{}]}}"#, readers.join(","))
        };
        assert_eq!(parse(body(FEEDS_PER_REQUEST_MAX).as_bytes()).unwrap().users.len(), FEEDS_PER_REQUEST_MAX);
        let refused = parse(body(FEEDS_PER_REQUEST_MAX + 1).as_bytes()).err().unwrap();
        let detail = "400 invalid_field: users: a request may have at most 100, this one has 101";
        assert_eq!(refused.to_string(), detail);
    }
}
