//! Requests for pages, as arguments of handlers.
//!
//! Responsible for:
//! - parsing the parameters of a page, and admitting a read that has to wake its reader.

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest};

use crate::http::admission::{Admission, Permit};
use crate::http::engine_cell::EngineCell;
use crate::http::operation::WorkKind;
use crate::http::page_json::Fields;
use crate::http::problem::Problem;
use crate::http::request::{Parameters, user};
use tidewire::id::SourceId;
use tidewire::state::reader::PageRequest;

/// A request for a page.
pub(in crate::http) struct PageQuery {
    pub(in crate::http) user: SourceId,
    pub(in crate::http) page: PageRequest,
    pub(in crate::http) fields: Fields,
}

impl PageQuery {
    fn parse(request: &HttpRequest) -> Result<Self, Problem> {
        let parameters = Parameters::read(request, &["limit", "before", "after", "fields"])?;
        let fields = if parameters.flag("fields", "ids")? { Fields::Ids } else { Fields::All };
        Ok(Self { user: user(request)?, page: parameters.page()?, fields })
    }
}

impl FromRequest for PageQuery {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::parse(request))
    }
}

/// A request for a page of a home feed.
pub(in crate::http) struct HomeQuery {
    pub(in crate::http) page_query: PageQuery,
    /// Held until the page is built, if the reader has to be woken for it.
    _wake_up: Option<Permit>,
}

impl FromRequest for HomeQuery {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        // An invalid request is refused before it takes a permit.
        let admit = |page_query: PageQuery| Ok(Self { _wake_up: wake_up(request, &page_query.user)?, page_query });
        ready(PageQuery::parse(request).and_then(admit))
    }
}

/// Takes the permit to wake a reader, unless it is awake: waking costs far more than a page of an awake reader. Without an engine there is
/// nothing to wake, and the request is refused for that.
fn wake_up(request: &HttpRequest, reader: &SourceId) -> Result<Option<Permit>, Problem> {
    let engine = request.app_data::<Data<EngineCell>>().and_then(|engine_cell| engine_cell.engine());
    if engine.is_none_or(|engine| engine.is_awake(reader)) {
        return Ok(None);
    }
    let admission =
        request.app_data::<Data<Admission>>().ok_or_else(|| Problem::internal(&"the server has no admission"))?;
    admission.enter(WorkKind::WakeUp).map(Some)
}
