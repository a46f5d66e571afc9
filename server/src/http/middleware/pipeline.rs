//! The middleware pipeline: the steps that every request goes through before and after its handler.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::body::{BodySize, MessageBody as _};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Data;
use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse, ResponseError as _};
use tracing::warn;

use crate::http::admission::turn::Turn;
use crate::http::admission::{Admission, Reservation};
use crate::http::auth::caller::client_of;
use crate::http::auth::rate::Counted;
use crate::http::auth::{Caller, cors};
use crate::http::caching;
use crate::http::client::Client;
#[cfg(feature = "cluster")]
use crate::http::cluster::{self, PeerRole};
use crate::http::compression;
use crate::http::middleware::pipeline_state::PipelineState;
use crate::http::middleware::{body, response_guard, starting};
use crate::http::offered_upgrade::is_websocket;
use crate::http::operation::{Needs, Operation, WorkKind};
use crate::http::problem::Problem;
use crate::http::request::RequestBody;
use crate::http::sockets::answering::Open;
use crate::http::sockets::connection_slots::connection_state::ConnectionState;
use tidewire::id::SourceId;
use tidewire::limits::RESPONSE_PIECE_BYTES;

/// The header with the id that identifies a request in logs.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum bytes of a request id that a client may set.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The pipeline in front of the handler of an operation.
#[derive(Clone, Copy)]
pub(in crate::http) struct Pipeline {
    /// The index of the operation in the table.
    pub(in crate::http) nth: usize,
    pub(in crate::http) operation: &'static Operation,
}

/// A handler behind its pipeline.
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
        Box::pin(pipeline.pass(request, async move |request: ServiceRequest, caller: Option<Caller>| {
            caller.into_iter().for_each(|caller| drop(request.extensions_mut().insert(caller)));
            handler.call(request).await
        }))
    }
}

impl Pipeline {
    /// Runs all steps for a request. Calls `handle` with the request and its caller, after the request is admitted and its body is read.
    pub(in crate::http) async fn pass(
        self,
        mut request: ServiceRequest,
        handle: impl AsyncFn(ServiceRequest, Option<Caller>) -> Result<ServiceResponse, Error>,
    ) -> Result<ServiceResponse, Error> {
        let operation = self.operation;
        let Some(state) = request.app_data::<Data<PipelineState>>().cloned() else {
            return Ok(request.error_response(Problem::internal(&"the application data is missing")));
        };
        let mut in_progress =
            RequestInProgress { state: &state, pipeline: self, began: Instant::now(), is_answered: false };
        let (answered, shows_failures) = match admit(&state, operation, &mut request).await {
            Ok(Admitted { caller, client, turn, shows_failures, _body }) => {
                let answered = handle_here_or_elsewhere(&state, operation, request, caller, handle, &turn).await;
                let answered = match answered {
                    Ok(response) => {
                        let response = caching::validated(compression::varying(response, state.compress_min_bytes));
                        Ok(guard_response(&state, turn.admission(), operation.work, client, response).await)
                    }
                    failed => failed,
                };
                // Releases the permit explicitly, because the body of the response may keep the request alive.
                turn.pause();
                (answered, shows_failures)
            }
            Err(problem) => (Ok(request.error_response(problem)), false),
        };
        in_progress.is_answered = true;
        let mut response = answered?;
        let (refused, failure) = (refusal(&response), Problem::of_failure(&response).cloned());
        if let Some(failure) = &failure
            && shows_failures
        {
            response = response.into_response(failure.clone().in_full().error_response());
        }
        cors::add_headers_to(&mut response);
        let (status, took) = (response.status(), in_progress.began.elapsed());
        state.requests.count(self.nth, status, took);
        let is_slow = state.is_slow(operation, took);
        let is_fault = status == StatusCode::INTERNAL_SERVER_ERROR;
        let given = given_id(response.request());
        // A successful request gets an id only if the client sent one, because nobody has to find it in logs.
        if given.is_some() || is_slow || status.is_server_error() || status.is_client_error() {
            // Another node may have answered. Its log has the id that it set.
            let id = given.or_else(|| response.headers().get(&REQUEST_ID).cloned()).unwrap_or_else(new_id);
            if is_slow || is_fault {
                let what = if is_fault { "a request failed" } else { "a slow request" };
                log_request(what, failure.as_ref().and_then(Problem::inside), operation, &response, took, &id);
            }
            refused.into_iter().for_each(|code| state.note_refused(Some(operation), code, status, &id));
            if is_slow {
                state.note_slow(operation, took, Some((status.as_u16(), id.to_str().unwrap_or_default().into())));
            }
            response.headers_mut().insert(REQUEST_ID, id);
        }
        #[cfg(feature = "otel")]
        state.spans.iter().for_each(|spans| spans.record(operation, &response, took));
        Ok(response)
    }

    /// Runs the steps for a read of a command, which has no request. If `read` returns `None`, so does this, and nothing is counted: a
    /// request takes its place.
    pub(in crate::http) async fn pass_read<T>(
        self,
        state: &PipelineState,
        (reader, client): (&SourceId, Client),
        read: impl Future<Output = Option<Result<T, Problem>>>,
    ) -> Option<Result<T, Problem>> {
        let operation = self.operation;
        let mut in_progress = RequestInProgress { state, pipeline: self, began: Instant::now(), is_answered: false };
        let admitted = state.admission.may_answer(operation.work, client);
        let read = match admitted.and_then(|()| state.admission.enter(operation.work)) {
            Ok(_permit) => read.await,
            Err(problem) => Some(Err(problem)),
        };
        in_progress.is_answered = true;
        let (read, took) = (read?, in_progress.began.elapsed());
        let status = read.as_ref().err().map_or(StatusCode::OK, Problem::status_code);
        state.requests.count(self.nth, status, took);
        let (is_slow, failure) = (state.is_slow(operation, took), read.as_ref().err());
        if is_slow || failure.is_some() {
            let id = new_id();
            if is_slow || status == StatusCode::INTERNAL_SERVER_ERROR {
                let what = if is_slow { "a slow command" } else { "a command failed" };
                let (took_ms, cause) = (took.as_millis() as u64, failure.and_then(Problem::inside));
                warn!(operation = operation.name, %reader, status = status.as_u16(), cause, took_ms, "{what}");
            }
            failure.into_iter().for_each(|problem| state.note_refused(Some(operation), problem.code(), status, &id));
            if is_slow {
                state.note_slow(operation, took, Some((status.as_u16(), id.to_str().unwrap_or_default().into())));
            }
        }
        Some(read)
    }
}

/// Handles an admitted request, unless another node of the cluster is responsible for it.
#[cfg(feature = "cluster")]
async fn handle_here_or_elsewhere(
    state: &PipelineState,
    operation: &'static Operation,
    request: ServiceRequest,
    caller: Option<Caller>,
    handle: impl AsyncFn(ServiceRequest, Option<Caller>) -> Result<ServiceResponse, Error>,
    turn: &Turn,
) -> Result<ServiceResponse, Error> {
    let Some(peers) = &state.peers else { return handle(request, caller).await };
    let heartbeat = state.engine_cell.engine().map_or(HEARTBEAT, |engine| engine.shared().config.live_heartbeat);
    let role = request.extensions().get::<PeerRole>().copied();
    // Boxed, so that the futures of servers without a cluster are not larger.
    Box::pin(peers.answer(
        request,
        cluster::Admitted { operation, caller, role, heartbeat, turn, access: &state.access },
        handle,
    ))
    .await
}

/// The interval of other nodes' heartbeats, while this node is not recovered.
#[cfg(feature = "cluster")]
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Handles an admitted request.
#[cfg(not(feature = "cluster"))]
async fn handle_here_or_elsewhere(
    _: &PipelineState,
    _: &'static Operation,
    request: ServiceRequest,
    caller: Option<Caller>,
    handle: impl AsyncFn(ServiceRequest, Option<Caller>) -> Result<ServiceResponse, Error>,
    _: &Turn,
) -> Result<ServiceResponse, Error> {
    handle(request, caller).await
}

/// Counts a request that matches no operation. Returns the response if it is refused.
pub(in crate::http) fn refused_nowhere(request: &HttpRequest) -> Option<HttpResponse> {
    request.extensions_mut().insert(Open);
    let state = request.app_data::<Data<PipelineState>>()?;
    state.open_paths.enter(request.peer_addr()).err().map(|problem| nowhere(request, &problem))
}

/// Refuses a request that matches no operation.
pub(in crate::http) fn nowhere(request: &HttpRequest, problem: &Problem) -> HttpResponse {
    let began = Instant::now();
    let mut answer = problem.error_response();
    cors::add_headers(request, answer.headers_mut());
    let id = given_id(request).unwrap_or_else(new_id);
    if let Some(state) = request.app_data::<Data<PipelineState>>() {
        state.note_refused(None, problem.code(), answer.status(), &id);
        state.requests.count_nowhere(answer.status(), began.elapsed());
    }
    answer.headers_mut().insert(REQUEST_ID, id);
    answer
}

/// Tracks a request until it is answered. If the client disconnects before that, the server drops the request's future and this guard,
/// which then counts the request as abandoned.
struct RequestInProgress<'a> {
    state: &'a PipelineState,
    pipeline: Pipeline,
    began: Instant,
    is_answered: bool,
}

impl Drop for RequestInProgress<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let (Pipeline { nth, operation }, took) = (self.pipeline, self.began.elapsed());
        self.state.requests.count_gone(nth, took);
        if self.state.is_slow(operation, took) {
            let took_ms = took.as_millis() as u64;
            warn!(operation = operation.name, took_ms, "a client disconnected before the response");
            self.state.note_slow(self.pipeline.operation, took, None);
        }
    }
}

/// The reservation and the permit of a request, held until the handler has answered.
struct Admitted {
    /// The caller, or `None` if the operation needs no credentials.
    caller: Option<Caller>,
    client: Client,
    /// True if the caller may see the internal details of failures.
    shows_failures: bool,
    turn: Rc<Turn>,
    _body: Option<Reservation>,
}

/// Admits a request to its handler and reads its body. Reserves the work permit only after the body is read, because it may arrive
/// slowly.
async fn admit(
    state: &PipelineState,
    operation: &Operation,
    request: &mut ServiceRequest,
) -> Result<Admitted, Problem> {
    // For an upgrade request, the parser treats all further data of the connection as the body, whatever its declared length.
    let is_upgrade = is_websocket(request.headers());
    if is_upgrade && (operation.work != WorkKind::Live || request.headers().contains_key(TRANSFER_ENCODING)) {
        return Err(Problem::bad("invalid_upgrade", "not a WebSocket endpoint: remove the Upgrade header").closing());
    }
    // Unauthorized requests are refused before they reserve any capacity.
    if operation.needs == Needs::Nothing {
        request.extensions_mut().insert(Open);
        state.open_paths.enter(request.peer_addr())?;
    }
    let mut entered = enter(state, operation, request, Counted::NotYet);
    if starting::should_wait(&state.engine_cell, operation, request, entered.as_ref().err()) {
        // Boxed, so that the futures of other requests are not larger.
        Box::pin(starting::wait(state, request.peer_addr())).await?;
        entered = enter(state, operation, request, Counted::Before);
    }
    let (caller, admission) = entered?;
    if caller.as_ref().is_some_and(Caller::is_known) {
        request.conn_data::<Arc<ConnectionState>>().into_iter().for_each(|connection| connection.mark_authenticated());
    }
    let client = client_of(caller.as_ref(), request.peer_addr());
    let shows_failures = caller.as_ref().is_some_and(|caller| !caller.is_user());
    admission.may_answer(operation.work, client)?;
    let bytes_max = operation.body_bytes_max();
    let length = length(request).unwrap_or(bytes_max);
    if bytes_max > 0 && length > bytes_max {
        return Err(body::too_large(bytes_max));
    }
    // Checked first, so that the server does not read the body of a request that it would refuse anyway.
    admission.check(operation.work)?;
    let length = length.min(bytes_max);
    let mut reservation = None;
    if length > 0 {
        body::check_encoding(request.headers())?;
        reservation = Some(admission.receive(client, length)?);
        if request.head().expect() {
            // The client sends the body only after it receives `100 Continue`, which is sent now.
            request.conn_data::<Arc<ConnectionState>>().into_iter().for_each(|connection| connection.ask_for_body());
        }
        let read = body::read(&mut request.take_payload(), length, &state.pace).await?;
        request.extensions_mut().insert(RequestBody(read));
    }
    let turn = Turn::begin(admission, operation.work, client)?;
    request.extensions_mut().insert(Rc::clone(&turn));
    Ok(Admitted { caller, client, shows_failures, turn, _body: reservation })
}

/// Authenticates a request. Returns its caller, and the limits on its work: requests from other nodes have limits of their own.
fn enter<'a>(
    state: &'a PipelineState,
    operation: &Operation,
    request: &mut ServiceRequest,
    counted: Counted,
) -> Result<(Option<Caller>, &'a Arc<Admission>), Problem> {
    #[cfg(feature = "cluster")]
    if let Some(peers) = &state.peers
        && operation.needs != Needs::Nothing
        && let Some((role, caller)) = peers.cluster().enter(request)?
    {
        let admission = peers.cluster().admission();
        request.extensions_mut().insert(role);
        if let Some(connection) = request.conn_data::<Arc<ConnectionState>>() {
            connection.mark_authenticated();
            connection.mark_of_node();
        }
        return Ok((Some(caller), admission));
    }
    Ok((state.access.enter(operation, request, state.engine_cell.engine(), counted)?, &state.admission))
}

/// Returns the declared length of the body; `None` for a chunked body.
fn length(request: &ServiceRequest) -> Option<usize> {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    // A chunked body may have any length. A body without a length and without chunks is empty.
    length.or_else(|| (!request.headers().contains_key(TRANSFER_ENCODING)).then_some(0))
}

/// Reserves the bytes of a large response until they are sent, or replaces the response by a refusal. Compresses it after that, because
/// the uncompressed response occupies memory meanwhile.
async fn guard_response(
    state: &PipelineState,
    admission: &Arc<Admission>,
    work: WorkKind,
    client: Client,
    response: ServiceResponse,
) -> ServiceResponse {
    let bytes = match response.response().body().size() {
        BodySize::Sized(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        BodySize::None | BodySize::Stream => 0,
    };
    // The body of a response to `HEAD` is not sent.
    let is_large = bytes > RESPONSE_PIECE_BYTES && response.request().method() != Method::HEAD;
    let reservation = if is_large { admission.answer(work, client, bytes) } else { Ok(None) };
    let reservation = match reservation {
        Ok(reservation) => reservation,
        Err(problem) => return ServiceResponse::from_err(problem, response.request().clone()),
    };
    let (response, reservation) = compression::compressed(response, reservation, state.compress_min_bytes).await;
    if !is_large {
        return response;
    }
    response.map_body(|_, body| response_guard::body(body, reservation, state.pace))
}

/// Returns the problem code of a response, if the response is a problem.
fn refusal(response: &ServiceResponse) -> Option<&'static str> {
    response.response().error()?.as_error::<Problem>().map(Problem::code)
}

/// Returns the request's id as the client set it, if it is valid.
fn given_id(request: &HttpRequest) -> Option<HeaderValue> {
    let id = request.headers().get(&REQUEST_ID)?;
    let is_good = (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    is_good.then(|| id.clone())
}

fn new_id() -> HeaderValue {
    let id = format!("{:032x}", fastrand::u128(..));
    HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("none"))
}

fn log_request(
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
