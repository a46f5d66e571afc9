//! All users in pages, by ascending id: `GET /v1/users`.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse, rt, web};

use crate::http::admission::turn::Turn;
use crate::http::answer;
use crate::http::collected::Collected;
use crate::http::engine_cell::ReadyEngine;
use crate::http::handlers::diagnostics::found_source;
use crate::http::problem::Problem;
use crate::http::request::{Parameters, invalid_parameter};
use tidewire::engine::{AllUsers, Engine, SourceInfo};
use tidewire::error::Error;
use tidewire::feed::cursor;
use tidewire::limits::{USER_ID_BYTES_MAX, USERS_PAGE_DEFAULT, USERS_PAGE_MAX};

/// Handles `GET /v1/users`.
pub(in crate::http) async fn list(
    request: HttpRequest,
    engine: ReadyEngine,
    collected: Data<Collected<AllUsers>>,
) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["prefix", "limit", "cursor"])?;
    let prefix = parameters.text("prefix").unwrap_or_default();
    if prefix.len() > USER_ID_BYTES_MAX {
        return Err(invalid_parameter(
            "prefix",
            &format!("the id of a user has at most {USER_ID_BYTES_MAX} characters"),
        ));
    }
    let limit = parameters.limit_of(USERS_PAGE_DEFAULT, USERS_PAGE_MAX)?;
    // Parsed as text, because earlier versions accepted ids that are invalid now.
    let after = parameters.cursor("cursor", cursor::decode_name::<String>)?;
    let of = Engine::clone(&engine);
    let collect = async move { web::block(move || of.all_users()).await.map_err(|_| Error::ShuttingDown) };
    // The first page includes all users at the time of the request. A client that copies all users and then follows the changes needs
    // this.
    let collecting = Collected::get(collected.into_inner(), after.is_none(), collect);
    // Runs in its own task, so that clients who disconnect and retry find the collected users, and the server does not collect them
    // again.
    let users = Turn::of(&request)?.wait(rt::spawn(collecting)).await?.map_err(|_| Error::ShuttingDown)??;
    let found = engine.users_after(&users, prefix, after.as_deref(), limit + 1);
    Ok(answer::listing(&found, limit, found_source, |SourceInfo { id, .. }| cursor::encode_name(id.as_str())))
}
