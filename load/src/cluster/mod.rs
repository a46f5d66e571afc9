//! Measures a cluster and compares it with one node: the cost of its log, the duration of faults, and the load that its nodes share.
//!
//! Responsible for:
//! - nodes of a cluster on running brokers ([`nodes`]), and clients in a closed loop ([`clients`]);
//! - the figures ([`figures`], [`faults`], [`compare`]), each as a line of a table.

pub mod clients;
pub mod compare;
pub mod faults;
pub mod figures;
pub mod nodes;

use std::io;

/// A line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name of the measurement.
    pub what: String,
    /// The result, with its unit.
    pub figure: String,
}

impl Row {
    /// Creates a line.
    pub fn new(what: impl Into<String>, figure: impl Into<String>) -> Self {
        Self { what: what.into(), figure: figure.into() }
    }
}

/// Returns the error for an answer that is not the expected one.
pub(crate) fn unexpected(what: &str, status: u16, body: &[u8]) -> io::Error {
    io::Error::other(format!("{what}: {status} {}", String::from_utf8_lossy(body)))
}
