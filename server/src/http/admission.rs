//! Admission control: limits how much work of each kind may be in progress at the same time.
//!
//! Responsible for:
//! - refusing excess work before any effort is spent on it. Each kind has its own limit, so reads continue while writes are refused, and
//!   both continue during many operator requests or live connections;
//! - limiting the bytes of bodies: of request bodies from before they are read, of response bodies until they are sent; and the share of
//!   these bytes that one client may use.
//!
//! Not responsible for:
//! - queues inside the engine, which have their own limits; minimum transfer rates (`http::middleware::pace`).
//!
//! Work counts while it is done, and bytes count while they are in memory. So a slow client occupies bytes, but no permits for work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{HttpMessage as _, HttpRequest};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::Semaphore;

use crate::http::client::Client;
use crate::http::operation::WorkKind;
use crate::http::problem::Problem;
use tidewire::limits::{
    BULK_REQUEST_BYTES_MAX, FEEDS_PER_REQUEST_MAX, LIVE_UNAUTHENTICATED_MAX, OPERATIONS_MAX, READS_MAX,
    SCRIBE_BATCH_MAX,
};

/// Maximum number of unread counts for live connections in progress. Few, so that the pages that clients ask for come soon.
const UNREAD_COUNTS_MAX: usize = 32;

/// Maximum number of metrics requests in progress: a few collectors, whose capacity no other request takes.
const METRICS_MAX: usize = 8;

/// Maximum number of live connections that are being admitted at the same time.
const JOINS_MAX: usize = 2_048;

/// Maximum number of bulk writes in progress.
const BULK_WRITES_MAX: usize = 16;

/// Limit on pages of requests for many readers, as a multiple of the limit on reads: such a request counts each of its pages, but builds
/// most of them one after the other.
const BULK_READS_PER_READ: usize = 4;

/// Number of clients that can fill a byte limit together: one client may reserve at most this fraction of the limit. It is small, so that a
/// single client is not slowed down.
const CLIENTS_PER_GATE: usize = 16;

/// Maximum bytes of responses that clients have not received yet: some forty of the largest pages.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// Maximum total bytes of the bodies of writes in progress, as far as the requests declare their length.
const WRITE_BYTES_MAX: usize = 256 << 20;

/// Maximum number of writes in progress: the number that the scribe journals in one batch.
const WRITES_MAX: usize = SCRIBE_BATCH_MAX;

/// Maximum number of these reads that have to wake their reader first.
const WAKE_UPS_MAX: usize = READS_MAX / 2;

/// Limits on concurrent work.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// Maximum concurrent reads. Default 1,024.
    pub reads: usize,
    /// Maximum concurrent reads that wake their reader. Default 512, less than `reads`, so that some are left for awake readers.
    pub wake_ups: usize,
    /// Maximum concurrent writes. Default 4,096.
    pub writes: usize,
    /// Maximum bytes of request bodies, by their declared length. Default 256 MiB.
    pub write_bytes: usize,
    /// Maximum bytes of response bodies that are not sent yet. Default 256 MiB.
    pub response_bytes: usize,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self {
            reads: READS_MAX,
            wake_ups: WAKE_UPS_MAX,
            writes: WRITES_MAX,
            write_bytes: WRITE_BYTES_MAX,
            response_bytes: RESPONSE_BYTES_MAX,
        }
    }
}

/// One limit with its current use and the number of refusals.
#[derive(Debug)]
pub(in crate::http) struct Gate {
    /// The name in metrics and statistics.
    pub(in crate::http) name: &'static str,
    pub(in crate::http) limit: usize,
    taken: AtomicUsize,
    refused: AtomicU64,
}

impl Gate {
    const fn new(name: &'static str, limit: usize) -> Self {
        Self { name, limit, taken: AtomicUsize::new(0), refused: AtomicU64::new(0) }
    }

    /// Returns the current use.
    pub(in crate::http) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns the number of refusals since the start.
    pub(in crate::http) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn enter(&self, much: usize) -> Result<(), Problem> {
        let enter = |taken: usize| taken.checked_add(much).filter(|taken| *taken <= self.limit);
        let entered = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter);
        entered.map(drop).map_err(|_| self.refuse(&format!("{} may be under way", self.limit)))
    }

    /// Checks that the limit is not reached, without taking anything.
    fn check(&self) -> Result<(), Problem> {
        if self.taken() < self.limit { Ok(()) } else { Err(self.refuse(&format!("{} may be under way", self.limit))) }
    }

    fn refuse(&self, why: &str) -> Problem {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let detail = format!("no room for more {}: {why}", self.name);
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail).retry_soon()
    }

    fn leave(&self, much: usize) {
        self.taken.fetch_sub(much, Ordering::Relaxed);
    }
}

/// A limit on bytes, of which one client may use no more than a share.
#[derive(Debug)]
struct SharedGate {
    gate: Gate,
    share: usize,
    /// The bytes in use by client. Clients that use none have no entry.
    by_client: Mutex<FxHashMap<u64, usize>>,
}

impl SharedGate {
    fn new(name: &'static str, limit: usize) -> Self {
        // The share is at least the largest request body allowed.
        let share = (limit / CLIENTS_PER_GATE).max(BULK_REQUEST_BYTES_MAX);
        Self { gate: Gate::new(name, limit), share, by_client: Mutex::default() }
    }

    /// Checks that the limit and the client's share are not used up.
    fn check(&self, client: Client) -> Result<(), Problem> {
        self.gate.check()?;
        let Client::One(name) = client else { return Ok(()) };
        let is_over = self.by_client.lock().get(&name).is_some_and(|taken| *taken >= self.share);
        if is_over { Err(self.refuse_share()) } else { Ok(()) }
    }

    fn enter(&self, client: Client, bytes: usize) -> Result<(), Problem> {
        if bytes == 0 {
            return Ok(());
        }
        let Client::One(name) = client else { return self.gate.enter(bytes) };
        let mut by_client = self.by_client.lock();
        let of_client = by_client.get(&name).copied().unwrap_or(0).saturating_add(bytes);
        if of_client > self.share {
            drop(by_client);
            return Err(self.refuse_share());
        }
        self.gate.enter(bytes)?;
        by_client.insert(name, of_client);
        Ok(())
    }

    /// Takes the bytes even above the limit, for responses to completed work, which must be sent.
    fn enter_anyway(&self, client: Client, bytes: usize) {
        self.gate.taken.fetch_add(bytes, Ordering::Relaxed);
        if let Client::One(name) = client {
            *self.by_client.lock().entry(name).or_default() += bytes;
        }
    }

    fn leave(&self, client: Client, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.gate.leave(bytes);
        let Client::One(name) = client else { return };
        let mut by_client = self.by_client.lock();
        if let Some(taken) = by_client.get_mut(&name) {
            *taken -= bytes;
            if *taken == 0 {
                by_client.remove(&name);
            }
        }
    }

    fn refuse_share(&self) -> Problem {
        self.gate.refuse(&format!("{} may be one client's", self.share))
    }
}

/// The gates of all kinds of work.
#[derive(Debug)]
pub struct Admission {
    reads: Gate,
    bulk_reads: Gate,
    wakes: Gate,
    writes: Gate,
    write_bytes: SharedGate,
    bulk_writes: Gate,
    joins: Gate,
    handshakes: Gate,
    operations: Gate,
    metrics: Gate,
    response_bytes: SharedGate,
    unread_counts: Arc<Semaphore>,
}

/// The limits on the work of a request, if they are not those of clients. The pipeline stores them in requests of other nodes, so that
/// requests of clients cannot take their permits.
#[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "there is no other node"))]
pub(in crate::http) struct OtherLimits(pub(in crate::http) Arc<Admission>);

impl Admission {
    /// Returns the limits on the work of a request.
    pub(in crate::http) fn of(request: &HttpRequest) -> Result<Arc<Self>, Problem> {
        if let Some(OtherLimits(limits)) = request.extensions().get() {
            return Ok(Arc::clone(limits));
        }
        let of_clients = request.app_data::<Data<Self>>().map(|limits| Arc::clone(limits));
        of_clients.ok_or_else(|| Problem::internal(&"the server has no admission"))
    }

    /// Creates the gates with these limits.
    pub fn new(limits: AdmissionLimits) -> Arc<Self> {
        Arc::new(Self {
            reads: Gate::new("reads", limits.reads),
            // One request of any valid size is admitted.
            bulk_reads: Gate::new(
                "bulk_reads",
                limits.reads.saturating_mul(BULK_READS_PER_READ).max(FEEDS_PER_REQUEST_MAX),
            ),
            wakes: Gate::new("wake_ups", limits.wake_ups),
            writes: Gate::new("writes", limits.writes),
            write_bytes: SharedGate::new("write_bytes", limits.write_bytes),
            bulk_writes: Gate::new("bulk_writes", BULK_WRITES_MAX),
            joins: Gate::new("live_joins", JOINS_MAX),
            handshakes: Gate::new("live_strangers", LIVE_UNAUTHENTICATED_MAX),
            operations: Gate::new("operations", OPERATIONS_MAX),
            metrics: Gate::new("metrics", METRICS_MAX),
            response_bytes: SharedGate::new("response_bytes", limits.response_bytes),
            unread_counts: Arc::new(Semaphore::new(UNREAD_COUNTS_MAX)),
        })
    }

    /// Returns the permits for counts of unread entries on live connections. These wait for their turn, since nobody asked for one count.
    pub(in crate::http) fn unread_counts(&self) -> Arc<Semaphore> {
        Arc::clone(&self.unread_counts)
    }

    /// Returns all gates, for metrics and statistics.
    pub(in crate::http) fn gates(&self) -> [&Gate; 11] {
        [
            &self.reads,
            &self.bulk_reads,
            &self.wakes,
            &self.writes,
            &self.write_bytes.gate,
            &self.bulk_writes,
            &self.joins,
            &self.handshakes,
            &self.operations,
            &self.metrics,
            &self.response_bytes.gate,
        ]
    }

    /// Reserves bytes for a request body, before it is read.
    pub(in crate::http) fn receive(self: &Arc<Self>, client: Client, bytes: usize) -> Result<ByteReservation, Problem> {
        self.write_bytes.enter(client, bytes)?;
        Ok(ByteReservation { admission: Arc::clone(self), of: |admission| &admission.write_bytes, client, bytes })
    }

    /// Checks that work of this kind would be admitted now.
    pub(in crate::http) fn check(&self, work: WorkKind) -> Result<(), Problem> {
        self.gate(work).map_or(Ok(()), Gate::check)
    }

    /// Admits one unit of work. It is in progress until the permit is dropped.
    pub(in crate::http) fn enter(self: &Arc<Self>, work: WorkKind) -> Result<Permit, Problem> {
        self.enter_many(work, 1)
    }

    /// Admits several units of work, or none of them.
    pub(in crate::http) fn enter_many(self: &Arc<Self>, work: WorkKind, units: usize) -> Result<Permit, Problem> {
        self.gate(work).map_or(Ok(()), |gate| gate.enter(units))?;
        Ok(Permit { admission: Arc::clone(self), work, units })
    }

    /// Checks that there is capacity for a response to the client, so that no work is done whose response cannot be sent.
    pub(in crate::http) fn may_answer(&self, work: WorkKind, client: Client) -> Result<(), Problem> {
        match work {
            WorkKind::Read | WorkKind::BulkRead | WorkKind::Write | WorkKind::BulkWrite | WorkKind::Operation => {
                self.response_bytes.check(client)
            }
            WorkKind::None | WorkKind::WakeUp | WorkKind::Live | WorkKind::Handshake | WorkKind::Metrics => Ok(()),
        }
    }

    /// Reserves the bytes of a response until it is sent. Returns `None` for responses that are shared by all requests. The response to a
    /// change is never refused. Changes begin only while there is capacity, so the excess is bounded by the work in progress.
    pub(in crate::http) fn answer(
        self: &Arc<Self>,
        work: WorkKind,
        client: Client,
        bytes: usize,
    ) -> Result<Option<ByteReservation>, Problem> {
        match work {
            WorkKind::None | WorkKind::WakeUp | WorkKind::Live | WorkKind::Handshake => return Ok(None),
            WorkKind::Read | WorkKind::BulkRead | WorkKind::Operation => self.response_bytes.enter(client, bytes)?,
            WorkKind::Write | WorkKind::BulkWrite | WorkKind::Metrics => {
                self.response_bytes.enter_anyway(client, bytes);
            }
        }
        Ok(Some(ByteReservation {
            admission: Arc::clone(self),
            of: |admission| &admission.response_bytes,
            client,
            bytes,
        }))
    }

    fn gate(&self, work: WorkKind) -> Option<&Gate> {
        match work {
            WorkKind::None => None,
            WorkKind::Read => Some(&self.reads),
            WorkKind::BulkRead => Some(&self.bulk_reads),
            WorkKind::WakeUp => Some(&self.wakes),
            WorkKind::Write => Some(&self.writes),
            WorkKind::BulkWrite => Some(&self.bulk_writes),
            WorkKind::Live => Some(&self.joins),
            WorkKind::Handshake => Some(&self.handshakes),
            WorkKind::Operation => Some(&self.operations),
            WorkKind::Metrics => Some(&self.metrics),
        }
    }
}

/// A permit for units of work, released on drop.
#[derive(Debug)]
pub(in crate::http) struct Permit {
    admission: Arc<Admission>,
    work: WorkKind,
    units: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(gate) = self.admission.gate(self.work) {
            gate.leave(self.units);
        }
    }
}

/// A reservation of body bytes, released on drop.
#[derive(Debug)]
pub(in crate::http) struct ByteReservation {
    admission: Arc<Admission>,
    of: fn(&Admission) -> &SharedGate,
    client: Client,
    bytes: usize,
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        (self.of)(&self.admission).leave(self.client, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AdmissionLimits =
        AdmissionLimits { reads: 2, wake_ups: 1, writes: 3, write_bytes: 1_000, response_bytes: 1_000 };

    #[test]
    fn each_kind_of_work_has_a_limit_of_its_own_and_room_comes_back() {
        let admission = Admission::new(LIMITS);
        let reads: Vec<_> = (0..2).map(|_| admission.enter(WorkKind::Read).unwrap()).collect();
        assert!(admission.enter(WorkKind::Read).is_err());
        let write = admission.enter(WorkKind::Write).unwrap();
        assert!(admission.enter(WorkKind::None).is_ok(), "whether the server lives can always be asked");
        drop(reads);
        assert!(admission.enter(WorkKind::Read).is_ok());
        drop(write);
        assert!(admission.gates().iter().all(|gate| gate.taken() == 0));
        assert_eq!(admission.gates().map(Gate::refused), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_request_for_many_pages_takes_room_for_each_or_for_none() {
        let admission = Admission::new(AdmissionLimits { reads: 50, ..LIMITS });
        let one = admission.enter_many(WorkKind::BulkRead, FEEDS_PER_REQUEST_MAX).unwrap();
        let other = admission.enter_many(WorkKind::BulkRead, 99).unwrap();
        assert!(admission.enter_many(WorkKind::BulkRead, 2).is_err());
        assert!(admission.enter_many(WorkKind::BulkRead, 1).is_ok());
        assert!(admission.enter(WorkKind::Read).is_ok(), "other reads have room of their own");
        drop(one);
        assert!(admission.enter_many(WorkKind::BulkRead, FEEDS_PER_REQUEST_MAX).is_ok());
        drop(other);
        assert!(admission.gates().iter().all(|gate| gate.taken() == 0));
    }

    #[test]
    fn bodies_are_bounded_by_what_they_say_they_have() {
        let admission = Admission::new(LIMITS);
        let body = admission.receive(Client::Trusted, 900).unwrap();
        assert!(admission.receive(Client::Trusted, 101).is_err());
        assert!(admission.receive(Client::Trusted, 100).is_ok());
        drop(body);
        assert_eq!(admission.gates()[4].taken(), 0);
    }

    #[test]
    fn one_client_takes_no_more_than_its_share_of_bytes() {
        let admission = Admission::new(AdmissionLimits { write_bytes: CLIENTS_PER_GATE * (16 << 20), ..LIMITS });
        let share = 16 << 20;
        let bodies =
            [admission.receive(Client::One(7), share - 1).unwrap(), admission.receive(Client::One(7), 1).unwrap()];
        assert!(admission.receive(Client::One(7), 1).is_err());
        assert!(admission.receive(Client::One(8), share).is_ok(), "another one has a share of its own");
        assert!(admission.receive(Client::Trusted, 2 * share).is_ok(), "who acts for all has all there is");
        drop(bodies);
        assert!(admission.receive(Client::One(7), share).is_ok());
        assert!(admission.write_bytes.by_client.lock().is_empty(), "who holds nothing is forgotten");
    }

    #[test]
    fn what_was_done_is_told_past_the_limit_and_then_nothing_new_begins() {
        let admission = Admission::new(LIMITS);
        let responses = [600, 600].map(|bytes| admission.answer(WorkKind::Write, Client::One(7), bytes).unwrap());
        assert!(admission.answer(WorkKind::Read, Client::One(8), 1).is_err());
        for work in [WorkKind::Read, WorkKind::BulkRead, WorkKind::Write, WorkKind::BulkWrite, WorkKind::Operation] {
            assert!(admission.may_answer(work, Client::One(8)).is_err(), "{work:?}");
        }
        assert!(admission.may_answer(WorkKind::Metrics, Client::Trusted).is_ok(), "what is wrong can always be asked");
        drop(responses);
        assert!(admission.may_answer(WorkKind::Write, Client::One(8)).is_ok());
    }

    #[test]
    fn connections_that_have_yet_to_say_who_they_are_are_bounded_apart_from_others() {
        let admission = Admission::new(LIMITS);
        let handshakes: Vec<_> =
            (0..LIVE_UNAUTHENTICATED_MAX).map(|_| admission.enter(WorkKind::Handshake).unwrap()).collect();
        assert!(admission.enter(WorkKind::Handshake).is_err());
        assert!(admission.enter(WorkKind::Live).is_ok(), "who is known comes in");
        drop(handshakes);
        assert!(admission.enter(WorkKind::Handshake).is_ok());
    }
}
