//! Admission control: limits how much work of each kind may be in progress at the same time.
//!
//! Responsible for:
//! - refusing excess work before it costs anything. Each kind of work has its own limit, so reads continue while writes are refused, and
//!   both continue during many operator requests or live connections;
//! - limiting the bytes of request bodies before they are read and of response bodies until they are sent, and each client's share of
//!   these bytes.
//!
//! Work counts while it is done, and bytes count while they are in memory. So a slow client occupies bytes, but no permits for work. A
//! waiting request occupies a place to wait ([`turn`]).

mod gate;
pub(in crate::http) mod turn;

use std::sync::Arc;

use actix_web::HttpRequest;
use tokio::sync::Semaphore;

pub(in crate::http) use crate::http::admission::gate::Gate;
use crate::http::admission::gate::SharedGate;
use crate::http::admission::turn::Turn;
use crate::http::client::Client;
use crate::http::operation::WorkKind;
use crate::http::problem::Problem;
use tidewire::limits::{COMMAND_BATCH_MAX, FEEDS_PER_REQUEST_MAX, LIVE_UNAUTHENTICATED_MAX, OPERATIONS_MAX, READS_MAX};

/// Maximum number of unread counts for live connections in progress. Small, so that the counts do not delay the pages that clients
/// request.
const UNREAD_COUNTS_MAX: usize = 32;

/// Maximum number of metrics requests in progress: enough for a few collectors. No other request uses this capacity.
const METRICS_MAX: usize = 8;

/// Maximum number of live connections that are being admitted at the same time.
const JOINS_MAX: usize = 2_048;

/// Maximum number of bulk writes in progress.
const BULK_WRITES_MAX: usize = 16;

/// Limit on pages of requests for many readers, as a multiple of the limit on reads: such a request counts each of its pages, but builds
/// most of them one after the other.
const BULK_READS_PER_READ: usize = 4;

/// Maximum bytes of responses that clients have not received yet: some forty of the largest pages.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// Maximum number of event streams that wait until the state is recovered. They do nothing meanwhile.
const STREAMS_WAITING_MAX: usize = 1_024;

/// Maximum number of requests that wait for a record, for a delivery, or for the ids of all posts, without doing work. Less than the
/// limit on requests at other nodes, because requests there may be waiting.
const WAITS_MAX: usize = 256;

/// Maximum number of requests at other nodes of a cluster: as many as writes, since most of them are writes.
const PASSES_MAX: usize = WRITES_MAX;

/// The unit of the limit on requests at other nodes, in refusals.
const PASSES: &str = "requests at other nodes";

/// Maximum total declared bytes of the bodies of writes in progress.
const WRITE_BYTES_MAX: usize = 256 << 20;

/// Maximum number of writes in progress: the number that the command processor journals in one batch.
const WRITES_MAX: usize = COMMAND_BATCH_MAX;

/// Maximum number of reads in progress that have to wake their reader first.
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
    /// Maximum requests in progress at other nodes of a cluster, each with an open connection. Default 4,096.
    pub passes: usize,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self {
            reads: READS_MAX,
            wake_ups: WAKE_UPS_MAX,
            writes: WRITES_MAX,
            write_bytes: WRITE_BYTES_MAX,
            response_bytes: RESPONSE_BYTES_MAX,
            passes: PASSES_MAX,
        }
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
    unauthenticated: Gate,
    operations: Gate,
    metrics: Gate,
    response_bytes: SharedGate,
    starting: SharedGate,
    waits: SharedGate,
    delivery_waits: SharedGate,
    passes: SharedGate,
    passes_to_node: SharedGate,
    unread_counts: Arc<Semaphore>,
}

impl Admission {
    /// Returns the limits on the work of a request. Requests from other nodes have limits of their own, so that requests of clients
    /// cannot use up their permits.
    pub(in crate::http) fn of(request: &HttpRequest) -> Result<Arc<Self>, Problem> {
        Ok(Arc::clone(Turn::of(request)?.admission()))
    }

    /// Creates the gates with these limits.
    pub fn new(limits: AdmissionLimits) -> Arc<Self> {
        Arc::new(Self {
            reads: Gate::of_count("reads", "reads", limits.reads),
            // A single request of any valid size is admitted.
            bulk_reads: Gate::of_count(
                "bulk_reads",
                "pages of requests for many readers",
                limits.reads.saturating_mul(BULK_READS_PER_READ).max(FEEDS_PER_REQUEST_MAX),
            ),
            wakes: Gate::of_count("wake_ups", "reads of sleeping readers", limits.wake_ups),
            writes: Gate::of_count("writes", "writes", limits.writes),
            write_bytes: SharedGate::of_bytes("write_bytes", "bytes of request bodies", limits.write_bytes),
            bulk_writes: Gate::of_count("bulk_writes", "writes of many changes", BULK_WRITES_MAX),
            joins: Gate::of_count("live_joins", "admissions of live connections", JOINS_MAX),
            unauthenticated: Gate::of_count(
                "live_unauthenticated",
                "unauthenticated live connections",
                LIVE_UNAUTHENTICATED_MAX,
            ),
            operations: Gate::of_count("operations", "operator requests", OPERATIONS_MAX),
            metrics: Gate::of_count("metrics", "metrics requests", METRICS_MAX),
            response_bytes: SharedGate::of_bytes("response_bytes", "bytes of responses", limits.response_bytes),
            starting: SharedGate::of_count(
                "live_starting",
                "event streams that wait for the recovery",
                STREAMS_WAITING_MAX,
            ),
            waits: SharedGate::of_count("waits", "requests that wait", WAITS_MAX),
            delivery_waits: SharedGate::of_count(
                "delivery_waits",
                "publishers that wait for deliveries",
                limits.writes,
            ),
            passes: SharedGate::of_count("passes", PASSES, limits.passes),
            passes_to_node: SharedGate::of_nodes("passes_to_node", PASSES, limits.passes),
            unread_counts: Arc::new(Semaphore::new(UNREAD_COUNTS_MAX)),
        })
    }

    /// Returns the permits for counts of unread entries on live connections. Counts wait for a permit, because no client waits for a
    /// single count.
    pub(in crate::http) fn unread_counts(&self) -> Arc<Semaphore> {
        Arc::clone(&self.unread_counts)
    }

    /// Returns all gates, for metrics and statistics.
    pub(in crate::http) fn gates(&self) -> [&Gate; 16] {
        [
            &self.reads,
            &self.bulk_reads,
            &self.wakes,
            &self.writes,
            &self.write_bytes.gate,
            &self.bulk_writes,
            &self.joins,
            &self.unauthenticated,
            &self.operations,
            &self.metrics,
            &self.response_bytes.gate,
            &self.starting.gate,
            &self.waits.gate,
            &self.delivery_waits.gate,
            &self.passes.gate,
            &self.passes_to_node.gate,
        ]
    }

    /// Reserves bytes for a request body, before it is read.
    pub(in crate::http) fn receive(self: &Arc<Self>, client: Client, bytes: usize) -> Result<Reservation, Problem> {
        self.reserve(|admission| &admission.write_bytes, client, bytes)
    }

    /// Reserves a place for an event stream that waits until the state is recovered.
    pub(in crate::http) fn wait_for_recovery(self: &Arc<Self>, client: Client) -> Result<Reservation, Problem> {
        self.reserve(|admission| &admission.starting, client, 1)
    }

    fn reserve(
        self: &Arc<Self>,
        of: fn(&Self) -> &SharedGate,
        client: Client,
        amount: usize,
    ) -> Result<Reservation, Problem> {
        of(self).enter(client, amount)?;
        Ok(self.reserved(of, client, amount))
    }

    fn reserved(self: &Arc<Self>, of: fn(&Self) -> &SharedGate, client: Client, amount: usize) -> Reservation {
        Reservation { admission: Arc::clone(self), of, client, amount }
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

    /// Checks that there is capacity for a response to the client, so that the server does no work whose response it cannot send.
    pub(in crate::http) fn may_answer(&self, work: WorkKind, client: Client) -> Result<(), Problem> {
        match work {
            WorkKind::Read | WorkKind::BulkRead | WorkKind::Write | WorkKind::BulkWrite | WorkKind::Operation => {
                self.response_bytes.check(client)
            }
            WorkKind::None | WorkKind::WakeUp | WorkKind::Live | WorkKind::Unauthenticated | WorkKind::Metrics => {
                Ok(())
            }
        }
    }

    /// Reserves the bytes of a response until it is sent. Returns `None` for responses that all requests share. Never refuses the
    /// response to a change: changes begin only while there is capacity, so the work in progress bounds the excess.
    pub(in crate::http) fn answer(
        self: &Arc<Self>,
        work: WorkKind,
        client: Client,
        bytes: usize,
    ) -> Result<Option<Reservation>, Problem> {
        match work {
            WorkKind::None | WorkKind::WakeUp | WorkKind::Live | WorkKind::Unauthenticated => return Ok(None),
            WorkKind::Read | WorkKind::BulkRead | WorkKind::Operation => self.response_bytes.enter(client, bytes)?,
            WorkKind::Write | WorkKind::BulkWrite | WorkKind::Metrics => {
                self.response_bytes.enter_anyway(client, bytes);
            }
        }
        Ok(Some(self.reserved(|admission| &admission.response_bytes, client, bytes)))
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
            WorkKind::Unauthenticated => Some(&self.unauthenticated),
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

/// A reservation of the bytes of a body, of a place to wait, or of a permit for a request at another node. Released on drop.
#[derive(Debug)]
pub(in crate::http) struct Reservation {
    admission: Arc<Admission>,
    of: fn(&Admission) -> &SharedGate,
    client: Client,
    amount: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        (self.of)(&self.admission).leave(self.client, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::admission::gate::CLIENTS_PER_GATE;

    const LIMITS: AdmissionLimits =
        AdmissionLimits { reads: 2, wake_ups: 1, writes: 3, write_bytes: 1_000, response_bytes: 1_000, passes: 16 };

    #[test]
    fn each_kind_of_work_has_its_own_limit_and_finished_work_frees_its_slot() {
        let admission = Admission::new(LIMITS);
        let reads: Vec<_> = (0..2).map(|_| admission.enter(WorkKind::Read).unwrap()).collect();
        assert!(admission.enter(WorkKind::Read).is_err());
        let write = admission.enter(WorkKind::Write).unwrap();
        assert!(admission.enter(WorkKind::None).is_ok(), "whether the server lives can always be asked");
        drop(reads);
        assert!(admission.enter(WorkKind::Read).is_ok());
        drop(write);
        assert!(admission.gates().iter().all(|gate| gate.taken() == 0));
        assert_eq!(admission.gates().map(Gate::refused), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_request_for_many_pages_reserves_a_slot_for_each_page_or_none() {
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
    fn bodies_are_bounded_by_their_announced_length() {
        let admission = Admission::new(LIMITS);
        let body = admission.receive(Client::Trusted, 900).unwrap();
        assert!(admission.receive(Client::Trusted, 101).is_err());
        assert!(admission.receive(Client::Trusted, 100).is_ok());
        drop(body);
        assert_eq!(admission.gates()[4].taken(), 0);
    }

    #[test]
    fn one_client_uses_at_most_its_share_of_bytes() {
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
    fn event_streams_waiting_for_recovery_are_bounded_in_total_and_per_address() {
        let admission = Admission::new(LIMITS);
        let share = STREAMS_WAITING_MAX / CLIENTS_PER_GATE;
        let of_one: Vec<_> = (0..share).map(|_| admission.wait_for_recovery(Client::One(7)).unwrap()).collect();
        assert!(admission.wait_for_recovery(Client::One(7)).is_err());
        let wait = |_| admission.wait_for_recovery(Client::Trusted).unwrap();
        let others: Vec<_> = (share..STREAMS_WAITING_MAX).map(wait).collect();
        assert!(admission.wait_for_recovery(Client::Trusted).is_err());
        drop(others);
        assert!(admission.wait_for_recovery(Client::One(8)).is_ok());
        drop(of_one);
        assert!(admission.gates().iter().all(|gate| gate.taken() == 0));
    }

    #[test]
    fn a_refusal_names_the_exceeded_limit_with_its_unit() {
        let admission = Admission::new(AdmissionLimits { write_bytes: 256 << 20, ..LIMITS });
        let _taken =
            (admission.enter(WorkKind::WakeUp).unwrap(), admission.receive(Client::Trusted, 240 << 20).unwrap());
        for (refused, expected) in [
            (admission.enter(WorkKind::WakeUp).map(drop), "too many reads of sleeping readers in progress: at most 1"),
            (
                admission.receive(Client::Trusted, 17 << 20).map(drop),
                "too many bytes of request bodies in progress: at most 256 MiB",
            ),
            (
                admission.receive(Client::One(7), 17 << 20).map(drop),
                "too many bytes of request bodies in progress for one client: at most 16 MiB",
            ),
            (
                admission.answer(WorkKind::Read, Client::Trusted, 1_001).map(drop),
                "too many bytes of responses in progress: at most 1000 bytes",
            ),
        ] {
            assert_eq!(refused.unwrap_err().to_string(), format!("503 overloaded: {expected}"));
        }
    }

    #[test]
    fn completed_work_is_answered_past_the_limit_and_new_work_is_refused() {
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
    fn unauthenticated_connections_have_a_separate_limit() {
        let admission = Admission::new(LIMITS);
        let connections: Vec<_> =
            (0..LIVE_UNAUTHENTICATED_MAX).map(|_| admission.enter(WorkKind::Unauthenticated).unwrap()).collect();
        assert!(admission.enter(WorkKind::Unauthenticated).is_err());
        assert!(admission.enter(WorkKind::Live).is_ok(), "who is known comes in");
        drop(connections);
        assert!(admission.enter(WorkKind::Unauthenticated).is_ok());
    }
}
