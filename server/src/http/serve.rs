//! The server: listening sockets, connections, and graceful shutdown.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::ready;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use actix_http::body::BoxBody;
use actix_http::error::DispatchError;
use actix_http::{HttpServiceBuilder, Protocol as Http, Request, Response};
use actix_server::{GracefulShutdownSignal, ServerBuilder};
use actix_service::{
    IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, apply_fn_factory, fn_service, map_config,
};
use actix_tls::accept::rustls_0_23::{Acceptor, TlsStream};
use actix_tls::accept::{TlsError, max_concurrent_tls_connect};
use actix_web::dev::{AppConfig, Server, ServerHandle, ServiceResponse};
use actix_web::rt::net::TcpStream;
use actix_web::{App, rt, web};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::sync::oneshot;
use tokio::sync::watch::{self, Receiver};
use tracing::{info, warn};

use crate::http::auth::Access;
use crate::http::engine_cell::EngineCell;
use crate::http::history;
use crate::http::middleware::open_paths::OpenPaths;
use crate::http::middleware::pace::Pace;
use crate::http::middleware::stalled_socket::StalledSocketTimeout;
use crate::http::plain_text;
use crate::http::resp;
use crate::http::routes::{feed_or_routed, routes};
use crate::http::sockets::answering;
use crate::http::sockets::connection_slots::Connections;
use crate::http::sockets::expecting::expecting;
use crate::http::sockets::request_order::RequestOrder;
use crate::http::state::{HttpState, ReloadLogLevel};
use crate::http::tls::Certificate;
use crate::http::upgrade::{LINGER, serve_upgradable, upgrades};
use crate::peer_error_log;
use crate::service_manager;
use tidewire::engine::Engine;

/// Maximum idle time of a connection, whatever it sends: slightly more than the HTTP keep-alive timeout plus the timeout for a request
/// head.
const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(90);

/// Maximum number of connections that are accepted beyond the limit, so that they can be refused: part of the reserved files.
const CONNECTIONS_REFUSED_TOGETHER: usize = 32;

/// Maximum time for requests in progress to finish after a shutdown signal.
const DRAIN_SECONDS: u64 = 10;

/// Maximum time for a client to send the request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Length of the accept queue. All clients reconnect at the same time after a restart, and a client whose connection attempt is dropped
/// retries only after a second or more.
const LISTEN_BACKLOG: i32 = 4_096;

/// Send buffer bytes of a socket, enough for a large page.
const SEND_BUFFER_BYTES: usize = 256 * 1024;

/// Maximum concurrent TLS handshakes of one worker.
const TLS_HANDSHAKES_MAX: usize = 4_096;

/// Interval between checks for idle connections.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// Interval between checks for changes of the certificate files.
const RENEW_PERIOD: Duration = Duration::from_secs(1);

/// Time after which an idle keep-alive connection is closed.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// The bound sockets of a server.
#[derive(Debug)]
pub struct Listeners {
    /// The socket for HTTP.
    pub http: TcpListener,
    /// The socket for the Redis protocol, if the server speaks it.
    pub resp: Option<TcpListener>,
}

impl From<TcpListener> for Listeners {
    fn from(http: TcpListener) -> Self {
        Self { http, resp: None }
    }
}

/// Creates a server on bound sockets, over TLS if the state has a certificate. The server runs until its handle is stopped.
///
/// # Errors
/// Fails if the server cannot listen on a socket.
pub fn server(state: impl Into<HttpState>, listeners: impl Into<Listeners>, workers: usize) -> io::Result<Server> {
    let (state, Listeners { http: listener, resp }) = (state.into(), listeners.into());
    let of_resp = resp.map(|listener| (listener, state.clone()));
    let address = listener.local_addr()?;
    let (certificate, pace, connections) = (state.certificate.clone(), state.pace, Arc::clone(&state.connections));
    history::start(&state.history, &state.engine_cell, &state.requests, &connections);
    rt::spawn(sweep(Arc::downgrade(&connections), Arc::downgrade(&state.open_paths)));
    // A worker that reaches its limit accepts no connections. The limit is a few connections higher than allowed, so that excess
    // connections are accepted and then refused, or get the slot of an idle one.
    let of_worker = (connections.limits().all + CONNECTIONS_REFUSED_TOGETHER).div_ceil(workers.max(1));
    #[cfg(feature = "cluster")]
    let node = state.cluster.as_ref().map(|cluster| cluster.name().clone());
    #[cfg(not(feature = "cluster"))]
    let node = None;
    let app = move || {
        let node = node.clone();
        App::new()
            .wrap_fn(feed_or_routed)
            .wrap_fn(move |request, app| answering::answer(request, app, node.clone()))
            .configure(|app| state.register(app))
            .configure(routes)
    };
    // The limit applies to each worker. It is high because a handshake costs nothing to begin, and because the connection limit applies
    // before any client is served.
    max_concurrent_tls_connect(TLS_HANDSHAKES_MAX);
    let server = Server::build()
        .workers(workers)
        .max_concurrent_connections(of_worker)
        .shutdown_timeout(DRAIN_SECONDS)
        .disable_signals();
    let stopping = server.graceful_shutdown_signal();
    let server = match of_resp {
        None => server,
        Some((listener, state)) => listen_resp(server, listener, &state, app.clone(), stopping.clone())?,
    };
    // The same setup as `HttpServer`, except that this server handles WebSocket upgrades itself.
    let of_app = app.clone();
    let plain = move || {
        let service = of_app().into_factory().map_err(|cause: actix_web::Error| cause.error_response());
        map_config(service, |()| AppConfig::default())
    };
    let server = match certificate {
        None => server.listen("http", listener, move || {
            let http = builder(address, &stopping).expect(expecting(app.clone())).upgrade(upgrades(app.clone()));
            let (http, connections) = (http.finish(plain()), Arc::clone(&connections));
            fn_service(move |socket: TcpStream| {
                let peer = bound_sending(&socket, pace);
                ready(placed(socket, pace, &connections).map_err(DispatchError::Io).map(|socket| {
                    let connection = Arc::clone(socket.state());
                    (RequestOrder::new(socket, connection), Http::Http1, peer)
                }))
            })
            .and_then(apply_fn_factory(http, serve_upgradable))
        })?,
        Some(certificate) => server.listen("https", listener, move || {
            let http = builder(address, &stopping).expect(expecting(app.clone())).upgrade(upgrades(app.clone()));
            let (http, connections) = (http.finish(plain()), Arc::clone(&connections));
            let mut tls = Acceptor::new(certificate.config());
            tls.set_handshake_timeout(HEAD_TIMEOUT);
            fn_service(move |socket: TcpStream| tls_only(placed(socket, pace, &connections)))
                .and_then(tls)
                .map_err(TlsError::into_service_error)
                .map(move |socket: TlsStream<StalledSocketTimeout>| {
                    let peer = bound_sending(socket.get_ref().0.socket(), pace);
                    let connection = Arc::clone(socket.get_ref().0.state());
                    (RequestOrder::new(socket, connection), Http::Http1, peer)
                })
                .and_then(apply_fn_factory(http, serve_upgradable).map_err(TlsError::Service))
        })?,
    };
    Ok(server.run())
}

/// Lets the system end a connection whose client has vanished without a word: it may be idle for ever.
fn notice_vanished(socket: &TcpStream) {
    let alive = TcpKeepalive::new().with_time(KEEP_ALIVE);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let alive = alive.with_interval(Duration::from_secs(10)).with_retries(3);
    // If the system does not support this option, the defaults of the system hold.
    let _ = SockRef::from(socket).set_tcp_keepalive(&alive);
}

/// Adds the socket of the Redis protocol to a server.
fn listen_resp<A, F, S>(
    server: ServerBuilder,
    listener: TcpListener,
    state: &HttpState,
    app: A,
    stopping: GracefulShutdownSignal,
) -> io::Result<ServerBuilder>
where
    A: Fn() -> F + Send + Clone + 'static,
    F: IntoServiceFactory<S, Request>,
    S: ServiceFactory<
            Request,
            Config = AppConfig,
            Response = ServiceResponse,
            Error = actix_web::Error,
            InitError = (),
            Service: 'static,
        > + 'static,
{
    let (certificate, pace, connections) = (state.certificate.clone(), state.pace, Arc::clone(&state.connections));
    let context = resp::RespContext {
        pipeline: Arc::new(state.pipeline()),
        stopping,
        kept: Arc::default(),
        kept_max: connections.limits().left_to_live(),
    };
    match certificate {
        None => server.listen("resp", listener, move || {
            let connections = Arc::clone(&connections);
            fn_service(move |socket: TcpStream| {
                let peer = bound_sending(&socket, pace);
                notice_vanished(&socket);
                ready(placed(socket, pace, &connections).map(|socket| {
                    let connection = Arc::clone(socket.state());
                    (socket, connection, peer)
                }))
            })
            .and_then(resp::serve(app.clone(), context.clone()))
        }),
        Some(certificate) => server.listen("resps", listener, move || {
            let connections = Arc::clone(&connections);
            let mut tls = Acceptor::new(certificate.config());
            tls.set_handshake_timeout(HEAD_TIMEOUT);
            fn_service(move |socket: TcpStream| ready(placed(socket, pace, &connections).map_err(TlsError::Tls)))
                .and_then(tls)
                .map_err(TlsError::into_service_error)
                .map(move |socket: TlsStream<StalledSocketTimeout>| {
                    let peer = bound_sending(socket.get_ref().0.socket(), pace);
                    notice_vanished(socket.get_ref().0.socket());
                    let connection = Arc::clone(socket.get_ref().0.state());
                    (socket, connection, peer)
                })
                .and_then(resp::serve(app.clone(), context.clone()).map_err(TlsError::Service))
        }),
    }
}

/// Reserves a slot for a connection and wraps its socket. Fails if the connection limit is reached.
fn placed(socket: TcpStream, pace: Pace, connections: &Arc<Connections>) -> io::Result<StalledSocketTimeout> {
    let slot = connections.enter(socket.peer_addr().ok()).ok_or(io::ErrorKind::ConnectionRefused)?;
    Ok(StalledSocketTimeout::new(socket, pace, slot))
}

/// Returns a connection once its client has begun a TLS handshake. Refuses a client that sends plain HTTP.
async fn tls_only(
    placed: io::Result<StalledSocketTimeout>,
) -> Result<StalledSocketTimeout, TlsError<io::Error, Infallible>> {
    let socket = placed.map_err(TlsError::Tls)?;
    match rt::time::timeout(HEAD_TIMEOUT, plain_text::is_spoken(socket.socket())).await {
        Ok(true) => Err(TlsError::Tls(plain_text::refuse(socket).await)),
        Ok(false) => Ok(socket),
        Err(_) => Err(TlsError::Timeout),
    }
}

/// Closes idle connections, removes old rate limit entries and writes summary log lines, while the server exists.
async fn sweep(connections: Weak<Connections>, open_paths: Weak<OpenPaths>) {
    loop {
        rt::time::sleep(SWEEP_PERIOD).await;
        let (Some(connections), Some(open_paths)) = (connections.upgrade(), open_paths.upgrade()) else { return };
        connections.sweep(CONNECTION_IDLE_MAX);
        open_paths.sweep();
        peer_error_log::report();
    }
}

fn builder<T, S>(address: SocketAddr, stopping: &GracefulShutdownSignal) -> HttpServiceBuilder<RequestOrder<T>, S>
where
    S: ServiceFactory<Request, Config = ()>,
    S::Error: Into<Response<BoxBody>> + 'static,
    S::InitError: Debug,
    <S::Service as Service<Request>>::Future: 'static,
{
    let stopping = stopping.clone();
    HttpServiceBuilder::default()
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(HEAD_TIMEOUT)
        .client_disconnect_timeout(LINGER)
        // A client that has closed its sending side still gets its responses (`http::sockets::request_order`).
        .h1_allow_half_closed(true)
        .local_addr(address)
        .on_connect_ext(|socket: &RequestOrder<T>, connection| drop(connection.insert(Arc::clone(socket.state()))))
        .graceful_shutdown_signal(move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        })
}

/// Sets the send buffer size and the send timeout of a socket. Returns the peer address.
fn bound_sending(socket: &TcpStream, pace: Pace) -> Option<SocketAddr> {
    let peer = socket.peer_addr().ok();
    let socket = SockRef::from(socket);
    // If the system does not support this option, the default size suffices.
    let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket.set_tcp_user_timeout(Some(pace.unacknowledged_max));
    let _ = socket.set_tcp_nodelay(true);
    peer
}

/// Binds a listening socket.
///
/// # Errors
/// The error names the address that cannot be bound.
pub fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    let bind = || -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(listen), Type::STREAM, Some(Protocol::TCP))?;
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        socket.bind(&listen.into())?;
        socket.listen(LISTEN_BACKLOG)?;
        Ok(socket.into())
    };
    bind().map_err(|cause| {
        let hint = match cause.kind() {
            io::ErrorKind::AddrInUse => "; another program uses it: choose another port",
            _ => "",
        };
        io::Error::new(cause.kind(), format!("cannot listen on {listen}: {cause}{hint}"))
    })
}

/// Serves until SIGINT or SIGTERM, until `at_most` has passed, or until `failed` yields the reason why there is no engine. Then finishes
/// requests in progress, takes a snapshot, and stops the engine.
///
/// # Errors
/// Fails if the server fails.
pub async fn run_on(
    state: HttpState,
    listeners: impl Into<Listeners>,
    at_most: Option<Duration>,
    failed: oneshot::Receiver<String>,
) -> io::Result<()> {
    let listeners = listeners.into();
    let listen = listeners.http.local_addr()?;
    let resp = listeners.resp.as_ref().map(TcpListener::local_addr).transpose()?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (engine_cell, certificate) = (state.engine_cell.clone(), state.certificate.clone());
    #[cfg(feature = "cluster")]
    let cluster = state.cluster.clone();
    #[cfg(feature = "cluster")]
    let stop_passed = move || cluster.iter().for_each(|cluster| cluster.stop_live());
    #[cfg(feature = "cluster")]
    let (node, of_node) = (state.cluster.clone(), engine_cell.clone());
    #[cfg(feature = "cluster")]
    let hand_over = async move {
        if let (Some(node), Some(engine)) = (node, of_node.engine()) {
            node.hand_over(engine).await;
        }
    };
    #[cfg(not(feature = "cluster"))]
    let (stop_passed, hand_over) = (|| (), async {});
    let of_engine = engine_cell.clone();
    let stop_live = move || {
        of_engine.engine().inspect(|engine| engine.stop_live());
        stop_passed();
    };
    let backups = Arc::clone(&state.backups);
    rt::spawn(Arc::clone(&state.access).keep());
    #[cfg(unix)]
    reload_on_hangup(Arc::clone(&state.access), certificate.clone(), state.reload_log_level.clone())?;
    let server = server(state, listeners, workers)?;
    let scheme = if certificate.is_some() { "https" } else { "http" };
    info!("serving on {scheme}://{listen}, the console on {scheme}://{listen}/console");
    if let Some(resp) = resp {
        let scheme = if certificate.is_some() { "rediss" } else { "redis" };
        info!("serving the Redis protocol on {scheme}://{resp}");
    }
    certificate.into_iter().for_each(|certificate| drop(rt::spawn(renew(certificate))));
    rt::spawn(tell_ready(engine_cell.clone()));
    let signals = signals()?;
    let ending = (hand_over, stop_live);
    rt::spawn(stop_in_time(server.handle(), engine_cell.clone(), ending, at_most, failed, signals.clone()));
    let ended = server.await;
    backups.stop();
    if let Some(engine) = engine_cell.engine() {
        take_last_snapshot(engine, signals).await;
        engine.shutdown();
    }
    info!("stopped");
    ended
}

/// Takes a snapshot if the next start would have to replay journal entries. A second signal skips the snapshot, even if it arrives while
/// requests are finishing.
async fn take_last_snapshot(engine: &Engine, mut signals: Receiver<Signals>) {
    if !engine.has_to_replay() {
        return;
    }
    info!("taking a snapshot, so that the next start replays nothing; send another signal to skip it");
    let (mut taken, mut stop_signal) =
        (std::pin::pin!(engine.last_snapshot()), std::pin::pin!(stop_signal(&mut signals, 2)));
    let taken = std::future::poll_fn(|task| match stop_signal.as_mut().poll(task) {
        Poll::Ready(signal) => Poll::Ready(Err(signal.to_owned())),
        Poll::Pending => taken.as_mut().poll(task).map_err(|cause| cause.to_string()),
    })
    .await;
    taken.map_or_else(|cause| warn!("took no snapshot; the next start replays the journal: {cause}"), drop);
}

/// Reloads the access file, the certificate and the log level at each SIGHUP, whose default action would end the process.
#[cfg(unix)]
fn reload_on_hangup(
    access: Arc<Access>,
    certificate: Option<Arc<Certificate>>,
    reload_log_level: Option<ReloadLogLevel>,
) -> io::Result<()> {
    use actix_web::rt::signal::unix::{SignalKind, signal};
    let mut hangups = signal(SignalKind::hangup())?;
    rt::spawn(async move {
        while hangups.recv().await.is_some() {
            let loaded = [
                (access.ask(), "the access file"),
                (certificate.is_some(), "the certificate"),
                (reload_log_level.is_some(), "the log level"),
            ];
            let loaded: Vec<&str> =
                loaded.into_iter().filter_map(|(is_there, what)| is_there.then_some(what)).collect();
            let what = match loaded.as_slice() {
                [] => "nothing to reload".to_owned(),
                loaded => format!("reloading {}", loaded.join(" and ")),
            };
            info!("SIGHUP: {what}; other settings require a restart");
            if let Some(certificate) = &certificate {
                certificate.ask();
                certificate.renew();
            }
            if let Some(reload) = reload_log_level.clone() {
                // Fails only if the runtime ends.
                let _ = web::block(move || reload()).await;
            }
        }
    });
    Ok(())
}

/// Notifies the service manager once the state is recovered.
async fn tell_ready(engine_cell: EngineCell) {
    engine_cell.ready().await;
    // The reader of the socket may be slow. The call fails only if the runtime ends.
    let _ = web::block(service_manager::ready).await;
}

/// Loads a new certificate soon after its files change.
async fn renew(certificate: Arc<Certificate>) {
    loop {
        rt::time::sleep(RENEW_PERIOD).await;
        certificate.renew();
    }
}

async fn stop_in_time(
    server: ServerHandle,
    engine_cell: EngineCell,
    (hand_over, stop_live): (impl Future<Output = ()>, impl Fn()),
    at_most: Option<Duration>,
    failed: oneshot::Receiver<String>,
    mut signals: Receiver<Signals>,
) {
    let stop_signal = async {
        match at_most {
            None => stop_signal(&mut signals, 1).await,
            Some(at_most) => rt::time::timeout(at_most, stop_signal(&mut signals, 1)).await.unwrap_or("time is up"),
        }
    };
    let failed = async {
        match failed.await {
            Ok(reason) => reason,
            // The sender is dropped without a message after it stores the engine, or if its thread panics.
            Err(_) if engine_cell.engine().is_some() => std::future::pending().await,
            Err(_) => "the start failed".to_owned(),
        }
    };
    let (mut stop_signal, mut failed) = (std::pin::pin!(stop_signal), std::pin::pin!(failed));
    let (has_failed, reason) = std::future::poll_fn(|task| match failed.as_mut().poll(task) {
        Poll::Ready(reason) => Poll::Ready((true, reason)),
        Poll::Pending => stop_signal.as_mut().poll(task).map(|signal| (false, signal.to_owned())),
    })
    .await;
    let told = reason.clone();
    let _ = web::block(move || service_manager::stopping(&told)).await;
    if has_failed {
        // The caller reports the cause.
        warn!("stopping the server: {reason}");
    } else {
        info!("{reason}: finishing requests in progress, for at most {DRAIN_SECONDS} s");
        hand_over.await;
    }
    // Live connections would never finish on their own.
    stop_live();
    server.stop(true).await;
}

/// The number of shutdown signals received, and the name of the last one.
#[derive(Clone, Copy, Default)]
struct Signals {
    count: u32,
    last: &'static str,
}

/// Waits until at least `count` signals were received, and returns the name of the last one.
async fn stop_signal(signals: &mut Receiver<Signals>, count: u32) -> &'static str {
    let last = signals.wait_for(|signals| signals.count >= count).await.map(|signals| signals.last);
    match last {
        Ok(last) => last,
        // The task that counts signals has ended.
        Err(_) => std::future::pending().await,
    }
}

/// Starts counting shutdown signals.
#[cfg(unix)]
fn signals() -> io::Result<Receiver<Signals>> {
    use actix_web::rt::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(count(async move || {
        std::future::poll_fn(|task| {
            if interrupt.poll_recv(task).is_ready() {
                return Poll::Ready("SIGINT");
            }
            terminate.poll_recv(task).map(|_| "SIGTERM")
        })
        .await
    }))
}

/// Starts counting shutdown signals.
#[cfg(not(unix))]
fn signals() -> io::Result<Receiver<Signals>> {
    Ok(count(async || match actix_web::rt::signal::ctrl_c().await {
        Ok(()) => "Ctrl-C",
        Err(_) => std::future::pending().await,
    }))
}

fn count(mut next: impl AsyncFnMut() -> &'static str + 'static) -> Receiver<Signals> {
    let (counted, signals) = watch::channel(Signals::default());
    rt::spawn(async move {
        loop {
            let last = next().await;
            counted.send_modify(|signals| *signals = Signals { count: signals.count + 1, last });
        }
    });
    signals
}
