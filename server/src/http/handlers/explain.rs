//! The operation that explains why a post is or is not in a feed, as JSON.

use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

use crate::http::answer;
use crate::http::auth::Caller;
use crate::http::engine_cell::ReadyEngine;
use crate::http::problem::Problem;
use crate::http::request::{Parameters, post_in_path, user};
use tidewire::feed::outbox::Route;
use tidewire::state::explain::{Blocker, Explanation, Reason};

/// Handles `GET /v1/users/{user}/feed/explain/{post}`.
pub(in crate::http) async fn explain(
    request: HttpRequest,
    caller: Caller,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let post = post_in_path(&request, "post")?;
    let reader = user(&request)?;
    let explanation = engine.explain(&reader, post).await?;
    let Explanation { shown, reasons, blockers, route, through, .. } =
        if caller.is_user() { explanation.for_reader(post) } else { explanation };
    // Other users may not see how many followers of a source are awake. A source that was erased meanwhile has no costs.
    let through =
        through.filter(|source| !caller.is_user() || *source == reader).and_then(|source| engine.source(&source).ok());
    let cost = through.map(|source| answer::route_cost(source.cost));
    Ok(HttpResponse::Ok().json(json!({
        "shown": shown,
        "reasons": reasons.iter().map(reason).collect::<Vec<_>>(),
        "blockers": blockers.iter().map(blocker).collect::<Vec<_>>(),
        "route": route.map(|route| match route {
            Route::Push => "push",
            Route::Pull => "pull",
        }),
        "cost": cost,
    })))
}

// Every reason has a stable `kind` for programs, and the fields of that kind.

fn reason(reason: &Reason) -> Value {
    match reason {
        Reason::Own => json!({"kind": "own"}),
        Reason::Follows(source) => json!({"kind": "follow", "source": source.as_str()}),
        Reason::Kept(source) => json!({"kind": "kept", "source": source.as_str()}),
        Reason::Virtual => json!({"kind": "virtual"}),
        Reason::Repost { user, at, source } => json!({
            "kind": "repost",
            "user": user.as_str(),
            "at": at.published_at.to_string(),
            "post": at.id.to_string(),
            "source": source.as_str(),
        }),
    }
}

fn blocker(bar: &Blocker) -> Value {
    match bar {
        Blocker::Unknown(post) => json!({"kind": "unknown", "post": post.to_string()}),
        Blocker::Deleted(post) => json!({"kind": "deleted", "post": post.to_string()}),
        Blocker::Hidden(post) => json!({"kind": "hidden", "post": post.to_string()}),
        Blocker::Muted(source) => json!({"kind": "muted", "source": source.as_str()}),
        Blocker::Blocked(source) => json!({"kind": "blocked", "source": source.as_str()}),
        Blocker::BlockedBy(author) => json!({"kind": "blocked_by", "source": author.as_str()}),
        Blocker::OwnPost => json!({"kind": "own_posts_off"}),
        Blocker::Reply(Some(answered)) => json!({"kind": "reply", "source": answered.as_str()}),
        Blocker::Reply(None) => json!({"kind": "reply"}),
        Blocker::Repost => json!({"kind": "reposts_off"}),
    }
}
