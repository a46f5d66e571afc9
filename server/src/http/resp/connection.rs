//! One connection: executes its commands in order, and sends the replies of a pipeline together.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use actix_http::{BoxedPayloadStream, Payload, Request as HttpRequest};
use actix_server::GracefulShutdownSignal;
use actix_service::{IntoServiceFactory, Service, ServiceFactory, fn_factory, fn_service};
use actix_web::body::{BodySize, BoxBody, MessageBody, to_bytes_limited};
use actix_web::dev::{AppConfig, ServiceResponse};
use actix_web::http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use actix_web::http::{self, StatusCode, Uri};
use actix_web::rt::time::timeout;
use actix_web::web::{Buf, Bytes, BytesMut};
use actix_web::{Error, HttpResponse, ResponseError as _};
use futures_util::future::{Either, FutureExt as _, select};
use futures_util::stream;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tracing::warn;

use crate::http::admission::Reservation;
use crate::http::auth::Caller;
use crate::http::auth::caller::client_of;
use crate::http::handlers::page_query::PageQuery;
use crate::http::middleware::pipeline_state::PipelineState;
use crate::http::middleware::response_guard;
use crate::http::operation::{Needs, Right};
use crate::http::problem::Problem;
use crate::http::resp::commands::{FeedCommand, Request, Target, get};
use crate::http::resp::protocol::{COMMAND_BYTES_MAX, Limits, Parser, ProtocolError};
use crate::http::resp::replies::{Replies, Version};
use crate::http::resp::session::{Effect, Hello, Login, Session};
use crate::http::resp::subscriptions::{self, Subscriptions};
use crate::http::routes::feed_of_command;
use crate::http::sockets::connection_slots::connection_state::{ConnectionState, UnderWay};
use tidewire::limits::{FEEDS_ANSWER_BYTES, UNREAD_BYTES_MAX};
use tidewire::throttle::Throttle;

/// Bytes of replies that are sent before further commands of a pipeline are executed.
const REPLIES_BYTES: usize = 64 * 1024;

/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// Maximum bytes of JSON that is replied as values of the protocol, which take several times its memory.
const ARRAY_BYTES_MAX: usize = 1024 * 1024;

/// Maximum bytes of a response of another node, whose length is not known before.
const COLLECTED_BYTES_MAX: usize = 2 * FEEDS_ANSWER_BYTES;

/// Maximum time from the first byte of a command to its last.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(30);

/// Maximum time for a client to receive the last replies of a connection that the server closes.
const LINGER: Duration = Duration::from_secs(1);

/// The commands that a connection of RESP2 accepts while it has subscriptions.
const SUBSCRIBED: &[&str] = &["SUBSCRIBE", "UNSUBSCRIBE", "PING", "RESET", "QUIT"];

/// The record of the log that a response of a cluster contains, and the header that makes a later read wait for it.
const SEQUENCE: HeaderName = HeaderName::from_static("tidewire-sequence");
const AFTER: HeaderName = HeaderName::from_static("tidewire-after");

/// Logs clients that speak HTTP, at most one line in a while.
static HTTP_LOGGED: Throttle = Throttle::new();

/// The number of the next connection.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The input of the connection that reads: idle connections hold no memory for it.
    static INPUT: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// The parts of the server that connections need in addition to the application.
#[derive(Clone)]
pub(in crate::http) struct RespContext {
    pub(in crate::http) pipeline: Arc<PipelineState>,
    pub(in crate::http) stopping: GracefulShutdownSignal,
    /// The number of connections that are kept while they are idle, and its maximum.
    pub(in crate::http) kept: Arc<AtomicUsize>,
    pub(in crate::http) kept_max: usize,
}

/// A socket with the state of its connection and the address of its client.
pub(in crate::http) type Accepted<T> = (T, Arc<ConnectionState>, Option<SocketAddr>);

/// Creates the service of connections. Each worker answers their commands with an application of its own.
pub(in crate::http) fn serve<T, A, F, S, B>(
    app: A,
    context: RespContext,
) -> impl ServiceFactory<Accepted<T>, Config = (), Response = (), Error = io::Error, InitError = ()>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
    A: Fn() -> F + 'static,
    F: IntoServiceFactory<S, HttpRequest>,
    S: ServiceFactory<
            HttpRequest,
            Config = AppConfig,
            Response = ServiceResponse<B>,
            Error = Error,
            InitError = (),
            Service: 'static,
        > + 'static,
    B: MessageBody + 'static,
{
    fn_factory(move || {
        let (app, context) = (app().into_factory().new_service(AppConfig::default()), context.clone());
        async move {
            let app = Rc::new(app.await?);
            Ok(fn_service(move |(socket, connection, peer): Accepted<T>| {
                let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
                let connection = RespConnection {
                    app: Rc::clone(&app),
                    context: context.clone(),
                    peer,
                    session: Session::new(number),
                    replies: Replies::default(),
                    connection,
                    idle_guard: None,
                    sequence: None,
                    subscriptions: Subscriptions::new(),
                    subscribed: None,
                    reservation: None,
                };
                connection.run(socket)
            }))
        }
    })
}

/// A connection and its state.
struct RespConnection<S, B> {
    app: Rc<S>,
    context: RespContext,
    peer: Option<SocketAddr>,
    session: Session,
    replies: Replies,
    connection: Arc<ConnectionState>,
    /// Protects the connection of an authenticated client from being closed as idle: clients keep connections in pools.
    idle_guard: Option<IdleGuard>,
    /// The last record of a cluster's log that a response contained: later reads see it.
    sequence: Option<u64>,
    subscriptions: Subscriptions<B>,
    /// Protects a connection with subscriptions from being closed as idle.
    subscribed: Option<UnderWay>,
    /// Reserves the memory of an incomplete large command.
    reservation: Option<Reservation>,
}

/// Counts a connection that is kept while it is idle.
struct IdleGuard {
    kept: Arc<AtomicUsize>,
    _under_way: UnderWay,
}

impl Drop for IdleGuard {
    fn drop(&mut self) {
        self.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of reading a command.
enum Next {
    /// The reply is written.
    Replied,
    /// The client sent a key, by `AUTH` or with `HELLO`.
    Authenticates(String, Option<Hello>),
    /// The application answers.
    Request(Request),
    /// The client subscribes to these channels.
    Subscribes(Vec<String>),
    /// The connection ends.
    Ends,
}

impl<S, B> RespConnection<S, B>
where
    S: Service<HttpRequest, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody,
{
    /// Executes commands until the client or the server ends the connection.
    async fn run<T: AsyncRead + AsyncWrite + Unpin>(mut self, mut socket: T) -> io::Result<()> {
        let stopping = self.context.stopping.clone();
        let mut stopping = pin!(stopping.notified());
        let (mut input, mut parser, mut incomplete_since) = (BytesMut::new(), Parser::default(), None);
        loop {
            let received = input.len();
            let stays_open = self.execute_all(&mut input, &mut parser, &mut socket).await?;
            // Here as well, because there may always be another command to read.
            let messages = self.subscriptions.write_next(&mut self.replies, REPLIES_BYTES).now_or_never();
            self.send(&mut socket).await?;
            if !stays_open || messages == Some(false) {
                return close(&mut socket).await;
            }
            incomplete_since = begun(incomplete_since, received, input.len(), Instant::now());
            let (subscriptions, replies) = (&mut self.subscriptions, &mut self.replies);
            let goes_on = {
                let reading = pin!(async {
                    let reading = read(&mut socket, &mut input);
                    match incomplete_since {
                        // Without a timer: a connection may be idle for long.
                        None => Ok(reading.await),
                        Some(since) => timeout(COMMAND_TIME_MAX.saturating_sub(since.elapsed()), reading).await,
                    }
                });
                let messages = pin!(subscriptions.write_next(replies, REPLIES_BYTES));
                match select(&mut stopping, select(reading, messages)).await {
                    Either::Right((Either::Left((Ok(read), _)), _)) => read? > 0,
                    Either::Right((Either::Right((goes_on, _)), _)) => goes_on,
                    // The server stops, or the rest of a command does not come.
                    Either::Right((Either::Left((Err(_), _)), _)) | Either::Left(_) => false,
                }
            };
            if !goes_on {
                self.send(&mut socket).await?;
                return close(&mut socket).await;
            }
        }
    }

    /// Executes all complete commands of the input. Returns false if the connection ends.
    async fn execute_all<T: AsyncWrite + Unpin>(
        &mut self,
        input: &mut BytesMut,
        parser: &mut Parser,
        socket: &mut T,
    ) -> io::Result<bool> {
        loop {
            let is_trusted = self.session.login.is_some() || self.context.pipeline.access.is_open();
            let limits = if is_trusted { Limits::FULL } else { Limits::UNAUTHENTICATED };
            let length = match parser.parse(input, limits) {
                Ok(Some(length)) => length,
                Ok(None) => return Ok(self.reserve(input).await),
                Err(ProtocolError::Http) => {
                    if let Some(left_out) = HTTP_LOGGED.due() {
                        let peer = self.peer.map_or_else(String::new, |peer| peer.to_string());
                        warn!(
                            more_since_last = left_out,
                            peer, "closed a connection that speaks HTTP to the port of the Redis protocol"
                        );
                    }
                    return Ok(false);
                }
                Err(cause) => {
                    self.replies.error("ERR", format_args!("Protocol error: {cause}"));
                    return Ok(false);
                }
            };
            if is_trusted {
                self.keep_idle();
            }
            let next = self.next(&mut parser.words(input));
            input.advance(length);
            if self.reservation.take().is_some() {
                // Releases the memory of the command as well.
                *input = BytesMut::from(&input[..]);
            }
            match next {
                Next::Replied => {}
                Next::Authenticates(key, hello) => self.authenticate(key, hello).await,
                Next::Request(request) => self.answer(request, socket).await?,
                Next::Subscribes(channels) => self.subscribe(channels, socket).await?,
                Next::Ends => return Ok(false),
            }
            if self.replies.bytes.len() >= REPLIES_BYTES {
                self.send(socket).await?;
            }
        }
    }

    /// Reserves the memory of a large command before its rest is read. Returns false if the command is refused: then the connection ends,
    /// because commands behind it might depend on it.
    async fn reserve(&mut self, input: &mut BytesMut) -> bool {
        if input.len() <= READ_BYTES {
            if input.is_empty() {
                // An idle connection holds no memory for input.
                *input = BytesMut::new();
            }
            return true;
        }
        if self.reservation.is_none() {
            let caller = self.session.login.as_ref().map(|login| &login.caller);
            match self.context.pipeline.admission.receive(client_of(caller, self.peer), COMMAND_BYTES_MAX) {
                Ok(reservation) => self.reservation = Some(reservation),
                Err(problem) => {
                    self.refuse_with(problem.error_response()).await;
                    return false;
                }
            }
        }
        true
    }

    async fn send<T: AsyncWrite + Unpin>(&mut self, socket: &mut T) -> io::Result<()> {
        if self.replies.bytes.is_empty() {
            return Ok(());
        }
        socket.write_all(&self.replies.bytes).await?;
        self.replies.bytes = Vec::new();
        socket.flush().await
    }

    /// Replies to a command at once, or returns what it asks for.
    fn next(&mut self, words: &mut dyn Iterator<Item = &[u8]>) -> Next {
        // An empty command has no reply.
        let Some(name) = words.next() else { return Next::Replied };
        // In RESP2 a client cannot tell messages from replies.
        let is_limited = !self.subscriptions.is_empty() && self.replies.version == Version::Two;
        if is_limited && !SUBSCRIBED.iter().any(|allowed| name.eq_ignore_ascii_case(allowed.as_bytes())) {
            let name = String::from_utf8_lossy(name);
            let allowed = "only SUBSCRIBE, UNSUBSCRIBE, PING, RESET and QUIT, or any after HELLO 3";
            self.replies.error("ERR", format_args!("'{name}' is not allowed while subscribed: {allowed}"));
            return Next::Replied;
        }
        if let Some(command) = FeedCommand::find(name) {
            return match command.request(words) {
                Ok(request) => Next::Request(request),
                Err(cause) => {
                    self.replies.error("ERR", format_args!("{cause}; syntax: {} {}", command.name, command.syntax));
                    Next::Replied
                }
            };
        }
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let words: Vec<&[u8]> = words.collect();
        if let ("PING", true, [] | [_]) = (&*name, is_limited, &words[..]) {
            self.replies.array(2);
            self.replies.bulk("pong");
            self.replies.bulk(words.first().copied().unwrap_or_default());
            return Next::Replied;
        }
        // The text of these may be any bytes.
        if let ("PING" | "ECHO", [text]) = (&*name, &words[..]) {
            self.replies.bulk(text);
            return Next::Replied;
        }
        let Ok(words) = words.into_iter().map(str::from_utf8).collect::<Result<Vec<_>, _>>() else {
            self.replies.error("ERR", format_args!("'{name}' has a word that is not UTF-8"));
            return Next::Replied;
        };
        match (&*name, &words[..]) {
            ("SUBSCRIBE", [_, ..]) => return Next::Subscribes(words.iter().map(|word| (*word).to_owned()).collect()),
            ("UNSUBSCRIBE", channels) => {
                self.subscriptions.remove(channels, &mut self.replies);
                if self.subscriptions.is_empty() {
                    self.subscribed = None;
                }
                return Next::Replied;
            }
            _ => {}
        }
        let is_ready = self.context.pipeline.engine_cell.engine().is_some();
        match self.session.answer(&name, &words, is_ready, &mut self.replies) {
            Effect::Replied => {}
            Effect::Ends => return Next::Ends,
            Effect::Reset => {
                self.forget_key();
                self.subscriptions.clear();
                self.subscribed = None;
            }
            Effect::Authenticates(key, hello) => return Next::Authenticates(key, hello),
            Effect::Other => self.replies.error("ERR", format_args!("unknown command '{name}'")),
        }
        Next::Replied
    }

    async fn authenticate(&mut self, key: String, hello: Option<Hello>) {
        let PipelineState { engine_cell, access, .. } = &*self.context.pipeline;
        let Some(engine) = engine_cell.engine() else {
            return self.replies.error("LOADING", "the server is recovering its data");
        };
        match access.identify(&key, Needs::Server(Right::Read), "", self.peer, engine) {
            // A server without keys accepts any.
            Ok(Caller::Anybody) => {}
            Ok(caller) => self.session.login = Some(Login { key, caller }),
            Err(denial) => {
                let response = Problem::from(denial).error_response();
                let head = Head::of(response.status(), response.headers());
                let body = collected(response.into_body()).await.unwrap_or_default();
                return self.refuse(&head, &body, "WRONGPASS");
            }
        }
        self.keep_idle();
        match hello {
            Some(hello) => self.session.greet(hello, &mut self.replies),
            None => self.replies.status("OK"),
        }
    }

    /// Keeps the connection while it is idle, unless many are kept already: then it may be closed for another one, as one of HTTP.
    fn keep_idle(&mut self) {
        if self.idle_guard.is_some() {
            return;
        }
        self.connection.mark_authenticated();
        let kept = &self.context.kept;
        if kept.fetch_add(1, Ordering::Relaxed) >= self.context.kept_max {
            kept.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let guard =
            self.connection.begin().map(|under_way| IdleGuard { kept: Arc::clone(kept), _under_way: under_way });
        if guard.is_none() {
            kept.fetch_sub(1, Ordering::Relaxed);
        }
        self.idle_guard = guard;
    }

    fn forget_key(&mut self) {
        self.session.login = None;
        self.idle_guard = None;
    }

    /// Subscribes to channels. Ends at the first one that is refused: clients expect no reply after an error.
    ///
    /// # Errors
    /// Fails if the client cannot receive the replies.
    async fn subscribe<T: AsyncWrite + Unpin>(&mut self, channels: Vec<String>, socket: &mut T) -> io::Result<()> {
        if let Err(cause) = self.subscriptions.check(&channels) {
            self.replies.error("ERR", cause);
            return Ok(());
        }
        for channel in channels {
            if let Some(path) = subscriptions::target(&channel).filter(|_| !self.subscriptions.contains(&channel)) {
                if self.subscribed.is_none() {
                    self.subscribed = Some(self.connection.begin().ok_or(io::ErrorKind::ConnectionAborted)?);
                }
                let Some(body) = self.respond(get(path)).await else { break };
                self.subscriptions.add(&channel, body);
            }
            self.subscriptions.confirm(&channel, &mut self.replies);
            if self.replies.bytes.len() >= REPLIES_BYTES {
                self.send(socket).await?;
            }
        }
        if self.subscriptions.is_empty() {
            self.subscribed = None;
        }
        Ok(())
    }

    /// Answers a request as the application does.
    ///
    /// # Errors
    /// Fails if the client cannot receive the reply, or only a part of it can be read.
    async fn answer<T: AsyncWrite + Unpin>(&mut self, request: Request, socket: &mut T) -> io::Result<()> {
        // The connection was closed for another one: the client sends the command again.
        let Some(_under_way) = self.connection.begin() else { return Err(io::ErrorKind::ConnectionAborted.into()) };
        let as_array = request.as_array;
        if let Target::Feed(query) = &request.target
            && let Some(answer) = AssertUnwindSafe(self.page(query)).catch_unwind().await.unwrap_or_default()
        {
            match answer {
                Ok((page, None)) => self.reply(page.as_bytes(), as_array),
                Ok((page, reservation)) => {
                    let body = response_guard::body(BoxBody::new(page), reservation, self.context.pipeline.pace);
                    return self.reply_with(body, as_array, socket).await;
                }
                Err(problem) => self.refuse_with(problem.error_response()).await,
            }
            return Ok(());
        }
        match self.respond(request).await {
            Some(body) => self.reply_with(body, as_array, socket).await,
            None => Ok(()),
        }
    }

    /// Replies with the body of a response.
    async fn reply_with<T: AsyncWrite + Unpin>(
        &mut self,
        body: impl MessageBody,
        as_array: bool,
        socket: &mut T,
    ) -> io::Result<()> {
        match body.size() {
            BodySize::None | BodySize::Sized(0) => self.replies.status("OK"),
            BodySize::Sized(bytes) if !as_array => return self.pass_on(body, bytes, socket).await,
            _ => match collected(body).await {
                None => self.replies.error("ERR", "the response of another node is incomplete or too large"),
                Some(body) => self.reply(&body, as_array),
            },
        }
        Ok(())
    }

    /// Returns the body of the application's response, or refuses the command.
    async fn respond(&mut self, request: Request) -> Option<B> {
        let request = match self.http_request(request) {
            Ok(request) => request,
            Err(cause) => {
                self.replies.error("ERR", cause);
                return None;
            }
        };
        let response = match AssertUnwindSafe(self.app.call(request)).catch_unwind().await {
            Ok(Ok(response)) => response,
            Ok(Err(cause)) => {
                self.refuse_with(cause.error_response()).await;
                return None;
            }
            Err(_) => {
                self.replies.error("INTERNAL", "the command failed; the log of the server has the cause");
                return None;
            }
        };
        let sequence = response.headers().get(SEQUENCE);
        self.sequence = sequence.and_then(|sequence| sequence.to_str().ok()?.parse().ok()).max(self.sequence);
        let response = HttpResponse::from(response);
        if response.status().is_success() {
            return Some(response.into_body());
        }
        self.refuse_with(response).await;
        None
    }

    /// Replies with the problem of a response. A key that is not valid any more is forgotten.
    async fn refuse_with(&mut self, response: HttpResponse<impl MessageBody>) {
        let head = Head::of(response.status(), response.headers());
        let body = collected(response.into_body()).await.unwrap_or_default();
        if head.status == StatusCode::UNAUTHORIZED {
            self.forget_key();
        }
        self.refuse(&head, &body, "NOAUTH");
    }

    /// Reads a page without a request, unless the application has to answer.
    async fn page(&self, query: &PageQuery) -> Option<Result<(String, Option<Reservation>), Problem>> {
        let caller = self.session.login.as_ref().map_or(&Caller::Anybody, |login| &login.caller);
        feed_of_command(&self.context.pipeline, caller, self.peer, query).await
    }

    /// Replies with JSON, or with its values.
    fn reply(&mut self, json: &[u8], as_array: bool) {
        if !as_array {
            return self.replies.bulk(json);
        }
        if json.len() > ARRAY_BYTES_MAX {
            return self
                .replies
                .error("ERR", format_args!("a reply of {} bytes is too large for AS ARRAY", json.len()));
        }
        match serde_json::from_slice::<Value>(json) {
            Ok(value) => self.replies.json(&value),
            Err(cause) => self.replies.error("ERR", format_args!("cannot reply with AS ARRAY: {cause}")),
        }
    }

    /// Passes a response of known length on, and large pieces of it without a copy. A large one is reserved until the client has received it.
    async fn pass_on<T: AsyncWrite + Unpin>(
        &mut self,
        body: impl MessageBody,
        bytes: u64,
        socket: &mut T,
    ) -> io::Result<()> {
        self.replies.bulk_head(bytes);
        let mut body = pin!(body);
        while let Some(piece) = poll_fn(|task| body.as_mut().poll_next(task)).await {
            // The client waits for the rest, which does not come.
            let piece = piece.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
            if piece.len() < REPLIES_BYTES {
                self.replies.bytes.extend_from_slice(&piece);
            } else {
                let before = std::mem::take(&mut self.replies.bytes);
                socket.write_all_buf(&mut Buf::chain(&before[..], piece)).await?;
            }
            if self.replies.bytes.len() >= REPLIES_BYTES {
                self.send(socket).await?;
            }
        }
        self.replies.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Replies with a problem. `unauthenticated` is the code of Redis if the problem is the key.
    fn refuse(&mut self, head: &Head, body: &[u8], unauthenticated: &str) {
        #[derive(Deserialize)]
        struct Refused {
            code: String,
            detail: String,
        }

        if head.status == StatusCode::UNAUTHORIZED {
            return self.replies.error(unauthenticated, "send a valid server key by AUTH");
        }
        let Ok(Refused { code, detail }) = serde_json::from_slice(body) else {
            return self.replies.error("ERR", head.status);
        };
        match &head.retry_after {
            Some(seconds) => self.replies.error(&code, format_args!("{detail} (retry after {seconds} s)")),
            None => self.replies.error(&code, detail),
        }
    }

    /// Returns a request as it would come over HTTP.
    fn http_request(&self, request: Request) -> Result<HttpRequest, String> {
        let Request { method, target, body, after_sequence, .. } = request;
        let (mut http, length) = (HttpRequest::new(), body.len());
        if length > 0 {
            let body = Bytes::from(body);
            let payload: BoxedPayloadStream = Box::pin(stream::once(std::future::ready(Ok(body))));
            http = HttpRequest::with_payload(Payload::Stream { payload });
        }
        let head = http.head_mut();
        (head.method, head.version, head.peer_addr) = (method, http::Version::HTTP_11, self.peer);
        head.uri = Uri::try_from(target.into_path()).map_err(|cause| cause.to_string())?;
        head.headers.insert(HOST, HeaderValue::from_static("localhost"));
        if length > 0 {
            head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            head.headers.insert(CONTENT_LENGTH, length.into());
        }
        if let Some(Login { key, .. }) = &self.session.login {
            let key = HeaderValue::try_from(format!("Bearer {key}")).map_err(|cause| cause.to_string())?;
            head.headers.insert(AUTHORIZATION, key);
        }
        if let Some(sequence) = after_sequence.max(self.sequence) {
            head.headers.insert(AFTER, sequence.into());
        }
        Ok(http)
    }
}

/// The parts of a response that a refusal shows.
struct Head {
    status: StatusCode,
    retry_after: Option<String>,
}

impl Head {
    fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let retry_after = headers.get(RETRY_AFTER).and_then(|seconds| Some(seconds.to_str().ok()?.to_owned()));
        Self { status, retry_after }
    }
}

/// Returns a whole body, or `None` if it is incomplete or too large.
async fn collected(body: impl MessageBody) -> Option<Bytes> {
    to_bytes_limited(body, COLLECTED_BYTES_MAX).await.ok()?.ok()
}

/// Returns the time at which the command began whose first bytes the input has. `before` and `after` are the bytes of the input before and
/// after the execution of complete commands.
fn begun(earlier: Option<Instant>, before: usize, after: usize, now: Instant) -> Option<Instant> {
    let is_same = after == before;
    (after > 0).then(|| earlier.filter(|_| is_same).unwrap_or(now))
}

/// Reads from a socket. Returns the number of bytes that were added to the input.
async fn read<T: AsyncRead + Unpin>(socket: &mut T, input: &mut BytesMut) -> io::Result<usize> {
    poll_fn(|task| {
        INPUT.with_borrow_mut(|buffer| {
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(&mut *socket).poll_read(task, &mut read))?;
            input.extend_from_slice(read.filled());
            Poll::Ready(Ok(read.filled().len()))
        })
    })
    .await
}

/// Closes a connection. Reads what the client still sends: otherwise the system may discard replies on their way.
async fn close<T: AsyncRead + AsyncWrite + Unpin>(socket: &mut T) -> io::Result<()> {
    socket.shutdown().await?;
    let mut rest = socket.take(UNREAD_BYTES_MAX as u64);
    let _ = timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_command_begins_with_its_first_byte() {
        let began = Instant::now();
        let now = began + Duration::from_secs(1);
        for (earlier, before, after, expected) in [
            (None, 0, 0, None),
            (None, 5, 5, Some(now)),
            // More of the same command.
            (Some(began), 9, 9, Some(began)),
            // Another command was complete.
            (Some(began), 9, 5, Some(now)),
            (Some(began), 9, 0, None),
        ] {
            assert_eq!(begun(earlier, before, after, now), expected, "{before} {after}");
        }
    }
}
