//! Default limits that depend on the memory of this process.

use std::num::NonZeroU64;

use crate::cli::settings::{Bytes, Settings};
use crate::process_memory::{self, STORE_PART, part_of};
use tidewire::config::EngineConfig;

/// The divisor of the memory for sources, follow edges and preferences by default. The rest, without the memory of posts, is for inboxes,
/// requests, connections and the system.
const GRAPH_PART: u64 = 2;

/// Returns the settings with default limits that fit into the memory. Explicit limits are unchanged.
pub(crate) fn fitted(settings: Settings) -> Settings {
    match process_memory::limit() {
        Some(memory) => fit(settings, memory),
        None => settings,
    }
}

/// Returns a warning if the data may need more than the memory.
pub(crate) fn warning(config: &EngineConfig) -> Option<String> {
    process_memory::limit().and_then(|memory| excess(config, memory))
}

fn fit(settings: Settings, memory: u64) -> Settings {
    let default = EngineConfig::default();
    let part = |default: usize, part: u64| NonZeroU64::new(part_of(memory, part).min(default as u64)).map(Bytes);
    let store_bytes_max = settings.store_bytes_max.or(part(default.store_bytes_max, STORE_PART));
    let graph_bytes_max = settings.graph_bytes_max.or(part(default.graph_bytes_max, GRAPH_PART));
    Settings { store_bytes_max, graph_bytes_max, ..settings }
}

fn excess(config: &EngineConfig, memory: u64) -> Option<String> {
    let together = (config.store_bytes_max as u64).saturating_add(config.graph_bytes_max as u64);
    (together > memory).then(|| {
        format!(
            "--store-bytes-max {} and --graph-bytes-max {} together exceed the memory of {memory} bytes: the system may kill the server before it \
             refuses writes",
            config.store_bytes_max, config.graph_bytes_max
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_limits_fit_into_memory_and_larger_given_limits_cause_a_warning() {
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
