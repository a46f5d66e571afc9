//! All posts in pages, by ascending id, for building an index: `GET /v1/posts/all`.

use std::fmt::Write as _;
use std::sync::Arc;

use actix_web::rt;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use crate::http::admission::turn::Turn;
use crate::http::answer;
use crate::http::collected::Collected;
use crate::http::engine_cell::ReadyEngine;
use crate::http::problem::Problem;
use crate::http::request::Parameters;
use tidewire::engine::{Engine, PostIds};
use tidewire::error::Error;
use tidewire::id::PostName;
use tidewire::limits::{POSTS_PAGE_BYTES, POSTS_PAGE_DEFAULT, POSTS_PAGE_MAX};
use tidewire::state::all_posts::{PostsBounds, PostsPage};

/// Handles `GET /v1/posts/all`.
pub(in crate::http) async fn list(
    request: HttpRequest,
    engine: ReadyEngine,
    collected: Data<Collected<PostIds>>,
) -> Result<HttpResponse, Problem> {
    let bounds = bounds(&Parameters::read(&request, &["after", "limit"])?)?;
    let of = Engine::clone(&engine);
    // The first page includes all posts that were accepted before the request.
    let is_first_page = bounds.after.is_none();
    let collecting = Collected::get(collected.into_inner(), is_first_page, async move { of.post_ids().await });
    // Runs in its own task, so that clients who disconnect and retry find the collected ids, and the server does not collect them again.
    let ids = Turn::of(&request)?.wait(rt::spawn(collecting)).await?.map_err(|_| Error::ShuttingDown)??;
    let page = engine.posts_after(Arc::clone(&ids), bounds).await?;
    Ok(answer::json_text(json(&page, &ids)))
}

fn bounds(parameters: &Parameters<'_>) -> Result<PostsBounds, Problem> {
    let after = parameters.parsed::<PostName>("after")?.map(|post| post.id);
    let limit = parameters.limit_of(POSTS_PAGE_DEFAULT, POSTS_PAGE_MAX)?;
    Ok(PostsBounds { after, limit, bytes: POSTS_PAGE_BYTES })
}

// Ids contain no character that JSON escapes. Writing to a `String` cannot fail.
fn json(page: &PostsPage, ids: &PostIds) -> String {
    let PostsPage { posts, unreadable, next } = page;
    let mut json = String::from(r#"{"posts":"#);
    answer::push_array(&mut json, posts, |json, post| json.push_str(post.json()));
    json.push_str(r#","unreadable":"#);
    answer::push_ids(&mut json, unreadable);
    let (sequence, is_complete) = (ids.sequence(), ids.is_complete());
    let _ = match next {
        Some(next) => write!(json, r#","next":"{next}","sequence":{sequence},"complete":{is_complete}}}"#),
        None => write!(json, r#","next":null,"sequence":{sequence},"complete":{is_complete}}}"#),
    };
    json
}
