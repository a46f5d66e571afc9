//! Browsers: what pages of others can make them do, where there are no keys.
//!
//! A page of any origin can have a browser send requests to whatever the browser reaches, which includes the loopback addresses
//! that are served without keys. Where credentials are needed such requests have none.
//!
//! Responsible for:
//! - refusing names that lead here and are not the server's. By its own name, once that is pointed here, a page would be one of
//!   the server's own origin (DNS rebinding);
//! - refusing what a page of another origin can do without reading an answer: writes, and connections that stay.
//!
//! Not responsible for:
//! - which other origins may read answers (`access::cors`), where there are keys (`access`).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use actix_web::http::header::{HOST, HeaderMap, HeaderName, HeaderValue};

use crate::http::auth::cors::Origins;
use crate::http::auth::denial::Denial;
use tidewire::limits::HOSTS_MAX;

/// Names that the server goes by, beside addresses and `localhost`; with a port, at that port alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

/// What browsers say of where the page is from that asks.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl FromStr for Hosts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(|name| name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty());
        let names: Vec<String> = names.collect();
        let is_good = |name: &String| {
            let (name, port) = split(name).unwrap_or_default();
            let is_known = |letter: u8| letter.is_ascii_alphanumeric() || b".-_".contains(&letter);
            !name.is_empty() && name.bytes().all(is_known) && port.is_none_or(|port| port.parse::<u16>().is_ok())
        };
        if let Some(wrong) = names.iter().find(|name| !is_good(name)) {
            return Err(format!("{wrong:?} is no name of a host; write it as feeds.example or feeds.example:8080"));
        }
        if names.len() > HOSTS_MAX {
            return Err(format!("{} names are more than the {HOSTS_MAX} allowed", names.len()));
        }
        Ok(Self(names))
    }
}

impl Hosts {
    /// Whether a request is for one of these, or for an address, which no page can make its own.
    fn has(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        if let Some((address, port)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            return address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':'));
        }
        let Some((name, _)) = split(&host) else { return false };
        // Browsers look up neither `localhost` nor what is below it.
        let is_here = name == "localhost" || name.ends_with(".localhost");
        is_here || name.parse::<Ipv4Addr>().is_ok() || self.0.iter().any(|known| *known == name || *known == host)
    }
}

/// The name and the port of a host.
fn split(host: &str) -> Option<(&str, Option<&str>)> {
    let mut parts = host.split(':');
    let (name, port) = (parts.next()?, parts.next());
    parts.next().is_none().then_some((name, port))
}

/// Whether a request may come from a page; `reads` is of one that reads and is through with its answer.
pub(super) fn check(hosts: &Hosts, origins: &Origins, asked: &HeaderMap, reads: bool) -> Result<(), Denial> {
    let is_known = |host: &HeaderValue| host.to_str().is_ok_and(|host| hosts.has(host));
    // What says none is no browser.
    if !asked.get_all(HOST).all(is_known) {
        return Err(Denial::UnknownHost);
    }
    if !reads && is_foreign(origins, asked) { Err(Denial::ForeignPage) } else { Ok(()) }
}

/// Whether a page asks that is neither of the server's own origin nor of one that is named. Other clients say neither
/// where they are from nor that they are a page's.
fn is_foreign(origins: &Origins, asked: &HeaderMap) -> bool {
    if origins.allow(asked) {
        return false;
    }
    let is_of_others = |site: &HeaderValue| !matches!(site.as_bytes(), b"same-origin" | b"none");
    origins.are_foreign_to(asked) || asked.get(SEC_FETCH_SITE).is_some_and(is_of_others)
}
