//! The slot of the engine in the API: it is empty while the state is recovered.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest};

use crate::http::problem::Problem;
use tidewire::engine::Engine;
use tidewire::recovery::{RecoveryProgress, RecoveryReport};

/// The slot of the engine. Clones refer to the same slot.
#[derive(Clone, Default)]
pub struct Slot(Arc<Inner>);

#[derive(Default)]
struct Inner {
    engine: OnceLock<Engine>,
    report: OnceLock<RecoveryReport>,
    progress: RecoveryProgress,
}

impl Slot {
    /// Returns the engine, or `None` during recovery.
    pub fn engine(&self) -> Option<&Engine> {
        self.0.engine.get()
    }

    /// Stores the engine. Does nothing if the slot is already filled.
    pub fn fill(&self, engine: Engine) {
        let _ = self.0.engine.set(engine);
    }

    /// Stores a recovered engine with its recovery report. Does nothing if the slot is already filled.
    pub fn fill_recovered(&self, engine: Engine, report: RecoveryReport) {
        let _ = self.0.report.set(report);
        self.fill(engine);
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

impl From<Engine> for Slot {
    fn from(engine: Engine) -> Self {
        let slot = Self::default();
        slot.fill(engine);
        slot
    }
}

/// Creates the problem for requests during recovery, with status 503.
pub(super) fn recovering() -> Problem {
    let detail = "the state is being recovered; GET /readyz says how far it is";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "recovering", detail).retry_soon()
}

/// The engine as an argument of handlers. The request is refused with 503 while there is no engine.
pub(super) struct Live(Engine);

impl Deref for Live {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.0
    }
}

impl FromRequest for Live {
    type Error = Problem;
    type Future = std::future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let engine = request.app_data::<Data<Slot>>().and_then(|slot| slot.engine().cloned());
        std::future::ready(engine.map(Self).ok_or_else(recovering))
    }
}
