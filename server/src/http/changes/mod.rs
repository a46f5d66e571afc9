//! The stream of accepted events, for other systems: `GET /v1/changes`.
//!
//! Responsible for:
//! - parsing the request: the place at which the stream begins ([`place`]), its types of events ([`types`]), and refusals;
//! - registered consumers ([`consumers`]);
//! - sending the stream ([`body`]): its content ([`reading`]), readers who missed a post ([`missed`]), and the text of its lines
//!   ([`text`]);
//! - the limit on streams, and their figures ([`streams`]).

mod body;
pub(in crate::http) mod consumers;
mod missed;
mod place;
mod reading;
pub(in crate::http) mod streams;
mod text;
mod types;

use std::sync::Arc;

use actix_web::body::None as NoBody;
use actix_web::http::header::{ACCEPT, CACHE_CONTROL, HeaderName, VARY};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, Data};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};
use serde_json::json;

use crate::http::auth::{Access, Caller, SessionExpiry};
use crate::http::changes::body::Body;
use crate::http::changes::missed::Readers;
use crate::http::changes::place::Place;
use crate::http::changes::reading::{Format, Reading};
use crate::http::changes::streams::ChangeStreams;
use crate::http::changes::types::{MISSED, Types};
#[cfg(feature = "cluster")]
use crate::http::cluster::Peers;
use crate::http::engine_cell::ReadyEngine;
use crate::http::problem::Problem;
use crate::http::request::{LAST_EVENT_ID, Parameters, accepts_events, invalid_parameter, last_event_id};
use crate::http::sockets::answering::Endless;
use crate::http::sockets::connection_slots::connection_state::ConnectionState;
#[cfg(feature = "cluster")]
use tidewire::cluster::placement::Place as Owner;
use tidewire::engine::{Changes, ChangesError, Engine};
use tidewire::error::Error;
use tidewire::id::ConsumerName;
use tidewire::id::SourceId;
use tidewire::limits::{CHANGES_DEFAULT, CHANGES_MAX};
use tidewire::storage::log::LogError;
use tidewire::storage::sequence::Sequence;

pub(in crate::http) use crate::http::changes::types::NAMES;

/// The media type of one JSON value per line.
pub(in crate::http) const NDJSON: &str = "application/x-ndjson";

/// The parameters of a request.
struct Wanted {
    /// The place after which the stream begins; `None` for the end of the journal.
    place: Option<Place>,
    /// A registered consumer. Without a place, the stream begins after its position.
    consumer: Option<ConsumerName>,
    /// Maximum number of events.
    limit: Option<u64>,
    types: Types,
    format: Format,
}

/// Handles `GET /v1/changes`.
pub(in crate::http) async fn changes(
    request: HttpRequest,
    caller: Caller,
    engine: ReadyEngine,
    access: Data<Access>,
    streams: Data<ChangeStreams>,
) -> Result<HttpResponse, Problem> {
    let Wanted { place, consumer, limit, types, format } = wanted(&request)?;
    // A client that reconnects names its own place, which is later than the stored position.
    let consumer = consumer.filter(|_| place.is_none());
    let begins_at = if consumer.is_some() { "consumer" } else { "after" };
    let place = match &consumer {
        Some(consumer) => Some(Place::after(position(&engine, consumer)?)),
        None => place,
    };
    let (after, after_reader) = place.map_or((None, None), |Place { after, reader }| (Some(after), reader));
    let slot = ChangeStreams::enter(&streams.into_inner())?;
    let opening = Engine::clone(&engine);
    // Searching the journal blocks, and so does a request to the log of a cluster.
    let opened = web::block(move || open(&opening, after)).await.map_err(|cause| Problem::internal(&cause))?;
    let changes = opened.map_err(|cause| refusal(&cause, begins_at))?;
    let mut response = HttpResponse::Ok();
    response
        .content_type(format.media_type())
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((VARY, ACCEPT.as_str()))
        // Disables response buffering in proxies, which would delay events.
        .insert_header((HeaderName::from_static("x-accel-buffering"), "no"));
    if request.method() == Method::HEAD {
        return Ok(response.body(NoBody::new()));
    }
    // Server-sent events wait for later events even with a limit; lines end at the end of the journal.
    if format == Format::EventStream {
        request.extensions_mut().insert(Endless);
    }
    let session_expiry = SessionExpiry::of(&access, &caller, &engine);
    let readers = Readers { engine: (*engine).clone(), is_here: readers_here(&request) };
    let reading = Reading::new(changes, types, format, limit, after_reader, readers);
    let connection = request.conn_data::<Arc<ConnectionState>>().cloned();
    Ok(response.body(Body::new(reading, slot, (*engine).clone(), session_expiry, connection)))
}

/// Returns a function that selects the readers whom this server serves: in a cluster, those that this node owns.
#[cfg(feature = "cluster")]
fn readers_here(request: &HttpRequest) -> Box<dyn Fn(&SourceId) -> bool + Send> {
    match request.app_data::<Data<Peers>>() {
        Some(peers) => {
            let cluster = Arc::clone(peers.cluster());
            Box::new(move |reader| cluster.placement().owner(reader) == Owner::Here)
        }
        None => Box::new(|_| true),
    }
}

/// Returns a function that selects the readers whom this server serves: all of them.
#[cfg(not(feature = "cluster"))]
fn readers_here(_: &HttpRequest) -> Box<dyn Fn(&SourceId) -> bool + Send> {
    Box::new(|_| true)
}

fn wanted(request: &HttpRequest) -> Result<Wanted, Problem> {
    let format = if accepts_events(request.headers()) { Format::EventStream } else { Format::Lines };
    let known = ["after", "after_reader", "consumer", "limit", "types", LAST_EVENT_ID];
    // Only server-sent events have ids.
    let parameters =
        Parameters::read(request, if format == Format::EventStream { &known } else { &known[..known.len() - 1] })?;
    let types = parameters.text("types").map_or(Ok(Types::ALL), Types::parse)?;
    // Server-sent events are endless unless the client sets a limit.
    let is_endless = format == Format::EventStream && parameters.text("limit").is_none();
    let limit = || parameters.limit_of(CHANGES_DEFAULT, CHANGES_MAX).map(|limit| limit as u64);
    let limit = if is_endless { None } else { Some(limit()?) };
    // A client that reconnects repeats the original URL, and sends the current place in the header or in a separate parameter.
    let resumed = last_event_id(request, &parameters).filter(|_| format == Format::EventStream);
    let place = Place::requested(&parameters, resumed, types.has(MISSED))?;
    let consumer = parameters.parsed("consumer")?;
    if consumer.is_some() && parameters.text("after").is_some() {
        return Err(invalid_parameter("consumer", "not together with \"after\""));
    }
    Ok(Wanted { place, consumer, limit, types, format })
}

/// Returns the position of a registered consumer.
fn position(engine: &Engine, consumer: &ConsumerName) -> Result<Sequence, Problem> {
    if engine.journal().is_none() {
        return Err(Error::NoDataDirectory.into());
    }
    engine.change_consumer_position(consumer).ok_or_else(|| {
        let detail = format!("consumer: there is no consumer of changes with the name {:?}", consumer.as_str());
        Problem::new(StatusCode::NOT_FOUND, "unknown_consumer", detail).of_field("consumer")
    })
}

/// Begins to read. Blocks.
fn open(engine: &Engine, after: Option<Sequence>) -> Result<Changes, ChangesError> {
    let after = after.map_or_else(|| engine.last_change(), Ok)?;
    engine.changes(after)
}

/// Returns the refusal of a place at which reading cannot begin. `field` is its field in the request.
fn refusal(cause: &ChangesError, field: &'static str) -> Problem {
    match cause {
        ChangesError::NoJournal => Error::NoDataDirectory.into(),
        ChangesError::Log(LogError::Deleted { first, .. }) => {
            let oldest = first.0.saturating_sub(1);
            let detail = format!("{field}: the journal begins after {oldest}; earlier changes must be read elsewhere");
            Problem::new(StatusCode::GONE, "gone", detail).of_field(field).with("oldest", json!(oldest))
        }
        ChangesError::Log(LogError::Shorter { wanted, last }) => {
            let detail = format!(
                "{field}: the journal ends at {last}, before {wanted}: it is another journal, or was truncated"
            );
            let problem = Problem::bad("sequence_in_future", detail).of_field(field);
            problem.with("newest", json!(last.0))
        }
        ChangesError::Log(LogError::Unavailable(_)) => {
            Problem::unavailable("log_unavailable", cause.to_string()).retry_soon()
        }
        _ => Problem::internal(cause),
    }
}

impl ChangeStreams {
    fn enter(streams: &Arc<Self>) -> Result<streams::Slot, Problem> {
        Self::begin(streams).ok_or_else(|| {
            let detail = format!("too many streams of changes: at most {}", streams.limit());
            Problem::unavailable("overloaded", detail).retry_soon()
        })
    }
}
