//! Checks that the archive of a starting node belongs to the cluster and to this log.

use crate::cluster::journal::JoinError;
use crate::cluster::membership::Membership;
use crate::cluster::record::ClusterId;
use crate::storage::archive::RemoteArchive;
use crate::storage::error::StorageError;
use crate::storage::identity::Identity;
use crate::storage::log::SharedLog;

/// Makes an archive without an owner the archive of the cluster.
///
/// # Errors
/// Fails if the cluster was bootstrapped without an archive; if this archive belongs to another cluster; or if it has
/// writes of records that the log does not have.
pub(super) fn admit(
    archive: &dyn RemoteArchive,
    membership: &Membership,
    log: &dyn SharedLog,
) -> Result<(), JoinError> {
    let (place, cluster) = (archive.place(), membership.cluster());
    if !membership.has_archive() {
        return Err(JoinError::NewArchive { place, cluster });
    }
    claim(archive, cluster)?;
    // The archive is read before the log: other nodes write meanwhile, but never records that the log does not have.
    let written = archive.written().map_err(StorageError::from)?.max(archive.through().map_err(StorageError::from)?);
    let last = log.range()?.last;
    match written > last {
        true => Err(JoinError::BehindArchive { log: log.place(), last, archive: place, written }),
        false => Ok(()),
    }
}

/// Two clusters may claim the archive at the same time; the first one gets it.
fn claim(archive: &dyn RemoteArchive, cluster: ClusterId) -> Result<(), JoinError> {
    let ours = Identity::of_cluster(cluster.0);
    if archive.identity().map_err(StorageError::from)?.is_none() {
        archive.set_identity(ours).map_err(StorageError::from)?;
    }
    match archive.identity().map_err(StorageError::from)? {
        Some(found) if found == ours => Ok(()),
        found => {
            let found = found.map_or("nobody".to_owned(), |found| found.to_string());
            Err(JoinError::OtherArchive { place: archive.place(), found, cluster })
        }
    }
}
