//! Types of setting values and their text form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::{NonZeroU64, NonZeroUsize};
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use tracing_subscriber::EnvFilter;

use crate::backup::url::BackupUrl;
use crate::http::auth::browser::Hosts;
use crate::http::auth::cors::Origins;
use crate::http::auth::rate::RequestsPerSecond;
use crate::http::proxies::Proxies;
use tidewire::feed::celebrity::{CelebrityPolicy, CostModel};
use tidewire::storage::journal::Durability;

/// A duration in text form: `90s`, `50ms`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationArg(pub Duration);

impl FromStr for DurationArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        humantime::parse_duration(text).map(Self).map_err(|cause| format!("{cause}; write it as 50ms, 90s, 12h or 7d"))
    }
}

/// A number of bytes in text form: `4GiB`, `512MB`, or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub NonZeroU64);

impl Bytes {
    /// Returns the number as bytes in memory, at most the maximum of a `usize`.
    pub fn in_memory(self) -> usize {
        usize::try_from(self.0.get()).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "")];
        let exact = units.into_iter().find(|(shift, _)| self.0.get().is_multiple_of(1 << shift));
        let (shift, unit) = exact.unwrap_or_default();
        write!(f, "{}{unit}", self.0.get() >> shift)
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size; write it as 4GiB, 512MB or 4294967296, and larger than 0");
        let bytes = text.parse::<ByteSize>().map_err(|_| wrong())?;
        // The library returns the largest number if a size is too large.
        let bytes = Some(bytes.as_u64()).filter(|bytes| *bytes < u64::MAX);
        bytes.and_then(NonZeroU64::new).map(Self).ok_or_else(wrong)
    }
}

/// Parses the address and port to serve on. Without an address, the server listens only on loopback, and never on all addresses.
///
/// # Errors
/// If the text is neither `ADDRESS:PORT` nor `:PORT` nor `localhost:PORT`.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let host_and_port = text.rsplit_once(':').filter(|(host, _)| matches!(*host, "" | "localhost"));
    let address = match host_and_port {
        Some((_, port)) => port.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        None => text.parse().ok(),
    };
    address.ok_or_else(|| {
        format!(
            "{text:?} is not an address with a port; write it as :8080 (this machine only), 192.0.2.1:8080 or [::1]:8080"
        )
    })
}

/// Returns the address by which this machine reaches a server that listens on `listen`: loopback if it listens on all addresses.
pub(crate) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Reads the form of [`listen_address`] from TOML.
pub(super) fn listen_address_in_toml<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    listen_address(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

/// The setting for celebrity sources: a number of followers, `auto` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Celebrity(pub CelebrityPolicy);

impl FromStr for Celebrity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => return Ok(Self(CelebrityPolicy::PushAll)),
            "auto" => return Ok(Self(CelebrityPolicy::ByCost(CostModel::default()))),
            _ => {}
        }
        let followers: u64 =
            text.parse().map_err(|_| format!("{text:?} is neither a number of followers nor \"auto\" nor \"off\""))?;
        Ok(Self(NonZeroU64::new(followers).map_or(CelebrityPolicy::PullAll, CelebrityPolicy::Above)))
    }
}

/// The setting that includes inboxes in snapshots: `active` or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inboxes(pub bool);

impl FromStr for Inboxes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The former name of `active`.
        let text = if text == "resident" { "active" } else { text };
        parse_choice(text, "active", "none").map(Self)
    }
}

/// The setting for when a group of journaled events counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncPolicy(pub Durability);

impl FromStr for SyncPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

/// The setting for the compression of snapshots: `zstd` or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression(pub bool);

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_choice(text, "zstd", "none").map(Self)
    }
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Text lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_choice(text, "json", "text").map(|is_json| if is_json { Self::Json } else { Self::Text })
    }
}

/// The filter of log messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLevel(String);

impl LogLevel {
    /// The levels, from no messages to all messages.
    const ALL: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

    /// Returns the filter of the log. A level applies to Tidewire; libraries log at most warnings.
    pub(crate) fn filter(&self) -> String {
        match self.0.as_str() {
            level @ ("off" | "error") => level.to_owned(),
            level if Self::ALL.contains(&level) => format!("warn,tidewire={level}"),
            filter => filter.to_owned(),
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The filter treats any other word as the name of a module, so it would accept a misspelt level.
        let is_filter = text.contains('=') && EnvFilter::builder().parse(text).is_ok();
        if is_filter || Self::ALL.contains(&text) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("{text:?} is neither one of {} nor a filter such as \"warn,tidewire=debug\"", Self::ALL.join(", ")))
    }
}

fn parse_choice(text: &str, yes: &str, no: &str) -> Result<bool, String> {
    match text {
        _ if text == yes => Ok(true),
        _ if text == no => Ok(false),
        _ => Err(format!("{text:?} is neither {yes} nor {no}")),
    }
}

/// Implements `Deserialize` for settings that are a string in TOML, with the same syntax as on the command line.
macro_rules! read_as_text {
    ($($setting:ty),+) => {$(
        impl<'de> Deserialize<'de> for $setting {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(D::Error::custom)
            }
        }
    )+};
}

read_as_text!(DurationArg, Inboxes, Compression, SyncPolicy, LogFormat, LogLevel, Origins, Hosts, Proxies, BackupUrl);

impl<'de> Deserialize<'de> for RequestsPerSecond {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        u32::deserialize(from)?.to_string().parse().map_err(D::Error::custom)
    }
}

/// The TOML form of a size: a number of bytes, or a string with a unit.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a size such as \"4GiB\", or a number of bytes")]
enum BytesToml {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = match BytesToml::deserialize(from)? {
            BytesToml::Number(bytes) => bytes.to_string(),
            BytesToml::Text(text) => text,
        };
        text.parse().map_err(D::Error::custom)
    }
}

/// The TOML form of the celebrity threshold: `auto` and `off` are strings, a threshold is a number.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number of followers, \"auto\" or \"off\"")]
enum ThresholdToml {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Celebrity {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = match ThresholdToml::deserialize(from)? {
            ThresholdToml::Number(followers) => followers.to_string(),
            ThresholdToml::Text(text) => text,
        };
        text.parse().map_err(D::Error::custom)
    }
}

/// Parses a whole number of at least 1.
pub(crate) fn whole_number(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a whole number from 1".to_owned())
}
