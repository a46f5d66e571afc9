//! Request spans for an OpenTelemetry collector: OTLP over HTTP, with the feature `otel` only.
//!
//! All data of a span is known when the request ends, so nothing is stored while the request is handled.

use std::env;
use std::fmt;
use std::time::{Duration, SystemTime};

use actix_web::dev::ServiceResponse;
use actix_web::http::header::{HeaderMap, HeaderName};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::http::operation::Operation;

/// The environment variables that name a collector. Spans are recorded only if one of them is set.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Maximum time for the export of one batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time for the last export at shutdown.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The exporter of spans. Clones share the exporter.
#[derive(Clone)]
pub struct Spans {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spans")
    }
}

impl Spans {
    /// Creates the exporter that the environment configures, or `None` if the environment names no collector.
    ///
    /// # Errors
    /// Fails if the settings in the environment are invalid.
    pub fn by_environment() -> Result<Option<Self>, String> {
        if ENDPOINTS.iter().all(|name| env::var_os(name).is_none_or(|value| value.is_empty())) {
            return Ok(None);
        }
        let agent =
            ureq::Agent::config_builder().timeout_global(Some(EXPORT_TIMEOUT)).http_status_as_error(false).build();
        let exporter = SpanExporter::builder().with_http().with_http_client(Client(agent.new_agent())).build();
        let exporter = exporter.map_err(|cause| format!("cannot send spans to a collector: {cause}"))?;
        let mut resource = Resource::builder();
        if env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("tidewire");
        }
        // The batch processor has its own thread, and a queue that drops spans when it is full.
        let provider =
            SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter).build();
        let tracer = provider.tracer("tidewire");
        Ok(Some(Self { provider, tracer }))
    }

    /// Records the span of a request that was answered after `took`.
    pub(in crate::http) fn record(&self, operation: &Operation, response: &ServiceResponse, took: Duration) {
        let (headers, status) = (response.request().headers(), response.status());
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
        let ended = SystemTime::now();
        let mut attributes = vec![
            KeyValue::new("tidewire.operation", operation.name),
            KeyValue::new("http.request.method", response.request().method().to_string()),
            KeyValue::new("http.route", operation.path),
            KeyValue::new("http.response.status_code", i64::from(status.as_u16())),
        ];
        let id = response.headers().get(HeaderName::from_static("x-request-id")).and_then(|id| id.to_str().ok());
        attributes.extend(id.map(|id| KeyValue::new("tidewire.request_id", id.to_owned())));
        let span = self.tracer.span_builder(operation.name).with_kind(SpanKind::Server).with_attributes(attributes);
        let span = span.with_start_time(ended.checked_sub(took).unwrap_or(ended));
        let mut span = span.start_with_context(&self.tracer, &parent);
        if status.is_server_error() {
            span.set_status(Status::error(status.to_string()));
        }
        span.end_with_timestamp(ended);
    }

    /// Exports the remaining spans. No spans are accepted after that.
    pub fn shutdown(&self) {
        if let Err(cause) = self.provider.shutdown_with_timeout(LAST_EXPORT_TIMEOUT) {
            tracing::warn!("could not export the last spans to the collector: {cause}");
        }
    }
}

/// The headers of a request, for reading the trace context.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

/// The HTTP client that sends batches. It blocks the thread of the batch processor, which does nothing else.
#[derive(Debug)]
struct Client(ureq::Agent);

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let response = self.0.run(Request::from_parts(head, &body[..]))?;
        let (head, mut body) = response.into_parts();
        Ok(Response::from_parts(head, body.read_to_vec()?.into()))
    }
}
