//! Feed operations: a reader's home feed and a source's own posts.

use actix_web::HttpResponse;

use crate::http::auth::Caller;
use crate::http::engine_cell::ReadyEngine;
use crate::http::handlers::page_query::{HomeQuery, PageQuery};
use crate::http::page_json::{self, Fields};
use crate::http::problem::Problem;
use tidewire::engine::FeedPage;

/// Handles `GET /v1/users/{user}/feed`.
pub(in crate::http) async fn home(engine: ReadyEngine, query: HomeQuery) -> Result<HttpResponse, Problem> {
    let PageQuery { user, page, fields } = &query.page_query;
    Ok(answer(&engine.feed(user, *page).await?, *fields))
}

/// Handles `GET /v1/users/{user}/posts`.
pub(in crate::http) async fn own_page(
    caller: Caller,
    engine: ReadyEngine,
    query: PageQuery,
) -> Result<HttpResponse, Problem> {
    let PageQuery { user, page, fields } = query;
    let page = match caller.is_user() {
        true => engine.own_page_for_owner(&user, page).await?,
        false => engine.own_page(&user, page).await?,
    };
    Ok(answer(&page, fields))
}

/// Answers with a page as JSON.
pub(in crate::http) fn answer(page: &FeedPage, fields: Fields) -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(page_json::page(page, fields))
}
