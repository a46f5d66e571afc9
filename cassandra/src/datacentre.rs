//! The datacentre that gets all statements, and whose replicas decide.
//!
//! `LOCAL_QUORUM` and `LOCAL_SERIAL` mean the datacentre of the node that gets the statement. If statements went to nodes of two
//! datacentres in turn, a read could miss a write just before it, and two compare-and-sets could both succeed. So all statements of all
//! servers go to one datacentre.

use std::collections::BTreeSet;
use std::sync::Arc;

use scylla::client::session::Session;
use scylla::cluster::metadata::Strategy;
use scylla::policies::load_balancing::{DefaultPolicy, LoadBalancingPolicy};

use super::errors::{unavailable, with_causes};
use super::options::{CassandraOptions, CassandraUrl, Replication};
use tidewire::storage::archive::ArchiveError;

/// Returns the policy that chooses the nodes: only those of this datacentre, if there is one.
pub(super) fn policy(datacentre: Option<&str>) -> Arc<dyn LoadBalancingPolicy> {
    match datacentre {
        None => DefaultPolicy::builder().build(),
        Some(name) => DefaultPolicy::builder().prefer_datacenter(name.to_owned()).permit_dc_failover(false).build(),
    }
}

/// Returns the datacentre to use, or none if the nodes have none or the keyspace is missing. `replication` is that of a keyspace to
/// create.
///
/// # Errors
/// Fails if the keyspace is in several datacentres and none is named, or the named one has no replicas.
pub(super) fn choose(
    session: &Session,
    options: &CassandraOptions,
    replication: Option<&Replication>,
) -> Result<Option<String>, ArchiveError> {
    let state = session.get_cluster_state();
    let of_nodes = || state.get_nodes_info().iter().filter_map(|node| node.datacenter.clone()).collect();
    let of_replicas = match (state.get_keyspace(&options.url.keyspace), replication) {
        (Some(keyspace), _) => match &keyspace.strategy {
            Strategy::NetworkTopologyStrategy { datacenter_repfactors } => {
                let replicas = datacenter_repfactors.iter().filter(|(_, count)| **count > 0);
                replicas.map(|(name, _)| name.clone()).collect()
            }
            _ => of_nodes(),
        },
        (None, Some(Replication::Datacentres(numbers))) => numbers.iter().map(|(name, _)| name.clone()).collect(),
        (None, Some(Replication::Everywhere(_))) => of_nodes(),
        // A later check reports the missing keyspace.
        (None, None) => return Ok(None),
    };
    of(&of_replicas, options.datacentre.as_deref()).map_err(|why| refused(&options.url, why))
}

/// Checks the datacentres of a keyspace that was just created. It may be in more of them than the driver knew when it connected.
///
/// # Errors
/// Fails as `choose` does, or if the nodes do not answer.
pub(super) async fn check(session: &Session, options: &CassandraOptions) -> Result<(), ArchiveError> {
    let refreshed = session.refresh_metadata().await;
    refreshed.map_err(|cause| unavailable("create", &options.url.to_string(), with_causes(&cause)))?;
    choose(session, options, None).map(drop)
}

pub(super) fn refused(url: &CassandraUrl, why: String) -> ArchiveError {
    ArchiveError::Datacentre { place: url.to_string(), why }
}

fn of(replicas: &BTreeSet<String>, named: Option<&str>) -> Result<Option<String>, String> {
    let list = || replicas.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    match named {
        Some(name) if replicas.contains(name) => Ok(Some(name.to_owned())),
        Some(name) => Err(format!(
            "has no replicas in the datacentre {name}, which --archive-datacenter names; it has replicas in {}",
            list()
        )),
        None if replicas.len() > 1 => Err(format!(
            "has replicas in several datacentres ({}): name the one to use with --archive-datacenter, the same for all servers and nodes that use it",
            list()
        )),
        None => Ok(replicas.first().cloned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_datacentre_is_the_named_one_or_the_only_one() {
        let names = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        for (replicas, named, expected) in [
            (&[][..], None, Ok(None)),
            (&["dc1"], None, Ok(Some("dc1"))),
            (&["dc1"], Some("dc1"), Ok(Some("dc1"))),
            (&["dc1", "dc2"], Some("dc2"), Ok(Some("dc2"))),
            (&["dc1", "dc2"], None, Err("several datacentres (dc1, dc2)")),
            (&["dc1", "dc2"], Some("dc3"), Err("no replicas in the datacentre dc3")),
            (&["dc1"], Some("DC1"), Err("it has replicas in dc1")),
        ] {
            let found = of(&names(replicas), named);
            match expected {
                Ok(expected) => assert_eq!(found.unwrap().as_deref(), expected),
                Err(expected) => assert!(found.as_ref().unwrap_err().contains(expected), "{found:?}"),
            }
        }
    }
}
