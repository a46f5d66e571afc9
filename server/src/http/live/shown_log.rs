//! The sequence up to which this node shows the log of a cluster, for the first message of a live connection.
//!
//! For a moment after readers have moved to another node, their previous owner may still answer for them. Its state may be older than the
//! state at the beginning of the live connection. A page of that state would lack changes that no message reports. A node that has
//! applied the sequence knows the current owner of the reader.

use actix_web::HttpRequest;
#[cfg(feature = "cluster")]
use actix_web::web::Data;

#[cfg(feature = "cluster")]
use crate::http::cluster::Peers;
use tidewire::storage::sequence::Sequence;

/// The log of the server's cluster, if the server is part of one.
pub(super) struct ShownLog {
    #[cfg(feature = "cluster")]
    peers: Option<Data<Peers>>,
}

impl ShownLog {
    /// Returns the log of the server that handles this request.
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables, reason = "without clusters there is no log"))]
    pub(super) fn of(request: &HttpRequest) -> Self {
        Self {
            #[cfg(feature = "cluster")]
            peers: request.app_data::<Data<Peers>>().cloned(),
        }
    }

    /// Returns a sequence that is not lower than that of any data that this server shows now. `None` without a cluster.
    #[cfg_attr(not(feature = "cluster"), allow(clippy::unused_self, reason = "without clusters there is no log"))]
    pub(super) fn sequence(&self) -> Option<Sequence> {
        #[cfg(feature = "cluster")]
        return self.peers.as_ref().map(|peers| peers.cluster().placement().shown());
        #[cfg(not(feature = "cluster"))]
        None
    }
}
