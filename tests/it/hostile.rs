//! Hostile content behind valid checksums: an error or a state, never a panic, and no memory that the file did not pay for.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tidewire::clock::UnixMicros;
use tidewire::feed::event::Event;
use tidewire::feed::kind::Kind;
use tidewire::feed::position::Position;
use tidewire::feed::post::{Body, Draft};
use tidewire::feed::record::PostRecord;
use tidewire::id::PostId;
use tidewire::state::records::{EdgesRecord, InboxRecord, SourceRecord};
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::frame::{self, FrameKind};
use tidewire::storage::journal::Durability;
use tidewire::storage::segment;
use tidewire::storage::sequence::Sequence;
use tidewire::storage::snapshot::{self, SNAPSHOT_HEADER_BYTES_MAX};

use testkit::cases;
use testkit::histories::{History, Store, journal, model, names, open, recover, recovered, state, storage};
use testkit::world::{NEWEST, draft, edge, id};

/// A journal of one segment with these payloads, each in a frame of its own.
fn journal_of(payloads: &[Vec<u8>]) -> MemoryFiles {
    let mut bytes = segment::header(Sequence(1));
    for (nth, payload) in payloads.iter().enumerate() {
        let sequence = Sequence(nth as u64 + 1);
        frame::encode(&mut bytes, FrameKind::Event, sequence, Sequence(nth as u64), |into| into.extend(payload));
    }
    let files = MemoryFiles::default();
    files.put(&segment::name(Sequence(1)), bytes);
    files
}

const SOURCES: u8 = 1;
const EDGES: u8 = 2;
const POSTS: u8 = 3;
const INBOXES: u8 = 6;
const END: u8 = 255;

/// A block as the format describes it, its checksums right.
fn block(kind: u8, records: u32, raw: &[u8]) -> Vec<u8> {
    stored_block((kind, 0), records, raw.len(), raw)
}

fn compressed(kind: u8, records: u32, raw: &[u8]) -> Vec<u8> {
    stored_block((kind, 1), records, raw.len(), &zstd::bulk::compress(raw, 1).unwrap())
}

fn stored_block((kind, compression): (u8, u8), records: u32, raw_bytes: usize, stored: &[u8]) -> Vec<u8> {
    let mut block = vec![kind, compression];
    block.extend(records.to_le_bytes());
    block.extend((raw_bytes as u32).to_le_bytes());
    block.extend((stored.len() as u32).to_le_bytes());
    block.extend(crc32c::crc32c(stored).to_le_bytes());
    block.extend(crc32c::crc32c(&block).to_le_bytes());
    block.extend(stored);
    block
}

fn header(sequence: u64) -> Vec<u8> {
    let mut header = b"TIDESNAP\x01\0\0\0".to_vec();
    header.extend(sequence.to_le_bytes());
    header.extend(7i64.to_le_bytes());
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    header
}

/// A snapshot of these blocks and an end that fits them, in front of a journal without events.
fn snapshot_of(blocks: &[(u8, u32, Vec<u8>)]) -> MemoryFiles {
    snapshot_of_blocks(blocks.iter().map(|(kind, records, raw)| block(*kind, *records, raw)))
}

fn snapshot_of_blocks(blocks: impl IntoIterator<Item = Vec<u8>>) -> MemoryFiles {
    let (files, mut bytes, mut count) = (journal_of(&[]), header(0), 0);
    for block in blocks {
        bytes.extend(block);
        count += 1;
    }
    let end = rmp_serde::to_vec_named(&snapshot::EndRecord {
        through: Sequence(0),
        last_instant: tidewire::clock::UnixMicros(5),
        drift_us: 0,
        tokens_from: None,
        revealed: Vec::new(),
        blocks: count,
        archive: false,
    });
    bytes.extend(block(END, 1, &end.unwrap()));
    files.put(&snapshot::name(Sequence(0)), bytes);
    files
}

/// Starts on the files. What is taken must be usable.
fn survive(files: &dyn Files, what: &str) -> bool {
    match recover(files, false) {
        Ok(found) => {
            let _ = state(&found.world);
            found.report.skipped.is_empty()
        }
        Err(StorageError::Damaged { sequence, .. }) => {
            assert!(sequence > Sequence(0), "{what}");
            false
        }
        Err(other) => panic!("{what}: {other}"),
    }
}

/// MessagePack that claims more than there is, or nests deeper than any record.
fn traps() -> Vec<Vec<u8>> {
    let mut traps = vec![vec![], vec![0xc1], vec![0xc0], vec![0xff; 40]];
    // Arrays, maps, texts, bytes and extensions of four billion elements.
    for marker in [0xdd, 0xdf, 0xdb, 0xc6, 0xc9] {
        traps.push([&[marker][..], &[0xff; 4], &[0; 30]].concat());
        for field in ["published", "followed", "id", "ids", "posts", "sources", "edges", "follower"] {
            let named = [&[0x81, 0xa0 | field.len() as u8][..], field.as_bytes()].concat();
            traps.push([&named[..], &[marker], &[0xff; 4], &[1; 30]].concat());
        }
    }
    for nesting in [&[0x91][..], &[0x81, 0xa1, b'a'], &[0x81, 0x01], &[0x81, 0xa5, b'e', b'd', b'g', b'e', b's']] {
        traps.push(nesting.repeat(100_000));
    }
    traps
}

/// Changes some bytes of what was right.
fn mutate(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..4) {
        let at = random.usize(0..bytes.len());
        match random.u8(0..6) {
            0 => bytes[at] = random.u8(..),
            1 => bytes[at] ^= 1 << random.u8(0..8),
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, random.u8(..)),
            4 => bytes[at] = random.choice([0xff, 0xdd, 0xdf, 0xdb, 0xc6, 0xcf, 0xd3, 0x80, 0]).unwrap(),
            _ => {
                let end = (at + 8).min(bytes.len());
                bytes[at..end].fill(random.choice([0xff, 0x7f, 0]).unwrap());
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}

#[test]
fn hostile_payloads_in_a_journal_are_refused_by_sequence_at_low_cost() {
    let good: Vec<Vec<u8>> = payloads(&History::new(2).events(3));
    for (nth, trap) in traps().into_iter().enumerate() {
        let payloads: Vec<Vec<u8>> = good.iter().cloned().chain([trap]).chain(good.clone()).collect();
        match recover(&journal_of(&payloads), false) {
            Err(StorageError::Damaged { sequence: Sequence(4), .. }) => {}
            other => panic!("trap {nth}: {:?}", other.map(|found| found.report)),
        }
    }
    let mut random = fastrand::Rng::with_seed(1);
    for seed in 0..cases(100) {
        let bytes = (0..random.usize(0..200)).map(|_| random.u8(..)).collect();
        assert!(!survive(&journal_of(&[bytes]), &format!("seed {seed}")));
    }
}

fn payloads(events: &[Event]) -> Vec<Vec<u8>> {
    events.iter().map(|event| rmp_serde::to_vec_named(event).unwrap()).collect()
}

#[test]
fn changed_payloads_in_a_journal_are_refused_or_recover_a_valid_state() {
    let mut taken = 0;
    for seed in 0..cases(300) {
        let (mut history, mut random) = (History::new(seed), fastrand::Rng::with_seed(seed));
        let mut payloads = payloads(&history.events(6));
        let nth = random.usize(0..payloads.len());
        mutate(&mut payloads[nth], &mut random);
        let files = journal_of(&payloads);
        if survive(&files, &format!("seed {seed}")) {
            taken += 1;
            let (mut store, _) = Store::open(Arc::new(files.clone()), journal(Durability::Always, 1 << 20)).unwrap();
            store.write(&history.events(6)).unwrap();
            store.snapshot(&[]).unwrap();
            assert_eq!(recovered(&files).unwrap().0, state(&store.world), "seed {seed}");
        }
    }
    assert!(taken > 0, "some changes are changes of content only");
}

#[test]
fn frames_with_an_excessive_length_are_refused() {
    for claim in [1u32, 5, 1 << 20, 16 << 20, (16 << 20) + 1, u32::MAX] {
        let mut frame = claim.to_le_bytes().to_vec();
        frame.extend(1u64.to_le_bytes());
        frame.extend(0u64.to_le_bytes());
        frame.push(1);
        frame.extend(crc32c::crc32c(b"").to_le_bytes());
        frame.extend(crc32c::crc32c(&frame).to_le_bytes());
        let files = journal_of(&[]);
        files.tamper(&segment::name(Sequence(1)), |bytes| bytes.extend(frame));
        let found = recover(&files, false).unwrap();
        assert_eq!((found.tail.last, found.report.torn.is_some()), (Sequence(0), true), "{claim}");
    }
}

#[test]
fn hostile_blocks_of_a_snapshot_are_skipped() {
    for kind in [SOURCES, EDGES, POSTS, 4, 5, INBOXES, END, 0, 7, 254] {
        for (nth, trap) in traps().into_iter().enumerate() {
            for records in [1, 3, u32::MAX] {
                for block in [block, compressed].map(|make| make(kind, records, &trap)) {
                    let files = snapshot_of_blocks([block]);
                    assert!(!survive(&files, "trap"), "trap {nth} in a block of kind {kind} with {records} records");
                }
            }
        }
    }
}

#[test]
fn compressed_blocks_with_wrong_lengths_or_contents_are_skipped() {
    let (count, raw) = packed(&[SourceRecord::new(id("ann"))]);
    assert!(survive(&snapshot_of_blocks([compressed(SOURCES, count, &raw)]), "good"));
    let packed = zstd::bulk::compress(&raw, 1).unwrap();
    let block = |raw_bytes, stored: &[u8]| stored_block((SOURCES, 1), count, raw_bytes, stored);
    let twice = [&packed[..], &packed].concat();
    for (hostile, why) in [
        (block(raw.len() + 1, &packed), "does not have its stated length"),
        (block(raw.len() - 1, &packed), "does not have its stated length"),
        (block(0, &packed), "does not have its stated length"),
        (block(raw.len(), &twice), "does not have its stated length"),
        (block(raw.len(), &packed[..packed.len() - 1]), "zstd: "),
        (block(raw.len(), b"no zstd at all"), "zstd: "),
        (block(raw.len(), &[]), "more bytes than its data can represent"),
        (block(64 << 20, &packed), "more bytes than its data can represent"),
        (block((64 << 20) + 1, &packed), "larger than any version writes"),
        (stored_block((SOURCES, 2), count, raw.len(), &packed), "no version compresses by method 2"),
    ] {
        let found = recover(&snapshot_of_blocks([hostile]), false).unwrap();
        let skipped = &found.report.skipped;
        assert!(skipped.len() == 1 && skipped[0].contains(why), "{skipped:?} instead of {why:?}");
    }
}

fn packed<T: serde::Serialize>(records: &[T]) -> (u32, Vec<u8>) {
    let raw = records.iter().flat_map(|record| rmp_serde::to_vec_named(record).unwrap()).collect();
    (records.len() as u32, raw)
}

fn blocks<T: serde::Serialize>(kind: u8, records: &[T]) -> Vec<(u8, u32, Vec<u8>)> {
    let people = ["ann", "bob", "cas"].map(|name| SourceRecord::new(id(name)));
    let (known, raw) = packed(&people);
    let (count, hostile) = packed(records);
    vec![(SOURCES, known, raw), (kind, count, hostile)]
}

/// Starts on a snapshot of three sources and these records, which is skipped, and says why.
fn misfit<T: serde::Serialize>(kind: u8, records: &[T], why: &str) {
    let found = recover(&snapshot_of(&blocks(kind, records)), false).unwrap();
    assert_eq!(found.report.skipped.len(), 1, "taken, but {why}");
    assert!(found.report.skipped[0].contains(why), "{:?} instead of {why:?}", found.report.skipped);
    assert_eq!(state(&found.world), model(&[]));
}

fn edges(follower: u32, sources: &[u32], since: &[i64], hidden: &[u32]) -> EdgesRecord {
    EdgesRecord {
        follower,
        sources: sources.iter().flat_map(|slot| slot.to_le_bytes()).collect::<Vec<u8>>().into(),
        since: since.iter().flat_map(|since| since.to_le_bytes()).collect::<Vec<u8>>().into(),
        hidden: hidden.iter().flat_map(|place| place.to_le_bytes()).collect::<Vec<u8>>().into(),
        ..EdgesRecord::default()
    }
}

fn post(sources: Vec<u32>) -> PostRecord<u32> {
    PostRecord {
        at: Position { published_at: UnixMicros(1), id: PostId(1) },
        accepted_at: None,
        kind: Kind::Post,
        body: Body::new("1").unwrap(),
        sources,
        pulled: 0,
        archived: 0,
        hidden: false,
        edited_at: None,
        repost_of: None,
        reply_to: None,
        external_id: None,
        answered: None,
        fingerprint: 0,
    }
}

#[test]
fn inconsistent_records_make_a_snapshot_invalid() {
    let good = snapshot_of(&blocks(EDGES, &[edges(0, &[1, 2], &[5, 6], &[1])]));
    assert_eq!(recover(&good, false).unwrap().world.edges(), 2);
    let ann = SourceRecord::new(id("ann"));
    misfit(SOURCES, &[ann], "source ann is stored twice");
    misfit(EDGES, &[edges(0, &[1, 2], &[5], &[])], "have different lengths");
    misfit(EDGES, &[EdgesRecord { sources: vec![1; 7].into(), ..edges(0, &[], &[5], &[]) }], "have different lengths");
    misfit(EDGES, &[edges(0, &[1], &[5], &[1])], "a hidden edge of source 0 does not exist");
    misfit(EDGES, &[edges(0, &[1, 3], &[5, 6], &[])], "name sources that do not exist");
    misfit(EDGES, &[edges(0, &[2, 1], &[5, 6], &[])], "name sources that do not exist");
    misfit(EDGES, &[edges(3, &[1], &[5], &[])], "name sources that do not exist");
    misfit(EDGES, &[edges(0, &[u32::MAX], &[5], &[])], "name sources that do not exist");
    misfit(EDGES, &[edges(0, &[1], &[5], &[]), edges(0, &[2], &[6], &[])], "are stored twice");
    misfit(POSTS, &[post(vec![])], "sources that do not exist");
    misfit(POSTS, &[post(vec![0, 3])], "sources that do not exist");
    misfit(POSTS, &[post(vec![0; 40])], "belongs to 40 sources");
    let inbox = |reader| InboxRecord { reader, synced: UnixMicros(1), floor: Position::MIN, posts: vec![].into() };
    misfit(INBOXES, &[inbox(3)], "the source 3 of an inbox does not exist");
    misfit(SOURCES, &["just text"], "");
}

/// Files of an engine with readers awake, and one snapshot that is not compressed.
async fn lively() -> MemoryFiles {
    let files = MemoryFiles::default();
    let (engine, _) = open(files.clone(), &storage(Durability::Always, 1 << 20)).unwrap();
    for reader in 0..4 {
        let edges =
            (0..5).filter(|other| *other != reader).map(|other| edge(&format!("u{reader}"), &format!("u{other}")));
        engine.follow(edges.collect()).await.unwrap();
        engine.feed(&id(&format!("u{reader}")), NEWEST).await.unwrap();
    }
    for nth in 0..12 {
        let post = engine.publish(draft(&format!("u{}", nth % 5), "\"text\""), true).await.unwrap().post;
        if nth % 4 == 3 {
            engine.delete(post.id()).await.unwrap();
        }
    }
    engine.snapshot().await.unwrap();
    engine.shutdown();
    files
}

/// The blocks of a snapshot that is not compressed.
fn blocks_of(bytes: &[u8]) -> Vec<(u8, u32, Vec<u8>)> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut blocks, mut at) = (Vec::new(), SNAPSHOT_HEADER_BYTES_MAX);
    while at < bytes.len() {
        let stored = number(at + 10) as usize;
        blocks.push((bytes[at], number(at + 2), bytes[at + 22..at + 22 + stored].to_vec()));
        at += 22 + stored;
    }
    blocks
}

#[tokio::test]
async fn changed_records_of_a_snapshot_are_skipped_or_recover_a_valid_state() {
    let files = lively().await;
    let name = names(&files, "snapshot-").remove(0);
    let whole = files.content(&name);
    let mut taken = 0;
    for seed in 0..cases(150) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut blocks = blocks_of(&whole);
        assert_eq!(blocks.iter().map(|block| block.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, END]);
        let nth = random.usize(0..blocks.len());
        mutate(&mut blocks[nth].2, &mut random);
        let mut bytes = whole[..SNAPSHOT_HEADER_BYTES_MAX].to_vec();
        blocks.iter().for_each(|(kind, records, raw)| bytes.extend(block(*kind, *records, raw)));
        let hostile = files.copied();
        hostile.tamper(&name, |content| *content = bytes);
        match recover(&hostile, false) {
            Ok(found) if !found.report.skipped.is_empty() => continue,
            // The end record may claim to have seen more than there is.
            Err(StorageError::BehindSnapshot { .. }) if blocks[nth].0 == END => continue,
            other => drop(other.unwrap_or_else(|cause| panic!("seed {seed}: {cause}"))),
        }
        taken += 1;
        let (engine, _) = open(hostile.clone(), &storage(Durability::Always, 1 << 20)).unwrap();
        for reader in 0..5 {
            let reader = format!("u{reader}");
            let feed = engine.feed(&id(&reader), NEWEST).await;
            assert!(feed.is_ok(), "seed {seed}: {:?}", feed.err());
            engine.unfollow(id("u0"), id(&reader)).await.unwrap();
            engine.publish(draft(&reader, "1"), true).await.unwrap_or_else(|cause| panic!("seed {seed}: {cause}"));
        }
        engine.snapshot().await.unwrap();
        engine.shutdown();
    }
    assert!(taken > 0, "some changes are changes of content only");
}

#[test]
fn events_that_no_version_writes_are_refused() {
    let edges = ["bob", "cas", "dan"].map(|source| edge("ann", source)).to_vec();
    let tags = (0..40).map(|tag| id(&format!("tag:{tag}"))).collect();
    let position = Position { published_at: UnixMicros(1), id: PostId(1) };
    for (event, why) in [
        (Event::Followed { edges: edges.clone(), since: UnixMicros(i64::MAX - 1) }, "after the end of time"),
        (
            Event::FollowsChanged { follows: edges, since: UnixMicros(i64::MAX - 1), unfollows: Vec::new() },
            "after the end of time",
        ),
        (
            Event::Published { position, draft: Draft { tags, ..draft("bob", "1") }, accepted_at: UnixMicros(1) },
            "40 tags",
        ),
    ] {
        let refusal = recover(&journal_of(&payloads(&[event])), false).err().unwrap().to_string();
        assert!(refusal.contains(why) && refusal.contains("where event 1 should be"), "{refusal}");
    }
    let mut longer = payloads(&[Event::Deleted { id: PostId(1), repost_of: None, post: None }]);
    longer[0].push(0xc0);
    let refusal = recover(&journal_of(&longer), false).err().unwrap().to_string();
    assert!(refusal.contains("1 bytes too many"), "{refusal}");
}

#[tokio::test]
async fn extreme_times_do_not_stop_the_engine() {
    let (first, last) = (UnixMicros(i64::MIN), UnixMicros(i64::MAX));
    let position = |published_at| Position { published_at, id: PostId(u64::MAX) };
    let edges = ["bob", "cas", "dan"].map(|source| edge("ann", source)).to_vec();
    for events in [
        vec![Event::Followed { edges: vec![], since: first }],
        vec![Event::Followed { edges: edges.clone(), since: first }],
        vec![Event::FollowsChanged { follows: vec![], since: last, unfollows: Vec::new() }],
        vec![Event::FollowsChanged { follows: edges, since: first, unfollows: Vec::new() }],
        vec![Event::Published { position: position(last), draft: draft("bob", "1"), accepted_at: last }],
        vec![Event::Published { position: position(first), draft: draft("bob", "1"), accepted_at: first }],
        vec![Event::Edited { id: PostId(0), body: None, hidden: None, at: last, post: None }],
    ] {
        let files = journal_of(&payloads(&events));
        let (engine, _) = open(files.clone(), &storage(Durability::Always, 1 << 20)).unwrap();
        for _ in 0..3 {
            engine.publish(draft("bob", "2"), true).await.unwrap();
        }
        engine.follow(vec![edge("eve", "bob"), edge("eve", "ann")]).await.unwrap();
        assert!(engine.feed(&id("eve"), NEWEST).await.unwrap().page.items.len() >= 3);
        engine.snapshot().await.unwrap();
        engine.shutdown();
        open(files, &storage(Durability::Always, 1 << 20)).unwrap().0.shutdown();
    }
}

/// The most address space this process ever had, in bytes. Elsewhere than on Linux nobody says.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok()).unwrap_or(0) * 1024
}

/// What threads and their stacks take, whatever the file.
const SLACK_BYTES: usize = 24 << 20;

/// zstd that claims a window of this many bytes, and then holds a run of a few.
fn with_window(window_log: u8) -> Vec<u8> {
    [&[0x28, 0xb5, 0x2f, 0xfd, 0x00, (window_log - 10) << 3][..], &[0x23, 0, 0, 0xc1]].concat()
}

#[test]
#[ignore = "takes 10 s for files of 40 MB"]
fn lengths_claimed_by_a_file_do_not_cause_allocations() {
    const ALONE: &str = "TIDEWIRE_TEST_ALONE";
    if let Some(directory) = std::env::var_os(ALONE) {
        return start_alone(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    // Forty million bytes that claim to be as many records, of which none is whole.
    for kind in [SOURCES, EDGES, POSTS, 4, 5, INBOXES] {
        let files = snapshot_of(&[(kind, u32::MAX, vec![0xc1; 40 << 20])]);
        let path = directory.path().join(kind.to_string());
        std::fs::create_dir(&path).unwrap();
        files.list().unwrap().iter().for_each(|name| std::fs::write(path.join(name), files.content(name)).unwrap());
    }
    // In a process of its own, since what other tests take would be counted here; so would memory set apart for each thread.
    let mut itself = Command::new(std::env::current_exe().unwrap());
    let name = "hostile::lengths_claimed_by_a_file_do_not_cause_allocations";
    itself.args(["--ignored", "--exact", name]).env(ALONE, directory.path()).env("MALLOC_ARENA_MAX", "1");
    let run = testkit::output(&mut itself);
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && told.contains("1 passed"), "{told}");
}

/// Starts on small files, then on those of every directory in this one, and looks how much memory that took.
fn start_alone(directory: &Path) {
    let before = peak_bytes();
    let small = traps().into_iter().chain((10..28).map(with_window));
    for trap in small {
        survive(&journal_of(std::slice::from_ref(&trap)), "trap");
        for kind in [SOURCES, EDGES, POSTS, 4, 5, INBOXES, END] {
            survive(&snapshot_of(&[(kind, u32::MAX, trap.clone())]), "trap");
            survive(&snapshot_of_blocks([compressed(kind, u32::MAX, &trap)]), "trap");
            for claim in [40, 1 << 20, 64 << 20] {
                survive(&snapshot_of_blocks([stored_block((kind, 1), u32::MAX, claim, &trap)]), "trap");
            }
        }
    }
    let grown = peak_bytes() - before;
    assert!(grown < SLACK_BYTES, "small files cost {grown} bytes");
    for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        survive(&DiskFiles::open(&path).unwrap(), "claims");
        let grown = peak_bytes() - before;
        assert!(grown < 2 * (40 << 20) + SLACK_BYTES, "{} cost {grown} bytes", path.display());
    }
}
