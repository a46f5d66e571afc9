//! `tidewire snapshot inspect`: shows the content of a snapshot by blocks. Records are counted but not decoded.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::snapshot::Snapshot;
use crate::cli::{Outcome, terminal};
use tidewire::clock::UnixMicros;
use tidewire::storage::snapshot::{Block, EndRecord, Section, SnapshotReader};

#[derive(Default)]
struct SectionTotals {
    blocks: u64,
    records: u64,
    raw_bytes: u64,
    stored_bytes: u64,
}

pub(super) fn run(snapshot: &Snapshot, json: bool) -> Outcome {
    let mut reader = snapshot.reader()?;
    let header = reader.header();
    if !json {
        terminal::print_line(&format!("{}: format {}, {} bytes", reader.place(), reader.format(), reader.file_bytes()));
        if let Some(identity) = reader.identity() {
            terminal::print_line(&format!("of the data directory {identity}"));
        }
        terminal::print_line(&format!(
            "taken at {}, replay continues after event {}",
            header.taken_at, header.sequence
        ));
        terminal::print_line("");
    }
    let mut sums: BTreeMap<Section, SectionTotals> = BTreeMap::new();
    let read = loop {
        match reader.next_block() {
            Ok(Some(block)) => sums.entry(block.section).or_default().add(&block),
            Ok(None) => break Ok(()),
            Err(cause) => break Err(cause),
        }
    };
    if json {
        terminal::print_json(&document(&reader, &sums));
        read?;
        return Ok(ExitCode::SUCCESS);
    }
    print_sections(&sums);
    read?;
    if let Some(end) = reader.end() {
        terminal::print_line("");
        let last = last_instant(&end).map_or_else(|| "none".to_owned(), |instant| instant.to_string());
        terminal::print_line(&format!("contains events up to {}, last instant {last}", end.through));
        if end.archive {
            terminal::print_line("older posts are in its archive");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the last instant of the clock, if it had issued one.
fn last_instant(end: &EndRecord) -> Option<UnixMicros> {
    Some(end.last_instant).filter(|instant| instant.0 > i64::MIN)
}

/// Describes the content of a snapshot. For a damaged snapshot it contains only the sections before the damage.
fn document(reader: &SnapshotReader, sums: &BTreeMap<Section, SectionTotals>) -> Value {
    let header = reader.header();
    let section = |(section, sum): (&Section, &SectionTotals)| {
        let SectionTotals { blocks, records, raw_bytes, stored_bytes } = sum;
        let name = section.name();
        json!({"section": name, "blocks": blocks, "records": records, "raw_bytes": raw_bytes, "stored_bytes": stored_bytes})
    };
    let end = reader.end().map(|end| {
        let (through, instant) = (end.through.0, last_instant(&end).map(|instant| instant.to_string()));
        json!({"through": through, "last_instant": instant, "needs_archive": end.archive})
    });
    json!({
        "file": reader.place(),
        "format": reader.format(),
        "bytes": reader.file_bytes(),
        "identity": reader.identity().map(|identity| identity.to_string()),
        "taken_at": header.taken_at.to_string(),
        "sequence": header.sequence.0,
        "sections": sums.iter().map(section).collect::<Vec<_>>(),
        "end": end,
    })
}

/// Prints the table of sections. For a damaged snapshot it covers the blocks before the damage.
fn print_sections(sums: &BTreeMap<Section, SectionTotals>) {
    let row = |name: &str, sum: [&str; 4]| {
        let [blocks, records, raw, stored] = sum;
        terminal::print_line(&format!("{name:<10} {blocks:>8} {records:>12} {raw:>15} {stored:>15}"));
    };
    row("section", ["blocks", "records", "bytes raw", "bytes stored"]);
    let mut total = SectionTotals::default();
    for (section, sum) in sums {
        row(section.name(), sum.numbers().each_ref().map(String::as_str));
        total.blocks += sum.blocks;
        total.records += sum.records;
        total.raw_bytes += sum.raw_bytes;
        total.stored_bytes += sum.stored_bytes;
    }
    row("total", total.numbers().each_ref().map(String::as_str));
}

impl SectionTotals {
    fn add(&mut self, block: &Block) {
        self.blocks += 1;
        self.records += u64::from(block.records);
        self.raw_bytes += block.raw_bytes() as u64;
        self.stored_bytes += block.stored_bytes;
    }

    fn numbers(&self) -> [String; 4] {
        [self.blocks, self.records, self.raw_bytes, self.stored_bytes].map(|number| number.to_string())
    }
}
