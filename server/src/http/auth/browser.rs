//! Protection against browser attacks for servers without keys.
//!
//! A page of any origin can make a browser send requests to every server that the browser can reach, including servers on loopback
//! addresses that require no keys. If credentials are required, such requests have none and are refused.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use actix_web::http::header::{HOST, HeaderMap, HeaderName, HeaderValue};

use crate::http::auth::cors::Origins;
use crate::http::auth::denial::Denial;
use crate::http::auth::host::Host;

/// Maximum number of host names of the server.
const HOSTS_MAX: usize = 64;

/// The host names of the server, in addition to IP addresses and `localhost`. A name with a port matches only this port. A default port
/// matches a host without a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<Host>);

/// The ports that browsers leave out.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// The header in which browsers send the relation between the page's origin and the server's.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl FromStr for Hosts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_known = |letter: u8| letter.is_ascii_alphanumeric() || b".-_".contains(&letter);
        let parse = |name: &str| {
            let host = Host::parse(name).filter(|host| host.name.bytes().all(is_known));
            host.ok_or_else(|| format!("{name:?} is not a host name; write it as feeds.example or feeds.example:8080"))
        };
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let hosts = names.map(parse).collect::<Result<Vec<_>, _>>()?;
        if hosts.len() > HOSTS_MAX {
            return Err(format!("{} names are more than the {HOSTS_MAX} allowed", hosts.len()));
        }
        Ok(Self(hosts))
    }
}

impl Hosts {
    /// Returns true if the host is one of these names or an IP address. A DNS name can point at this server, but a page can have this IP
    /// address as its host only if it is served from it.
    fn has(&self, host: &str) -> bool {
        let is_bracketed = host.starts_with('[');
        let Some(host) = Host::parse(host) else { return false };
        if is_bracketed {
            return host.name.parse::<Ipv6Addr>().is_ok();
        }
        // Browsers resolve `localhost` and its subdomains locally, without DNS.
        let is_here = host.name.rsplit('.').next() == Some("localhost");
        let is_known = |known: &Host| match known.port {
            None => known.name == host.name,
            Some(port) if DEFAULT_PORTS.contains(&port) => known.is_same(&host, port),
            Some(_) => *known == host,
        };
        is_here || host.name.parse::<Ipv4Addr>().is_ok() || self.0.iter().any(is_known)
    }
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
