//! The memory limit of this process.

use std::fs;
use std::path::Path;

/// The divisor of the memory for posts by default.
pub(crate) const STORE_PART: u64 = 4;

/// Limits are rounded down to multiples of this, for people.
const MIB: u64 = 1 << 20;

/// Returns one of `parts` equal parts of this memory as a limit.
pub(crate) fn part_of(memory: u64, parts: u64) -> u64 {
    memory / parts / MIB * MIB
}

/// Returns the memory that this process may use: that of the machine, or less if its control group allows less. `None` if it is unknown.
pub(crate) fn limit() -> Option<u64> {
    let of_group = fs::read_to_string("/proc/self/cgroup").ok();
    let of_group = of_group.and_then(|groups| limit_of_groups(&groups, Path::new("/sys/fs/cgroup")));
    of_machine().into_iter().chain(of_group).min()
}

/// Returns the memory of the machine. `None` on other systems than Linux.
fn of_machine() -> Option<u64> {
    let told = fs::read_to_string("/proc/meminfo").ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// Returns the lowest limit of the control groups of a process and their ancestors. `groups` is the content of `/proc/self/cgroup`: a line
/// `0::PATH` in version 2, or a line `N:memory:PATH` in version 1.
fn limit_of_groups(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        // In a container, the path may be that of the host and not exist. The root is then its own group.
        let above = Path::new(path.trim_start_matches('/')).ancestors();
        above.filter_map(|group| fs::read_to_string(root.join(group).join(file)).ok()?.trim().parse().ok()).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_a_cgroup_and_its_parents_applies() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("system.slice/memory.max", "4000\n");
        write("system.slice/tidewire.service/memory.max", "max\n");
        write("memory.max", "9000\n");
        write("memory/docker/a/memory.limit_in_bytes", "700\n");
        for (groups, expected) in [
            ("0::/system.slice/tidewire.service\n", Some(4_000)),
            ("0::/elsewhere\n", Some(9_000)),
            ("0::/\n", Some(9_000)),
            ("4:cpu,cpuacct:/docker/a\n3:memory:/docker/a\n", Some(700)),
            ("4:cpu,cpuacct:/docker/a\n", None),
            ("nonsense\n", None),
        ] {
            assert_eq!(limit_of_groups(groups, root.path()), expected, "{groups:?}");
        }
    }
}
