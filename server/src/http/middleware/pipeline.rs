//! The door: what every request passes on its way to its handler.
//!
//! Responsible for:
//! - the order of it: a handler runs only once the request was let in and its body is there, and what an answer takes is
//!   counted until it is sent;
//! - the request's id, counting what became of it, and telling of what went wrong or took long.
//!
//! Not responsible for:
//! - what an operation needs (`http::operation`), and doing it.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::body::{BodySize, MessageBody as _};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use actix_web::web::Data;
use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse, ResponseError as _};
use tracing::warn;

use crate::http::Api;
use crate::http::auth::{Caller, cors};
use crate::http::middleware::admission::{Permit, Room};
use crate::http::middleware::client::Client;
use crate::http::middleware::{body, response_guard};
use crate::http::operation::{Needs, Operation, Work};
use crate::http::problem::Problem;
use crate::http::sockets::answering::Open;
use crate::http::sockets::line::Line;
use tidewire::limits::RESPONSE_PIECE_BYTES;

/// By which a request is found again in logs.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id that is taken from a client.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The pipeline in front of the handler of an operation.
#[derive(Clone, Copy)]
pub(in crate::http) struct Pipeline {
    /// Its place in the table.
    pub(in crate::http) nth: usize,
    pub(in crate::http) operation: &'static Operation,
}

/// A handler with its pipeline.
pub(in crate::http) struct Piped<S> {
    pipeline: Pipeline,
    handler: Rc<S>,
}

impl<S> Transform<S, ServiceRequest> for Pipeline
where
    S: Service<ServiceRequest, Response = ServiceResponse, Error = Error> + 'static,
{
    type Response = ServiceResponse;
    type Error = Error;
    type Transform = Piped<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, handler: S) -> Self::Future {
        ready(Ok(Piped { pipeline: *self, handler: Rc::new(handler) }))
    }
}

impl<S> Service<ServiceRequest> for Piped<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse, Error = Error> + 'static,
{
    type Response = ServiceResponse;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<ServiceResponse, Error>>>>;

    actix_web::dev::forward_ready!(handler);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let (pipeline, handler) = (self.pipeline, Rc::clone(&self.handler));
        Box::pin(async move { pass(pipeline, &*handler, request).await })
    }
}

async fn pass<S>(pipeline: Pipeline, handler: &S, mut request: ServiceRequest) -> Result<ServiceResponse, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse, Error = Error>,
{
    let operation = pipeline.operation;
    let Some(api) = request.app_data::<Data<Api>>().cloned() else {
        return Ok(request.error_response(Problem::internal(&"the server was put together wrongly")));
    };
    let mut asked = Asked { api: Data::clone(&api), pipeline, began: Instant::now(), is_answered: false };
    let answered = match admit(&api, operation, &mut request).await {
        Ok(admitted) => {
            let answered = handler.call(request).await;
            answered.map(|response| hold(&api, operation, admitted.client, response))
        }
        Err(problem) => Ok(request.error_response(problem)),
    };
    asked.is_answered = true;
    let mut response = answered?;
    let (refused, failure) = (refusal(&response), Problem::of_failure(&response).cloned());
    if let Some(failure) = &failure
        && api.access.is_trusted(operation, response.request())
    {
        response = response.into_response(failure.clone().in_full().error_response());
    }
    cors::tell(&mut response);
    let (status, took) = (response.status(), asked.began.elapsed());
    api.requests.count(pipeline.nth, status, took);
    refused.into_iter().for_each(|code| api.requests.count_refusal(code));
    let is_slow = took >= api.slow && operation.work != Work::Live;
    let is_fault = status == StatusCode::INTERNAL_SERVER_ERROR;
    let given = given_id(response.request());
    // Of what went well nothing is to be found again, unless the client wants to.
    if given.is_some() || is_slow || status.is_server_error() || status.is_client_error() {
        let id = given.unwrap_or_else(new_id);
        if is_slow || is_fault {
            let what = if is_fault { "a request failed" } else { "a slow request" };
            tell(what, failure.as_ref().and_then(Problem::inside), operation, &response, took, &id);
        }
        response.headers_mut().insert(REQUEST_ID, id);
    }
    #[cfg(feature = "otel")]
    api.spans.iter().for_each(|spans| spans.tell(operation, &response, took));
    Ok(response)
}

/// Answers what leads to no operation.
pub(in crate::http) fn nowhere(request: &HttpRequest, problem: &Problem) -> HttpResponse {
    let began = Instant::now();
    let mut refusal = problem.error_response();
    cors::told(request, refusal.headers_mut());
    refusal.headers_mut().insert(REQUEST_ID, given_id(request).unwrap_or_else(new_id));
    if let Some(api) = request.app_data::<Data<Api>>() {
        api.requests.count_nowhere(refusal.status(), began.elapsed());
        api.requests.count_refusal(problem.code());
    }
    refusal
}

/// A request that is being answered. Its client may go away meanwhile: the server then lets go of it, and of this.
struct Asked {
    api: Data<Api>,
    pipeline: Pipeline,
    began: Instant,
    is_answered: bool,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let (Pipeline { nth, operation }, took) = (self.pipeline, self.began.elapsed());
        self.api.requests.count_gone(nth, took);
        if took >= self.api.slow && operation.work != Work::Live {
            let took_ms = took.as_millis() as u64;
            warn!(operation = operation.name, took_ms, "a client went away before it was answered");
        }
    }
}

/// What a request holds until it is answered.
struct Admitted {
    client: Client,
    _body: Room,
    _permit: Permit,
}

/// Lets a request go on to its handler, with its body read. Work is counted only from then on, however slowly that came.
async fn admit(api: &Api, operation: &Operation, request: &mut ServiceRequest) -> Result<Admitted, Problem> {
    // It would have all that follows on the connection as its body, whatever it says of its length.
    let mut upgrades = request.headers().get_all(UPGRADE);
    let is_upgrade = upgrades.any(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if is_upgrade && operation.work != Work::Live {
        return Err(Problem::bad("invalid_upgrade", "this is no WebSocket: leave out the header Upgrade").closing());
    }
    // Who may not come in takes no room.
    if operation.needs == Needs::Nothing {
        request.extensions_mut().insert(Open);
        api.open_paths.enter(request.peer_addr())?;
    }
    api.access.enter(operation, request, api.slot.engine())?;
    if operation.needs != Needs::Nothing && Caller::of(request.request()).is_ok() {
        request.conn_data::<Arc<Line>>().into_iter().for_each(|line| line.know());
    }
    let client = Client::of(request);
    api.admission.may_answer(operation.work, client)?;
    let bytes_max = operation.body_bytes_max();
    let length = length(request).unwrap_or(bytes_max);
    if bytes_max > 0 && length > bytes_max {
        return Err(body::too_large(bytes_max));
    }
    // Nothing is received for what would be refused anyway.
    api.admission.look(operation.work)?;
    let length = length.min(bytes_max);
    let room = api.admission.receive(client, length)?;
    if length > 0 {
        if request.head().expect() {
            // Only now: its client waits with the body until somebody wants it.
            request.conn_data::<Arc<Line>>().into_iter().for_each(|line| line.ask_for_body());
        }
        let read = body::read(&mut request.take_payload(), length, &api.pace).await?;
        request.set_payload(body::whole(read));
    }
    Ok(Admitted { client, _body: room, _permit: api.admission.enter(operation.work)? })
}

/// How many bytes a body says it has, if it does.
fn length(request: &ServiceRequest) -> Option<usize> {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    // In parts a body may have any length; otherwise one without a length has none.
    length.or_else(|| (!request.headers().contains_key(TRANSFER_ENCODING)).then_some(0))
}

/// Counts the bytes of an answer for as long as they wait to be sent, or refuses them.
fn hold(api: &Api, operation: &Operation, client: Client, response: ServiceResponse) -> ServiceResponse {
    let BodySize::Sized(bytes) = response.response().body().size() else { return response };
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes <= RESPONSE_PIECE_BYTES {
        return response;
    }
    match api.admission.answer(operation.work, client, bytes) {
        Ok(room) => response.map_body(|_, body| response_guard::body(body, room, api.pace)),
        Err(problem) => ServiceResponse::from_err(problem, response.request().clone()),
    }
}

/// The code of a refusal, if the answer is one.
fn refusal(response: &ServiceResponse) -> Option<&'static str> {
    response.response().error()?.as_error::<Problem>().map(Problem::code)
}

/// The id that came with a request, if it is a good one.
fn given_id(request: &HttpRequest) -> Option<HeaderValue> {
    let id = request.headers().get(&REQUEST_ID)?;
    let is_good = (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    is_good.then(|| id.clone())
}

fn new_id() -> HeaderValue {
    let id = format!("{:032x}", fastrand::u128(..));
    HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("none"))
}

fn tell(
    what: &str,
    cause: Option<&str>,
    operation: &Operation,
    response: &ServiceResponse,
    took: Duration,
    id: &HeaderValue,
) {
    let (request, status) = (response.request(), response.status().as_u16());
    warn!(
        operation = operation.name,
        method = %request.method(),
        path = request.path(),
        status,
        cause,
        took_ms = took.as_millis() as u64,
        request_id = id.to_str().unwrap_or_default(),
        "{what}"
    );
}
