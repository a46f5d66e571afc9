//! The counts of a post beside an archive that is newer than the snapshot which a restart begins with.

use std::sync::Arc;

use tidewire::clock::UnixMicros;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::{ChangedPost, Event};
use tidewire::feed::followers::Sharding;
use tidewire::feed::post::Draft;
use tidewire::feed::record::PostRecord;
use tidewire::id::PostId;
use tidewire::state::counts::PostCounts;
use tidewire::state::posts::Stored;
use tidewire::state::records::{DeletedRecord, RecordTraversal, RepostsRecord, SourceRecord};
use tidewire::state::tiering::TieringLimits;
use tidewire::state::world::{World, Writer};
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::journal::Sequence;

use testkit::fixture_files::at;
use testkit::world::draft;

const PARENT: PostId = PostId(100);

/// What a snapshot has of posts.
struct Snapshot {
    sources: Vec<SourceRecord>,
    reposts: Vec<RepostsRecord>,
    posts: Vec<PostRecord<u32>>,
    deleted: Vec<DeletedRecord>,
}

fn create(archive: &Arc<dyn Archive>) -> (Arc<World>, Writer) {
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

/// Applies an event, as the scribe does: with the post that it changes.
fn apply(writer: &mut Writer, event: &Event) {
    let found = match event {
        Event::Edited { id, .. } | Event::Deleted { id, .. } => {
            writer.world().find(*id).unwrap().and_then(Stored::live)
        }
        _ => None,
    };
    writer.apply_validated(event, found.as_ref());
}

/// Moves all to the archive that has no place in memory.
fn archive_all(writer: &mut Writer, archive: &dyn Archive) {
    for _ in 0..3 {
        let written = writer.collect_tiering(Sequence(1)).write(&Arc::clone(writer.world()), archive);
        writer.finish_round(written).unwrap();
    }
}

fn snapshot(world: &World) -> Snapshot {
    let traversal = RecordTraversal { world, sources: world.sources.len() };
    let (mut reposts, mut posts) = (Vec::new(), Vec::new());
    traversal.reposts(|record| Ok::<_, ()>(reposts.push(record))).unwrap();
    traversal.posts(|record| Ok::<_, ()>(posts.push(record))).unwrap();
    Snapshot { sources: traversal.sources().collect(), reposts, posts, deleted: traversal.deleted().collect() }
}

/// Restores a snapshot beside an archive, and replays what came after it.
fn restore(snapshot: &Snapshot, archive: &Arc<dyn Archive>, events: &[Event]) -> Arc<World> {
    let (world, mut writer) = create(archive);
    snapshot.sources.iter().for_each(|record| writer.restore_source(record).unwrap());
    snapshot.reposts.iter().for_each(|record| writer.restore_reposts(record).unwrap());
    snapshot.posts.iter().for_each(|record| writer.restore_post(record).unwrap());
    snapshot.deleted.iter().for_each(|record| writer.restore_deleted(record));
    writer.note_archived_counts(false).unwrap();
    writer.set_replaying(true);
    events.iter().for_each(|event| drop(writer.apply(event)));
    writer.check_replay().unwrap();
    world
}

#[test]
fn counts_after_a_restart_do_not_depend_on_how_much_newer_the_archive_is_than_the_snapshot() {
    let archive: Arc<dyn Archive> = Arc::new(MemoryArchive::default());
    let (world, mut writer) = create(&archive);
    (1..=20).for_each(|id| apply(&mut writer, &published(id, Some(PARENT), None)));
    (21..=40).for_each(|id| apply(&mut writer, &published(id, None, Some(PARENT))));
    archive_all(&mut writer, &*archive);
    assert!(world.posts.get(PostId(1)).is_none(), "it is in the archive");
    [1, 2, 3, 20, 21, 22, 23, 40].into_iter().for_each(|id| apply(&mut writer, &hidden(id, true)));
    archive_all(&mut writer, &*archive);
    assert_eq!(world.counts(PARENT), PostCounts { replies: 16, reposts: 16 });
    let taken = snapshot(&world);

    let deleted = |id: u64, repost_of, post| Event::Deleted { id: PostId(id), repost_of, post };
    let reply = |id: u64| {
        let Stored::Live(post) = world.find(PostId(id)).unwrap().unwrap() else { panic!("{id} is there") };
        let sources = post.sources().iter().map(|source| source.id.clone()).collect();
        Some(Box::new(ChangedPost { at: post.position, sources, repost_of: None, hidden: true }))
    };
    let events = [
        // Shown and then deleted, of which the archive has only the latter.
        hidden(1, false),
        hidden(21, false),
        deleted(1, None, reply(1)),
        deleted(21, Some(PARENT), None),
        deleted(2, None, reply(2)),
        deleted(22, Some(PARENT), None),
        hidden(4, true),
        hidden(24, true),
        hidden(20, false),
        hidden(40, false),
    ];
    events.iter().for_each(|event| apply(&mut writer, event));
    let expected = PostCounts { replies: 16, reposts: 16 };
    assert_eq!(world.counts(PARENT), expected);
    archive_all(&mut writer, &*archive);
    assert_eq!(world.counts(PARENT), expected);
    assert_eq!(restore(&taken, &archive, &events).counts(PARENT), expected);
    // The journal may have been replayed in part before.
    let twice: Vec<Event> = events.iter().chain(&events).cloned().collect();
    assert_eq!(restore(&taken, &archive, &twice).counts(PARENT), expected);
    assert_eq!(restore(&snapshot(&world), &archive, &events).counts(PARENT), expected);
}
