//! The cell that holds the engine of the server: it is empty while the state is recovered.

use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest};
use tokio::sync::Notify;

use crate::http::problem::Problem;
use tidewire::engine::Engine;
use tidewire::recovery::{RecoveryProgress, RecoveryReport};

/// A cell for the engine, which is written once. Clones refer to the same cell.
#[derive(Clone, Default)]
pub struct EngineCell(Arc<Inner>);

/// A reference to a cell that does not keep the engine alive.
pub(super) struct WeakEngineCell(Weak<Inner>);

impl WeakEngineCell {
    /// Returns the cell, unless the server no longer exists.
    pub(super) fn upgrade(&self) -> Option<EngineCell> {
        self.0.upgrade().map(EngineCell)
    }
}

#[derive(Default)]
struct Inner {
    engine: OnceLock<Engine>,
    /// Notified when the engine is stored.
    stored: Notify,
    report: OnceLock<RecoveryReport>,
    progress: RecoveryProgress,
}

impl EngineCell {
    /// Returns the engine, or `None` during recovery.
    pub fn engine(&self) -> Option<&Engine> {
        self.0.engine.get()
    }

    /// Returns a reference that does not keep the engine alive.
    pub(super) fn downgrade(&self) -> WeakEngineCell {
        WeakEngineCell(Arc::downgrade(&self.0))
    }

    /// Stores the engine. Does nothing if the cell already has one.
    pub fn set(&self, engine: Engine) {
        let _ = self.0.engine.set(engine);
        self.0.stored.notify_waiters();
    }

    /// Waits until there is an engine.
    pub(super) async fn ready(&self) {
        // This future receives the notification from here on, even if it is not polled yet.
        let stored = self.0.stored.notified();
        if self.engine().is_none() {
            stored.await;
        }
    }

    /// Stores a recovered engine with its recovery report. Does nothing if the cell already has one.
    pub fn set_recovered(&self, engine: Engine, report: RecoveryReport) {
        let _ = self.0.report.set(report);
        self.set(engine);
    }

    /// Returns the recovery report, if the engine was recovered.
    pub fn report(&self) -> Option<&RecoveryReport> {
        self.0.report.get()
    }

    /// Returns the progress of the recovery.
    pub fn progress(&self) -> &RecoveryProgress {
        &self.0.progress
    }
}

impl From<Engine> for EngineCell {
    fn from(engine: Engine) -> Self {
        let engine_cell = Self::default();
        engine_cell.set(engine);
        engine_cell
    }
}

/// The code of the refusal of requests during recovery.
pub(super) const RECOVERING: &str = "recovering";

/// Creates the problem for requests during recovery, with status 503.
pub(super) fn recovering() -> Problem {
    let detail = "the state is being recovered; GET /readyz reports the progress";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, RECOVERING, detail).retry_soon()
}

/// The engine as an argument of handlers. The request is refused with 503 while there is no engine.
pub(super) struct ReadyEngine(Engine);

impl Deref for ReadyEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.0
    }
}

impl FromRequest for ReadyEngine {
    type Error = Problem;
    type Future = std::future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let engine = request.app_data::<Data<EngineCell>>().and_then(|engine_cell| engine_cell.engine().cloned());
        std::future::ready(engine.map(Self).ok_or_else(recovering))
    }
}
