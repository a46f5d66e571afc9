//! The options of an archive in Cassandra.

use std::num::NonZeroU32;
use std::path::Path;

use super::archive::refuse;
use super::names::ARCHIVE_PASSWORD;
use super::{RemoteAccess, SettingsError};
use crate::bounded::read_text;
use tidewire::limits::ARCHIVE_CACHE_BYTES;
use tidewire_cassandra::{CassandraOptions, Login, READ_TIME_MAX, TlsOptions, UrlError};

/// Maximum bytes of a file with a password.
const PASSWORD_FILE_BYTES_MAX: u64 = 4_096;

impl RemoteAccess {
    /// Returns the options of the store.
    ///
    /// # Errors
    /// The error names the option with the invalid value.
    pub fn options(&self) -> Result<CassandraOptions, SettingsError> {
        let url = match self.url.parse() {
            Ok(url) => url,
            Err(cause) => return refuse("archive", UrlError::to_string(&cause)),
        };
        let ttl_seconds = match self.ttl_seconds {
            None => None,
            // Cassandra does not accept a longer time.
            Some(seconds) if (1..=20 * 365 * 24 * 3_600).contains(&seconds) => NonZeroU32::new(seconds as u32),
            Some(_) => return refuse("archive-ttl", "must be at least a second, and at most 20 years"),
        };
        let tls = self.tls_ca.clone().map(|authorities| TlsOptions { authorities });
        if tls.is_some() && !cfg!(feature = "cassandra-tls") {
            return refuse("archive-tls-ca", "this program was built without the feature cassandra-tls");
        }
        let login = self.login(std::env::var(ARCHIVE_PASSWORD).ok())?;
        let (cache_bytes, read_time_max) = (ARCHIVE_CACHE_BYTES, READ_TIME_MAX);
        let datacentre = self.datacenter.clone();
        Ok(CassandraOptions { url, login, tls, datacentre, cache_bytes, ttl_seconds, read_time_max })
    }

    /// Returns user and password.
    fn login(&self, environment: Option<String>) -> Result<Option<Login>, SettingsError> {
        let of_file = |file: &Path| match read_text(file, PASSWORD_FILE_BYTES_MAX) {
            Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
            Err(cause) => refuse("archive-password-file", format!("cannot read {}: {cause}", file.display())),
        };
        match (&self.user, self.password_file.as_deref().map(of_file).transpose()?.or(environment)) {
            (None, _) if self.password_file.is_some() => {
                refuse("archive-password-file", "needs --archive-user as well")
            }
            (None, _) => Ok(None),
            (Some(_), None) => {
                refuse("archive-user", format!("needs a password: {ARCHIVE_PASSWORD} or --archive-password-file"))
            }
            (Some(user), Some(password)) => Ok(Some(Login { user: user.clone(), password })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::settings::{OldPosts, Settings};

    fn access(url: &str) -> RemoteAccess {
        RemoteAccess { url: url.to_owned(), ..RemoteAccess::default() }
    }

    #[test]
    fn an_archive_error_names_the_option() {
        let good = access("cassandra://a/feeds");
        assert!(good.options().is_ok());
        for (access, option) in [
            (access("redis://a"), "archive"),
            (access("cassandra://a"), "archive"),
            (RemoteAccess { ttl_seconds: Some(0), ..good.clone() }, "archive-ttl"),
            (RemoteAccess { ttl_seconds: Some(700_000_000), ..good.clone() }, "archive-ttl"),
            (RemoteAccess { password_file: Some("/nowhere".into()), ..good }, "archive-password-file"),
        ] {
            match access.options() {
                Err(SettingsError::Nonsense { option: found, .. }) => assert_eq!(found, option),
                other => panic!("{other:?}"),
            }
        }
        let alone = Settings { archive_user: Some("feeds".to_owned()), ..Settings::default() };
        assert_eq!(alone.old_posts().unwrap_err().to_string(), "--archive-user: needs --archive as well");
        assert_eq!(Settings::default().old_posts().unwrap(), OldPosts::Directory);
    }

    #[test]
    fn a_password_comes_from_a_file_or_the_environment() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        std::fs::write(&file, "from a file\n").unwrap();
        let with = |user: bool, in_file: bool| RemoteAccess {
            user: user.then(|| "feeds".to_owned()),
            password_file: in_file.then(|| file.clone()),
            ..access("cassandra://a/feeds")
        };
        let variable = || Some("from the environment".to_owned());
        for (user, in_file, variable, expected) in [
            (true, true, variable(), Ok(Some("from a file"))),
            (true, false, variable(), Ok(Some("from the environment"))),
            (true, false, None, Err("archive-user")),
            (false, true, None, Err("archive-password-file")),
            (false, false, variable(), Ok(None)),
        ] {
            let login = with(user, in_file).login(variable);
            let found = match &login {
                Ok(login) => Ok(login.as_ref().map(|login| login.password.as_str())),
                Err(SettingsError::Nonsense { option, .. }) => Err(*option),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(found, expected);
        }
    }
}
