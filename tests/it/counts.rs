//! The counts of a post beside an archive, which may be newer than the snapshot that a restart begins with.

use std::sync::Arc;

use tidewire::clock::UnixMicros;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::{ChangedPost, Event};
use tidewire::feed::followers::Sharding;
use tidewire::feed::post::Draft;
use tidewire::feed::record::PostRecord;
use tidewire::id::PostId;
use tidewire::state::posts::Stored;
use tidewire::state::records::{ArchivedCountsRecord, DeletedRecord, RecordTraversal, RepostsRecord, SourceRecord};
use tidewire::state::unwritten::TieringLimits;
use tidewire::state::world::{PostCounts, StateMachine, World};
use tidewire::storage::archive::faulty::{FaultyArchive, Plan};
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::sequence::Sequence;

use testkit::fixture_files::at;
use testkit::world::draft;

const PARENT: PostId = PostId(100);

/// What a snapshot has of posts.
struct Snapshot {
    sources: Vec<SourceRecord>,
    reposts: Vec<RepostsRecord>,
    posts: Vec<PostRecord<u32>>,
    deleted: Vec<DeletedRecord>,
    counts: Vec<ArchivedCountsRecord>,
}

fn create(archive: &Arc<dyn Archive>) -> (Arc<World>, StateMachine) {
    let limits = TieringLimits { outbox_posts: 2, posts_bytes: usize::MAX };
    World::create_with(CelebrityPolicy::PushAll, Sharding::new(1), Some((Arc::clone(archive), limits)))
}

fn published(id: u64, reply_to: Option<PostId>, repost_of: Option<PostId>) -> Event {
    let draft = Draft { reply_to, repost_of, ..draft("ann", "1") };
    Event::Published { position: at(id as i64, id), draft, accepted_at: UnixMicros(id as i64) }
}

fn hidden(id: u64, hidden: bool) -> Event {
    Event::Edited { id: PostId(id), body: None, hidden: Some(hidden), at: UnixMicros(99), post: None }
}

/// Applies an event, as the command processor does: with the post that it changes.
fn apply(machine: &mut StateMachine, event: &Event) {
    let found = match event {
        Event::Edited { id, .. } | Event::Deleted { id, .. } => {
            machine.world().find(*id).unwrap().and_then(Stored::live)
        }
        _ => None,
    };
    machine.apply_validated(event, found.as_ref());
}

/// Moves all to the archive that has no place in memory.
fn archive_all(machine: &mut StateMachine, archive: &dyn Archive) {
    for _ in 0..3 {
        let written = machine.collect_tiering(Sequence(1)).write(&Arc::clone(machine.world()), archive);
        machine.finish_round(written).unwrap();
    }
}

/// Takes a snapshot; `meanwhile` happens after its posts were written.
fn snapshot(world: &World, meanwhile: impl FnOnce()) -> Snapshot {
    let traversal = RecordTraversal { world, sources: world.sources.len() };
    let (sources, mut reposts, mut posts) = (traversal.sources().collect(), Vec::new(), Vec::new());
    let all_reposts = traversal.reposts(|record| {
        reposts.push(record);
        Ok::<_, ()>(())
    });
    let all_posts = traversal.posts(|record| {
        posts.push(record);
        Ok::<_, ()>(())
    });
    assert_eq!((all_reposts, all_posts), (Ok(()), Ok(())));
    meanwhile();
    Snapshot {
        sources,
        reposts,
        posts,
        deleted: traversal.deleted().collect(),
        counts: traversal.archived_counts().collect(),
    }
}

/// Restores a snapshot beside an archive, replays what came after it, and archives what that brought back to memory.
fn restore(snapshot: Option<&Snapshot>, archive: &Arc<dyn Archive>, events: &[Event]) -> [PostCounts; 2] {
    let (world, mut machine) = create(archive);
    if let Some(snapshot) = snapshot {
        snapshot.sources.iter().for_each(|record| machine.restore_source(record).unwrap());
        snapshot.reposts.iter().for_each(|record| machine.restore_reposts(record).unwrap());
        snapshot.posts.iter().for_each(|record| machine.restore_post(record).unwrap());
        snapshot.deleted.iter().for_each(|record| machine.restore_deleted(record));
        snapshot.counts.iter().for_each(|record| machine.restore_archived_counts(record).unwrap());
    }
    machine.note_archived_counts(snapshot.is_none()).unwrap();
    machine.set_replaying(true);
    events.iter().for_each(|event| drop(machine.apply(event)));
    machine.check_replay().unwrap();
    machine.set_replaying(false);
    let replayed = world.counts(PARENT);
    archive_all(&mut machine, &**archive);
    [replayed, world.counts(PARENT)]
}

#[test]
fn counts_after_a_restart_are_independent_of_the_lag_between_snapshot_and_archive() {
    let counting: Arc<dyn Archive> = Arc::new(MemoryArchive::default());
    let remote: Arc<dyn Archive> = Arc::new(FaultyArchive::remote(MemoryArchive::default(), Plan::default()));
    for archive in [counting, remote] {
        let (world, mut machine) = create(&archive);
        let mut events: Vec<Event> = (1..=20).map(|id| published(id, Some(PARENT), None)).collect();
        events.extend((21..=40).map(|id| published(id, None, Some(PARENT))));
        events.iter().for_each(|event| apply(&mut machine, event));
        archive_all(&mut machine, &*archive);
        assert!(world.posts.get(PostId(1)).is_none(), "it is in the archive");
        let hides: Vec<Event> = [1, 2, 3, 20, 21, 22, 23, 40].map(|id| hidden(id, true)).into();
        hides.iter().for_each(|event| apply(&mut machine, event));
        archive_all(&mut machine, &*archive);
        assert_eq!(world.counts(PARENT), PostCounts { replies: 16, reposts: 16 });
        events.extend(hides);
        // These leave memory while the snapshot is taken.
        let more: Vec<Event> = (41..=50).map(|id| published(id, Some(PARENT), None)).collect();
        more.iter().for_each(|event| apply(&mut machine, event));
        events.extend(more);
        let taken = snapshot(&world, || archive_all(&mut machine, &*archive));
        assert!(world.posts.get(PostId(41)).is_none(), "it is in the archive and in the snapshot");

        let deleted = |id: u64, repost_of, post| Event::Deleted { id: PostId(id), repost_of, post };
        let reply = |id: u64| {
            let Stored::Live(post) = world.find(PostId(id)).unwrap().unwrap() else { panic!("{id} is there") };
            let sources = post.sources().iter().map(|source| source.id.clone()).collect();
            Some(Box::new(ChangedPost { at: post.position, sources, repost_of: None, hidden: post.hidden }))
        };
        let later = [
            // Shown and then deleted: the archive has only the latter.
            hidden(1, false),
            hidden(21, false),
            deleted(1, None, reply(1)),
            deleted(21, Some(PARENT), None),
            deleted(2, None, reply(2)),
            deleted(22, Some(PARENT), None),
            deleted(5, None, reply(5)),
            deleted(42, None, reply(42)),
            hidden(4, true),
            hidden(24, true),
            hidden(20, false),
            hidden(40, false),
            published(60, Some(PARENT), None),
            published(61, Some(PARENT), None),
            published(62, Some(PARENT), None),
            published(63, Some(PARENT), None),
        ];
        later.iter().for_each(|event| apply(&mut machine, event));
        let expected = PostCounts { replies: 28, reposts: 16 };
        assert_eq!(world.counts(PARENT), expected);
        archive_all(&mut machine, &*archive);
        assert_eq!(world.counts(PARENT), expected);
        events.extend(later.iter().cloned());
        let twice: Vec<Event> = later.iter().chain(&later).cloned().collect();
        for (what, snapshot, replayed) in [
            ("the first snapshot", Some(&taken), &later[..]),
            ("events that are replayed twice", Some(&taken), &twice[..]),
            ("events that the snapshot has", Some(&snapshot(&world, || {})), &later[..]),
            ("no snapshot", None, &events[..]),
        ] {
            assert_eq!(restore(snapshot, &archive, replayed), [expected; 2], "{what}, {}", archive.place());
        }
    }
}
