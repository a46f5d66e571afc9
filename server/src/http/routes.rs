//! The routes: the table of all operations, and every path with the methods it supports.

use std::net::SocketAddr;
use std::pin::Pin;

use actix_web::dev::{Service, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::LOCATION;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{Error, HttpRequest, HttpResponse, Resource, Route, guard};

use crate::console;
use crate::http::admission::Reservation;
use crate::http::auth::caller::client_of;
use crate::http::auth::{Access, Caller, cors};
use crate::http::changes::consumers;
use crate::http::compression;
use crate::http::engine_cell::ReadyEngine;
use crate::http::handlers::page_query::PageQuery;
#[cfg(feature = "cluster")]
use crate::http::handlers::peer_snapshot;
use crate::http::handlers::{
    all_posts, all_users, bulk_posts, diagnostics, erase, explain, feeds, follows, lists, many_feeds, metrics, posts,
    preferences, readiness, server, user_data, users,
};
use crate::http::middleware::pipeline::{self, Pipeline};
use crate::http::middleware::pipeline_state::PipelineState;
use crate::http::operation::{HandledBy, Needs, Operation, Right, WorkKind, user_in_path};
use crate::http::page_json;
use crate::http::problem::Problem;
use crate::http::request::RequestBody;
use crate::http::{changes, live, openapi};
use tidewire::feed::event::MuteOrBlock;
use tidewire::limits::RESPONSE_PIECE_BYTES;

const fn operation(
    name: &'static str,
    method: Method,
    path: &'static str,
    (needs, work, handled_by): Kind,
    route: fn() -> Route,
) -> Operation {
    Operation { name, method, path, needs, work, lasts: false, handled_by, route }
}

/// An operation whose response may be open for long.
const fn lasting(mut operation: Operation) -> Operation {
    operation.lasts = true;
    operation
}

/// The settings that many operations have in common: permission, kind of work, and node.
type Kind = (Needs, WorkKind, HandledBy);

const OPEN: Kind = (Needs::Nothing, WorkKind::None, HandledBy::AnyNode);
const OWN_READ: Kind = (Needs::Own(Right::Read), WorkKind::Read, HandledBy::Owner);
const OWN_WRITE: Kind = (Needs::Own(Right::Write), WorkKind::Write, HandledBy::Sequencer);
const OWN_LIVE: Kind = (Needs::Own(Right::Read), WorkKind::Live, HandledBy::Owner);
const NAMED_READ: Kind = (Needs::Named(Right::Read), WorkKind::BulkRead, HandledBy::Owners);
const USER_READ: Kind = (Needs::User(Right::Read), WorkKind::Read, HandledBy::Owner);
const AUTHOR_READ: Kind = (Needs::Author(Right::Read), WorkKind::Read, HandledBy::Owner);
const AUTHOR_WRITE: Kind = (Needs::Author(Right::Write), WorkKind::Write, HandledBy::Sequencer);
const SERVER_READ: Kind = (Needs::Server(Right::Read), WorkKind::Operation, HandledBy::AnyNode);
const NODE_READ: Kind = (Needs::Server(Right::Read), WorkKind::Operation, HandledBy::NamedNode);
const SERVER_WRITE: Kind = (Needs::Server(Right::Write), WorkKind::Operation, HandledBy::AnyNode);
const SERVER_WORK_ON_FEED: Kind = (Needs::Server(Right::Write), WorkKind::Operation, HandledBy::Owner);
const SERVER_COMMAND: Kind = (Needs::Server(Right::Write), WorkKind::Write, HandledBy::Sequencer);
const BULK_WRITE: Kind = (Needs::Server(Right::Write), WorkKind::BulkWrite, HandledBy::Sequencer);
const METRICS: Kind = (Needs::Metrics, WorkKind::Metrics, HandledBy::AnyNode);

const GET: Method = Method::GET;
const PUT: Method = Method::PUT;
const POST: Method = Method::POST;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

/// All operations, grouped by path. Paths are matched in this order, so the most frequent operations are first.
#[rustfmt::skip]
pub(super) static OPERATIONS: &[Operation] = &[
    operation("read_feed", GET, "/v1/users/{user}/feed", OWN_READ, || web::to(home)),
    operation("publish", POST, "/v1/posts", AUTHOR_WRITE, || web::to(posts::publish)),
    operation("read_posts", GET, "/v1/posts", AUTHOR_READ, || web::to(bulk_posts::read)),
    operation("publish_many", POST, "/v1/posts/batch", BULK_WRITE, || web::to(bulk_posts::publish)),
    operation("list_posts", GET, "/v1/posts/all", SERVER_READ, || web::to(all_posts::list)),
    operation("read_post", GET, "/v1/posts/{id}", AUTHOR_READ, || web::to(posts::read)),
    operation("edit_post", PATCH, "/v1/posts/{id}", AUTHOR_WRITE, || web::to(posts::edit)),
    operation("delete_post", DELETE, "/v1/posts/{id}", AUTHOR_WRITE, || web::to(posts::delete)),
    operation("read_replies", GET, "/v1/posts/{id}/replies", USER_READ, || web::to(feeds::replies)),
    operation("read_reposts", GET, "/v1/posts/{id}/reposts", USER_READ, || web::to(feeds::reposts)),
    lasting(operation("watch", GET, "/v1/users/{user}/live", OWN_LIVE, || web::to(live::websocket))),
    lasting(operation("stream_events", GET, "/v1/users/{user}/events", OWN_LIVE, || web::to(live::events))),
    operation("read_feeds", POST, "/v1/feeds", NAMED_READ, || web::to(many_feeds::read)),
    operation("read_own_page", GET, "/v1/users/{user}/posts", OWN_READ, || web::to(feeds::own_page)),

    operation("follow_many", POST, "/v1/follows", BULK_WRITE, || web::to(follows::follow_many)),
    operation("list_users", GET, "/v1/users", SERVER_READ, || web::to(all_users::list)),
    operation("read_user", GET, "/v1/users/{user}", OWN_READ, || web::to(follows::info)),
    operation("erase_user", DELETE, "/v1/users/{user}", SERVER_COMMAND, || web::to(erase::erase)),
    operation("read_user_data", GET, "/v1/users/{user}/data", SERVER_READ, || web::to(user_data::read)),
    operation("list_following", GET, "/v1/users/{user}/following", OWN_READ, || web::to(follows::following)),
    operation("list_followers", GET, "/v1/users/{user}/followers", OWN_READ, || web::to(follows::followers)),
    operation("follow", PUT, "/v1/users/{user}/following/{source}", OWN_WRITE, || web::to(follows::follow)),
    operation("unfollow", DELETE, "/v1/users/{user}/following/{source}", OWN_WRITE, || web::to(follows::unfollow)),

    operation("revoke_tokens", POST, "/v1/users/{user}/revoke", SERVER_COMMAND, || web::to(users::revoke)),

    operation("list_mutes", GET, "/v1/users/{user}/mutes", OWN_READ, || web::to(muted)),
    operation("mute", PUT, "/v1/users/{user}/mutes/{source}", OWN_WRITE, || web::to(mute)),
    operation("unmute", DELETE, "/v1/users/{user}/mutes/{source}", OWN_WRITE, || web::to(unmute)),
    operation("list_blocks", GET, "/v1/users/{user}/blocks", OWN_READ, || web::to(blocked)),
    operation("block", PUT, "/v1/users/{user}/blocks/{source}", OWN_WRITE, || web::to(block)),
    operation("unblock", DELETE, "/v1/users/{user}/blocks/{source}", OWN_WRITE, || web::to(unblock)),
    operation("read_rules", GET, "/v1/users/{user}/rules", OWN_READ, || web::to(preferences::rules)),
    operation("change_rules", PATCH, "/v1/users/{user}/rules", OWN_WRITE, || web::to(preferences::change_rules)),
    operation("read_marker", GET, "/v1/users/{user}/marker", OWN_READ, || web::to(preferences::marker)),
    operation("mark", PUT, "/v1/users/{user}/marker", OWN_WRITE, || web::to(preferences::mark)),
    operation("explain", GET, "/v1/users/{user}/feed/explain/{post}", OWN_READ, || web::to(explain::explain)),

    operation("list_lists", GET, "/v1/users/{user}/lists", OWN_READ, || web::to(lists::all)),
    operation("delete_list", DELETE, "/v1/users/{user}/lists/{name}", OWN_WRITE, || web::to(lists::delete)),
    operation("read_list_feed", GET, "/v1/users/{user}/lists/{name}/feed", OWN_READ, || web::to(lists::feed)),
    operation("list_members", GET, "/v1/users/{user}/lists/{name}/members", OWN_READ, || web::to(lists::members)),
    operation("add_member", PUT, "/v1/users/{user}/lists/{name}/members/{source}", OWN_WRITE, || web::to(lists::add)),
    operation("remove_member", DELETE, "/v1/users/{user}/lists/{name}/members/{source}", OWN_WRITE, || web::to(lists::remove)),

    operation("check_alive", GET, "/healthz", OPEN, || web::to(readiness::alive)),
    operation("check_ready", GET, "/readyz", OPEN, || web::to(readiness::ready)),
    operation("read_metrics", GET, "/metrics", METRICS, || web::to(metrics::metrics)),
    operation("describe", GET, "/openapi.json", OPEN, || web::to(describe)),
    operation("read_stats", GET, "/v1/stats", NODE_READ, || web::to(server::stats)),
    operation("read_history", GET, "/v1/stats/history", NODE_READ, || web::to(diagnostics::history)),
    operation("read_operations", GET, "/v1/operations", NODE_READ, || web::to(diagnostics::operations)),
    operation("find_sources", GET, "/v1/sources", SERVER_READ, || web::to(diagnostics::sources)),
    operation("read_fanout", GET, "/v1/posts/{id}/fanout", SERVER_READ, || web::to(diagnostics::fanout)),
    lasting(operation("read_cluster", GET, "/v1/cluster", SERVER_READ, || web::to(server::cluster))),
    lasting(operation("read_changes", GET, "/v1/changes", SERVER_READ, || web::to(changes::changes))),
    operation("list_change_consumers", GET, "/v1/changes/consumers", SERVER_READ, || web::to(consumers::list)),
    operation("set_change_consumer", PUT, "/v1/changes/consumers/{consumer}", SERVER_READ, || web::to(consumers::set)),
    operation("remove_change_consumer", DELETE, "/v1/changes/consumers/{consumer}", SERVER_WRITE, || web::to(consumers::remove)),
    operation("take_snapshot", POST, "/v1/snapshots", SERVER_WRITE, || web::to(server::snapshot)),
    operation("verify_feed", POST, "/v1/users/{user}/feed/verify", SERVER_WORK_ON_FEED, || web::to(server::verify)),
    operation("rebuild_feed", POST, "/v1/users/{user}/feed/rebuild", SERVER_WORK_ON_FEED, || web::to(server::rebuild)),
];

/// Defines the handlers that mutes and blocks have in common.
macro_rules! mute_or_block {
    ($how:expr, $list:ident, $put:ident, $delete:ident) => {
        async fn $list(request: HttpRequest, engine: ReadyEngine) -> impl actix_web::Responder {
            preferences::silenced(request, engine, $how).await
        }
        async fn $put(
            request: HttpRequest,
            body: RequestBody,
            caller: Caller,
            engine: ReadyEngine,
            access: Data<Access>,
        ) -> impl actix_web::Responder {
            preferences::silence(request, body, caller, engine, access, $how).await
        }
        async fn $delete(request: HttpRequest, engine: ReadyEngine) -> impl actix_web::Responder {
            preferences::unsilence(request, engine, $how).await
        }
    };
}

mute_or_block!(MuteOrBlock::Mute, muted, mute, unmute);
mute_or_block!(MuteOrBlock::Block, blocked, block, unblock);

/// Handles `HEAD /v1/users/{user}/feed`. The `GET` bypasses the router.
async fn home(request: HttpRequest) -> Result<HttpResponse, Problem> {
    feeds::home(&request).await
}

/// Handles `GET /openapi.json`.
async fn describe(request: HttpRequest) -> Result<HttpResponse, Problem> {
    openapi::serve(&request, OPERATIONS)
}

/// Registers every path on an `App` on which [`HttpState`](crate::http::state::HttpState) has registered its parts.
pub(super) fn routes(app: &mut ServiceConfig) {
    let all: Vec<(usize, &'static Operation)> = OPERATIONS.iter().enumerate().collect();
    for of_path in all.chunk_by(|(_, one), (_, other)| one.path == other.path) {
        let route = |(nth, operation): &(usize, &'static Operation)| {
            (&operation.method, (operation.route)().wrap(Pipeline { nth: *nth, operation }))
        };
        app.service(resource(of_path[0].1.path, of_path.iter().map(route)));
    }
    #[cfg(feature = "cluster")]
    app.service(resource("/v1/cluster/snapshot", [(&GET, web::to(peer_snapshot::send))].into_iter()));
    app.configure(console_routes)
        .default_service(web::to(|request: HttpRequest| async move { nothing_here(&request) }));
}

/// The pipeline of the most frequent operation.
const FEED: Pipeline = Pipeline { nth: 0, operation: &OPERATIONS[0] };

/// A boxed future response.
type Answered = Pin<Box<dyn Future<Output = Result<ServiceResponse, Error>>>>;

/// Answers a page of a home feed behind its pipeline, but without the router: its regular expressions, guards, extractors and boxed
/// futures cost more than the steps of the pipeline. `router` answers all other requests.
pub(super) fn feed_or_routed<S>(request: ServiceRequest, router: &S) -> Answered
where
    S: Service<ServiceRequest, Future = Answered>,
{
    let is_feed = || user_in_path(request.match_info().as_str()).is_some_and(|(_, rest)| rest == "/feed");
    if *request.method() != FEED.operation.method || !is_feed() {
        return router.call(request);
    }
    Box::pin(FEED.pass(request, async |request, _| {
        // The payload stays alive until the page is built.
        let (request, _payload) = request.into_parts();
        let answer = feeds::home(&request).await.unwrap_or_else(HttpResponse::from_error);
        Ok(ServiceResponse::new(request, answer))
    }))
}

/// Reads a page of a home feed for a command of the Redis protocol, whose caller authenticated before, without the request that the router
/// would answer. Returns the JSON, with the reservation of its bytes if it is large; or `None` if the application has to answer: it wakes
/// readers, asks other nodes, and refuses what is not permitted.
pub(super) async fn feed_of_command(
    state: &PipelineState,
    caller: &Caller,
    peer: Option<SocketAddr>,
    query: &PageQuery,
) -> Option<Result<(String, Option<Reservation>), Problem>> {
    let (engine, PageQuery { user, page, fields }) = (state.engine_cell.engine()?, query);
    if state.needs_requests() || !state.access.may_again(caller, FEED.operation.needs, user.as_str()) {
        return None;
    }
    let client = client_of(Some(caller), peer);
    let read = async {
        let page = match engine.feed_if_awake(user, *page).await {
            Ok(page) => page?,
            Err(cause) => return Some(Err(cause.into())),
        };
        let json = page_json::untagged(&page, fields.of(engine));
        let is_large = json.len() > RESPONSE_PIECE_BYTES;
        let reserve = || state.admission.answer(FEED.operation.work, client, json.len());
        let reservation = if is_large { reserve() } else { Ok(None) };
        Some(reservation.map(|reservation| (json, reservation)))
    };
    let answer = FEED.pass_read(state, (user, client), read).await?;
    state.access.note_use(caller);
    Some(answer)
}

/// Registers the paths of the console and of the live client. `/` and `/console` redirect to the first page of the console.
fn console_routes(app: &mut ServiceConfig) {
    let to_console = |request: HttpRequest| async move {
        pipeline::refused_nowhere(&request).unwrap_or_else(|| {
            let mut answer = HttpResponse::Found().insert_header((LOCATION, console::PATH)).finish();
            cors::add_headers(&request, answer.headers_mut());
            answer
        })
    };
    for path in ["/", "/console"] {
        app.service(resource(path, [(&Method::GET, web::to(to_console))].into_iter()));
    }
    for asset in console::ASSETS {
        let get = move |request: HttpRequest| async move {
            pipeline::refused_nowhere(&request).unwrap_or_else(|| {
                let (response, text) = console::serve(asset);
                let mut answer = compression::document(&request, response, asset.path, text);
                cors::add_headers(&request, answer.headers_mut());
                answer
            })
        };
        app.service(resource(asset.path, [(&Method::GET, web::to(get))].into_iter()));
    }
}

/// Refuses a path that has no operation.
fn nothing_here(request: &HttpRequest) -> HttpResponse {
    pipeline::refused_nowhere(request)
        .unwrap_or_else(|| pipeline::nowhere(request, &Problem::not_found(request.path())))
}

/// Creates the resource of a path with its methods. Other methods are refused with the list of these. `HEAD` is served for every `GET`.
fn resource<'a>(path: &str, methods: impl Iterator<Item = (&'a Method, Route)>) -> Resource {
    let mut allowed: Vec<String> = Vec::new();
    let mut resource = web::resource(path);
    for (method, route) in methods {
        allowed.push(method.to_string());
        if method == Method::GET {
            allowed.push(Method::HEAD.to_string());
            resource = resource.route(route.guard(guard::Any(guard::Get()).or(guard::Head())));
        } else {
            resource = resource.route(route.method(method.clone()));
        }
    }
    let allowed = allowed.join(", ");
    resource.default_service(web::to(move |request: HttpRequest| {
        let answer = preflight_or_refusal(&request, &allowed);
        async move { answer }
    }))
}

/// Answers an unsupported method: a CORS preflight request gets its answer, any other request status 405.
fn preflight_or_refusal(request: &HttpRequest, allowed: &str) -> HttpResponse {
    if let Some(refusal) = pipeline::refused_nowhere(request) {
        return refusal;
    }
    let access = request.app_data::<Data<Access>>();
    access.and_then(|access| access.origins().preflight(request, allowed)).unwrap_or_else(|| {
        let method = request.method().as_str();
        pipeline::nowhere(request, &Problem::method_not_allowed(method, allowed.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::auth::key::{self, KeyScope};
    use crate::http::auth::keys::Keys;
    use crate::http::state::HttpState;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use tidewire::config::EngineConfig;
    use tidewire::engine::Engine;
    use tidewire::feed::event::NewEdge;
    use tidewire::id::SourceId;

    #[test]
    fn each_operation_has_a_unique_name_and_a_unique_path_with_method() {
        let names: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
        let ways: BTreeSet<_> =
            OPERATIONS.iter().map(|operation| (operation.path, operation.method.as_str())).collect();
        assert_eq!((names.len(), ways.len()), (OPERATIONS.len(), OPERATIONS.len()));
    }

    #[test]
    fn the_operation_that_needs_no_router_is_the_page_of_a_home_feed() {
        assert_eq!((FEED.operation.name, FEED.operation.path), ("read_feed", "/v1/users/{user}/feed"));
    }

    #[test]
    fn a_command_reads_the_page_of_an_awake_reader_while_its_key_is_valid() {
        actix_web::rt::System::new().block_on(async {
            let engine = Engine::start(EngineConfig::default());
            let id = |text| SourceId::new(text).unwrap();
            engine.follow(vec![NewEdge::new(id("ann"), id("bob"))]).await.unwrap();
            let mut keys = Keys::default();
            keys.add_server(key::hash("key"), KeyScope::Read);
            let caller = keys.caller("key", tidewire::clock::UnixMicros(0)).unwrap();
            let access = Arc::new(Access::by(keys));
            let state = HttpState { access: Arc::clone(&access), ..HttpState::from(engine.clone()) }.pipeline();
            let query = PageQuery::of("ann", [].into_iter()).unwrap();
            let read = async |caller: &Caller| {
                feed_of_command(&state, caller, None, &query).await.map(|answer| answer.unwrap().0)
            };
            assert_eq!(read(&caller).await, None, "the reader sleeps");
            let page = engine.feed(&query.user, query.page).await.unwrap();
            let json = page_json::untagged(&page, query.fields.of(&engine));
            assert_eq!(read(&caller).await, Some(json));
            assert_eq!(read(&Caller::Anybody).await, None, "the server has keys");
            let mut narrower = Keys::default();
            narrower.add_server(key::hash("key"), KeyScope::Metrics);
            for keys in [narrower, Keys::default()] {
                access.replace(keys);
                assert_eq!(read(&caller).await, None, "the key has another scope, or is revoked");
            }
            engine.shutdown();
        });
    }

    #[test]
    fn only_metrics_use_the_slots_reserved_for_metrics() {
        let metrics = OPERATIONS.iter().filter(|operation| operation.work == WorkKind::Metrics);
        assert_eq!(metrics.map(|operation| operation.name).collect::<Vec<_>>(), ["read_metrics"]);
    }

    #[test]
    fn operations_on_own_resources_have_the_user_in_their_path() {
        for operation in OPERATIONS {
            let user = user_in_path(operation.path).map(|(user, _)| user);
            assert!(!matches!(operation.needs, Needs::Own(_)) || user == Some("{user}"), "{}", operation.name);
            assert_eq!(user.is_some(), operation.path.contains("{user}"), "{}", operation.name);
        }
    }
}
