//! A data directory with names in any script and ids of other systems: that it still opens, with the very content it was written with.

use std::fs;
use std::sync::Arc;

use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::feed::event::Event;
use tidewire::feed::kind::Kind;
use tidewire::feed::post::Draft;
use tidewire::feed::record::PostRecord;
use tidewire::id::{ExternalId, PostId, SourceId};
use tidewire::recovery::Recovered;
use tidewire::state::records::SourceRecord;
use tidewire::state::tiering;
use tidewire::storage::directory_identity::Identified;
use tidewire::storage::files::Files;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::frame::pack;
use tidewire::storage::identity::Identity;
use tidewire::storage::journal::Journal as _;
use tidewire::storage::journal::reader::{self, Reading};
use tidewire::storage::journal::writer::{JournalOptions, SegmentJournal, Tail};
use tidewire::storage::segment;
use tidewire::storage::sequence::Sequence;
use tidewire::storage::snapshot::{self, Section, SnapshotHeader, SnapshotReader, SnapshotWriter};

use testkit::fixture_files::{at, folder_of, published};
use testkit::histories::{recover, state};
use testkit::world::{draft, id};

const UUID: &str = "550e8400-e29b-41d4-a716-446655440000";
/// Written out, since how it is computed is part of the format; so is the fingerprint.
const ID: PostId = PostId(4_793_205_509_806_541_490);
const FINGERPRINT: u64 = 17_069_590_016_021_498_751;

fn post() -> Draft {
    Draft {
        external_id: Some(ExternalId::new(UUID).unwrap()),
        tags: vec![SourceId::tag("Größe").unwrap(), SourceId::tag("東京").unwrap()],
        topic: Some(SourceId::topic("C++").unwrap()),
        ..draft("bob", "1")
    }
}

fn reply() -> Draft {
    Draft { reply_to: Some(ID), ..draft("cas", "2") }
}

fn events() -> [Event; 2] {
    [published(at(1_000_000, ID.0), post()), published(at(2_000_000, 7), reply())]
}

fn sources() -> Vec<SourceRecord> {
    ["bob", "tag:grösse", "tag:東京", "topic:C++"].map(|name| SourceRecord::new(id(name))).into()
}

fn record<S>(sources: Vec<S>) -> PostRecord<S> {
    PostRecord {
        at: at(1_000_000, ID.0),
        accepted_at: Some(UnixMicros(1_000_500)),
        kind: Kind::Post,
        body: post().body,
        sources,
        pulled: 0,
        archived: 0,
        hidden: false,
        edited_at: None,
        repost_of: None,
        reply_to: None,
        external_id: post().external_id,
        answered: None,
        fingerprint: FINGERPRINT,
    }
}

const HEADER: SnapshotHeader = SnapshotHeader { sequence: Sequence(1), taken_at: UnixMicros(1_500_000) };

/// This wrote the files, once. They are never changed.
#[test]
fn files_with_names_are_written_only_if_none_is_there() {
    assert_eq!(post().fingerprint(), FINGERPRINT);
    let files = DiskFiles::open(&folder_of("v4")).unwrap();
    let names = [segment::name(Sequence(1)), snapshot::name(HEADER.sequence)];
    if files.list().unwrap().iter().any(|name| names.contains(name)) {
        return;
    }
    let files: Arc<dyn Files> = Arc::new(Identified::new(Arc::new(files), Identity(*b"0123456789abcdef")));
    let mut journal =
        SegmentJournal::open(Arc::clone(&files), &Tail::default(), JournalOptions::default(), Arc::new(SystemClock))
            .unwrap();
    for event in &events() {
        journal.append(event).unwrap();
        journal.commit().unwrap();
    }
    journal.close().unwrap();
    let mut writer = SnapshotWriter::begin(&*files, HEADER, false).unwrap();
    sources().iter().for_each(|record| writer.record(Section::Sources, record).unwrap());
    writer.record(Section::Posts, &record(vec![0u32, 1, 2, 3])).unwrap();
    writer.finish(Sequence(1), UnixMicros(1_000_500), false).unwrap();
    let mut archived = Vec::new();
    pack(&record(named_sources()), &mut archived);
    archived.extend(crc32c::crc32c(&archived).to_le_bytes());
    fs::write(folder_of("v4").join(ARCHIVED), archived).unwrap();
}

/// As an archive has the post.
const ARCHIVED: &str = "archived-post";

fn named_sources() -> Vec<SourceId> {
    sources().into_iter().map(|source| source.id).collect()
}

#[test]
fn names_and_external_ids_are_read_from_journal_snapshot_and_archive() {
    let files = DiskFiles::open(&folder_of("v4")).unwrap();
    let mut found = Vec::new();
    let read = reader::read(&files, Reading { after: Sequence(0), repair: false }, |event| {
        found.push(rmp_serde::from_slice::<Event>(event.payload).unwrap());
        Ok(())
    });
    read.unwrap();
    assert_eq!(found, events());
    let mut reader = SnapshotReader::open(&files, &snapshot::name(HEADER.sequence)).unwrap();
    let (mut read_sources, mut read_posts) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block().unwrap() {
        match block.section {
            Section::Sources => read_sources.extend(block.decode::<SourceRecord>().unwrap()),
            Section::Posts => read_posts.extend(block.decode::<PostRecord<u32>>().unwrap()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((read_sources, read_posts), (sources(), vec![record(vec![0, 1, 2, 3])]));
    let archived = fs::read(folder_of("v4").join(ARCHIVED)).unwrap();
    assert_eq!(tiering::decode(&archived), Ok(record(named_sources())));
}

fn recovered(names: &[String]) -> Recovered {
    let directory = tempfile::tempdir().unwrap();
    for name in names {
        fs::copy(folder_of("v4").join(name), directory.path().join(name)).unwrap();
    }
    recover(&DiskFiles::open(directory.path()).unwrap(), false).unwrap()
}

#[test]
fn journal_and_snapshot_with_names_recover_the_same_state() {
    let journal = segment::name(Sequence(1));
    let replayed = recovered(std::slice::from_ref(&journal));
    let loaded = recovered(&[journal, snapshot::name(HEADER.sequence)]);
    assert_eq!((replayed.report.events, loaded.report.events), (2, 1));
    assert_eq!(state(&replayed.world), state(&loaded.world));
    let found = loaded.world.posts.get(ID).unwrap();
    assert_eq!((found.external_id(), found.author().id.as_str()), (Some(UUID), "bob"));
}
