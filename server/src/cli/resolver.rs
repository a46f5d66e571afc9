//! Caches the name lookups of the command line's HTTP client.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::http::uri::{Authority, Scheme};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Connector, NextTimeout};
use ureq::{Agent, Error};

/// Maximum age of cached addresses.
const ADDRESSES_AGE_MAX: Duration = Duration::from_secs(1);

/// Caches the addresses of the last name. Concurrent requests may all look it up.
#[derive(Debug)]
struct RememberingResolver<R> {
    inner: R,
    age_max: Duration,
    last: Mutex<Option<Answer>>,
}

#[derive(Debug)]
struct Answer {
    server: (Scheme, Authority),
    addresses: ResolvedSocketAddrs,
    at: Instant,
}

impl<R> RememberingResolver<R> {
    fn new(inner: R, age_max: Duration) -> Self {
        Self { inner, age_max, last: Mutex::new(None) }
    }

    fn remembered(&self, server: &(Scheme, Authority)) -> Option<ResolvedSocketAddrs> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref()
            .filter(|answer| answer.server == *server && answer.at.elapsed() < self.age_max)
            .map(|answer| answer.addresses.clone())
    }
}

impl<R: Resolver> Resolver for RememberingResolver<R> {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return self.inner.resolve(uri, config, timeout);
        };
        let server = (scheme.clone(), authority.clone());
        if let Some(addresses) = self.remembered(&server) {
            return Ok(addresses);
        }
        let addresses = self.inner.resolve(uri, config, timeout)?;
        let answer = Answer { server, addresses: addresses.clone(), at: Instant::now() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        Ok(addresses)
    }
}

/// Creates an agent with these parts that looks up the name of its server about once a second.
pub(crate) fn agent(config: Config, connector: impl Connector) -> Agent {
    Agent::with_parts(config, connector, RememberingResolver::new(DefaultResolver::default(), ADDRESSES_AGE_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts the lookups, and resolves every name but `nowhere`.
    #[derive(Debug, Default)]
    struct Counting(AtomicUsize);

    impl Resolver for Counting {
        fn resolve(&self, uri: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
            self.0.fetch_add(1, Ordering::Relaxed);
            if uri.host() == Some("nowhere") {
                return Err(Error::HostNotFound);
            }
            let mut addresses = self.empty();
            addresses.push(([127, 0, 0, 1], uri.port_u16().unwrap()).into());
            Ok(addresses)
        }
    }

    /// Looks up each of these in turn. Returns the ports of the answers, or 0 without an answer, and the number of lookups that were not
    /// cached.
    fn ask(age_max: Duration, uris: &[&str]) -> (Vec<u16>, usize) {
        let resolver = RememberingResolver::new(Counting::default(), age_max);
        let port = |uri: &&str| {
            let found = resolver.resolve(&uri.parse().unwrap(), &Config::default(), NextTimeout::default());
            found.map_or(0, |addresses| addresses[0].port())
        };
        (uris.iter().map(port).collect(), resolver.inner.0.load(Ordering::Relaxed))
    }

    #[test]
    fn one_lookup_serves_all_requests_to_a_server_and_no_other() {
        const LONG: Duration = Duration::from_secs(3_600);
        for (uris, ports, lookups) in [
            (["http://feeds:80/a", "http://feeds:80/b"], [80, 80], 1),
            (["http://feeds:80/a", "http://feeds:81/a"], [80, 81], 2),
            (["http://feeds:80/a", "https://feeds:80/a"], [80, 80], 2),
            (["http://nowhere:1/", "http://nowhere:1/"], [0, 0], 2),
        ] {
            assert_eq!(ask(LONG, &uris), (ports.to_vec(), lookups), "{uris:?}");
        }
        assert_eq!(ask(Duration::ZERO, &["http://feeds:80/a"; 3]).1, 3, "an old answer is not used");
    }
}
