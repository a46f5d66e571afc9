//! Requests for pages, as arguments of handlers.

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};

use crate::http::post_json::Fields;
use crate::http::problem::Problem;
use crate::http::request::{Parameters, user};
use tidewire::id::SourceId;
use tidewire::state::reader::PageRequest;

/// A request for a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::http) struct PageQuery {
    pub(in crate::http) user: SourceId,
    pub(in crate::http) page: PageRequest,
    pub(in crate::http) fields: Fields,
}

/// The query parameters of a page.
const PARAMETERS: &[&str] = &["limit", "before", "after", "fields"];

impl PageQuery {
    /// Parses the user in the path and the parameters.
    pub(in crate::http) fn parse(request: &HttpRequest) -> Result<Self, Problem> {
        let parameters = Parameters::read(request, PARAMETERS)?;
        Ok(Self { user: user(request)?, page: parameters.page()?, fields: fields(&parameters)? })
    }

    /// Parses a user and parameters that were not encoded, or returns `None` if one of them is invalid.
    pub(in crate::http) fn of<'a>(user: &str, parameters: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        let pairs = parameters.map(|(name, value)| (name.into(), value.into())).collect();
        let parameters = Parameters::of(pairs, PARAMETERS).ok()?;
        Some(Self { user: user.parse().ok()?, page: parameters.page().ok()?, fields: fields(&parameters).ok()? })
    }
}

/// Parses the fields of each post that are requested; by default all, without counts.
pub(in crate::http) fn fields(parameters: &Parameters) -> Result<Fields, Problem> {
    Ok(parameters.parsed("fields")?.unwrap_or_default())
}

impl FromRequest for PageQuery {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::parse(request))
    }
}
