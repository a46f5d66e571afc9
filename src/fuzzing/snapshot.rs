//! Snapshots: any damage is noticed, and records that no version wrote are skipped or make a state that is kept as it is.

use std::sync::OnceLock;

use crate::clock::UnixMicros;
use crate::fuzzing::input::{CHANGES_MAX, Input};
use crate::fuzzing::sample;
use crate::state::records::Walk;
use crate::state::world::World;
use crate::storage::error::StorageError;
use crate::storage::files::memory::MemoryFiles;
use crate::storage::frame::pack;
use crate::storage::journal::Sequence;
use crate::storage::recovery::decode;
use crate::storage::snapshot::{self, EndRecord, SnapshotHeader, SnapshotReader, SnapshotWriter, write_world};

const AT: Sequence = Sequence(0);

/// The bytes that say what a block holds; two that nothing is.
const KINDS: [u8; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 255, 0, 99];

/// Damages a snapshot, or makes one up whose checksums are right, and reads it.
///
/// # Panics
/// If damage goes unnoticed, or if a state that is taken is not the same when it was written and read once more.
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
    assert_eq!(read(&files).is_ok(), is_whole, "damage went unnoticed, or there was none");
}

/// A snapshot of a state, beside an empty journal.
fn written(world: &World, compress: bool) -> MemoryFiles {
    let files = sample::journal_of([]);
    let write = || {
        let header = SnapshotHeader { sequence: AT, taken_at: UnixMicros(5) };
        let mut writer = SnapshotWriter::begin(&files, header, compress)?;
        write_world(Walk { world, sources: world.sources.len() }, &mut writer)?;
        writer.finish(AT, UnixMicros(5), false)
    };
    write().expect("there is room");
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
            lead_us: 0,
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
    let found = sample::recover(&files).expect("a snapshot that is no good is skipped");
    if found.report.skipped.is_empty() {
        let image = sample::image(&found.world);
        let again = sample::recover(&written(&found.world, false)).expect("what was written can be read");
        assert_eq!(again.report.skipped, [""; 0], "what was taken is refused once it was written");
        assert_eq!(sample::image(&again.world), image, "a state changes by being written and read");
    }
}

/// A block of one of the kinds: compressed here, said to be, or plain, and with any number of records.
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

/// A block as the format describes it, its checksums right.
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
