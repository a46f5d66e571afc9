//! The shared log on one Kafka broker of this machine: records/s, and the time from an append until the record is read back.
//!
//! `scripts/kafka.sh install`, then `cargo bench -p tidewire-kafka -- RECORDS`
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

#[path = "../../benches/common/mod.rs"]
mod common;

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use common::size;
use hdrhistogram::Histogram;
use testkit::kafka::Brokers;
use tidewire::storage::log::{LogError, LogWriter, ReadLog, SharedLog};
use tidewire::storage::sequence::Sequence;
use tidewire_kafka::{KafkaLog, KafkaOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RECORD: [u8; 300] = [7; 300];

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let records = asked.first().copied().unwrap_or(size(1_000_000, 1_000));
    let broker = Brokers::start(1);
    let log = |name: &str| KafkaLog::create(KafkaOptions::new(&broker.addresses, name), 1).unwrap();

    let whole = log("whole");
    append_and_read_beside(&whole, records);
    append_and_read_beside(&whole, records);
    read_again(&whole);
    for under_way in [1, 64, 1_000] {
        read_back(&log(&format!("under-way-{under_way}")), under_way);
    }
    open(&KafkaOptions::new(&broker.addresses, "whole"));
}

fn append(writer: &mut dyn LogWriter) {
    while let Err(error) = writer.append(RECORD.to_vec()) {
        assert!(matches!(error, LogError::Busy { .. }), "{error}");
        thread::sleep(Duration::from_micros(100));
    }
}

/// Appends as fast as the writer accepts records, while another thread reads them back.
fn append_and_read_beside(log: &KafkaLog, records: usize) {
    let mut reader = log.reader(log.range().unwrap().last).unwrap();
    let mut writer = log.writer().unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| (0..records).for_each(|_| append(&mut *writer)));
        let mut read = 0;
        while read < records {
            read += reader.read(Duration::from_secs(1)).unwrap().len();
        }
    });
    println!("appended and read back: {:.0} records/s", records as f64 / start.elapsed().as_secs_f64());
}

/// Reads the whole log, as a node that joins does.
fn read_again(log: &KafkaLog) {
    let last = log.range().unwrap().last;
    let start = Instant::now();
    let mut reader = log.reader(Sequence(0)).unwrap();
    let mut read = 0;
    let mut first = None;
    while read < last.0 {
        read += reader.read(Duration::from_secs(1)).unwrap().len() as u64;
        first.get_or_insert_with(|| start.elapsed());
    }
    let rate = read as f64 / start.elapsed().as_secs_f64();
    println!("read from the start: {rate:.0} records/s, the first after {:.0?}", first.unwrap());
}

/// Keeps a number of records in flight, and measures each from its append until it is read back.
fn read_back(log: &KafkaLog, under_way: usize) {
    let (mut reader, mut writer) = (log.reader(Sequence(0)).unwrap(), log.writer().unwrap());
    let mut latencies = Histogram::<u64>::new(3).unwrap();
    let (mut appended, mut read) = (VecDeque::new(), 0);
    let warm_up = size(2_000, 10);
    let mut start = Instant::now();
    let lasts = Duration::from_millis(size(8_000, 100) as u64);
    while read < warm_up || start.elapsed() < lasts {
        while appended.len() < under_way {
            appended.push_back(Instant::now());
            append(&mut *writer);
        }
        for _ in reader.read(Duration::from_secs(1)).unwrap() {
            let since = appended.pop_front().unwrap();
            if read == warm_up {
                start = Instant::now();
            }
            if read >= warm_up {
                latencies.record(since.elapsed().as_micros() as u64).unwrap();
            }
            read += 1;
        }
    }
    let rate = latencies.len() as f64 / start.elapsed().as_secs_f64();
    let ms = |quantile: f64| latencies.value_at_quantile(quantile) as f64 / 1_000.0;
    println!(
        "{under_way} under way: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, {rate:.0} records/s",
        ms(0.5),
        ms(0.99),
        ms(0.999)
    );
}

/// Measures the operations on the log when a node starts.
fn open(options: &KafkaOptions) {
    let start = Instant::now();
    let log = KafkaLog::open(options.clone()).unwrap();
    let opened = start.elapsed();
    let last = log.range().unwrap().last;
    let ranged = start.elapsed() - opened;
    drop(log.reader(last).unwrap());
    let read = start.elapsed() - opened - ranged;
    println!("opened in {opened:.1?}, range in {ranged:.1?}, a reader made and dropped in {read:.1?}");
}
