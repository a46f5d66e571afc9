//! Resources of the machine: limits, and their use during a measurement.

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::environment::{Sampler, Stretch};
use crate::live::Error;
use crate::target::process::processor_time;

/// Number of open files of a process besides its connections.
pub(super) const OTHER_FILES: usize = 100;

/// Raises the limit on open files of this process, and of those it starts, for the connections that a measure needs.
pub(super) fn raise_open_files(connections: usize, measure: &'static str) -> Result<(), Error> {
    let wanted = connections + OTHER_FILES;
    let allowed = raise_to(wanted);
    if allowed >= wanted {
        return Ok(());
    }
    let room = allowed.saturating_sub(OTHER_FILES);
    Err(Error::OpenFiles { allowed, connections, measure, room })
}

/// Raises the limit to `wanted`, or as far as allowed. Returns the new limit.
pub(super) fn raise_to(wanted: usize) -> usize {
    let wanted = wanted as u64;
    let now = getrlimit(Resource::Nofile);
    let limit = |current, maximum| Rlimit { current: Some(current), maximum: Some(maximum) };
    if now.current.is_some_and(|current| current < wanted) {
        let allowed = now.maximum.unwrap_or(u64::MAX);
        // Raising the hard limit needs a privilege.
        if setrlimit(Resource::Nofile, limit(wanted, allowed.max(wanted))).is_err() {
            let _ = setrlimit(Resource::Nofile, limit(allowed.min(wanted), allowed));
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(wanted) as usize
}

/// Average number of cores used.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Cores {
    pub(super) server: f64,
    pub(super) client: f64,
}

/// A sample of both processes and the machine at the start of a period.
pub(super) struct Watched {
    server: u32,
    began: Instant,
    before: (Duration, Duration),
    sampler: Sampler,
}

impl Watched {
    pub(super) fn start(server: u32) -> Self {
        Self { server, before: times(server), sampler: Sampler::start(), began: Instant::now() }
    }

    /// Ends the period and names it `what`.
    pub(super) fn stop(self, what: &str) -> (Cores, Stretch) {
        let after = times(self.server);
        let seconds = self.began.elapsed().as_secs_f64().max(f64::EPSILON);
        let server = after.0.saturating_sub(self.before.0);
        let client = after.1.saturating_sub(self.before.1);
        let cores = Cores { server: server.as_secs_f64() / seconds, client: client.as_secs_f64() / seconds };
        (cores, self.sampler.stop(what, server + client))
    }
}

fn times(server: u32) -> (Duration, Duration) {
    (processor_time(server), processor_time(std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sufficient_open_file_limit_is_not_changed() {
        let before = getrlimit(Resource::Nofile);
        assert!(raise_to(1) >= 1);
        assert_eq!(getrlimit(Resource::Nofile).current, before.current);
    }

    #[test]
    fn busy_cores_are_counted() {
        let watched = Watched::start(std::process::id());
        let before = processor_time(std::process::id());
        testkit::eventually("processor time is counted", || processor_time(std::process::id()) > before);
        let (cores, stretch) = watched.stop("spinning");
        assert!(cores.client > 0.0 && cores.server > 0.0, "{cores:?}");
        assert_eq!(stretch.what, "spinning");
    }
}
