//! Readiness: reports if this process answers reads, and if it accepts writes.

use std::sync::atomic::{AtomicU64, Ordering};

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

#[cfg(feature = "cluster")]
use crate::http::cluster::Peers;
use crate::http::engine_cell::EngineCell;
use crate::http::problem::Problem;
use crate::http::request::Parameters;
use tidewire::cluster::placement::{Place, Placement, Readiness};
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::storage::journal::space::WriteRefusal;

/// The reason for refusing writes in a cluster without a sequencer, or in which this node does not know the sequencer.
const NO_SEQUENCER: &str = "sequencer_unavailable";

/// Returns all reasons why a process refuses all writes: the codes of the refusals.
pub(in crate::http) fn reasons() -> impl Iterator<Item = &'static str> {
    WriteRefusal::ALL.map(WriteRefusal::code).into_iter().chain([NO_SEQUENCER])
}

/// Returns the reason why all writes are refused, or `None` if they are accepted.
pub(super) fn writes_refused(engine: &Engine, placement: Option<&dyn Placement>) -> Option<&'static str> {
    let of_journal = engine.journal().and_then(|journal| journal.refusal()).map(WriteRefusal::code);
    of_journal.or_else(|| (placement?.sequencer() == Place::Nowhere).then_some(NO_SEQUENCER))
}

/// Returns the placement of users and of the sequencer, if this server is a node of a cluster.
#[cfg(feature = "cluster")]
pub(super) fn placement(request: &HttpRequest) -> Option<&dyn Placement> {
    request.app_data::<Data<Peers>>().map(|peers| peers.cluster().placement())
}

/// Returns `None`: without the feature, no server is a node.
#[cfg(not(feature = "cluster"))]
pub(super) fn placement(_: &HttpRequest) -> Option<&dyn Placement> {
    None
}

/// Handles `GET /healthz`.
pub(in crate::http) async fn alive(request: HttpRequest) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    Ok(HttpResponse::Ok().json(json!({"alive": true})))
}

/// Handles `GET /readyz`: reports the progress of the recovery, and if writes are accepted. With `?for=writes`, a process that refuses
/// writes is not ready.
pub(in crate::http) async fn ready(
    request: HttpRequest,
    engine_cell: Data<EngineCell>,
) -> Result<HttpResponse, Problem> {
    let for_writes = Parameters::read(&request, &["for"])?.flag("for", "writes")?;
    let placement = placement(&request);
    let part = placement.map(|placement| placement.readiness());
    if part == Some(Readiness::Leaving) {
        // Load balancers stop sending requests before the listener closes.
        let detail = "this node is shutting down: send requests to another node";
        return Err(Problem::unavailable("leaving", detail).retry_soon());
    }
    let Some(engine) = engine_cell.engine() else { return Ok(recovering(&engine_cell)) };
    match part {
        Some(Readiness::Joining) => {
            let detail = "this node has read the log, but owns no readers yet";
            return Err(Problem::unavailable("joining", detail).retry_soon());
        }
        Some(Readiness::CutOff) => {
            let detail =
                "this node cannot read the log of the cluster, so it answers no reads: send requests to another node";
            return Err(Problem::unavailable("owner_unavailable", detail).retry_soon());
        }
        Some(Readiness::Leaving | Readiness::Ready) | None => {}
    }
    // Only a restart ends this state, so the readiness check must report it.
    if let Some(cause) = engine.journal().and_then(|journal| journal.failure()) {
        return Err(Error::JournalFailed(cause).into());
    }
    match writes_refused(engine, placement) {
        None => Ok(HttpResponse::Ok().json(json!({"ready": true, "writes": true}))),
        Some(code) if for_writes => {
            Err(Problem::unavailable(code, "the server refuses all writes; reads continue").retry_soon())
        }
        Some(code) => Ok(HttpResponse::Ok().json(json!({"ready": true, "writes": false, "refused": code}))),
    }
}

/// Returns the answer before the state is recovered.
fn recovering(engine_cell: &EngineCell) -> HttpResponse {
    let progress = engine_cell.progress();
    let number = |number: &AtomicU64| number.load(Ordering::Relaxed);
    HttpResponse::ServiceUnavailable().json(json!({
        "ready": false,
        "recovery": {
            "phase": progress.phase(),
            "snapshot_bytes": number(&progress.snapshot_bytes),
            "snapshot_bytes_total": number(&progress.snapshot_bytes_total),
            "events": number(&progress.events),
        },
    }))
}
