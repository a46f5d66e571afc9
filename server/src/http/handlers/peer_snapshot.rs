//! Sends a snapshot to another node of the cluster, which starts from it. Not part of the API: only nodes may send this request.
//!
//! Threads for blocking work read the file piece by piece. One node at a time gets a snapshot. A node that receives it too slowly is
//! disconnected.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::body::SizedStream;
use actix_web::web::{self, Bytes, Data};
use actix_web::{HttpRequest, HttpResponse};
use futures_core::Stream;
use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tracing::info;

use crate::http::cluster::{Cluster, Peers};
use crate::http::engine_cell::{EngineCell, recovering};
use crate::http::problem::Problem;
use crate::http::request::Parameters;
use crate::http::sockets::connection_slots::connection_state::ConnectionState;
use tidewire::cluster::placement::Readiness;
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::runtime::message::SnapshotTaken;
use tidewire::storage::sequence::Sequence;

/// Bytes of the file that are sent at once.
const PIECE_BYTES: usize = 256 << 10;

/// Time that a node may take in addition to the time at the minimum rate.
const GRACE: Duration = Duration::from_secs(30);

/// Minimum rate at which a node must receive a snapshot.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;

/// Handles `GET /v1/cluster/snapshot?from=N`: sends the newest snapshot, if it contains record N. Otherwise takes one; if this takes
/// longer than the request may wait, the other node must repeat its request. A node that leaves the cluster sends none.
pub(in crate::http) async fn send(
    request: HttpRequest,
    engine_cell: Data<EngineCell>,
) -> Result<HttpResponse, Problem> {
    let Some(peers) = request.app_data::<Data<Peers>>() else { return Err(Problem::not_found(request.path())) };
    let slot = peers.cluster().begin_sending(&request)?;
    request.conn_data::<Arc<ConnectionState>>().into_iter().for_each(|connection| connection.mark_authenticated());
    let from = Parameters::read(&request, &["from"])?.number("from")?.map_or(Sequence(0), Sequence);
    let engine = engine_cell.engine().ok_or_else(recovering)?;
    let taken = newest(peers.cluster(), engine, from).await?;
    let files = engine.data_files().ok_or(Error::NoDataDirectory)?;
    let name = taken.file.clone();
    // A newer snapshot may replace this one before it is opened; afterwards the open file stays readable.
    let opened = web::block(move || files.read(&name)).await;
    let opened = opened.map_err(io::Error::other).flatten();
    let (file, bytes) = opened.map_err(|cause| Error::SnapshotFailed(cause.to_string()))?;
    info!(snapshot = taken.file, bytes, to = ?request.peer_addr(), "sending a snapshot to another node");
    let cluster = Arc::clone(peers.cluster());
    let pieces = pieces(Sending { file, left: bytes, bytes, began: Instant::now(), cluster, _slot: slot });
    Ok(HttpResponse::Ok().content_type("application/octet-stream").body(SizedStream::new(bytes, pieces)))
}

async fn newest(cluster: &Cluster, engine: &Engine, from: Sequence) -> Result<SnapshotTaken, Problem> {
    let stored = || engine.snapshots().into_iter().next().filter(|newest| newest.sequence >= from);
    if let Some(newest) = stored() {
        return Ok(newest);
    }
    cluster.take_snapshot(engine).await?;
    // The snapshot may have been begun for an abandoned request of another node, which needed an earlier record.
    let refused = || Problem::unavailable("overloaded", "this node has not applied that record yet").retry_soon();
    stored().ok_or_else(refused)
}

/// A file on its way to another node.
struct Sending {
    file: Box<dyn Read + Send>,
    left: u64,
    bytes: u64,
    began: Instant,
    cluster: Arc<Cluster>,
    _slot: OwnedSemaphorePermit,
}

impl Sending {
    /// Reads the next piece. Blocks.
    fn next(&mut self) -> io::Result<Bytes> {
        if self.cluster.placement().readiness() == Readiness::Leaving {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "this node is leaving the cluster"));
        }
        let sent = self.bytes - self.left;
        if self.began.elapsed() > GRACE + Duration::from_secs(sent / BYTES_PER_SECOND_MIN) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the other node reads the snapshot too slowly"));
        }
        let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(self.left).unwrap_or(PIECE_BYTES))];
        self.file.read_exact(&mut piece)?;
        self.left -= piece.len() as u64;
        Ok(Bytes::from(piece))
    }
}

fn pieces(sending: Sending) -> impl Stream<Item = io::Result<Bytes>> {
    stream::try_unfold(sending, async |mut sending| {
        if sending.left == 0 {
            return Ok(None);
        }
        let read = web::block(move || sending.next().map(|piece| (piece, sending))).await;
        read.map_err(io::Error::other)?.map(Some)
    })
}
