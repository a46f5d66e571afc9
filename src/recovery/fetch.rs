//! Fetches the newest snapshot of another node of a cluster, or of the backup store, for a node that starts.

use std::io::Read;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::clock::SystemClock;
use crate::cluster::journal::NodeOptions;
use crate::cluster::peers;
use crate::cluster::record::ClusterId;
use crate::recovery::{RecordBatch, RecoveryProgress, decode};
use crate::storage::directory_identity;
use crate::storage::files::Files;
use crate::storage::identity::Identity;
use crate::storage::log::{LogRange, SharedLog};
use crate::storage::sequence::Sequence;
use crate::storage::snapshot::{self, Block, Checks};

/// Maximum time that a node waits for other nodes that take a snapshot, or send one to another node.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// A snapshot must be after this part of the log (one in this many), since the beginning may be deleted while the
/// snapshot is sent.
const MARGIN_DIVISOR: u64 = 4;

/// The reason why a node sent no snapshot, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSnapshot {
    /// It may send one later: it is taking one, or sending one to another node.
    Later(String),
    /// It sends none.
    Refused(String),
}

/// Access to the snapshots of other nodes, and to those in the backup store.
pub trait SnapshotPeers: Sync {
    /// Opens a snapshot of the node at an address: its newest one, taken at record `from` or later. The reader ends
    /// early with an error if the node stops sending.
    ///
    /// # Errors
    /// Fails if that node has no snapshot, or does not answer in time.
    fn open(&self, address: &str, from: Sequence) -> Result<Box<dyn Read + Send>, NoSnapshot>;

    /// Opens the newest snapshot in the backup store, taken at record `from` or later. Returns None if there is no
    /// store.
    ///
    /// # Errors
    /// Fails with the reason why the store has none, as text.
    fn open_stored(&self, from: Sequence) -> Option<Result<Box<dyn Read + Send>, String>> {
        let _ = from;
        None
    }
}

/// The peers of a node that asks no other node.
pub struct NoPeers;

impl SnapshotPeers for NoPeers {
    fn open(&self, _: &str, _: Sequence) -> Result<Box<dyn Read + Send>, NoSnapshot> {
        Err(NoSnapshot::Refused("snapshots of other nodes are not used".to_owned()))
    }
}

/// A search for a snapshot.
pub(super) struct Fetching<'a> {
    pub(super) log: &'a dyn SharedLog,
    pub(super) options: &'a NodeOptions,
    pub(super) peers: &'a dyn SnapshotPeers,
    pub(super) files: &'a dyn Files,
    /// The cluster, if it is known. Otherwise a snapshot of any cluster is accepted if its last record is in the log.
    pub(super) cluster: Option<ClusterId>,
    pub(super) progress: &'a RecoveryProgress,
}

impl Fetching<'_> {
    /// Stores the newest snapshot of another node, or else the newest one in the backup store, and returns its cluster.
    ///
    /// # Errors
    /// The error gives the reasons why no node and no store has sent a snapshot.
    pub(super) fn run(&self) -> Result<ClusterId, String> {
        self.fetch_from_nodes().or_else(|no_node| match self.fetch_stored() {
            None => Err(no_node),
            Some(stored) => stored.map_err(|cause| format!("{no_node}; the store of backups: {cause}")),
        })
    }

    /// Waits for a limited time while a living node may send a snapshot later.
    fn fetch_from_nodes(&self) -> Result<ClusterId, String> {
        self.progress.enter("looking for a node with a snapshot");
        // A process that died while it received a snapshot has left its file, which may be large. The directory is
        // locked.
        snapshot::remove_unfinished(self.files);
        let until = Instant::now() + WAIT_MAX;
        let mut causes: Vec<String> = Vec::new();
        loop {
            let NodeOptions { name, session, address: own } = self.options;
            let heard = peers::listen(self.log, self.cluster, name, *session, &SystemClock)
                .map_err(|cause| cause.to_string())?;
            let others: Vec<&String> = heard.iter().filter(|address| *address != own).collect();
            let has_waited = !causes.is_empty();
            if !others.is_empty() {
                causes.clear();
            }
            let mut may_come = false;
            for address in others {
                match self.fetch_from(address) {
                    Ok(cluster) => return Ok(cluster),
                    Err(NoSnapshot::Later(cause)) => {
                        if !has_waited {
                            info!("no snapshot from {address} yet: {cause}");
                        }
                        may_come = true;
                        causes.push(format!("{address}: {cause}"));
                    }
                    Err(NoSnapshot::Refused(cause)) => {
                        warn!("no snapshot from {address}: {cause}");
                        causes.push(format!("{address}: {cause}"));
                    }
                }
            }
            if !may_come || Instant::now() >= until {
                return Err(match causes.is_empty() {
                    true => "no other node is ready".to_owned(),
                    false => format!("no other node sent a newer snapshot: {}", causes.join("; ")),
                });
            }
            self.progress.enter("waiting for the snapshot of another node");
        }
    }

    fn fetch_from(&self, address: &str) -> Result<ClusterId, NoSnapshot> {
        let refused = |cause: String| NoSnapshot::Refused(cause);
        let range = self.log.range().map_err(|cause| refused(cause.to_string()))?;
        let margin = range.last.0.saturating_sub(range.first.0) / MARGIN_DIVISOR;
        let mut from = self.peers.open(address, Sequence(self.least(range).0 + margin))?;
        self.progress.enter("fetching the snapshot of another node");
        self.receive(range, &mut *from, address).map_err(refused)
    }

    fn fetch_stored(&self) -> Option<Result<ClusterId, String>> {
        let range = match self.log.range() {
            Ok(range) => range,
            Err(cause) => return Some(Err(cause.to_string())),
        };
        let opened = self.peers.open_stored(self.least(range))?;
        self.progress.enter("fetching the snapshot in the backup store");
        Some(opened.and_then(|mut from| self.receive(range, &mut *from, "the backup store")))
    }

    /// Returns the oldest record from whose state the log can be followed.
    fn least(&self, LogRange { first, .. }: LogRange) -> Sequence {
        // A snapshot of an unknown cluster must be compared with the log.
        if self.cluster.is_some() { Sequence(first.0.saturating_sub(1)) } else { first }
    }

    fn receive(&self, range: LogRange, from: &mut dyn Read, place: &str) -> Result<ClusterId, String> {
        let (began, least) = (Instant::now(), self.least(range));
        let checks = Expected { log: self.log, first: range.first, least, cluster: self.cluster };
        let (file, bytes) = snapshot::receive(self.files, from, &checks).map_err(|cause| cause.to_string())?;
        info!("fetched {file} from {place}: {bytes} bytes in {:.1?}", began.elapsed());
        let found = directory_identity::cluster_of(self.files).map_err(|cause| cause.to_string())?;
        found.map(ClusterId).ok_or_else(|| format!("{file} does not name a cluster"))
    }
}

/// The snapshot that is needed.
struct Expected<'a> {
    log: &'a dyn SharedLog,
    first: Sequence,
    least: Sequence,
    cluster: Option<ClusterId>,
}

impl Checks for Expected<'_> {
    fn header(&self, identity: Identity, sequence: Sequence) -> Result<(), String> {
        let found = identity.cluster().map(ClusterId);
        if found.is_none() || self.cluster.is_some_and(|cluster| found != Some(cluster)) {
            return Err("it is not a snapshot of this cluster".to_owned());
        }
        let Self { first, .. } = self;
        match sequence >= self.least {
            true => Ok(()),
            false => Err(format!("its snapshot is of record {sequence}, and the log begins at record {first}")),
        }
    }

    fn first_block(&self, block: &Block) -> Result<(), String> {
        match decode(block)? {
            RecordBatch::Cluster(followed) if followed.len() == 1 => {
                followed[0].check_in(self.log).map_err(|cause| cause.to_string())
            }
            _ => Err("it lacks its position in the log".to_owned()),
        }
    }
}
