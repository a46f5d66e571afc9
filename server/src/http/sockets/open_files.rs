//! Open files: each connection is one, and so is each file of the journal, of a snapshot and of the archive.
//!
//! Responsible for:
//! - raising the limit on them as far as the system allows;
//! - how many of them are left to connections.

use std::io;

use tidewire::limits::{FILES_PER_THREAD, FILES_RESERVED};

/// How many files are counted with where the system does not say.
const UNKNOWN: u64 = 1_024;

/// More are not counted with, whatever the system allows.
const MOST: u64 = 1 << 20;

/// Raises the soft limit on open files of this process to the hard one.
///
/// # Errors
/// When the system does not allow it, as a filter of system calls may not: the limit then stays as it is.
pub fn raise() -> io::Result<()> {
    #[cfg(unix)]
    {
        let (soft, hard) = rlimit::Resource::NOFILE.get()?;
        if soft < hard {
            // Some systems take no more than a number of their own, whatever the hard limit says.
            rlimit::increase_nofile_limit(hard)?;
        }
    }
    Ok(())
}

/// How many files this process may have open.
pub fn limit() -> u64 {
    #[cfg(unix)]
    let limit = rlimit::Resource::NOFILE.get_soft().ok().or_else(listed).unwrap_or(UNKNOWN);
    #[cfg(not(unix))]
    let limit = UNKNOWN.max(MOST);
    limit.min(MOST)
}

/// The same as the system lists it, where a filter of system calls forbids to ask for it.
#[cfg(unix)]
fn listed() -> Option<u64> {
    soft_limit(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

#[cfg(unix)]
fn soft_limit(limits: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

/// How many of so many files are left to connections, when so many threads have files of their own.
pub fn left_to_connections(limit: u64, threads: usize) -> usize {
    let reserved = (FILES_RESERVED + FILES_PER_THREAD * threads) as u64;
    // With less than twice the reserve little is left to either.
    let left = limit.saturating_sub(reserved).max(limit / 4).max(1);
    usize::try_from(left).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn the_limit_is_found_without_asking_for_it() {
        assert_eq!(listed(), rlimit::Resource::NOFILE.get_soft().ok());
        assert_eq!(
            soft_limit("Max open files            1024                 524288               files"),
            Some(1_024)
        );
        assert_eq!(soft_limit("Max processes             1"), None);
    }

    #[test]
    fn connections_leave_files_for_everything_else() {
        let reserve = (FILES_RESERVED + FILES_PER_THREAD * 4) as u64;
        for (limit, left) in [(1_024, 1_024 - reserve), (262_144, 262_144 - reserve), (200, 50), (1, 1)] {
            assert_eq!(left_to_connections(limit, 4) as u64, left, "of {limit}");
        }
    }
}
