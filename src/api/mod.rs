//! The HTTP door: JSON in, JSON out, over the [`Engine`](crate::engine::Engine).
//!
//! Responsible for:
//! - checking requests, turning engine answers into responses, and every refusal into a problem document.
//!
//! Not responsible for:
//! - any decision about feeds: a handler calls the engine once and forwards what it says.

pub mod admission;
mod answer;
mod choices;
pub mod description;
mod door;
mod explain;
mod feeds;
mod follows;
mod lists;
mod live;
mod operation;
mod operations;
mod page_json;
mod posts;
pub mod problem;
mod request;
mod routes;
pub mod serve;
pub mod slot;
mod upgrade;

use std::sync::Arc;

use crate::api::admission::{Admission, AdmissionLimits};
use crate::api::slot::Slot;
use crate::engine::Engine;

/// What the server works with. Clones are the same.
#[derive(Clone)]
pub struct Api {
    /// Where the engine is, once it is there.
    pub slot: Slot,
    /// How much may be under way.
    pub admission: Arc<Admission>,
}

impl From<Slot> for Api {
    /// With default limits.
    fn from(slot: Slot) -> Self {
        Self { slot, admission: Admission::new(AdmissionLimits::default()) }
    }
}

impl From<Engine> for Api {
    fn from(engine: Engine) -> Self {
        Slot::from(engine).into()
    }
}
