//! Admission: how much of each kind of work may be under way at the same time.
//!
//! Responsible for:
//! - refusing what is too much before anything is done for it, each kind apart, so that reads go on while writes are refused,
//!   and both while operators' requests or live connections come in masses.
//!
//! Not responsible for:
//! - queues inside the engine, which have limits of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use actix_web::http::StatusCode;

use crate::api::operation::Work;
use crate::api::problem::Problem;
use crate::limits::{
    BULK_REQUEST_BYTES_MAX, BULK_WRITES_MAX, JOINS_MAX, OPERATIONS_MAX, READS_MAX, REQUEST_BYTES_MAX, WRITE_BYTES_MAX,
    WRITES_MAX,
};

/// How much may be under way at the same time.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// Reads. Default 1,024.
    pub reads: usize,
    /// Writes. Default 4,096.
    pub writes: usize,
    /// Bytes that the bodies of writes say they have. Default 256 MiB.
    pub write_bytes: usize,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self { reads: READS_MAX, writes: WRITES_MAX, write_bytes: WRITE_BYTES_MAX }
    }
}

/// One limit, how much of it is taken, and how often it was asked for more.
#[derive(Debug)]
pub(super) struct Gate {
    /// What it bounds.
    pub(super) name: &'static str,
    pub(super) limit: usize,
    taken: AtomicUsize,
    refused: AtomicU64,
}

impl Gate {
    const fn new(name: &'static str, limit: usize) -> Self {
        Self { name, limit, taken: AtomicUsize::new(0), refused: AtomicU64::new(0) }
    }

    /// How much is taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// How often there was no room.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn enter(&self, much: usize) -> Result<(), Problem> {
        let enter = |taken: usize| taken.checked_add(much).filter(|taken| *taken <= self.limit);
        if self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).is_ok() {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        let detail = format!("no room for more {}: {} may be under way", self.name, self.limit);
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail).retry_after(1))
    }

    fn leave(&self, much: usize) {
        self.taken.fetch_sub(much, Ordering::Relaxed);
    }
}

/// All limits.
#[derive(Debug)]
pub struct Admission {
    reads: Gate,
    writes: Gate,
    write_bytes: Gate,
    bulk_writes: Gate,
    joins: Gate,
    operations: Gate,
}

impl Admission {
    /// Nothing is under way.
    pub fn new(limits: AdmissionLimits) -> Arc<Self> {
        Arc::new(Self {
            reads: Gate::new("reads", limits.reads),
            writes: Gate::new("writes", limits.writes),
            write_bytes: Gate::new("write_bytes", limits.write_bytes),
            bulk_writes: Gate::new("bulk_writes", BULK_WRITES_MAX),
            joins: Gate::new("live_joins", JOINS_MAX),
            operations: Gate::new("operations", OPERATIONS_MAX),
        })
    }

    /// All gates.
    pub(super) fn gates(&self) -> [&Gate; 6] {
        [&self.reads, &self.writes, &self.write_bytes, &self.bulk_writes, &self.joins, &self.operations]
    }

    /// Lets work begin whose request says that its body has so many bytes. It is under way until the permit is dropped.
    pub(super) fn enter(self: &Arc<Self>, work: Work, body_bytes: Option<usize>) -> Result<Permit, Problem> {
        let mut permit = Permit { admission: Arc::clone(self), gate: None, bytes: 0 };
        let Some(gate) = self.gate(work) else { return Ok(permit) };
        gate.enter(1)?;
        permit.gate = Some(work);
        // More than that is refused anyway.
        let bytes_max = match work {
            Work::Write => REQUEST_BYTES_MAX,
            Work::BulkWrite => BULK_REQUEST_BYTES_MAX,
            Work::None | Work::Read | Work::Live | Work::Operation => 0,
        };
        let bytes = body_bytes.unwrap_or(bytes_max).min(bytes_max);
        self.write_bytes.enter(bytes)?;
        permit.bytes = bytes;
        Ok(permit)
    }

    fn gate(&self, work: Work) -> Option<&Gate> {
        match work {
            Work::None => None,
            Work::Read => Some(&self.reads),
            Work::Write => Some(&self.writes),
            Work::BulkWrite => Some(&self.bulk_writes),
            Work::Live => Some(&self.joins),
            Work::Operation => Some(&self.operations),
        }
    }
}

/// Work that is under way.
#[derive(Debug)]
pub(super) struct Permit {
    admission: Arc<Admission>,
    gate: Option<Work>,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.write_bytes.leave(self.bytes);
        if let Some(gate) = self.gate.and_then(|work| self.admission.gate(work)) {
            gate.leave(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AdmissionLimits = AdmissionLimits { reads: 2, writes: 3, write_bytes: 1_000 };

    fn is_refused(entered: &Result<Permit, Problem>) -> bool {
        entered.is_err()
    }

    #[test]
    fn each_kind_of_work_has_a_limit_of_its_own_and_room_comes_back() {
        let admission = Admission::new(LIMITS);
        let reads: Vec<_> = (0..2).map(|_| admission.enter(Work::Read, None).unwrap()).collect();
        assert!(is_refused(&admission.enter(Work::Read, None)));
        let write = admission.enter(Work::Write, Some(10)).unwrap();
        assert!(admission.enter(Work::None, None).is_ok(), "whether the server lives can always be asked");
        drop(reads);
        assert!(admission.enter(Work::Read, None).is_ok());
        drop(write);
        assert!(admission.gates().iter().all(|gate| gate.taken() == 0));
        assert_eq!(admission.gates().map(Gate::refused), [1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn bodies_are_bounded_by_what_they_say_they_have() {
        let admission = Admission::new(LIMITS);
        let write = admission.enter(Work::Write, Some(900)).unwrap();
        assert!(is_refused(&admission.enter(Work::Write, Some(101))));
        assert!(is_refused(&admission.enter(Work::Write, None)), "one that says nothing may have the most");
        assert_eq!(admission.gates()[1].taken(), 1, "what was refused takes nothing");
        assert!(admission.enter(Work::Write, Some(100)).is_ok());
        drop(write);
        assert_eq!(admission.gates()[2].taken(), 0);
    }
}
