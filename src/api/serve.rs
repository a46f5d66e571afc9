//! The server: routes, and running them until told to stop.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::task::Poll;
use std::time::Duration;

use actix_http::HttpService;
use actix_service::{IntoServiceFactory, ServiceFactoryExt, map_config};
use actix_web::dev::{AppConfig, Server, ServerHandle};
use actix_web::http::Method;
use actix_web::rt::net::TcpStream;
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{App, HttpRequest, Resource, Route, guard, rt};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::sync::oneshot;
use tracing::info;

use crate::api::problem::Problem;
use crate::api::slot::{Live, Slot};
use crate::api::upgrade::upgrades;
use crate::api::{choices, explain, feeds, follows, lists, live, operations, posts};
use crate::console;
use crate::feed::event::Silencing;

/// How long requests under way may take to end after the signal to stop.
const DRAIN_SECONDS: u64 = 10;

/// How long a client may take to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long what was sent may wait for a client to take it, before the system ends the connection. A server writes to a client
/// only what it takes, so that nothing but the system can find out.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// How long what a client still sends is taken after its connection was ended, so that the last answer reaches it.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// Connections that may wait to be accepted: all clients of a server that restarts come back at once, and one that finds no room
/// waits for a second or more.
const LISTEN_BACKLOG: i32 = 4_096;

/// What the system keeps for a client to take, at most: a large page.
const SEND_BUFFER_BYTES: usize = 256 * 1024;

/// How long a connection without requests is kept.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Registers every path on an `App` that has a [`Slot`] as data.
pub fn routes(app: &mut ServiceConfig) {
    use Method as M;
    app.service(resource("/healthz", [(M::GET, web::to(operations::alive))]))
        .service(resource("/readyz", [(M::GET, web::to(operations::ready))]))
        .service(resource("/v1/stats", [(M::GET, web::to(operations::stats))]))
        .service(resource("/v1/snapshots", [(M::POST, web::to(operations::snapshot))]))
        .service(resource("/v1/posts", [(M::POST, web::to(posts::publish))]))
        .service(resource(
            "/v1/posts/{id}",
            [(M::GET, web::to(posts::read)), (M::PATCH, web::to(posts::edit)), (M::DELETE, web::to(posts::delete))],
        ))
        .service(resource("/v1/follows", [(M::POST, web::to(follows::follow_many))]))
        .service(resource("/v1/users/{user}", [(M::GET, web::to(follows::info))]))
        .service(resource("/v1/users/{user}/feed", [(M::GET, web::to(feeds::home))]))
        .service(resource("/v1/users/{user}/feed/verify", [(M::POST, web::to(operations::verify))]))
        .service(resource("/v1/users/{user}/feed/rebuild", [(M::POST, web::to(operations::rebuild))]))
        .service(resource("/v1/users/{user}/live", [(M::GET, web::to(live::websocket))]))
        .service(resource("/v1/users/{user}/events", [(M::GET, web::to(live::events))]))
        .service(resource("/v1/users/{user}/posts", [(M::GET, web::to(feeds::own_page))]))
        .service(resource("/v1/users/{user}/following", [(M::GET, web::to(follows::following))]))
        .service(resource("/v1/users/{user}/followers", [(M::GET, web::to(follows::followers))]))
        .service(resource(
            "/v1/users/{user}/following/{source}",
            [(M::PUT, web::to(follows::follow)), (M::DELETE, web::to(follows::unfollow))],
        ))
        .configure(personal_routes)
        .configure(console_routes)
        .default_service(web::to(|request: HttpRequest| async move { nothing_here(&request) }));
}

/// The paths of what readers decide about their feeds.
fn personal_routes(app: &mut ServiceConfig) {
    use Method as M;
    for (silenced, how) in [("mutes", Silencing::Mute), ("blocks", Silencing::Block)] {
        let list = move |request: HttpRequest, engine: Live| choices::silenced(request, engine, how);
        let put =
            move |request: HttpRequest, payload: Payload, engine: Live| choices::silence(request, payload, engine, how);
        let delete = move |request: HttpRequest, engine: Live| choices::unsilence(request, engine, how);
        let path = format!("/v1/users/{{user}}/{silenced}");
        app.service(resource(&path, [(M::GET, web::to(list))]))
            .service(resource(&format!("{path}/{{source}}"), [(M::PUT, web::to(put)), (M::DELETE, web::to(delete))]));
    }
    app.service(resource(
        "/v1/users/{user}/rules",
        [(M::GET, web::to(choices::rules)), (M::PATCH, web::to(choices::change_rules))],
    ))
    .service(resource(
        "/v1/users/{user}/marker",
        [(M::GET, web::to(choices::marker)), (M::PUT, web::to(choices::mark))],
    ))
    .service(resource("/v1/users/{user}/feed/explain/{post}", [(M::GET, web::to(explain::explain))]))
    .service(resource("/v1/users/{user}/lists", [(M::GET, web::to(lists::all))]))
    .service(resource("/v1/users/{user}/lists/{name}", [(M::DELETE, web::to(lists::delete))]))
    .service(resource("/v1/users/{user}/lists/{name}/feed", [(M::GET, web::to(lists::feed))]))
    .service(resource("/v1/users/{user}/lists/{name}/members", [(M::GET, web::to(lists::members))]))
    .service(resource(
        "/v1/users/{user}/lists/{name}/members/{source}",
        [(M::PUT, web::to(lists::add)), (M::DELETE, web::to(lists::remove))],
    ));
}

/// The paths of the console and of the live client.
fn console_routes(app: &mut ServiceConfig) {
    for asset in console::ASSETS {
        let get = move |request: HttpRequest| async move { console::serve(&request, asset) };
        app.service(resource(asset.path, [(Method::GET, web::to(get))]));
    }
}

fn nothing_here(request: &HttpRequest) -> Result<&'static str, Problem> {
    Err(Problem::not_found(request.path()))
}

/// A path with its methods; all others are refused with the list of those. `HEAD` is served where `GET` is.
fn resource<const N: usize>(path: &str, methods: [(Method, Route); N]) -> Resource {
    let mut allowed: Vec<String> = Vec::new();
    let mut resource = web::resource(path);
    for (method, route) in methods {
        allowed.push(method.to_string());
        if method == Method::GET {
            allowed.push(Method::HEAD.to_string());
            resource = resource.route(route.guard(guard::Any(guard::Get()).or(guard::Head())));
        } else {
            resource = resource.route(route.method(method));
        }
    }
    let allowed = allowed.join(", ");
    resource.default_service(web::to(move |request: HttpRequest| {
        let problem = Problem::method_not_allowed(request.method().as_str(), allowed.clone());
        async move { Err::<&'static str, _>(problem) }
    }))
}

/// A server on a bound socket. It ends when its handle is told to stop.
///
/// # Errors
/// When the socket cannot be listened on.
pub fn server(engine: impl Into<Slot>, listener: TcpListener, workers: usize) -> io::Result<Server> {
    let (slot, address) = (Data::new(engine.into()), listener.local_addr()?);
    let app = move || App::new().app_data(slot.clone()).configure(routes);
    let server = Server::build().workers(workers).shutdown_timeout(DRAIN_SECONDS).disable_signals();
    let stopping = server.graceful_shutdown_signal();
    // What `HttpServer` would do, but for WebSockets.
    let http = move || {
        let stopping = stopping.clone();
        let plain = app().into_factory().map_err(|cause: actix_web::Error| cause.error_response());
        HttpService::build()
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(HEAD_TIMEOUT)
            .client_disconnect_timeout(LINGER)
            // A client that has closed its side of a stream of events has gone.
            .h1_allow_half_closed(false)
            .local_addr(address)
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .on_connect_ext(|socket: &TcpStream, _| bound_sending(socket))
            .upgrade(upgrades(app.clone()))
            .finish(map_config(plain, |()| AppConfig::default()))
            .tcp()
    };
    Ok(server.listen("http", listener, http)?.run())
}

/// Bounds what the system keeps for a client that does not take what it is sent, and for how long.
fn bound_sending(socket: &TcpStream) {
    let socket = SockRef::from(socket);
    // What a system does not know it does without.
    let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket.set_tcp_user_timeout(Some(SEND_TIMEOUT));
    let _ = socket.set_tcp_nodelay(true);
}

/// Takes an address.
///
/// # Errors
/// Names the address that could not be taken.
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
            io::ErrorKind::AddrInUse => "; another program has it, choose one by --listen",
            _ => "",
        };
        io::Error::new(cause.kind(), format!("cannot listen on {listen}: {cause}{hint}"))
    })
}

/// Serves until SIGINT or SIGTERM, or for so long, or until `failed` says that there will be no engine; then lets requests
/// under way end, and stops the engine.
///
/// # Errors
/// When the server fails.
pub async fn run_on(
    slot: Slot,
    listener: TcpListener,
    at_most: Option<Duration>,
    failed: oneshot::Receiver<()>,
) -> io::Result<()> {
    let listen = listener.local_addr()?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let server = server(slot.clone(), listener, workers)?;
    info!("serving on http://{listen}");
    rt::spawn(stop_in_time(server.handle(), slot.clone(), at_most, failed));
    let ended = server.await;
    if let Some(engine) = slot.engine() {
        engine.shutdown();
    }
    info!("stopped");
    ended
}

async fn stop_in_time(server: ServerHandle, slot: Slot, at_most: Option<Duration>, failed: oneshot::Receiver<()>) {
    let told = async {
        match at_most {
            None => signalled().await,
            Some(at_most) => rt::time::timeout(at_most, signalled()).await.unwrap_or(Ok("time is up")),
        }
    };
    let failed = async {
        // Dropped without a word by who filled the slot; or by a crash.
        if failed.await.is_err() && slot.engine().is_some() {
            std::future::pending::<()>().await;
        }
    };
    let (mut told, mut failed) = (std::pin::pin!(told), std::pin::pin!(failed));
    let reason = std::future::poll_fn(|task| match failed.as_mut().poll(task) {
        Poll::Ready(()) => Poll::Ready(Ok("the state cannot be recovered")),
        Poll::Pending => told.as_mut().poll(task),
    })
    .await;
    if let Ok(reason) = reason {
        info!("{reason}: finishing requests under way, at most {DRAIN_SECONDS} s");
        // They would go on for ever.
        slot.engine().inspect(|engine| engine.stop_live());
        server.stop(true).await;
    }
}

#[cfg(unix)]
async fn signalled() -> io::Result<&'static str> {
    use actix_web::rt::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(std::future::poll_fn(|task| {
        if interrupt.poll_recv(task).is_ready() {
            return Poll::Ready("SIGINT");
        }
        terminate.poll_recv(task).map(|_| "SIGTERM")
    })
    .await)
}

#[cfg(not(unix))]
async fn signalled() -> io::Result<&'static str> {
    actix_web::rt::signal::ctrl_c().await.map(|()| "Ctrl-C")
}
