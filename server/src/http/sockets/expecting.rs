//! Requests whose client waits with the body for `100 Continue` of the server (`Expect: 100-continue`).
//!
//! By default, the dispatcher requests every body before the application has seen the request. It calls a service before that and, if the
//! service fails, sends the service's error as the response. So here the application answers the whole request as such an "error", and
//! requests the body itself if it needs it ([`super::connection_slots::connection_state::ConnectionState::ask_for_body`]).

use std::fmt;
use std::rc::Rc;

use actix_http::{Request, Response};
use actix_service::{IntoServiceFactory, fn_factory, fn_service};
use actix_web::Error;
use actix_web::body::BoxBody;
use actix_web::dev::{AppConfig, Service, ServiceFactory, ServiceResponse};

/// The response of the application to such a request.
#[derive(Debug)]
pub(in crate::http) struct Answered(Response<BoxBody>);

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answered with {}", self.0.status())
    }
}

impl From<Answered> for Response<BoxBody> {
    fn from(Answered(response): Answered) -> Self {
        response
    }
}

/// Answers such requests with an application that `app` creates for each worker.
pub(in crate::http) fn expecting<A, F, S>(
    app: A,
) -> impl ServiceFactory<
    Request,
    Config = (),
    Response = Request,
    Error = Answered,
    InitError = (),
    Future: 'static,
    Service = impl Service<Request, Response = Request, Error = Answered, Future: 'static> + 'static,
> + 'static
where
    A: Fn() -> F + 'static,
    F: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig, Response = ServiceResponse, Error = Error, InitError = ()> + 'static,
{
    fn_factory(move || {
        let app = app().into_factory().new_service(AppConfig::default());
        async move {
            let app = Rc::new(app.await?);
            Ok(fn_service(move |request: Request| {
                let app = Rc::clone(&app);
                async move {
                    let answered = app.call(request).await;
                    let response =
                        answered.map_or_else(|cause| cause.error_response(), |answered| answered.into_parts().1);
                    Err::<Request, _>(Answered(response.into()))
                }
            }))
        }
    })
}
