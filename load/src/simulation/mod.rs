//! A simulation of a cluster under load: requests, the log and its readers as queues in simulated time.
//!
//! Responsible for:
//! - the queues in which work waits: cores, the command processor of each node, the log, networks ([`resources`]);
//! - the way of each page and each publish through them ([`run`]), for given demand and costs ([`scenario`]).
//!
//! In contrast to the arithmetic, it has what depends on time: how many records a group has, which costs are shared by a group, how long
//! requests wait for each other, and how unevenly readers are spread over nodes. It is exact to repeat: the same scenario has the same
//! outcome.

pub mod costs;
pub mod resources;
pub mod run;
pub mod scenario;

pub use run::{NodeUse, Outcome, simulate};
pub use scenario::{Clients, Machines, Scenario, Work};

#[cfg(test)]
mod tests;
