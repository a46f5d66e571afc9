//! Up to where the log of a cluster is shown, for the first message of a live connection.
//!
//! For a moment after readers have moved to another node, the one before may still answer for them, from a state that is older than what
//! the live connection began with. A page of that state would lack changes that no message reports. A node that has applied the sequence
//! knows who owns the reader.

use actix_web::HttpRequest;
#[cfg(feature = "cluster")]
use actix_web::web::Data;

#[cfg(feature = "cluster")]
use crate::http::cluster::Peers;
use tidewire::storage::sequence::Sequence;

/// The log of the cluster that a server takes part in, if it does.
pub(super) struct ShownLog {
    #[cfg(feature = "cluster")]
    peers: Option<Data<Peers>>,
}

impl ShownLog {
    /// Returns the log of the server that has this request.
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables, reason = "without clusters there is no log"))]
    pub(super) fn of(request: &HttpRequest) -> Self {
        Self {
            #[cfg(feature = "cluster")]
            peers: request.app_data::<Data<Peers>>().cloned(),
        }
    }

    /// Returns a sequence that is at least that of everything that this server shows now, or none on one machine.
    #[cfg_attr(not(feature = "cluster"), allow(clippy::unused_self, reason = "without clusters there is no log"))]
    pub(super) fn sequence(&self) -> Option<Sequence> {
        #[cfg(feature = "cluster")]
        return self.peers.as_ref().map(|peers| peers.cluster().placement().shown());
        #[cfg(not(feature = "cluster"))]
        None
    }
}
