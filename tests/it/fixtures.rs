//! Data files of released formats: that they still decode, to the very content they were written with. See `README.md` beside them.

use std::fs;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::feed::event::Event;
use tidewire::feed::kind::Kind;
use tidewire::feed::position::Position;
use tidewire::feed::post::Body;
use tidewire::feed::record::PostRecord;
use tidewire::id::PostId;
use tidewire::recovery::Recovered;
use tidewire::state::records::{DeletedRecord, EdgesRecord, InboxRecord, SourceRecord, UnderWayRecord, pack_positions};
use tidewire::storage::directory_identity;
use tidewire::storage::directory_identity::Identified;
use tidewire::storage::files::Files;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::identity::Identity;
use tidewire::storage::journal::Journal as _;
use tidewire::storage::journal::reader::{self, Reading};
use tidewire::storage::journal::writer::{JournalOptions, SegmentJournal, Tail};
use tidewire::storage::segment;
use tidewire::storage::sequence::Sequence;
use tidewire::storage::snapshot::{self, EndRecord, Section, SnapshotHeader, SnapshotReader, SnapshotWriter};

use testkit::fixture_files::{at, events, folder_of, full};
use testkit::histories::{recover, state};
use testkit::world::id;

/// The same content in each.
const VERSIONS: [&str; 2] = ["v1", "v2"];

/// The identity of the directory of `v2`.
const IDENTITY: Identity = Identity(*b"0123456789abcdef");

fn sources() -> Vec<SourceRecord> {
    let plain = |name: &str| SourceRecord::new(id(name));
    vec![
        SourceRecord { last_seen: Some(UnixMicros(7_500_000)), ..plain("ann") },
        SourceRecord { celebrity: true, ..plain("bob") },
        plain("tag:tea"),
        SourceRecord::new(full().tags[1].clone()),
        plain("topic:42"),
        plain("cas"),
    ]
}

fn edges() -> Vec<EdgesRecord> {
    vec![EdgesRecord {
        follower: 0,
        sources: ByteBuf::from([1, 0, 0, 0, 2, 0, 0, 0]),
        since: ByteBuf::from([0x40, 0x42, 0x0f, 0, 0, 0, 0, 0, 0x41, 0x42, 0x0f, 0, 0, 0, 0, 0]),
        hidden: ByteBuf::from([1, 0, 0, 0]),
        ..EdgesRecord::default()
    }]
}

/// The fingerprints are written out: how they are made is part of the format.
fn posts() -> Vec<PostRecord<u32>> {
    let full = PostRecord {
        at: at(3_000_000, 30),
        accepted_at: None,
        kind: Kind::Ad,
        body: Body::new(r#"{"text": "h\u00e9llo é","n":[1,2.50,null]}"#).unwrap(),
        sources: vec![1, 2, 3, 4],
        pulled: 0b0001,
        archived: 0,
        hidden: true,
        edited_at: None,
        repost_of: Some(PostId(7)),
        reply_to: Some(PostId(u64::MAX)),
        external_id: None,
        answered: None,
        fingerprint: FULL_FINGERPRINT,
    };
    let edited = PostRecord {
        at: at(-2_000_000, 20),
        kind: Kind::Post,
        body: Body::new("[2]").unwrap(),
        sources: vec![1],
        pulled: 0,
        hidden: false,
        edited_at: Some(UnixMicros(5_000_000)),
        repost_of: None,
        reply_to: None,
        external_id: None,
        fingerprint: EDITED_FINGERPRINT,
        ..full
    };
    vec![full, edited]
}

const FULL_FINGERPRINT: u64 = 13_227_492_468_038_913_038;
const EDITED_FINGERPRINT: u64 = 13_684_579_413_501_264_453;

fn deleted() -> Vec<DeletedRecord> {
    vec![DeletedRecord { ids: ByteBuf::from([40, 0, 0, 0, 0, 0, 0, 0]) }]
}

fn under_way() -> Vec<UnderWayRecord> {
    vec![UnderWayRecord { posts: pack_positions([at(3_000_000, 30)].into_iter()) }]
}

fn inboxes() -> Vec<InboxRecord> {
    vec![InboxRecord {
        reader: 0,
        synced: UnixMicros(1_000_001),
        floor: Position::MIN,
        posts: pack_positions([at(-2_000_000, 20), at(3_000_000, 30)].into_iter()),
    }]
}

/// The posts of the compressed snapshot: one body, many times, and what only stands beside an archive.
fn compressible() -> Vec<PostRecord<u32>> {
    let body = Body::new(&format!("\"{}\"", "tidewire ".repeat(20))).unwrap();
    let post = |nth: u64| PostRecord {
        at: at(nth as i64, nth),
        body: body.clone(),
        archived: 0b0010,
        fingerprint: nth,
        hidden: false,
        ..posts()[0].clone()
    };
    (1..=5).map(post).collect()
}

const HEADER: SnapshotHeader = SnapshotHeader { sequence: Sequence(9), taken_at: UnixMicros(9_000_000) };
const COMPRESSED: SnapshotHeader = SnapshotHeader { sequence: Sequence(8), taken_at: UnixMicros(-1) };

/// This wrote the files, once for each format. Those of `v1` were written without an identity.
#[test]
fn files_are_written_only_if_none_is_there() {
    let files = files("v2");
    let names = [segment::name(Sequence(1)), snapshot::name(HEADER.sequence), snapshot::name(COMPRESSED.sequence)];
    if files.list().unwrap().iter().any(|name| names.contains(name)) {
        return;
    }
    let files: Arc<dyn Files> = Arc::new(Identified::new(Arc::new(files), IDENTITY));
    let mut journal =
        SegmentJournal::open(Arc::clone(&files), &Tail::default(), JournalOptions::default(), Arc::new(SystemClock))
            .unwrap();
    for event in &events() {
        journal.append(event).unwrap();
        journal.commit().unwrap();
    }
    journal.close().unwrap();

    let mut plain = SnapshotWriter::begin(&*files, HEADER, false).unwrap();
    sources().iter().for_each(|record| plain.record(Section::Sources, record).unwrap());
    edges().iter().for_each(|record| plain.record(Section::Edges, record).unwrap());
    posts().iter().for_each(|record| plain.record(Section::Posts, record).unwrap());
    deleted().iter().for_each(|record| plain.record(Section::Deleted, record).unwrap());
    under_way().iter().for_each(|record| plain.record(Section::UnderWay, record).unwrap());
    inboxes().iter().for_each(|record| plain.record(Section::Inboxes, record).unwrap());
    plain.finish(Sequence(10), UnixMicros(10_000_500), false).unwrap();

    let mut compressed = SnapshotWriter::begin(&*files, COMPRESSED, true).unwrap();
    sources().iter().for_each(|record| compressed.record(Section::Sources, record).unwrap());
    compressible().iter().for_each(|record| compressed.record(Section::Posts, record).unwrap());
    compressed.finish(Sequence(8), UnixMicros(8_000_000), true).unwrap();
    // Taken from the headers.
    assert_eq!(directory_identity::establish(&*files, None).unwrap(), IDENTITY);
}

fn files(version: &str) -> DiskFiles {
    DiskFiles::open(&folder_of(version)).unwrap()
}

#[test]
fn files_of_format_2_carry_the_identity_of_their_directory() {
    assert_eq!(directory_identity::find(&files("v1")).unwrap(), None);
    let files = files("v2");
    assert_eq!(directory_identity::establish(&files, None).unwrap(), IDENTITY);
    for sequence in [8, 9].map(Sequence) {
        let reader = SnapshotReader::open(&files, &snapshot::name(sequence)).unwrap();
        assert_eq!((reader.format(), reader.identity()), (2, Some(IDENTITY)));
    }
    let segment = segment::Segment::read(&files, &segment::name(Sequence(1)), Sequence(1)).unwrap();
    assert_eq!(segment.identity(), Some(IDENTITY));
}

#[test]
fn the_journal_has_its_events() {
    for version in VERSIONS {
        let (mut found, reading) = (Vec::new(), Reading { after: Sequence(0), repair: false });
        let read = reader::read(&files(version), reading, |event| {
            found.push(rmp_serde::from_slice::<Event>(event.payload).unwrap());
            Ok(())
        });
        let read = read.unwrap();
        assert_eq!(found, events());
        assert_eq!((read.tail.last, read.torn), (Sequence(10), None));
    }
}

/// The records of one section.
fn records<T: DeserializeOwned>(
    version: &str,
    name: &str,
    section: Section,
) -> (Vec<T>, SnapshotHeader, EndRecord, bool) {
    let mut reader = SnapshotReader::open(&files(version), name).unwrap();
    let (mut records, mut is_smaller) = (Vec::new(), false);
    while let Some(block) = reader.next_block().unwrap() {
        if block.section == section {
            is_smaller |= block.stored_bytes < block.raw_bytes() as u64;
            records.extend(block.decode::<T>().unwrap());
        }
    }
    (records, reader.header(), reader.end().unwrap(), is_smaller)
}

#[test]
fn the_snapshot_has_every_section() {
    VERSIONS.into_iter().for_each(holds_every_section);
}

fn holds_every_section(version: &str) {
    let name = snapshot::name(Sequence(9));
    let (found, header, end, _) = records::<SourceRecord>(version, &name, Section::Sources);
    assert_eq!((found, header), (sources(), HEADER));
    let expected = EndRecord {
        through: Sequence(10),
        last_instant: UnixMicros(10_000_500),
        drift_us: 0,
        tokens_from: None,
        revealed: Vec::new(),
        blocks: 6,
        archive: false,
    };
    assert_eq!(end, expected);
    assert_eq!(records::<EdgesRecord>(version, &name, Section::Edges).0, edges());
    assert_eq!(records::<PostRecord<u32>>(version, &name, Section::Posts).0, posts());
    assert_eq!(records::<DeletedRecord>(version, &name, Section::Deleted).0, deleted());
    assert_eq!(records::<UnderWayRecord>(version, &name, Section::UnderWay).0, under_way());
    assert_eq!(records::<InboxRecord>(version, &name, Section::Inboxes).0, inboxes());
}

#[test]
fn the_compressed_snapshot_has_its_posts() {
    VERSIONS.into_iter().for_each(holds_its_posts);
}

fn holds_its_posts(version: &str) {
    let (found, header, end, is_smaller) =
        records::<PostRecord<u32>>(version, &snapshot::name(Sequence(8)), Section::Posts);
    assert_eq!((found, header), (compressible(), COMPRESSED));
    let expected = EndRecord {
        through: Sequence(8),
        last_instant: UnixMicros(8_000_000),
        drift_us: 0,
        tokens_from: None,
        revealed: Vec::new(),
        blocks: 2,
        archive: true,
    };
    assert_eq!((end, is_smaller), (expected, true));
}

fn recovered(version: &str, names: &[String]) -> Recovered {
    let directory = tempfile::tempdir().unwrap();
    for name in names {
        fs::copy(folder_of(version).join(name), directory.path().join(name)).unwrap();
    }
    let files = DiskFiles::open(directory.path()).unwrap();
    recover(&files, false).unwrap()
}

#[test]
fn journal_and_snapshot_recover_the_same_state() {
    VERSIONS.into_iter().for_each(comes_to_the_same);
}

fn comes_to_the_same(version: &str) {
    let journal = segment::name(Sequence(1));
    let replayed = recovered(version, std::slice::from_ref(&journal));
    let loaded = recovered(version, &[journal, snapshot::name(Sequence(9))]);
    assert_eq!((replayed.report.events, loaded.report.events), (10, 1));
    assert_eq!((loaded.report.snapshot, loaded.inboxes), (Some(Sequence(9)), inboxes()));
    assert_eq!(state(&replayed.world), state(&loaded.world));
    assert_eq!(replayed.last_instant.instant, UnixMicros(10_000_500));
    assert_eq!(full().fingerprint(), FULL_FINGERPRINT);
}
