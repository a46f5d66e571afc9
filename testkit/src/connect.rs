//! Connections with a timeout.

use std::net::{TcpStream, ToSocketAddrs};

use crate::DEADLINE;

/// Connects to a server. A read or a write that takes longer than [`DEADLINE`] fails.
pub fn connect(address: impl ToSocketAddrs) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}
