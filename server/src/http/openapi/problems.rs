//! Refusals in the description: the problem codes of each kind of operation, and their encoding as OpenAPI.

use std::collections::{BTreeMap, BTreeSet};

use actix_web::http::StatusCode;
use serde_json::{Value, json};

use crate::http::openapi::schemas::schema;
use crate::http::operation::{HandledBy, Needs, Operation, Right, WorkKind};

/// Problem codes by status.
#[derive(Default)]
pub(super) struct Refusals(BTreeMap<u16, BTreeSet<&'static str>>);

impl Refusals {
    /// Adds codes to a status.
    pub(super) fn add(&mut self, status: u16, codes: &[&'static str]) {
        self.0.entry(status).or_default().extend(codes);
    }

    /// Adds all codes of `others`.
    pub(super) fn merge(&mut self, others: Self) {
        for (status, codes) in others.0 {
            self.0.entry(status).or_default().extend(codes);
        }
    }

    /// Returns each status with its response object.
    pub(super) fn responses(&self) -> impl Iterator<Item = (String, Value)> {
        self.0.iter().map(|(status, codes)| (status.to_string(), response(*status, codes)))
    }
}

/// Returns the refusals of an operation by the middleware and during recovery.
pub(super) fn of_operation(operation: &Operation) -> Refusals {
    let Operation { needs, work, lasts, handled_by, .. } = *operation;
    let mut refusals = Refusals::default();
    if needs != Needs::Nothing {
        refusals.add(401, &["unauthenticated", "invalid_token", "token_expired", "token_not_yet_valid"]);
        refusals.add(401, &["token_issued_in_future", "token_lifetime_too_long", "token_revoked"]);
        refusals.add(403, &["forbidden", "unknown_host"]);
        refusals.add(429, &["rate_limited", "too_many_denials"]);
    } else {
        refusals.add(429, &["rate_limited"]);
    }
    if lasts {
        refusals.add(403, &["foreign_page"]);
    }
    if work == WorkKind::Live {
        refusals.add(409, &["being_erased"]);
    }
    if let Needs::Server(Right::Write) | Needs::Own(Right::Write) | Needs::Author(Right::Write) = needs {
        refusals.add(403, &["foreign_page"]);
        refusals.add(403, &["read_only"]);
    }
    if let Needs::Named(_) = needs {
        refusals.add(403, &["foreign_page"]);
    }
    if work != WorkKind::None {
        refusals.add(503, &["overloaded", "recovering", "shutting_down"]);
    }
    if matches!(work, WorkKind::Write | WorkKind::BulkWrite) {
        refusals.add(500, &["archive_failed"]);
        refusals.add(409, &["being_erased"]);
        refusals.add(503, &["archive_unavailable", "journal_failed", "out_of_files"]);
        refusals.add(507, &["disk_full", "store_full"]);
    }
    if needs != Needs::Nothing {
        refusals.add(400, &["invalid_hop"]);
        refusals.add(403, &["not_a_node"]);
    }
    if needs != Needs::Nothing && handled_by != HandledBy::Sequencer {
        // Of the header `Tidewire-After`.
        refusals.add(400, &["invalid_header"]);
        refusals.add(503, &["not_applied_yet"]);
    }
    match handled_by {
        HandledBy::AnyNode => {}
        HandledBy::NamedNode => {
            refusals.add(404, &["no_cluster", "unknown_node"]);
            refusals.add(503, &["node_unavailable"]);
        }
        HandledBy::Owner | HandledBy::Owners => refusals.add(503, &["owner_unavailable"]),
        HandledBy::Sequencer => {
            refusals.add(503, &["log_unavailable", "outcome_unknown", "owner_unavailable", "sequencer_unavailable"]);
        }
    }
    refusals
}

/// Adds the refusals of invalid requests.
pub(super) fn of_request(refusals: &mut Refusals, has_path: bool, has_query: bool, has_body: bool) {
    refusals.add(400, &["unknown_parameter", "invalid_upgrade"]);
    if has_path {
        refusals.add(400, &["invalid_path"]);
    }
    if has_query {
        refusals.add(400, &["invalid_parameter"]);
    }
    if has_body {
        let codes = ["invalid_json", "invalid_body", "invalid_field", "missing_field", "unknown_field"];
        refusals.add(400, &codes);
        refusals.add(400, &["duplicate_field"]);
        refusals.add(408, &["body_timeout"]);
        refusals.add(413, &["body_too_large"]);
        refusals.add(415, &["unsupported_media_type"]);
    }
}

fn response(status: u16, codes: &BTreeSet<&'static str>) -> Value {
    let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error");
    let example = json!({
        "type": "about:blank",
        "title": title,
        "status": status,
        "code": codes.first(),
        "detail": "what failed and why, for people",
    });
    // One schema for all refusals, so that generated clients have one type for them.
    let mut response = json!({
        "description": description(status),
        "content": {"application/problem+json": {"schema": schema("Problem"), "example": example}},
        "x-codes": codes,
    });
    if let Some((name, header)) = header(status) {
        response["headers"] = json!({name: header});
    }
    response
}

fn description(status: u16) -> &'static str {
    match status {
        400 => "The request is invalid; `field` names the field, path part or parameter.",
        401 => "The client is not authenticated.",
        403 => "The client is not allowed to do this.",
        404 => "It does not exist.",
        408 => "The body did not arrive in time.",
        409 => "The request conflicts with the current state.",
        410 => "It is no longer available.",
        413 => "The body is too large.",
        415 => "The body is not sent as `application/json`.",
        422 => "The request is valid, but cannot be executed.",
        426 => "The operation needs a WebSocket handshake.",
        429 => "The client exceeds a limit.",
        503 => {
            "The server is overloaded or not ready. Nothing was done, except possibly with `outcome_unknown`. Retry later."
        }
        507 => "There is not enough space. Nothing was done.",
        _ => "The server failed.",
    }
}

/// Returns the response header of a status. `Retry-After` is present if a code is temporary.
fn header(status: u16) -> Option<(&'static str, Value)> {
    let text = |description: &str| json!({"description": description, "schema": {"type": "string"}});
    match status {
        401 => Some(("WWW-Authenticate", text("`Bearer`, with the fault of the token."))),
        426 => Some(("Upgrade", json!({"description": "The required protocol.", "schema": {"const": "websocket"}}))),
        429 | 500 | 503 | 507 => {
            let seconds = json!({"type": "integer", "minimum": 1});
            let description = "Seconds after which a retry may succeed; missing if waiting does not help.";
            Some(("Retry-After", json!({"description": description, "schema": seconds})))
        }
        _ => None,
    }
}
