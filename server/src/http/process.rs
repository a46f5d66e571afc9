//! Figures that the operating system reports about this process.

/// Returns the resident memory of this process in bytes, if the system reports it. Reads a virtual file of the kernel, so it does not
/// wait for a disk.
#[cfg(unix)]
pub(in crate::http) fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    // Not 4,096 everywhere: kernels for arm64 have pages of up to 64 KiB.
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(not(unix))]
pub(in crate::http) fn resident_bytes() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn resident_memory_is_reported_in_bytes_for_any_page_size() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let of_status = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: u64 = of_status.trim().trim_end_matches(" kB").parse().unwrap();
        let resident = super::resident_bytes().unwrap();
        // Other tests of this process allocate memory at the same time.
        let plausible = kib * 1_024 / 2..kib * 1_024 * 2;
        assert!(plausible.contains(&resident), "{resident} bytes, {kib} KiB");
    }
}
