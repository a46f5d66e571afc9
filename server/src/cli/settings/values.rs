//! Types of setting values and their text form.

use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::backup::url::BackupUrl;
use crate::http::auth::browser::Hosts;
use crate::http::auth::cors::Origins;
use crate::http::auth::rate::RequestsPerSecond;
use crate::http::proxies::Proxies;
use tidewire::feed::celebrity::{CelebrityPolicy, CostModel};
use tidewire::storage::journal::Durability;

/// A duration in text form: `90s`, `50ms`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        humantime::parse_duration(text).map(Self).map_err(|cause| format!("{cause}; write it as 50ms, 90s, 12h or 7d"))
    }
}

/// The setting that decides which sources are celebrities: a number of followers, `auto` or `off`.
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

/// The setting that includes inboxes in snapshots: `resident` or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inboxes(pub bool);

impl FromStr for Inboxes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_choice(text, "resident", "none").map(Self)
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

read_as_text!(Span, Inboxes, Compression, SyncPolicy, LogFormat, Origins, Hosts, Proxies, BackupUrl);

impl<'de> Deserialize<'de> for RequestsPerSecond {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        u32::deserialize(from)?.to_string().parse().map_err(D::Error::custom)
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
