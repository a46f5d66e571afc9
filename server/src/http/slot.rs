//! The place of the engine behind the API: empty while the state is being recovered.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest};

use crate::http::problem::Problem;
use tidewire::engine::Engine;
use tidewire::storage::recovery::{Progress, Report};

/// Where the engine is, once it is there. Clones are the same place.
#[derive(Clone, Default)]
pub struct Slot(Arc<Inner>);

#[derive(Default)]
struct Inner {
    engine: OnceLock<Engine>,
    report: OnceLock<Report>,
    progress: Progress,
}

impl Slot {
    /// The engine, once its state is recovered.
    pub fn engine(&self) -> Option<&Engine> {
        self.0.engine.get()
    }

    /// Puts the engine there. The first one stays.
    pub fn fill(&self, engine: Engine) {
        let _ = self.0.engine.set(engine);
    }

    /// Puts an engine there that was recovered, with what was found then. The first one stays.
    pub fn fill_recovered(&self, engine: Engine, report: Report) {
        let _ = self.0.report.set(report);
        self.fill(engine);
    }

    /// What was found when the engine was recovered, if it was.
    pub fn report(&self) -> Option<&Report> {
        self.0.report.get()
    }

    /// How far its recovery has come.
    pub fn progress(&self) -> &Progress {
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

/// There is no engine yet.
pub(super) fn recovering() -> Problem {
    let detail = "the state is being recovered; GET /readyz says how far it is";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "recovering", detail).retry_soon()
}

/// The engine, as a handler asks for it. Refused while there is none.
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
