//! The options of an archive in Cassandra for command-line tools, and `tidewire archive init`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::settings::{DurationArg, RemoteAccess, SettingsError};
use crate::cli::{Outcome, terminal};
#[cfg(feature = "cluster")]
use tidewire::storage::archive::Archive;
use tidewire_cassandra::{CassandraArchive, CassandraOptions, Replication};

/// Default number of nodes that store each row of a cluster's archive.
#[cfg(feature = "cluster")]
const REPLICAS: u8 = 3;

/// Timeout of a read. It is long because no reader waits for a page, and a tool sends many reads at once.
const READ_TIME_MAX: Duration = Duration::from_secs(30);

/// Credentials and settings of the connection to Cassandra.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Access {
    /// User of Cassandra; the password is in TIDEWIRE_ARCHIVE_PASSWORD or in the next option's file [default: none]
    #[arg(long, env = "TIDEWIRE_ARCHIVE_USER", value_name = "NAME")]
    archive_user: Option<String>,

    /// File with the password of that user
    #[arg(long, env = "TIDEWIRE_ARCHIVE_PASSWORD_FILE", value_name = "FILE")]
    archive_password_file: Option<PathBuf>,

    /// PEM file with the certificates of the authorities to trust; enables TLS to Cassandra [default: no TLS]
    #[arg(long, env = "TIDEWIRE_ARCHIVE_TLS_CA", value_name = "FILE")]
    archive_tls_ca: Option<PathBuf>,

    /// Datacentre of Cassandra to use; required if the keyspace is in several
    #[arg(long, env = "TIDEWIRE_ARCHIVE_DATACENTER", value_name = "NAME")]
    archive_datacenter: Option<String>,
}

impl Access {
    /// Returns the options of the archive with a URL.
    pub(super) fn options(&self, url: &str, ttl: Option<DurationArg>) -> Result<CassandraOptions, SettingsError> {
        let access = RemoteAccess {
            url: url.to_owned(),
            user: self.archive_user.clone(),
            password_file: self.archive_password_file.clone(),
            tls_ca: self.archive_tls_ca.clone(),
            datacenter: self.archive_datacenter.clone(),
            ttl_seconds: ttl.map(|span| span.0.as_secs()),
        };
        Ok(CassandraOptions { read_time_max: READ_TIME_MAX, ..access.options()? })
    }
}

/// Arguments of `tidewire archive init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// The archive: cassandra://HOST:PORT,…/KEYSPACE
    #[arg(long, env = "TIDEWIRE_ARCHIVE", value_name = "URL")]
    archive: String,

    /// Nodes that store each row: a number for every datacentre, or DATACENTRE=NUMBER, separated by commas
    #[arg(long, default_value = "3", value_name = "REPLICAS")]
    replicas: Replication,

    #[command(flatten)]
    access: Access,
}

/// The archive of a new cluster, among the arguments of `tidewire cluster init`.
#[cfg(feature = "cluster")]
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArchive {
    /// Also create keyspace and tables of the archive of the cluster, where they are missing: cassandra://HOST:PORT,…/KEYSPACE
    #[arg(long, env = "TIDEWIRE_ARCHIVE", value_name = "URL")]
    archive: Option<String>,

    /// Nodes that store each row of the archive: a number for every datacentre, or DATACENTRE=NUMBER, separated by commas [default: 3]
    #[arg(long, value_name = "REPLICAS")]
    archive_replicas: Option<Replication>,

    #[command(flatten)]
    access: Access,
}

#[cfg(feature = "cluster")]
impl ClusterArchive {
    /// Creates the archive if one is named; returns false otherwise. Refuses an archive that belongs to another cluster.
    pub(crate) fn create(&self) -> Result<bool, Box<dyn std::error::Error>> {
        let Some(url) = &self.archive else { return Ok(self.refuse_alone().map(|()| false)?) };
        let options = self.access.options(url, None)?;
        create(&options, self.archive_replicas.as_ref().unwrap_or(&Replication::Everywhere(REPLICAS)))?;
        let archive = CassandraArchive::open(&options).map_err(|cause| cause.with_sources())?;
        let identity = archive.identity().map_err(|cause| cause.with_sources())?;
        archive.close();
        match identity {
            None => Ok(true),
            Some(of) => {
                let why = format!("{url} belongs to {of} already: a new cluster needs a keyspace of its own");
                Err(SettingsError::Nonsense { option: "archive", what: why }.into())
            }
        }
    }

    /// Refuses options of an archive if no archive is named.
    fn refuse_alone(&self) -> Result<(), SettingsError> {
        let Access { archive_user, archive_password_file, archive_tls_ca, archive_datacenter } = &self.access;
        let alone = [
            ("archive-replicas", self.archive_replicas.is_some()),
            ("archive-user", archive_user.is_some()),
            ("archive-password-file", archive_password_file.is_some()),
            ("archive-tls-ca", archive_tls_ca.is_some()),
            ("archive-datacenter", archive_datacenter.is_some()),
        ];
        match alone.into_iter().find(|(_, is_set)| *is_set) {
            Some((option, _)) => Err(SettingsError::Nonsense { option, what: "needs --archive as well".to_owned() }),
            None => Ok(()),
        }
    }
}

fn create(options: &CassandraOptions, replicas: &Replication) -> Result<(), Box<dyn std::error::Error>> {
    CassandraArchive::create(options, replicas).map_err(|cause| cause.with_sources())?;
    terminal::print_line(&format!("{} is ready; existing tables are unchanged", options.url));
    Ok(())
}

impl Init {
    pub(super) fn run(self) -> Outcome {
        create(&self.access.options(&self.archive, None)?, &self.replicas)?;
        Ok(ExitCode::SUCCESS)
    }
}
