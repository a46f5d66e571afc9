//! Operations: what can be asked for over HTTP, one table for all that must know.
//!
//! Responsible for:
//! - naming each operation, its path and method, who may ask for it, and what kind of work it is.
//!
//! Not responsible for:
//! - doing any of it: handlers are named, and `serve` registers them.

use actix_web::http::Method;
use actix_web::web::{self, Data, Payload};
use actix_web::{HttpRequest, Route};

use crate::http::Api;
use crate::http::slot::Live;
use crate::http::{
    choices, description, erase, explain, feeds, follows, lists, live, metrics, operations, posts, users,
};
use tidewire::feed::event::Silencing;
use tidewire::limits::{BULK_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX};

/// Something that can be asked for.
pub(super) struct Operation {
    /// Its name, unlike that of any other.
    pub(super) name: &'static str,
    pub(super) method: Method,
    /// Its path, with names for the parts that vary.
    pub(super) path: &'static str,
    pub(super) needs: Needs,
    pub(super) work: Work,
    /// The handler, as a route that takes any method.
    pub(super) route: fn() -> Route,
}

/// Who may ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    /// Anybody.
    Nothing,
    /// Whoever acts for the server's owner.
    Server(Right),
    /// As well who collects metrics for them.
    Metrics,
    /// As well the user in the path.
    Own(Right),
    /// As well the user whose post it is, which the handler finds out.
    Author(Right),
}

/// What somebody wants with something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Right {
    /// Look at it.
    Read,
    /// Change it.
    Write,
}

/// What kind of work it is: kinds are bounded apart from each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// Hardly any.
    None,
    /// Answered from memory.
    Read,
    /// A read that has to wake its reader first: no operation's own.
    WakeUp,
    /// Goes through the journal.
    Write,
    /// The same, with many changes at once.
    BulkWrite,
    /// A connection that stays.
    Live,
    /// A connection that has yet to say who it is: no operation's own.
    Introduction,
    /// An operator's, which may take long.
    Operation,
    /// What tells how all others do.
    Metrics,
}

impl Operation {
    /// Bytes that its body may have; none where a body says nothing.
    pub(super) fn body_bytes_max(&self) -> usize {
        match self.work {
            Work::Write if self.method != Method::DELETE => REQUEST_BYTES_MAX,
            Work::BulkWrite => BULK_REQUEST_BYTES_MAX,
            _ => 0,
        }
    }
}

const fn operation(
    name: &'static str,
    method: Method,
    path: &'static str,
    (needs, work): (Needs, Work),
    route: fn() -> Route,
) -> Operation {
    Operation { name, method, path, needs, work, route }
}

const OPEN: (Needs, Work) = (Needs::Nothing, Work::None);
const OWN_READ: (Needs, Work) = (Needs::Own(Right::Read), Work::Read);
const OWN_WRITE: (Needs, Work) = (Needs::Own(Right::Write), Work::Write);
const OWN_LIVE: (Needs, Work) = (Needs::Own(Right::Read), Work::Live);
const AUTHOR_READ: (Needs, Work) = (Needs::Author(Right::Read), Work::Read);
const AUTHOR_WRITE: (Needs, Work) = (Needs::Author(Right::Write), Work::Write);
const SERVER_READ: (Needs, Work) = (Needs::Server(Right::Read), Work::Operation);
const SERVER_WRITE: (Needs, Work) = (Needs::Server(Right::Write), Work::Operation);
const ERASE: (Needs, Work) = (Needs::Server(Right::Write), Work::Write);
const BULK_WRITE: (Needs, Work) = (Needs::Server(Right::Write), Work::BulkWrite);

const GET: Method = Method::GET;
const PUT: Method = Method::PUT;
const POST: Method = Method::POST;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

/// All of them, those of one path together. Paths are tried in this order: what is asked for most comes first.
#[rustfmt::skip]
pub(super) static OPERATIONS: &[Operation] = &[
    operation("read_feed", GET, "/v1/users/{user}/feed", OWN_READ, || web::to(feeds::home)),
    operation("publish", POST, "/v1/posts", AUTHOR_WRITE, || web::to(posts::publish)),
    operation("read_post", GET, "/v1/posts/{id}", AUTHOR_READ, || web::to(posts::read)),
    operation("edit_post", PATCH, "/v1/posts/{id}", AUTHOR_WRITE, || web::to(posts::edit)),
    operation("delete_post", DELETE, "/v1/posts/{id}", AUTHOR_WRITE, || web::to(posts::delete)),
    operation("watch", GET, "/v1/users/{user}/live", OWN_LIVE, || web::to(live::websocket)),
    operation("stream_events", GET, "/v1/users/{user}/events", OWN_LIVE, || web::to(live::events)),
    operation("read_own_page", GET, "/v1/users/{user}/posts", OWN_READ, || web::to(feeds::own_page)),

    operation("follow_many", POST, "/v1/follows", BULK_WRITE, || web::to(follows::follow_many)),
    operation("read_user", GET, "/v1/users/{user}", OWN_READ, || web::to(follows::info)),
    operation("erase_user", DELETE, "/v1/users/{user}", ERASE, || web::to(erase::erase)),
    operation("list_following", GET, "/v1/users/{user}/following", OWN_READ, || web::to(follows::following)),
    operation("list_followers", GET, "/v1/users/{user}/followers", OWN_READ, || web::to(follows::followers)),
    operation("follow", PUT, "/v1/users/{user}/following/{source}", OWN_WRITE, || web::to(follows::follow)),
    operation("unfollow", DELETE, "/v1/users/{user}/following/{source}", OWN_WRITE, || web::to(follows::unfollow)),

    operation("revoke_tokens", POST, "/v1/users/{user}/revoke", (Needs::Server(Right::Write), Work::Write), || web::to(users::revoke)),

    operation("list_mutes", GET, "/v1/users/{user}/mutes", OWN_READ, || web::to(muted)),
    operation("mute", PUT, "/v1/users/{user}/mutes/{source}", OWN_WRITE, || web::to(mute)),
    operation("unmute", DELETE, "/v1/users/{user}/mutes/{source}", OWN_WRITE, || web::to(unmute)),
    operation("list_blocks", GET, "/v1/users/{user}/blocks", OWN_READ, || web::to(blocked)),
    operation("block", PUT, "/v1/users/{user}/blocks/{source}", OWN_WRITE, || web::to(block)),
    operation("unblock", DELETE, "/v1/users/{user}/blocks/{source}", OWN_WRITE, || web::to(unblock)),
    operation("read_rules", GET, "/v1/users/{user}/rules", OWN_READ, || web::to(choices::rules)),
    operation("change_rules", PATCH, "/v1/users/{user}/rules", OWN_WRITE, || web::to(choices::change_rules)),
    operation("read_marker", GET, "/v1/users/{user}/marker", OWN_READ, || web::to(choices::marker)),
    operation("mark", PUT, "/v1/users/{user}/marker", OWN_WRITE, || web::to(choices::mark)),
    operation("explain", GET, "/v1/users/{user}/feed/explain/{post}", OWN_READ, || web::to(explain::explain)),

    operation("list_lists", GET, "/v1/users/{user}/lists", OWN_READ, || web::to(lists::all)),
    operation("delete_list", DELETE, "/v1/users/{user}/lists/{name}", OWN_WRITE, || web::to(lists::delete)),
    operation("read_list_feed", GET, "/v1/users/{user}/lists/{name}/feed", OWN_READ, || web::to(lists::feed)),
    operation("list_members", GET, "/v1/users/{user}/lists/{name}/members", OWN_READ, || web::to(lists::members)),
    operation("add_member", PUT, "/v1/users/{user}/lists/{name}/members/{source}", OWN_WRITE, || web::to(lists::add)),
    operation("remove_member", DELETE, "/v1/users/{user}/lists/{name}/members/{source}", OWN_WRITE, || web::to(lists::remove)),

    operation("check_alive", GET, "/healthz", OPEN, || web::to(operations::alive)),
    operation("check_ready", GET, "/readyz", OPEN, || web::to(operations::ready)),
    operation("read_metrics", GET, "/metrics", (Needs::Metrics, Work::Metrics), || web::to(metrics::metrics)),
    operation("describe", GET, "/openapi.json", OPEN, || web::to(description::openapi)),
    operation("read_stats", GET, "/v1/stats", SERVER_READ, || web::to(operations::stats)),
    operation("take_snapshot", POST, "/v1/snapshots", SERVER_WRITE, || web::to(operations::snapshot)),
    operation("verify_feed", POST, "/v1/users/{user}/feed/verify", SERVER_WRITE, || web::to(operations::verify)),
    operation("rebuild_feed", POST, "/v1/users/{user}/feed/rebuild", SERVER_WRITE, || web::to(operations::rebuild)),
];

/// The handlers of what is alike for mutes and blocks.
macro_rules! silencing {
    ($how:expr, $list:ident, $put:ident, $delete:ident) => {
        async fn $list(request: HttpRequest, engine: Live) -> impl actix_web::Responder {
            choices::silenced(request, engine, $how).await
        }
        async fn $put(
            request: HttpRequest,
            payload: Payload,
            engine: Live,
            api: Data<Api>,
        ) -> impl actix_web::Responder {
            choices::silence(request, payload, engine, api, $how).await
        }
        async fn $delete(request: HttpRequest, engine: Live) -> impl actix_web::Responder {
            choices::unsilence(request, engine, $how).await
        }
    };
}

silencing!(Silencing::Mute, muted, mute, unmute);
silencing!(Silencing::Block, blocked, block, unblock);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_operation_has_a_name_and_a_way_of_its_own() {
        let names: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
        let ways: BTreeSet<_> =
            OPERATIONS.iter().map(|operation| (operation.path, operation.method.as_str())).collect();
        assert_eq!((names.len(), ways.len()), (OPERATIONS.len(), OPERATIONS.len()));
    }

    #[test]
    fn nothing_takes_the_room_of_metrics() {
        let metrics = OPERATIONS.iter().filter(|operation| operation.work == Work::Metrics);
        assert_eq!(metrics.map(|operation| operation.name).collect::<Vec<_>>(), ["read_metrics"]);
    }

    #[test]
    fn whatever_is_a_users_own_names_the_user_in_its_path() {
        for operation in OPERATIONS {
            let names_user = operation.path.split('/').any(|part| part == "{user}");
            assert!(!matches!(operation.needs, Needs::Own(_)) || names_user, "{}", operation.name);
        }
    }
}
