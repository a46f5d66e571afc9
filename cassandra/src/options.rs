//! The connection options of an archive in Cassandra: the URL, and the options that do not belong in a URL.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The port of a contact point that names none.
const PORT: u16 = 9042;

/// Maximum length of the name of a keyspace. It is a limit of Cassandra.
const KEYSPACE_CHARACTERS_MAX: usize = 48;

/// The beginning of every URL.
const SCHEME: &str = "cassandra://";

/// The value of [`CassandraOptions::read_time_max`] for a server, whose readers wait.
pub const READ_TIME_MAX: Duration = Duration::from_secs(1);

/// The keyspace of an archive, and its contact points.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CassandraUrl {
    /// Contact points as `HOST:PORT`. The driver discovers the other nodes through them.
    pub contacts: Vec<String>,
    /// Name of the keyspace: letters, digits and underscores.
    pub keyspace: String,
}

/// The options for opening an archive in Cassandra.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CassandraOptions {
    /// The keyspace and its contact points.
    pub url: CassandraUrl,
    /// User and password, if the nodes require them.
    pub login: Option<Login>,
    /// TLS to the nodes. None for plain text.
    pub tls: Option<TlsOptions>,
    /// The datacentre to use. Required if the keyspace has replicas in several.
    pub datacentre: Option<String>,
    /// Maximum bytes of cached posts and outboxes.
    pub cache_bytes: usize,
    /// Time after which archived data expires, in seconds. None for never.
    pub ttl_seconds: Option<NonZeroU32>,
    /// Timeout of a read of a post or of an outbox, and of each of its statements.
    pub read_time_max: Duration,
}

/// A user of Cassandra.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name of the role.
    pub user: String,
    /// The password of the role.
    pub password: String,
}

/// TLS to the nodes. The certificate of each must be for its IP address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsOptions {
    /// A file with the certificates that sign those of the nodes, as PEM. No others are trusted.
    pub authorities: PathBuf,
}

/// The numbers of replicas of all data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replication {
    /// This number of replicas in every datacentre.
    Everywhere(u8),
    /// These numbers of replicas in the named datacentres.
    Datacentres(Vec<(String, u8)>),
}

/// The error for a text that is not a replication.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("must be a number of replicas, from 1 to 99, or DATACENTRE=NUMBER, separated by commas")]
pub struct ReplicationError;

impl FromStr for Replication {
    type Err = ReplicationError;

    fn from_str(text: &str) -> Result<Self, ReplicationError> {
        let replicas =
            |text: &str| text.parse().ok().filter(|number| (1..100).contains(number)).ok_or(ReplicationError);
        if !text.contains('=') {
            return replicas(text).map(Self::Everywhere);
        }
        let is_good = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let of = |text: &str| {
            let (name, number) = text.split_once('=').ok_or(ReplicationError)?;
            let is_name = !name.is_empty() && name.chars().all(is_good);
            Ok((name.to_owned(), replicas(number).ok().filter(|_| is_name).ok_or(ReplicationError)?))
        };
        text.split(',').map(of).collect::<Result<_, _>>().map(Self::Datacentres)
    }
}

impl Replication {
    /// Returns the map that a keyspace is created with.
    pub(super) fn cql(&self) -> String {
        let of = match self {
            Self::Everywhere(number) => format!("'replication_factor': {number}"),
            Self::Datacentres(numbers) => {
                let numbers = numbers.iter().map(|(name, number)| format!("'{name}': {number}"));
                numbers.collect::<Vec<_>>().join(", ")
            }
        };
        format!("{{'class': 'NetworkTopologyStrategy', {of}}}")
    }
}

/// The reason why a text is not the URL of an archive.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// It does not begin with the scheme.
    #[error("must begin with {SCHEME}")]
    Scheme,
    /// It names no node, or one that is not `HOST:PORT`.
    #[error("needs nodes as HOST:PORT, separated by commas, after {SCHEME}: \"{0}\" is not one")]
    Contact(String),
    /// It has no keyspace, or an invalid name of one.
    #[error(
        "needs a keyspace of at most {KEYSPACE_CHARACTERS_MAX} letters, digits and underscores after the nodes: /KEYSPACE"
    )]
    Keyspace,
    /// It has a user, a password, or options.
    #[error("must not have a user, a password or options in it")]
    More,
}

impl FromStr for CassandraUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix(SCHEME).ok_or(UrlError::Scheme)?;
        if rest.contains(['@', '?', '#']) {
            return Err(UrlError::More);
        }
        let (contacts, keyspace) = rest.split_once('/').ok_or(UrlError::Keyspace)?;
        let is_good = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let starts_well = keyspace.starts_with(|letter: char| letter.is_ascii_alphabetic());
        if !starts_well || keyspace.len() > KEYSPACE_CHARACTERS_MAX || !keyspace.chars().all(is_good) {
            return Err(UrlError::Keyspace);
        }
        let contacts = contacts.split(',').map(contact).collect::<Result<_, _>>()?;
        // Cassandra converts a name without quotes to lower case.
        Ok(Self { contacts, keyspace: keyspace.to_ascii_lowercase() })
    }
}

fn contact(text: &str) -> Result<String, UrlError> {
    let wrong = || UrlError::Contact(text.to_owned());
    // An IPv6 address is in brackets.
    let after_host = text.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match text[after_host..].rfind(':') {
        Some(colon) => {
            let (host, port) = text.split_at(after_host + colon);
            (host, port[1..].parse().map_err(|_| wrong())?)
        }
        None => (text, PORT),
    };
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || ".-_[]:".contains(letter);
    let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
    if host.is_empty() || port == 0 || is_bare_ipv6 || !host.chars().all(is_good) {
        return Err(wrong());
    }
    Ok(format!("{host}:{port}"))
}

impl fmt::Display for CassandraUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.contacts.join(","), self.keyspace)
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The password must not appear in a log.
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_nodes_and_a_keyspace() {
        for (text, contacts, keyspace) in [
            ("cassandra://a/feeds", vec!["a:9042"], "feeds"),
            ("cassandra://10.0.0.1:19042,b.example/Feeds_2", vec!["10.0.0.1:19042", "b.example:9042"], "feeds_2"),
            ("cassandra://[::1]:9043,[fe80::1]/f", vec!["[::1]:9043", "[fe80::1]:9042"], "f"),
        ] {
            let url: CassandraUrl = text.parse().unwrap();
            assert_eq!(
                (url.contacts.iter().map(String::as_str).collect::<Vec<_>>(), &*url.keyspace),
                (contacts, keyspace)
            );
            assert_eq!(url.to_string().parse(), Ok(url));
        }
    }

    #[test]
    fn a_url_error_names_the_invalid_part() {
        let contact = |text: &str| UrlError::Contact(text.to_owned());
        for (text, error) in [
            ("", UrlError::Scheme),
            ("redis://a/feeds", UrlError::Scheme),
            ("cassandra://a", UrlError::Keyspace),
            ("cassandra://a/", UrlError::Keyspace),
            ("cassandra://a/1feeds", UrlError::Keyspace),
            ("cassandra://a/feeds/more", UrlError::Keyspace),
            ("cassandra://a/feeds;drop", UrlError::Keyspace),
            ("cassandra:///feeds", contact("")),
            ("cassandra://a,,b/feeds", contact("")),
            ("cassandra://a:x/feeds", contact("a:x")),
            ("cassandra://a:0/feeds", contact("a:0")),
            ("cassandra://a:70000/feeds", contact("a:70000")),
            ("cassandra://::1/feeds", contact("::1")),
            ("cassandra://a b/feeds", contact("a b")),
            ("cassandra://user:secret@a/feeds", UrlError::More),
            ("cassandra://a/feeds?ssl=true", UrlError::More),
        ] {
            assert_eq!(text.parse::<CassandraUrl>(), Err(error), "{text}");
        }
        let long = format!("cassandra://a/{}", "x".repeat(KEYSPACE_CHARACTERS_MAX + 1));
        assert_eq!(long.parse::<CassandraUrl>(), Err(UrlError::Keyspace));
    }

    #[test]
    fn a_replication_is_a_number_or_one_for_each_datacentre() {
        for (text, cql) in [
            ("3", Some("{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}")),
            ("dc1=3,dc2=2", Some("{'class': 'NetworkTopologyStrategy', 'dc1': 3, 'dc2': 2}")),
            ("", None),
            ("0", None),
            ("100", None),
            ("dc1", None),
            ("dc1=", None),
            ("=3", None),
            ("dc1=3,2", None),
            ("d'c=3", None),
        ] {
            assert_eq!(text.parse().ok().map(|replication: Replication| replication.cql()).as_deref(), cql, "{text}");
        }
    }

    #[test]
    fn a_password_is_not_logged() {
        let login = Login { user: "feeds".to_owned(), password: "secret".to_owned() };
        assert_eq!(format!("{login:?}"), "Login { user: \"feeds\", .. }");
    }
}
