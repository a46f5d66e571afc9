//! One limit of admission control, and the refusal when it is reached.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use actix_web::http::StatusCode;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::http::client::Client;
use crate::http::problem::Problem;
use tidewire::limits::BULK_REQUEST_BYTES_MAX;

/// One limit with its current use and the number of refusals.
#[derive(Debug)]
pub(in crate::http) struct Gate {
    /// The name in metrics and statistics.
    pub(in crate::http) name: &'static str,
    pub(in crate::http) limit: usize,
    taken: AtomicUsize,
    refused: AtomicU64,
    /// The unit in the text of refusals.
    noun: &'static str,
    /// Formats an amount with its unit.
    shown: fn(usize) -> String,
}

impl Gate {
    const fn new(name: &'static str, noun: &'static str, limit: usize, shown: fn(usize) -> String) -> Self {
        Self { name, limit, noun, shown, taken: AtomicUsize::new(0), refused: AtomicU64::new(0) }
    }

    pub(super) fn of_count(name: &'static str, noun: &'static str, limit: usize) -> Self {
        Self::new(name, noun, limit, |count| count.to_string())
    }

    /// Returns the current use.
    pub(in crate::http) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns the number of refusals since the start.
    pub(in crate::http) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn enter(&self, amount: usize) -> Result<(), Problem> {
        let enter = |taken: usize| taken.checked_add(amount).filter(|taken| *taken <= self.limit);
        let entered = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter);
        entered.map(drop).map_err(|_| self.refuse())
    }

    /// Checks that the limit is not reached, without reserving anything.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.taken() < self.limit { Ok(()) } else { Err(self.refuse()) }
    }

    fn refuse(&self) -> Problem {
        self.refuse_beyond(self.limit, "")
    }

    /// Counts and creates a refusal. `whose` follows "in progress" in its text, if the limit is not that of all clients.
    fn refuse_beyond(&self, limit: usize, whose: &str) -> Problem {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let detail = format!("too many {} in progress{whose}: at most {}", self.noun, (self.shown)(limit));
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail).retry_soon()
    }

    pub(super) fn leave(&self, amount: usize) {
        self.taken.fetch_sub(amount, Ordering::Relaxed);
    }
}

/// Number of clients that can fill a shared limit together: one client may reserve at most one in this many units. The number is
/// small, so that a single client is not slowed down.
pub(super) const CLIENTS_PER_GATE: usize = 16;

/// Number of nodes that can fill a limit together: one unresponsive node leaves half of it to the others.
const NODES_PER_GATE: usize = 2;

/// A limit for all clients together, and a lower one for each client.
#[derive(Debug)]
pub(super) struct SharedGate {
    pub(super) gate: Gate,
    share: usize,
    /// The holder of the share, in the text of refusals.
    of_one: &'static str,
    /// The amount in use by client. Clients that use nothing have no entry.
    pub(super) by_client: Mutex<FxHashMap<u64, usize>>,
}

impl SharedGate {
    pub(super) fn of_bytes(name: &'static str, noun: &'static str, limit: usize) -> Self {
        // The share is at least the largest request body allowed.
        let share = (limit / CLIENTS_PER_GATE).max(BULK_REQUEST_BYTES_MAX);
        Self::sharing(Gate::new(name, noun, limit, shown_bytes), share, " for one client")
    }

    pub(super) fn of_count(name: &'static str, noun: &'static str, limit: usize) -> Self {
        Self::sharing(Gate::of_count(name, noun, limit), (limit / CLIENTS_PER_GATE).max(1), " for one client")
    }

    /// Creates a limit that other nodes share. Each node is a client, identified by its address.
    pub(super) fn of_nodes(name: &'static str, noun: &'static str, limit: usize) -> Self {
        Self::sharing(Gate::of_count(name, noun, limit), limit.div_ceil(NODES_PER_GATE), " for one node")
    }

    fn sharing(gate: Gate, share: usize, of_one: &'static str) -> Self {
        Self { gate, share, of_one, by_client: Mutex::default() }
    }

    /// Checks that the limit and the client's share are not used up.
    pub(super) fn check(&self, client: Client) -> Result<(), Problem> {
        self.gate.check()?;
        let Client::One(name) = client else { return Ok(()) };
        let is_over = self.by_client.lock().get(&name).is_some_and(|taken| *taken >= self.share);
        if is_over { Err(self.refuse_share()) } else { Ok(()) }
    }

    pub(super) fn enter(&self, client: Client, amount: usize) -> Result<(), Problem> {
        if amount == 0 {
            return Ok(());
        }
        let Client::One(name) = client else { return self.gate.enter(amount) };
        let mut by_client = self.by_client.lock();
        let of_client = by_client.get(&name).copied().unwrap_or(0).saturating_add(amount);
        if of_client > self.share {
            drop(by_client);
            return Err(self.refuse_share());
        }
        self.gate.enter(amount)?;
        by_client.insert(name, of_client);
        Ok(())
    }

    /// Reserves an amount even above the limit, for responses to completed work, which must be sent.
    pub(super) fn enter_anyway(&self, client: Client, amount: usize) {
        self.gate.taken.fetch_add(amount, Ordering::Relaxed);
        if let Client::One(name) = client {
            *self.by_client.lock().entry(name).or_default() += amount;
        }
    }

    pub(super) fn leave(&self, client: Client, amount: usize) {
        if amount == 0 {
            return;
        }
        self.gate.leave(amount);
        let Client::One(name) = client else { return };
        let mut by_client = self.by_client.lock();
        if let Some(taken) = by_client.get_mut(&name) {
            *taken -= amount;
            if *taken == 0 {
                by_client.remove(&name);
            }
        }
    }

    fn refuse_share(&self) -> Problem {
        self.gate.refuse_beyond(self.share, self.of_one)
    }
}

/// Formats bytes with their unit: MiB if the number is a multiple of it.
fn shown_bytes(bytes: usize) -> String {
    const MIB: usize = 1 << 20;
    if bytes > 0 && bytes.is_multiple_of(MIB) { format!("{} MiB", bytes / MIB) } else { format!("{bytes} bytes") }
}
