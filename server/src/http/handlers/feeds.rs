//! Feed operations: a reader's home feed and a source's own posts.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use crate::http::admission::Admission;
use crate::http::auth::Caller;
use crate::http::operation::Work;
use crate::http::page_json::{self, Fields};
use crate::http::problem::Problem;
use crate::http::request::{Parameters, user};
use crate::http::slot::Live;
use tidewire::engine::FeedPage;
use tidewire::id::SourceId;
use tidewire::state::reader::PageRequest;

/// The parameters of a request for a page.
pub(in crate::http) struct PageQuery {
    pub(in crate::http) user: SourceId,
    pub(in crate::http) page: PageRequest,
    pub(in crate::http) fields: Fields,
}

/// Parses a request for a page.
pub(in crate::http) fn page_query(request: &HttpRequest) -> Result<PageQuery, Problem> {
    let parameters = Parameters::read(request, &["limit", "before", "after", "fields"])?;
    let fields = if parameters.flag("fields", "ids")? { Fields::Ids } else { Fields::All };
    Ok(PageQuery { user: user(request)?, page: parameters.page()?, fields })
}

/// Handles `GET /v1/users/{user}/feed`.
pub(in crate::http) async fn home(
    request: HttpRequest,
    engine: Live,
    admission: Data<Admission>,
) -> Result<HttpResponse, Problem> {
    let PageQuery { user, page, fields } = page_query(&request)?;
    // Waking a reader costs far more than a page of an awake reader, so it needs a permit of its own.
    let _waking = if engine.is_awake(&user) { None } else { Some(admission.enter(Work::WakeUp)?) };
    Ok(answer(&engine.feed(&user, page).await?, fields))
}

/// Handles `GET /v1/users/{user}/posts`.
pub(in crate::http) async fn own_page(
    request: HttpRequest,
    caller: Caller,
    engine: Live,
) -> Result<HttpResponse, Problem> {
    let PageQuery { user, page, fields } = page_query(&request)?;
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
