//! The connections that the clients of each thread share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::{self, Handle};

use crate::target::Failure;
use crate::target::resp::link::Link;

/// Number of connections for the clients of one runtime. With one connection, all clients wait while the server is idle and the client
/// reads. Each further connection costs the single-threaded Redis one more read and write. Four connections do 10 % more pages and
/// publishes than one.
const CONNECTIONS: usize = 4;

/// The connections to one server.
#[derive(Debug)]
pub(in crate::target) struct Pool {
    address: SocketAddr,
    links: Mutex<HashMap<runtime::Id, Links>>,
}

/// The connections of one runtime.
#[derive(Debug, Default)]
struct Links {
    links: Weak<Vec<Link>>,
    given: usize,
}

/// A connection that clients share. All connections of a runtime are closed with the last of its clients.
#[derive(Debug)]
pub(in crate::target) struct SharedLink {
    links: Arc<Vec<Link>>,
    nth: usize,
}

impl Deref for SharedLink {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.links[self.nth]
    }
}

impl Pool {
    /// Creates a pool without connections.
    pub(in crate::target) fn new(address: SocketAddr) -> Self {
        Self { address, links: Mutex::default() }
    }

    /// Returns a note on the connections for the report.
    pub(in crate::target) fn describe() -> String {
        format!("connections for the clients of a thread: {CONNECTIONS}, so that they share reads and writes")
    }

    /// Returns a connection for a client on the current runtime. The first client opens all one after the other: the workers of Tidewire
    /// take turns with new connections, so that each worker gets some of them.
    ///
    /// # Errors
    /// If the server does not accept a connection.
    pub(in crate::target) async fn link(&self) -> Result<SharedLink, Failure> {
        let runtime = Handle::current().id();
        if let Some(link) = self.with_links(|links| links.entry(runtime).or_default().take()) {
            return Ok(link);
        }
        let mut links = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            links.push(Link::open(self.address).await?);
        }
        // Another client may have connected at the same time. Its connections do no harm.
        let links = Arc::new(links);
        self.with_links(|all| all.entry(runtime).or_default().links = Arc::downgrade(&links));
        Ok(SharedLink { links, nth: 0 })
    }

    fn with_links<T>(&self, change: impl FnOnce(&mut HashMap<runtime::Id, Links>) -> T) -> T {
        // No code panics while it holds the lock, so a poisoned lock can be used.
        change(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Links {
    /// Returns one of the connections in round-robin order, or `None` if there are none.
    fn take(&mut self) -> Option<SharedLink> {
        let links = self.links.upgrade().filter(|links| links.iter().all(Link::is_open))?;
        self.given += 1;
        let nth = self.given % links.len();
        Some(SharedLink { links, nth })
    }
}
