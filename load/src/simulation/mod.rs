//! A simulation of a cluster under load. It models requests, the log and its readers as queues in simulated time.
//!
//! Responsible for:
//! - the queues in which work waits: cores, the command processor of each node, the log, networks ([`resources`]);
//! - the path of each page and each publish through them ([`run`]), for given demand and costs ([`scenario`]).
//!
//! In contrast to the arithmetic in `scale`, it includes time-dependent effects: the number of records of a group, costs that a group
//! shares, requests that wait for each other, and the uneven distribution of readers. It is deterministic: the same scenario has the same
//! outcome.

pub mod costs;
pub mod resources;
pub mod run;
pub mod scenario;

pub use run::{NodeUse, Outcome, simulate};
pub use scenario::{Clients, Machines, Scenario, Work};

#[cfg(test)]
mod tests;
