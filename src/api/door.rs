//! The door: what every request passes on its way to its handler.
//!
//! Responsible for:
//! - the order of it: a handler runs only once the request was let in;
//! - the request's id, and telling of what went wrong or took long.
//!
//! Not responsible for:
//! - what an operation needs (`api::operation`), and doing it.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use actix_web::web::Data;
use actix_web::{Error, ResponseError};
use tracing::warn;

use crate::api::Api;
use crate::api::access::cors;
use crate::api::admission::Permit;
use crate::api::operation::{OPERATIONS, Operation, Work};
use crate::api::problem::Problem;

/// By which a request is found again in logs.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id that is taken from a client.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The door to the operation that has this place in the table.
pub(super) struct Door(pub(super) usize);

/// What stands behind a door.
pub(super) struct Behind<S> {
    operation: usize,
    handler: Rc<S>,
}

impl<S> Transform<S, ServiceRequest> for Door
where
    S: Service<ServiceRequest, Response = ServiceResponse, Error = Error> + 'static,
{
    type Response = ServiceResponse;
    type Error = Error;
    type Transform = Behind<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, handler: S) -> Self::Future {
        ready(Ok(Behind { operation: self.0, handler: Rc::new(handler) }))
    }
}

impl<S> Service<ServiceRequest> for Behind<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse, Error = Error> + 'static,
{
    type Response = ServiceResponse;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<ServiceResponse, Error>>>>;

    actix_web::dev::forward_ready!(handler);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let (operation, handler) = (self.operation, Rc::clone(&self.handler));
        Box::pin(async move { pass(operation, &*handler, request).await })
    }
}

async fn pass<S>(nth: usize, handler: &S, request: ServiceRequest) -> Result<ServiceResponse, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse, Error = Error>,
{
    let (began, operation) = (Instant::now(), &OPERATIONS[nth]);
    let Some(api) = request.app_data::<Data<Api>>().cloned() else {
        let problem = Problem::internal(&"the server was put together wrongly");
        return Ok(request.into_response(problem.error_response()));
    };
    let mut response = match enter(&api, operation, &request) {
        Ok(_permit) => handler.call(request).await?,
        Err(problem) => request.into_response(problem.error_response()),
    };
    cors::tell(&mut response);
    let (status, took) = (response.status(), began.elapsed());
    api.requests.count(nth, status, took);
    let is_slow = took >= api.slow && operation.work != Work::Live;
    let is_fault = status == StatusCode::INTERNAL_SERVER_ERROR;
    let given = given_id(&response);
    // Of what went well nothing is to be found again, unless the client wants to.
    if given.is_some() || is_slow || status.is_server_error() || status.is_client_error() {
        let id = given.unwrap_or_else(new_id);
        if is_slow || is_fault {
            tell(if is_fault { "a request failed" } else { "a slow request" }, operation, &response, took, &id);
        }
        response.headers_mut().insert(REQUEST_ID, id);
    }
    #[cfg(feature = "otel")]
    api.spans.iter().for_each(|spans| spans.tell(operation, &response, took));
    Ok(response)
}

/// Whether a request may go on to its handler.
fn enter(api: &Api, operation: &Operation, request: &ServiceRequest) -> Result<Permit, Problem> {
    // It would have all that follows on the connection as its body, whatever it says of its length.
    let is_upgrade = request.headers().get(UPGRADE).is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if is_upgrade && operation.work != Work::Live {
        return Err(Problem::bad("invalid_upgrade", "this is no WebSocket: leave out the header Upgrade").closing());
    }
    // Who may not come in takes no room.
    api.access.enter(operation, request)?;
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    // In parts a body may have any length; otherwise one without a length has none.
    let length = length.or_else(|| (!request.headers().contains_key(TRANSFER_ENCODING)).then_some(0));
    api.admission.enter(operation.work, length)
}

/// The id that came with a request, if it is a good one.
fn given_id(response: &ServiceResponse) -> Option<HeaderValue> {
    let id = response.request().headers().get(&REQUEST_ID)?;
    let is_good = (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    is_good.then(|| id.clone())
}

fn new_id() -> HeaderValue {
    let id = format!("{:032x}", fastrand::u128(..));
    HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("none"))
}

fn tell(what: &str, operation: &Operation, response: &ServiceResponse, took: Duration, id: &HeaderValue) {
    let (request, status) = (response.request(), response.status().as_u16());
    warn!(
        operation = operation.name,
        method = %request.method(),
        path = request.path(),
        status,
        took_ms = took.as_millis() as u64,
        request_id = id.to_str().unwrap_or_default(),
        "{what}"
    );
}
