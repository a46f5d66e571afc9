//! Feed operations: a reader's home feed, a source's own posts, the replies to a post and its reposts.

use std::sync::Arc;

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use crate::http::admission::Admission;
use crate::http::answer;
use crate::http::auth::Caller;
use crate::http::caching::{self, Tag};
use crate::http::engine_cell::{EngineCell, ReadyEngine, recovering};
use crate::http::handlers::page_query::{PageQuery, fields};
use crate::http::operation::WorkKind;
use crate::http::page_json;
use crate::http::post_json::Shape;
use crate::http::problem::Problem;
use crate::http::request::{Parameters, post_in_path};
use tidewire::engine::{Engine, FeedPage};
use tidewire::feed::cursor;
use tidewire::id::SourceId;
use tidewire::state::reader::PageRequest;

/// Handles `GET /v1/users/{user}/feed`. Its only argument is the request, so that it can run without the router.
pub(in crate::http) async fn home(request: &HttpRequest) -> Result<HttpResponse, Problem> {
    let engine_cell = request.app_data::<Data<EngineCell>>();
    let engine = engine_cell.and_then(|engine_cell| engine_cell.engine()).ok_or_else(recovering)?;
    let PageQuery { user, page, fields } = PageQuery::parse(request)?;
    let page = home_page(engine, &Admission::of(request)?, &user, page).await?;
    Ok(answer(&page, fields.of(engine)))
}

/// Reads a page of a home feed. Waking a reader costs far more than a page of an awake one, so it is admitted separately.
pub(in crate::http) async fn home_page(
    engine: &Engine,
    admission: &Arc<Admission>,
    user: &SourceId,
    request: PageRequest,
) -> Result<FeedPage, Problem> {
    if let Some(page) = engine.feed_if_awake(user, request).await? {
        return Ok(page);
    }
    let _permit = admission.enter(WorkKind::WakeUp)?;
    Ok(engine.feed_waking(user, request).await?)
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
    Ok(answer(&page, fields.of(&engine)))
}

/// Handles `GET /v1/posts/{id}/replies`.
pub(in crate::http) async fn replies(
    request: HttpRequest,
    caller: Caller,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["limit", "before", "after", "fields", "reader"])?;
    let (reader, fields) = (caller.reader(parameters.parsed("reader")?)?, fields(&parameters)?);
    let page = engine.replies(post_in_path(&request, "id")?, reader.as_ref(), parameters.page()?).await?;
    Ok(answer(&page, fields.of(&engine)))
}

/// Handles `GET /v1/posts/{id}/reposts`.
pub(in crate::http) async fn reposts(
    request: HttpRequest,
    caller: Caller,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["limit", "before", "reader"])?;
    let reader = caller.reader(parameters.parsed("reader")?)?;
    let before = parameters.cursor("before", cursor::decode_resume)?.map(|before| before.position);
    let page = engine.reposts(post_in_path(&request, "id")?, reader.as_ref(), before, parameters.limit()?).await?;
    let json = page_json::repost_page(&page);
    let tag = Tag::of(&[json.as_bytes()]);
    let mut response = answer::json_text(json);
    caching::allow_caller(response.headers_mut(), tag);
    Ok(response)
}

/// Answers with a page as JSON.
pub(in crate::http) fn answer(page: &FeedPage, shape: Shape<'_>) -> HttpResponse {
    let (json, tag) = page_json::page(page, shape);
    let mut response = answer::json_text(json);
    tag.into_iter().for_each(|tag| caching::allow_caller(response.headers_mut(), tag));
    response
}
