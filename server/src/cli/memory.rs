//! The memory of this machine, which the default limits follow.

use std::fs;
use std::num::NonZeroU64;
use std::path::Path;

use crate::cli::settings::{Bytes, Settings};
use tidewire::config::EngineConfig;

/// Limits are rounded down to whole ones of these, for people.
const MIB: u64 = 1 << 20;

/// The part of the memory that posts may take by default.
const STORE_PART: u64 = 4;

/// The same for sources, follow edges and preferences. The rest is for inboxes, requests, connections and the system.
const GRAPH_PART: u64 = 2;

/// Returns the settings with default limits that fit into the memory. Limits that are set stay.
pub(crate) fn fitted(settings: Settings) -> Settings {
    match bytes() {
        Some(memory) => fit(settings, memory),
        None => settings,
    }
}

/// Returns a warning if the data may take more than the memory.
pub(crate) fn warning(config: &EngineConfig) -> Option<String> {
    bytes().and_then(|memory| excess(config, memory))
}

/// Returns the memory that this process may use: that of the machine, or less if its control group allows less. `None` if it is unknown.
fn bytes() -> Option<u64> {
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

/// Returns the lowest limit of the control groups of a process and those above them. `groups` is what `/proc/self/cgroup` has: of version 2 a
/// line `0::PATH`, of version 1 a line `N:memory:PATH`.
fn limit_of_groups(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        // In a container the path may be that of the host, which is not there; its own group is the root then.
        let above = Path::new(path.trim_start_matches('/')).ancestors();
        above.filter_map(|group| fs::read_to_string(root.join(group).join(file)).ok()?.trim().parse().ok()).min()
    });
    limits.min()
}

fn fit(settings: Settings, memory: u64) -> Settings {
    let default = EngineConfig::default();
    let part = |default: usize, part: u64| NonZeroU64::new((memory / part / MIB * MIB).min(default as u64)).map(Bytes);
    let store_bytes_max = settings.store_bytes_max.or(part(default.store_bytes_max, STORE_PART));
    let graph_bytes_max = settings.graph_bytes_max.or(part(default.graph_bytes_max, GRAPH_PART));
    Settings { store_bytes_max, graph_bytes_max, ..settings }
}

fn excess(config: &EngineConfig, memory: u64) -> Option<String> {
    let together = (config.store_bytes_max as u64).saturating_add(config.graph_bytes_max as u64);
    (together > memory).then(|| {
        format!(
            "--store-bytes-max {} and --graph-bytes-max {} are more than the memory of {memory} bytes: before writes are refused, the system may \
             end the server",
            config.store_bytes_max, config.graph_bytes_max
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_a_group_and_those_above_it_counts() {
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

    #[test]
    fn default_limits_fit_into_the_memory_and_given_ones_are_warned_of() {
        let gib = |number: u64| number << 30;
        let limits = |settings: &Settings| {
            let config = settings.engine().unwrap();
            (config.store_bytes_max as u64, config.graph_bytes_max as u64)
        };
        for (memory, expected) in [(gib(4), (gib(1), gib(2))), (gib(256), (gib(8), gib(16)))] {
            let settings = fit(Settings::default(), memory);
            assert_eq!(limits(&settings), expected);
            assert_eq!(excess(&settings.engine().unwrap(), memory), None);
        }
        let settings = Settings { store_bytes_max: Some("3GiB".parse().unwrap()), ..Settings::default() };
        let settings = fit(settings, gib(4));
        assert_eq!(limits(&settings), (gib(3), gib(2)));
        assert!(
            excess(&settings.engine().unwrap(), gib(4))
                .is_some_and(|text| text.contains("--store-bytes-max 3221225472"))
        );
    }
}
