//! The door: what every request passes on its way to its handler.
//!
//! Responsible for:
//! - the order of it: a handler runs only once the request was let in.
//!
//! Not responsible for:
//! - what an operation needs (`api::operation`), and doing it.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::rc::Rc;

use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::http::StatusCode;
use actix_web::http::header::CONTENT_LENGTH;
use actix_web::web::Data;
use actix_web::{Error, ResponseError};

use crate::api::Api;
use crate::api::access::cors;
use crate::api::admission::Permit;
use crate::api::operation::Operation;
use crate::api::problem::Problem;

/// The door to an operation.
pub(super) struct Door(pub(super) &'static Operation);

/// What stands behind a door.
pub(super) struct Behind<S> {
    operation: &'static Operation,
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

async fn pass<S>(operation: &'static Operation, handler: &S, request: ServiceRequest) -> Result<ServiceResponse, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse, Error = Error>,
{
    let mut answered = match enter(operation, &request) {
        Ok(_permit) => handler.call(request).await?,
        Err(problem) => request.into_response(problem.error_response()),
    };
    cors::tell(&mut answered);
    Ok(answered)
}

/// Whether a request may go on to its handler.
fn enter(operation: &Operation, request: &ServiceRequest) -> Result<Permit, Problem> {
    let Some(api) = request.app_data::<Data<Api>>() else {
        return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server was put together wrongly"));
    };
    // Who may not come in takes no room.
    api.access.enter(operation, request)?;
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    api.admission.enter(operation.work, length)
}
