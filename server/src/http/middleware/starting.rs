//! Event streams that are requested shortly before the state is recovered. They wait, because `EventSource` does not retry after a
//! refusal.

use std::net::SocketAddr;

use actix_web::dev::ServiceRequest;
use actix_web::rt::time::timeout;

use crate::http::engine_cell::{EngineCell, RECOVERING, recovering};
use crate::http::middleware::pipeline_state::PipelineState;
use crate::http::operation::Operation;
use crate::http::problem::Problem;
use crate::http::request::accepts_events;

/// Returns true if this is a request for an event stream that only the recovery delays, and the recovery is nearly done. `refused` is the
/// refusal of its credentials.
pub(super) fn should_wait(
    engine_cell: &EngineCell,
    operation: &Operation,
    request: &ServiceRequest,
    refused: Option<&Problem>,
) -> bool {
    let is_let_in = match refused {
        None => engine_cell.engine().is_none(),
        // The engine may have become available meanwhile.
        Some(problem) => problem.code() == RECOVERING,
    };
    let is_soon = || engine_cell.engine().is_some() || engine_cell.progress().is_nearly_done();
    is_let_in && operation.lasts && accepts_events(request.headers()) && is_soon()
}

/// Waits until the state is recovered, at most for the time that a request may wait.
///
/// # Errors
/// Fails if too many requests wait in total, or from this address.
pub(super) async fn wait(state: &PipelineState, peer: Option<SocketAddr>) -> Result<(), Problem> {
    let client = state.open_paths.client_at(peer);
    let _place = state.admission.wait_for_recovery(client).map_err(|_| recovering())?;
    // The request continues even if the time is over.
    let _ = timeout(state.recovery_wait_max, state.engine_cell.ready()).await;
    Ok(())
}
