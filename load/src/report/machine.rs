//! Reads the properties of the machine from the kernel.

use std::fs;

use super::Machine;

/// The value of an unknown property.
const UNKNOWN: &str = "unknown";

impl Machine {
    /// Reads the properties of this machine. Unknown ones are `unknown` or 0.
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processors = text("/proc/cpuinfo");
        Self {
            processor: processor(&processors),
            cores: cores(&processors),
            memory_bytes: memory_bytes(&text("/proc/meminfo")),
            system: system(&text("/proc/sys/kernel/osrelease")),
        }
    }
}

/// Returns the model of the first processor in `/proc/cpuinfo`. On ARM only the implementer and the part number are available.
fn processor(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let value = fields.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next();
        value.filter(|value| !value.is_empty())
    };
    if let Some(model) = field("model name") {
        return model.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    match (field("CPU implementer"), field("CPU part")) {
        (Some(implementer), Some(part)) => format!("ARM {implementer} {part}"),
        _ => UNKNOWN.to_owned(),
    }
}

/// Returns the number of online logical processors, which includes hyper-threads.
fn cores(cpuinfo: &str) -> usize {
    cpuinfo.lines().filter(|line| line.split_once(':').is_some_and(|(key, _)| key.trim() == "processor")).count()
}

/// Returns the total memory in `/proc/meminfo`, in bytes.
fn memory_bytes(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) * 1_024
}

fn system(osrelease: &str) -> String {
    match osrelease.trim() {
        "" => UNKNOWN.to_owned(),
        release => format!("Linux {release}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEL: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)  \
                         Processor\n\nprocessor\t: 1\nmodel name\t: Intel(R) Xeon(R)  Processor\n";
    const ARM: &str = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";

    #[test]
    fn the_first_processor_names_the_model() {
        assert_eq!(processor(INTEL), "Intel(R) Xeon(R) Processor");
        assert_eq!(cores(INTEL), 2);
    }

    #[test]
    fn an_arm_processor_is_described_by_its_ids() {
        assert_eq!((processor(ARM).as_str(), cores(ARM)), ("ARM 0x41 0xd0c", 1));
    }

    #[test]
    fn memory_is_parsed_from_kibibytes() {
        assert_eq!(memory_bytes("MemTotal:       24589120 kB\nMemFree: 1 kB\n"), 25_179_258_880);
        assert_eq!(memory_bytes("MemTotal: much\n"), 0);
    }

    #[test]
    fn missing_machine_data_is_unknown() {
        assert_eq!(
            (processor(""), cores(""), memory_bytes(""), system("\n")),
            ("unknown".into(), 0, 0, "unknown".into())
        );
        assert_eq!(system("6.1.0-18-amd64\n"), "Linux 6.1.0-18-amd64");
    }
}
