//! The archive that a node of a cluster is about to use: whether it is that of the cluster.
//!
//! Responsible for:
//! - refusing an archive, or none, before anything of the log is replayed beside it.
//!
//! Not responsible for:
//! - what the archive has (`storage::archive`).

use crate::cluster::journal::JoinError;
use crate::cluster::membership::Membership;
use crate::cluster::record::ClusterId;
use crate::storage::archive::Archive;
use crate::storage::error::StorageError;
use crate::storage::identity::Identity;

/// Makes an archive that belongs to nobody that of the cluster.
///
/// # Errors
/// Fails if the cluster was founded without an archive, or if this one is that of another cluster.
pub(super) fn admit(archive: &dyn Archive, membership: &Membership) -> Result<(), JoinError> {
    let (place, cluster) = (archive.place(), membership.cluster());
    if !membership.has_archive() {
        return Err(JoinError::NewArchive { place, cluster });
    }
    claim(archive, cluster)
}

fn claim(archive: &dyn Archive, cluster: ClusterId) -> Result<(), JoinError> {
    let ours = Identity::of_cluster(cluster.0);
    match archive.identity().map_err(StorageError::from)? {
        None => Ok(archive.set_identity(ours).map_err(StorageError::from)?),
        Some(found) if found == ours => Ok(()),
        Some(found) => {
            let (place, found) = (archive.place(), found.to_string());
            Err(JoinError::OtherArchive { place, found, cluster })
        }
    }
}
