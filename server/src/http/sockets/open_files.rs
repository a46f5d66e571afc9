//! Open files: the limit of the process, and the number that connections may use.

use std::io;

/// Number of file descriptors reserved for each thread, because each event loop uses some.
const FILES_PER_THREAD: usize = 8;

/// Number of file descriptors reserved for the journal, snapshots, the archive, its tools and other files of the process.
const FILES_RESERVED: usize = 128;

/// The assumed limit if the system does not report it.
const UNKNOWN: u64 = 1_024;

/// The maximum that is used, even if the system allows more.
const MOST: u64 = 1 << 20;

/// Raises the soft limit on open files of this process to the hard limit.
///
/// # Errors
/// Fails if the system does not allow it, for example because of a system call filter. The limit is then unchanged.
pub fn raise() -> io::Result<()> {
    #[cfg(unix)]
    {
        let (soft, hard) = rlimit::Resource::NOFILE.get()?;
        if soft < hard {
            // Some systems accept only their own maximum, even if the hard limit is higher.
            rlimit::increase_nofile_limit(hard)?;
        }
    }
    Ok(())
}

/// Returns the maximum number of files that this process may open.
pub fn limit() -> u64 {
    #[cfg(unix)]
    let limit = rlimit::Resource::NOFILE.get_soft().ok().or_else(listed).unwrap_or(UNKNOWN);
    #[cfg(not(unix))]
    let limit = UNKNOWN.max(MOST);
    limit.min(MOST)
}

/// Reads the limit from `/proc`, for systems where a system call filter forbids to query it.
#[cfg(unix)]
fn listed() -> Option<u64> {
    soft_limit(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

#[cfg(unix)]
fn soft_limit(limits: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

/// Returns how many of `limit` files connections may use, if `threads` threads need files too.
pub fn left_to_connections(limit: u64, threads: usize) -> usize {
    let reserved = (FILES_RESERVED + FILES_PER_THREAD * threads) as u64;
    // If the limit is less than about twice the reserve, connections still get a quarter of it.
    let left = limit.saturating_sub(reserved).max(limit / 4).max(1);
    usize::try_from(left).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn the_open_file_limit_is_read_from_the_process_limits() {
        assert_eq!(listed(), rlimit::Resource::NOFILE.get_soft().ok());
        assert_eq!(
            soft_limit("Max open files            1024                 524288               files"),
            Some(1_024)
        );
        assert_eq!(soft_limit("Max processes             1"), None);
    }

    #[test]
    fn connections_leave_file_descriptors_for_everything_else() {
        let reserve = (FILES_RESERVED + FILES_PER_THREAD * 4) as u64;
        for (limit, left) in [(1_024, 1_024 - reserve), (262_144, 262_144 - reserve), (200, 50), (1, 1)] {
            assert_eq!(left_to_connections(limit, 4) as u64, left, "of {limit}");
        }
    }
}
