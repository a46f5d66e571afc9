//! Feeds: a reader's home feed and a source's own page.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::operation::Work;
use crate::http::page_json::{self, Fields};
use crate::http::problem::Problem;
use crate::http::request::{Parameters, user};
use crate::http::slot::Live;
use tidewire::engine::FeedPage;
use tidewire::id::SourceId;
use tidewire::state::reader::PageRequest;

/// What a request for a page asks for.
pub(in crate::http) struct Asked {
    pub(in crate::http) user: SourceId,
    pub(in crate::http) page: PageRequest,
    pub(in crate::http) fields: Fields,
}

/// Reads a request for a page.
pub(in crate::http) fn asked(request: &HttpRequest) -> Result<Asked, Problem> {
    let parameters = Parameters::read(request, &["limit", "before", "after", "fields"])?;
    let fields = if parameters.flag("fields", "ids")? { Fields::Ids } else { Fields::All };
    Ok(Asked { user: user(request)?, page: parameters.page()?, fields })
}

/// `GET /v1/users/{user}/feed`
pub(in crate::http) async fn home(request: HttpRequest, engine: Live, api: Data<Api>) -> Result<HttpResponse, Problem> {
    let Asked { user, page, fields } = asked(&request)?;
    // To wake a reader takes far more than a page of one who is awake.
    let _waking = if engine.is_awake(&user) { None } else { Some(api.admission.enter(Work::WakeUp)?) };
    Ok(answer(&engine.feed(&user, page).await?, fields))
}

/// `GET /v1/users/{user}/posts`
pub(in crate::http) async fn own_page(request: HttpRequest, engine: Live) -> Result<HttpResponse, Problem> {
    let Asked { user, page, fields } = asked(&request)?;
    let page = match Caller::of(&request)?.is_user() {
        true => engine.own_page_for_owner(&user, page).await?,
        false => engine.own_page(&user, page).await?,
    };
    Ok(answer(&page, fields))
}

/// A page as it is answered.
pub(in crate::http) fn answer(page: &FeedPage, fields: Fields) -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(page_json::page(page, fields))
}
