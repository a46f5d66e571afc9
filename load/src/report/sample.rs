//! A sample report with plausible values, for tests.
#![cfg(test)]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use hdrhistogram::Histogram;

use super::{Case, Interval, Latency, Machine, Report, TargetReport, compare};
use crate::operation::Kind;

const SAMPLES: u64 = 20_000;

/// Returns a report with five designs that took part and one that did not.
pub(crate) fn report() -> Report {
    // Computed once, because the histograms are slow to create and many tests use it.
    static REPORT: LazyLock<Report> = LazyLock::new(make);
    REPORT.clone()
}

fn make() -> Report {
    let targets = vec![
        target("tidewire_http", 1.0, &["tidewire 0.1.0", "--inbox-posts 300", "--durability everysec"]),
        target("redis_list", 6.0, &["Redis 7.0.15", "appendonly yes", "appendfsync everysec", "io-threads 1"]),
        target("redis_zset", 7.5, &["Redis 7.0.15", "appendonly yes", "appendfsync everysec", "io-threads 1"]),
        target("mariadb_push", 60.0, &["MariaDB 10.11.6", "innodb_flush_log_at_trx_commit = 2"]),
        target("mariadb_pull", 90.0, &["MariaDB 10.11.6", "innodb_flush_log_at_trx_commit = 2"]),
        TargetReport {
            name: "valkey_list".to_owned(),
            left_out: Some("there is no program valkey-server".to_owned()),
            ..TargetReport::default()
        },
    ];
    let settings =
        [("mix", "90 % pages, 9 % publishes, 1 % follows"), ("seed", "42"), ("world", "10,000 users, power law")];
    Report {
        title: "Tidewire beside Redis and MariaDB".to_owned(),
        when: "2026-11-21T14:00:00Z".to_owned(),
        command: "tidewire-load compare --seed 42 --users 10000 --rounds 5".to_owned(),
        machine: Machine {
            processor: "Intel(R) Xeon(R) Processor".to_owned(),
            cores: 2,
            memory_bytes: 25_000_000_000,
            system: "Linux 6.1.0".to_owned(),
        },
        settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ratios: compare::ratios(&targets),
        targets,
        warnings: vec![
            "Noise, since rounds lie far apart; as a share of their median. Deliveries: mariadb_push 41 %.".to_owned(),
            "Too few samples behind a p99. Mixed: mariadb_pull follow (812).".to_owned(),
        ],
    }
}

/// Creates a design that is slower by this factor than the fastest, except for the values that are given by name.
fn target(name: &str, slower: f64, settings: &[&str]) -> TargetReport {
    let (deliveries, bytes) = match name {
        "tidewire_http" => (Some(6_280_000.0), 4_700.0),
        "redis_list" => (Some(268_400.0), 13_160.0),
        "redis_zset" => (Some(181_300.0), 31_000.0),
        "mariadb_push" => (Some(34_500.0), 22_400.0),
        _ => (None, 610.0),
    };
    let page = [(Kind::Page, 0.19 * slower, 1.1)];
    let own = [(Kind::OwnPage, 0.15 * slower, 0.9)];
    let mixed =
        [(Kind::Page, 0.3 * slower, 1.6), (Kind::Publish, 0.4 * slower, 2.2), (Kind::Follow, 0.35 * slower, 1.8)];
    let mut cases = BTreeMap::from([
        ("page".to_owned(), case("pages/s", 79_300.0 / slower, &page)),
        ("own_page".to_owned(), case("pages/s", 92_100.0 / slower, &own)),
        ("mixed".to_owned(), case("operations/s", 61_000.0 / slower, &mixed)),
        ("memory".to_owned(), Case { rounds: vec![bytes], ..case("bytes/inbox", bytes, &[]) }),
    ]);
    if let Some(deliveries) = deliveries {
        cases.insert("deliveries".to_owned(), case("deliveries/s", deliveries, &[(Kind::Publish, 0.2 * slower, 1.4)]));
    }
    TargetReport {
        name: name.to_owned(),
        settings: settings.iter().map(|&line| line.to_owned()).collect(),
        left_out: None,
        failures: Vec::new(),
        pages_checked: 2_000,
        cases,
    }
}

/// Creates a case. Latencies are given by their median in ms and the number of decades up to five nines.
fn case(unit: &str, median: f64, latencies: &[(Kind, f64, f64)]) -> Case {
    let wave = |second: f64| 1.0 + 0.07 * (second * 1.7 + median.ln()).sin() - if second == 3.0 { 0.25 } else { 0.0 };
    let over_time = (1..=40).map(|step| f64::from(step) * 0.25);
    Case {
        unit: unit.to_owned(),
        median,
        rounds: [0.97, 1.0, 1.02, 0.99, 1.04].map(|times| times * median).to_vec(),
        latencies: latencies.iter().map(|&(kind, p50_ms, decades)| (kind, latency(p50_ms, decades))).collect(),
        over_time: if latencies.is_empty() {
            Vec::new()
        } else {
            over_time.map(|at_s| Interval { at_s, value: median * wave(at_s), p99_us: 1_000.0 }).collect()
        },
        server_cores: 0.93,
        client_cores: 0.41,
        ..Case::default()
    }
}

fn latency(p50_ms: f64, decades: f64) -> Latency {
    let mut histogram = Histogram::new(3).unwrap();
    for sample in 0..SAMPLES {
        let share = (sample as f64 + 0.5) / SAMPLES as f64;
        let nines = -(1.0 - share).log10() - 0.3;
        // A knee at two nines, as pauses cause it.
        let knee = if nines > 1.7 { (nines - 1.7) * 0.25 } else { 0.0 };
        let nanoseconds = p50_ms * 1e6 * 10_f64.powf(nines * decades / 5.0 + knee);
        histogram.record(nanoseconds as u64).unwrap();
    }
    Latency::of(&histogram)
}
