//! HTTP for S3: reuses the HTTP client of the server, so that no second one is linked.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use ureq::Agent;

use crate::backup::OBJECT_BYTES_MAX;

/// Maximum time of one request with its body. It suffices for a part at about a megabit per second.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects `object_store` to the HTTP client of this server.
#[derive(Debug)]
pub(super) struct UreqConnector;

impl HttpConnector for UreqConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let agent = Agent::config_builder()
            .https_only(!allows_http)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(REQUEST_TIMEOUT))
            .build();
        Ok(HttpClient::new(Client(agent.new_agent())))
    }
}

#[derive(Debug)]
struct Client(Agent);

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let agent = self.0.clone();
        let send = move || {
            let answer = agent.run(ureq::http::Request::from_parts(head, &body[..]))?;
            let (head, mut body) = answer.into_parts();
            let body = body.with_config().limit(OBJECT_BYTES_MAX).read_to_vec()?;
            Ok(ureq::http::Response::from_parts(head, body.into()))
        };
        let sent = tokio::task::spawn_blocking(send).await;
        sent.map_err(|cause| HttpError::new(HttpErrorKind::Unknown, cause))?.map_err(failed)
    }
}

fn failed(cause: ureq::Error) -> HttpError {
    let kind = match &cause {
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => HttpErrorKind::Connect,
        ureq::Error::Io(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => HttpErrorKind::Connect,
        ureq::Error::Io(_) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, cause)
}
