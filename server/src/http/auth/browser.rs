//! Protection against browser attacks for servers without keys.
//!
//! A page of any origin can make a browser send requests to every server the browser can reach, including servers on loopback addresses
//! that require no keys. Where credentials are required, such requests have none and are refused.
//!
//! Responsible for:
//! - refusing host names that are not the server's. If an attacker points a name at this address, pages of that name would share the
//!   server's origin (DNS rebinding);
//! - refusing what a page of another origin can do without reading the response: writes, and long-lived connections.
//!
//! Not responsible for:
//! - which other origins may read responses (`http::auth::cors`), servers with keys (`http::auth`).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use actix_web::http::header::{HOST, HeaderMap, HeaderName, HeaderValue};

use crate::http::auth::cors::Origins;
use crate::http::auth::denial::Denial;

/// Maximum number of host names of the server.
const HOSTS_MAX: usize = 64;

/// The host names of the server, in addition to IP addresses and `localhost`. A name with a port matches that port only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

/// The header in which browsers send the relation between the page's origin and the server's.
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
    /// Returns true if the host is one of these names or an IP address. A DNS name can be pointed at this server, but no page can have
    /// this IP address as its host without being served from it.
    fn has(&self, host: &str) -> bool {
        if let Some((address, port)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            return address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':'));
        }
        let Some((name, _)) = split(host) else { return false };
        // Browsers resolve `localhost` and its subdomains locally, without DNS.
        let is_here = name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"));
        let is_known = |known: &String| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(host);
        is_here || name.parse::<Ipv4Addr>().is_ok() || self.0.iter().any(is_known)
    }
}

/// Splits a host into its name and its port.
fn split(host: &str) -> Option<(&str, Option<&str>)> {
    let mut parts = host.split(':');
    let (name, port) = (parts.next()?, parts.next());
    parts.next().is_none().then_some((name, port))
}

/// Checks whether a request may come from a web page. `reads` is true for requests that only read and end with their response.
pub(super) fn check(hosts: &Hosts, origins: &Origins, headers: &HeaderMap, reads: bool) -> Result<(), Denial> {
    let is_known = |host: &HeaderValue| host.to_str().is_ok_and(|host| hosts.has(host));
    // A request without a `Host` header does not come from a browser.
    if !headers.get_all(HOST).all(is_known) {
        return Err(Denial::UnknownHost);
    }
    if !reads && is_foreign(origins, headers) { Err(Denial::ForeignPage) } else { Ok(()) }
}

/// Returns true if the request comes from a page whose origin is neither the server's own nor an allowed one. Clients other than browsers
/// send neither an origin nor fetch metadata.
fn is_foreign(origins: &Origins, headers: &HeaderMap) -> bool {
    if origins.allow(headers) {
        return false;
    }
    let is_of_others = |site: &HeaderValue| !matches!(site.as_bytes(), b"same-origin" | b"none");
    origins.are_foreign_to(headers) || headers.get(SEC_FETCH_SITE).is_some_and(is_of_others)
}
