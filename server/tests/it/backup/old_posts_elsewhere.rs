//! Backups of a server and of a cluster whose old posts are in an archive across a network. A restore does not need the archive; a start with
//! the restored state does.

use testkit::world::{draft, edge, whole_feed};
use tidewire::cluster::journal::bootstrap_log_with_archive;
use tidewire::cluster::record::ClusterId;
use tidewire::feed::outbox::{OutboxQuery, Part, Route};
use tidewire::feed::position::{Direction, PositionRange};
use tidewire::recovery::node::NoPeers;
use tidewire::recovery::rebuilt::Rebuilt;
use tidewire::storage::archive::{self, Archive, Batch, MemoryArchive, RedbArchive, RemoteArchive};
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::log::memory::MemoryLog;

use super::of_cluster::{Node, few_in_memory, make_world, retried, start_with};
use super::*;

/// Number of posts before the backup. Nearly all of them have left memory by then.
const POSTS: u64 = 20;

const READER: &str = "ann";

fn open_beside(
    directory: &Path,
    archive: &Arc<MemoryArchive>,
) -> Result<Engine, tidewire::storage::error::StorageError> {
    let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
    let (archive, clock) = (Arc::clone(archive) as Arc<dyn Archive>, Arc::new(SystemClock));
    let progress = &RecoveryProgress::default();
    let opened = Engine::open_claimed_with(few_in_memory(), &storage, storage.claim()?, &archive, clock, progress);
    opened.map(|(engine, _)| engine)
}

async fn posts_leave_memory(engine: &Engine) {
    eventually_async("old posts leave memory", async || engine.shared().world.posts.len() <= 4).await;
}

/// Edits, hides and deletes posts that only the archive has, and publishes more.
async fn change_old_posts(engine: &Engine) {
    retried(|| engine.edit(PostId(2), Some(Body::new("\"new\"").unwrap()), None)).await;
    retried(|| engine.edit(PostId(7), None, Some(true))).await;
    retried(|| engine.delete(PostId(5))).await;
    for number in POSTS + 1..=POSTS + 5 {
        let post = Draft { id: Some(PostId(number)), ..draft("bob", "{}") };
        retried(|| engine.publish(post.clone(), true)).await;
    }
}

fn assert_restored(ran: &Ran, needs: &str) {
    assert_eq!((ran.code, &*ran.err), (0, ""));
    assert!(ran.out.contains(&format!("older ones are in Cassandra, which must have {needs}")), "{}", ran.out);
}

#[test]
fn a_server_is_restored_without_its_archive_and_starts_with_it() {
    run(async {
        let (place, archive) = (Place::new(), Arc::new(MemoryArchive::ordered()));
        let engine = open_beside(&place.data(), &archive).unwrap();
        engine.follow(vec![edge(READER, "bob")]).await.unwrap();
        for number in 1..=POSTS {
            engine.publish(Draft { id: Some(PostId(number)), ..draft("bob", "{}") }, true).await.unwrap();
        }
        posts_leave_memory(&engine).await;
        engine.snapshot().await.unwrap();
        let older = Arc::new(archive.survived());
        engine.publish(draft("bob", "{}"), true).await.unwrap();
        engine.snapshot().await.unwrap();
        let mut backups = place.backups(&engine, place.options());
        back_up(&mut backups).unwrap();
        let (begins, in_between) = (last_event(&engine), Arc::new(archive.survived()));
        change_old_posts(&engine).await;
        back_up(&mut backups).unwrap();
        let expected = whole_feed(&engine, READER, 100).await;
        assert_eq!(expected.len() as u64, POSTS + 1 + 5 - 2);
        engine.shutdown();
        let needs = "nothing from after this event";
        assert_restored(&place.restore("earlier", &format!("--to-sequence {begins}")), needs);
        assert_restored(&place.restore("restored", ""), needs);
        for (directory, archive, cause) in [
            ("restored", Arc::new(MemoryArchive::ordered()), "which is missing or empty"),
            ("restored", older, "it is an older copy"),
            ("earlier", Arc::clone(&archive), "has writes of events up to"),
        ] {
            let refused = open_beside(&place.path(directory), &archive).err().unwrap();
            assert!(refused.to_string().contains(cause), "{directory}: {refused}");
        }
        // The keyspace is a copy from before the last events of the journal, which archives them again.
        for archive in [in_between, archive] {
            let again = open_beside(&place.path("restored"), &archive).unwrap();
            assert_eq!(whole_feed(&again, READER, 100).await, expected);
            again.shutdown();
        }
    });
}

/// The copier of the node writes the progress behind the log.
async fn archive_has(archive: &MemoryArchive, record: Sequence) {
    eventually_async("the archive has the record", async || archive.through().unwrap() >= record).await;
}

/// Copies the archive of a cluster into the directory of a node, as `tidewire archive copy` does.
fn copy_into(directory: &Path, archive: &MemoryArchive) {
    let to = RedbArchive::open(&directory.join(archive::FILE), 1 << 20).unwrap();
    let ids = archive.ids_from(PostId(0), usize::MAX).unwrap().unwrap();
    let posts = ids.into_iter().map(|id| (id, archive.post(id).unwrap().unwrap())).collect();
    let mut placed = Vec::new();
    for (source, _) in archive.archived_counts().unwrap() {
        let query =
            OutboxQuery { part: Part::Whole, span: PositionRange::ALL, direction: Direction::Newer, max: 1_000 };
        let mut positions = Vec::new();
        archive.positions(&source, query, &mut positions).unwrap();
        placed.extend(positions.into_iter().map(|position| (source.clone(), position, Route::Pull)));
    }
    to.write(&Batch { posts, placed, ..Batch::default() }).unwrap();
    to.set_identity(archive.identity().unwrap().unwrap()).unwrap();
    to.persist(archive.through().unwrap()).unwrap();
    to.close();
}

fn remove_copy(directory: &Path) {
    for name in ["archive.redb", "archive.sums"] {
        std::fs::remove_file(directory.join(name)).unwrap();
    }
}

fn start(log: &MemoryLog, name: &str, directory: &Path, archive: &Arc<MemoryArchive>) -> Result<Node, String> {
    let archive = Some(Arc::clone(archive) as Arc<dyn RemoteArchive>);
    start_with(Arc::new(SystemClock), archive, log, name, directory, &NoPeers).map_err(|cause| cause.to_string())
}

#[test]
fn a_cluster_is_restored_without_its_archive_and_starts_with_it() {
    run(async {
        let (place, archive, log) = (Place::new(), Arc::new(MemoryArchive::ordered()), MemoryLog::default());
        bootstrap_log_with_archive(&log, 16, ClusterId(5)).unwrap();
        let node = start(&log, "a", &place.data(), &archive).unwrap();
        node.write(1).await;
        posts_leave_memory(&node.engine).await;
        archive_has(&archive, node.applied()).await;
        retried(|| node.engine.snapshot()).await;
        let mut backups = node.backups(&place, Arc::new(log.clone()));
        back_up(&mut backups).unwrap();
        archive_has(&archive, node.applied()).await;
        let (older, at_begin) = (Arc::new(archive.survived()), whole_feed(&node.engine, READER, 100).await);
        change_old_posts(&node.engine).await;
        // The last posts were still in memory.
        retried(|| node.engine.edit(PostId(18), Some(Body::new("\"newer\"").unwrap()), None)).await;
        retried(|| node.engine.delete(PostId(20))).await;
        let repost = Draft { id: Some(PostId(91)), repost_of: Some(PostId(9)), ..draft("bob", "{}") };
        retried(|| node.engine.publish(repost.clone(), true)).await;
        let reply = Draft { id: Some(PostId(92)), reply_to: Some(PostId(11)), ..draft("bob", "{}") };
        retried(|| node.engine.publish(reply.clone(), true)).await;
        posts_leave_memory(&node.engine).await;
        let (last, digest) = node.state().await;
        back_up(&mut backups).unwrap();
        let expected = whole_feed(&node.engine, READER, 100).await;
        archive_has(&archive, node.applied()).await;
        node.engine.shutdown();
        let needs = "everything up to this record";
        assert_restored(&place.restore("restored", ""), needs);
        let begins = older.through().unwrap();
        assert_restored(&place.restore("earlier", &format!("--to-sequence {begins}")), needs);
        let refused = start(&log, "b", &place.path("restored"), &older).err().unwrap();
        assert!(refused.contains("it is an older copy"), "{refused}");
        let files = DiskFiles::open(&place.path("restored")).unwrap();
        let refused = Rebuilt::from_snapshot(&files, &make_world).err().unwrap().to_string();
        assert!(refused.contains("lacks old posts, which are in the archive of its cluster"), "{refused}");
        let refused = tools::run(
            place.0.path(),
            &format!("export --from file://{} --out refused.ndjson", place.store().display()),
        );
        assert!(refused.err.contains("restore it (tidewire restore), copy the archive"), "{}", refused.err);
        // Beside a copy of the archive, each state is whole. The archive may have later changes of posts, which are in the state then.
        copy_into(&place.path("restored"), &older);
        let refused = tools::run(place.0.path(), "export --data-dir restored --out refused.ndjson");
        assert!(
            refused.err.contains("repeat `tidewire archive copy`, or restore the state after record"),
            "{}",
            refused.err
        );
        remove_copy(&place.path("restored"));
        for (directory, archive) in [("restored", &archive), ("earlier", &older), ("earlier", &archive)] {
            copy_into(&place.path(directory), archive);
            let name = format!("{directory}-of-{}", archive.through().unwrap());
            let imported = place.export_and_import(&format!("--data-dir {directory}"), &name);
            let engine = open(&imported);
            let found = whole_feed(&engine, READER, 100).await;
            if archive.through().unwrap() == begins {
                assert_eq!(found, at_begin, "{name}");
            } else {
                assert_eq!(found, expected, "{name}");
            }
            engine.shutdown();
            remove_copy(&place.path(directory));
        }
        // With a state that the older copy has, and the log after it, nothing is lost.
        let again = start(&log, "b", &place.path("earlier"), &older).unwrap();
        assert_eq!(whole_feed(&again.engine, READER, 100).await, expected);
        again.engine.shutdown();
        // The node cannot read the log from its beginning.
        log.delete_before(Sequence(last));
        let again = start(&log, "c", &place.path("restored"), &archive).unwrap();
        assert_eq!(again.state().await, (last, digest));
        assert_eq!(whole_feed(&again.engine, READER, 100).await, expected);
        again.engine.shutdown();
    });
}
