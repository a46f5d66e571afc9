//! The settings of an archive outside of the data directory.

use std::path::PathBuf;

use super::{Settings, SettingsError};

/// The place of posts that are too old for memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OldPosts {
    /// In the data directory.
    #[default]
    Directory,
    /// In a keyspace of Cassandra.
    #[cfg(feature = "cassandra")]
    Cassandra(Box<tidewire_cassandra::CassandraOptions>),
}

/// The connection settings of a remote store.
#[derive(Debug, Clone, Default)]
pub struct RemoteAccess {
    /// The URL of the store.
    pub url: String,
    /// The user, if the store requires one.
    pub user: Option<String>,
    /// A file with the password.
    pub password_file: Option<PathBuf>,
    /// The certificates to trust. None disables TLS.
    pub tls_ca: Option<PathBuf>,
    /// The datacentre to use, if the store is in several.
    pub datacenter: Option<String>,
    /// Time after which archived posts expire, in seconds.
    pub ttl_seconds: Option<u64>,
}

impl Settings {
    /// Returns the place of posts that are too old for memory.
    ///
    /// # Errors
    /// The error names the option with the invalid value, or the feature that this program was built without.
    pub fn old_posts(&self) -> Result<OldPosts, SettingsError> {
        let Some(url) = self.archive.clone() else {
            let without = [
                ("archive-ttl", self.archive_ttl.is_some()),
                ("archive-user", self.archive_user.is_some()),
                ("archive-password-file", self.archive_password_file.is_some()),
                ("archive-tls-ca", self.archive_tls_ca.is_some()),
                ("archive-datacenter", self.archive_datacenter.is_some()),
            ];
            return match without.into_iter().find(|(_, is_set)| *is_set) {
                Some((option, _)) => refuse(option, "needs --archive as well"),
                None => Ok(OldPosts::Directory),
            };
        };
        let access = RemoteAccess {
            url,
            user: self.archive_user.clone(),
            password_file: self.archive_password_file.clone(),
            tls_ca: self.archive_tls_ca.clone(),
            datacenter: self.archive_datacenter.clone(),
            ttl_seconds: self.archive_ttl.map(|span| span.0.as_secs()),
        };
        access.old_posts()
    }
}

pub(super) fn refuse<T>(option: &'static str, what: impl Into<String>) -> Result<T, SettingsError> {
    Err(SettingsError::Nonsense { option, what: what.into() })
}

impl RemoteAccess {
    /// Refuses the options: this program was built without such a store.
    ///
    /// # Errors
    /// Always: the error names the missing feature.
    #[cfg(not(feature = "cassandra"))]
    pub fn old_posts(&self) -> Result<OldPosts, SettingsError> {
        refuse("archive", "this program was built without the feature cassandra")
    }

    /// Returns the options of the store.
    ///
    /// # Errors
    /// The error names the option with the invalid value.
    #[cfg(feature = "cassandra")]
    pub fn old_posts(&self) -> Result<OldPosts, SettingsError> {
        self.options().map(|options| OldPosts::Cassandra(Box::new(options)))
    }
}
