//! Fuzz target for snapshots: any damage is detected, and records that no version has written are skipped or build a state that survives
//! writing and reading.

use std::sync::OnceLock;

use crate::clock::UnixMicros;
use crate::fuzzing::input::{CHANGES_MAX, Input};
use crate::fuzzing::sample;
use crate::recovery::decode;
use crate::recovery::write_world;
use crate::state::records::RecordTraversal;
use crate::state::world::World;
use crate::storage::error::StorageError;
use crate::storage::files::memory::MemoryFiles;
use crate::storage::frame::pack;
use crate::storage::sequence::Sequence;
use crate::storage::snapshot::{self, EndRecord, SnapshotHeader, SnapshotReader, SnapshotWriter};

const AT: Sequence = Sequence(0);

/// The bytes for the kind of a block; two of them have no meaning.
const KINDS: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 255, 0, 99];

/// Damages a snapshot, or builds one with arbitrary records and valid checksums, and reads it.
///
/// # Panics
/// If damage is not detected, or if an accepted state differs after it is written and read again.
pub fn snapshot(data: &[u8]) {
    let mut input = Input(data);
    let how = input.byte();
    if how % 2 == 0 { damaged(how, input) } else { hostile(input) }
}

fn damaged(how: u8, mut input: Input<'_>) {
    static WHOLE: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    let whole = WHOLE.get_or_init(|| {
        let world = sample::world_of(&sample::events());
        [false, true].map(|compress| written(&world, compress).content(&snapshot::name(AT)))
    });
    let whole = &whole[usize::from(how / 2 % 2)];
    let mut bytes = whole.clone();
    for _ in 0..CHANGES_MAX {
        if !input.is_empty() {
            input.damage(&mut bytes);
        }
    }
    let is_whole = bytes == *whole;
    let files = MemoryFiles::default();
    files.put(&snapshot::name(AT), bytes);
    assert_eq!(read(&files).is_ok(), is_whole, "damage was not detected, or was reported without any");
}

/// Writes a snapshot of a state, beside an empty journal.
fn written(world: &World, compress: bool) -> MemoryFiles {
    let files = sample::journal_of([]);
    let write = || {
        let header = SnapshotHeader { sequence: AT, taken_at: UnixMicros(5) };
        let mut writer = SnapshotWriter::begin(&files, header, compress)?;
        write_world(RecordTraversal { world, sources: world.sources.len() }, &mut writer)?;
        writer.finish(AT, UnixMicros(5), false)
    };
    write().expect("memory has space");
    files
}

fn read(files: &MemoryFiles) -> Result<(), StorageError> {
    let mut reader = SnapshotReader::open(files, &snapshot::name(AT))?;
    while let Some(block) = reader.next_block()? {
        decode(&block).map(drop).map_err(|reason| reader.bad(reason))?;
    }
    Ok(())
}

fn hostile(mut input: Input<'_>) {
    let mut bytes = b"TIDESNAP\x01\0\0\0".to_vec();
    bytes.extend(AT.0.to_le_bytes());
    bytes.extend(5i64.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    let mut blocks = 0;
    while !input.is_empty() {
        bytes.extend(block(&mut input));
        blocks += 1;
    }
    let mut end = Vec::new();
    let (through, last_instant) = (AT, UnixMicros(5));
    pack(
        &EndRecord {
            through,
            last_instant,
            drift_us: 0,
            tokens_from: None,
            revealed: Vec::new(),
            blocks,
            archive: false,
        },
        &mut end,
    );
    bytes.extend(stored((255, 0), 1, end.len() as u32, &end));
    let files = sample::journal_of([]);
    files.put(&snapshot::name(AT), bytes);
    let found = sample::recover(&files).expect("an invalid snapshot is skipped");
    if found.report.skipped.is_empty() {
        let image = sample::image(&found.world);
        let again = sample::recover(&written(&found.world, false)).expect("the written snapshot can be read");
        assert_eq!(again.report.skipped, [""; 0], "accepted records are refused after they are written");
        assert_eq!(sample::image(&again.world), image, "a state changes when it is written and read");
    }
}

/// Builds a block of any kind with any number of records: compressed, plain, or plain but marked as compressed.
fn block(input: &mut Input<'_>) -> Vec<u8> {
    let (how, records) = (input.byte(), u32::from(input.byte()));
    let kind = KINDS[usize::from(how) % KINDS.len()];
    let claimed = |input: &mut Input<'_>| (input.number() as u32) << (how % 16);
    match how / 64 {
        0 | 1 => {
            let content = input.piece();
            stored((kind, 0), records, content.len() as u32, content)
        }
        2 => {
            let content = input.piece();
            stored((kind, 1), records, content.len() as u32, &zstd::bulk::compress(content, 1).unwrap_or_default())
        }
        _ => {
            let (claimed, content) = (claimed(input), input.piece());
            stored((kind, 1), records << (how % 25), claimed, content)
        }
    }
}

/// Encodes a block as the format describes it, with valid checksums.
fn stored((kind, compression): (u8, u8), records: u32, raw_bytes: u32, content: &[u8]) -> Vec<u8> {
    let mut block = vec![kind, compression];
    block.extend(records.to_le_bytes());
    block.extend(raw_bytes.to_le_bytes());
    block.extend((content.len() as u32).to_le_bytes());
    block.extend(crc32c::crc32c(content).to_le_bytes());
    block.extend(crc32c::crc32c(&block).to_le_bytes());
    block.extend(content);
    block
}
