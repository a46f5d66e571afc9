//! Tests, on one node, of the changes that the archive of a cluster lacks.
#![cfg(test)]

use super::*;
use crate::storage::archive::MemoryArchive;
use crate::storage::archive::faulty::{FaultyArchive, Plan};
use testkit::eventually;

fn ids(ids: impl IntoIterator<Item = u64>) -> Vec<PostId> {
    ids.into_iter().map(PostId).collect()
}

fn changed(posts: impl IntoIterator<Item = u64>, through: u64) -> Option<Due> {
    Some(Due::Changed(ids(posts), Sequence(through)))
}

const LIMITS: Limits = Limits { changes_max: 100, edits_bytes_max: 1_000 };

fn behind(after: u64, through: u64) -> ReplicatedArchive {
    let store = MemoryArchive::ordered();
    store.persist(Sequence(through)).unwrap();
    let archive = ReplicatedArchive::with_limits(Arc::new(store), LIMITS).unwrap();
    archive.begin(Sequence(after)).unwrap();
    archive
}

#[test]
fn changes_are_due_in_log_order_until_the_archive_has_them() {
    let archive = behind(0, 0);
    assert_eq!(archive.due(9), None);
    for (at, id) in [(3, 8), (4, 7), (4, 6), (4, 8), (7, 5)] {
        archive.note_change(Sequence(at), PostId(id));
    }
    archive.note_applied(Sequence(9));
    // The changes of one record stay together.
    assert_eq!(archive.due(1), changed([8], 3));
    assert_eq!(archive.due(2), changed([6, 7, 8], 4));
    assert_eq!(archive.due(9), changed([5, 6, 7, 8], 9));
    archive.advance(Sequence(4)).unwrap();
    assert_eq!((archive.due(9), archive.behind()), (changed([5], 9), 1));
    archive.advance(Sequence(9)).unwrap();
    assert_eq!((archive.due(9), archive.behind()), (None, 0));
    // Without a change, only the progress is due.
    archive.note_applied(Sequence(10));
    assert_eq!(archive.due(9), changed([], 10));
}

#[test]
fn a_full_copy_is_due_if_the_archive_is_behind_the_list_of_changes() {
    for (after, progress, is_listed) in [(5, 0, false), (5, 4, false), (5, 5, true), (5, 8, true), (0, 0, true)] {
        let archive = behind(after, progress);
        archive.note_change(Sequence(9), PostId(1));
        archive.note_applied(Sequence(9));
        let expected = if is_listed { changed([1], 9) } else { Some(Due::Everything(Sequence(9))) };
        assert_eq!(archive.due(9), expected, "{after} {progress}");
    }
}

#[test]
fn a_round_waits_until_the_archive_has_it() {
    let archive = behind(0, 0);
    let batch = Batch { as_of: Sequence(3), posts: vec![(PostId(7), ArchivedRecord::Deleted)], ..Batch::default() };
    let refused = archive.write(&batch).unwrap_err();
    assert!(refused.is_temporary() && !archive.may_have(PostId(7)), "{refused}");
    archive.set_followed();
    std::thread::scope(|threads| {
        let round = threads.spawn(|| archive.write(&batch));
        eventually("the round waits", || archive.is_awaited());
        archive.advance(Sequence(2)).unwrap();
        assert!(archive.is_awaited());
        archive.advance(Sequence(3)).unwrap();
        round.join().unwrap().unwrap();
    });
    assert!(archive.may_have(PostId(7)) && !archive.is_empty());
    archive.stop_waiting();
    assert!(archive.persist(Sequence(4)).is_err());
}

#[test]
fn edits_are_kept_until_the_archive_has_the_last_of_them() {
    let archive = behind(0, 0);
    let body = |text: &str| Body::new(text).unwrap();
    archive.keep_edit(PostId(7), Some(&body("1")), None, UnixMicros(1));
    assert_eq!(archive.edit(PostId(7)), None, "the archive has no such post");
    archive.shared().write(&Batch { posts: vec![(PostId(7), ArchivedRecord::Deleted)], ..Batch::default() }).unwrap();
    for (at, text, hidden) in [(3, Some("2"), None), (5, None, Some(true))] {
        archive.keep_edit(PostId(7), text.map(body).as_ref(), hidden, UnixMicros(at));
        archive.note_change(Sequence(at as u64), PostId(7));
    }
    archive.note_applied(Sequence(5));
    archive.advance(Sequence(3)).unwrap();
    let kept = PendingEdit {
        body: Some((body("2"), UnixMicros(3))),
        hidden: Some(true),
        at: Some(Sequence(5)),
        body_bytes: 1,
    };
    assert_eq!((archive.edit(PostId(7)), archive.edited()), (Some(kept), ids([7])));
    archive.advance(Sequence(5)).unwrap();
    assert_eq!(archive.edit(PostId(7)), None);
    // This node applies a change after another node has copied it.
    archive.keep_edit(PostId(7), Some(&body("1")), None, UnixMicros(4));
    archive.note_change(Sequence(4), PostId(7));
    assert_eq!((archive.edit(PostId(7)), archive.behind()), (None, 0));
}

#[test]
fn pending_edits_above_the_limit_are_refused_for_posts_in_memory_and_archive() {
    for is_in_memory in [true, false] {
        let archive = behind(0, 0);
        let posts = (1..=9).map(|id| (PostId(id), ArchivedRecord::Deleted)).collect();
        archive.shared().write(&Batch { posts, ..Batch::default() }).unwrap();
        let body = |bytes: usize| Body::new(&format!("\"{}\"", "x".repeat(bytes - 2))).unwrap();
        let check = |id: u64, bytes: usize| archive.check_edit(PostId(id), Some(&body(bytes)));
        // The log has the edit, so it applies despite the limit.
        let edit = |at: u64, id: u64, bytes: usize| {
            match is_in_memory {
                true => archive.count_edit(PostId(id), Some(&body(bytes))),
                false => archive.keep_edit(PostId(id), Some(&body(bytes)), None, UnixMicros(at as i64)),
            }
            archive.note_change(Sequence(at), PostId(id));
        };
        // With 128 bytes for each, 1,000 bytes are reached.
        edit(1, 1, 372);
        edit(2, 2, 100);
        assert!(check(3, 144).is_ok());
        let refused = check(3, 145).unwrap_err();
        assert!(refused.is_temporary() && refused.to_string().contains("edits of 728 bytes"), "{refused}");
        edit(3, 3, 173);
        for (id, bytes, is_accepted) in
            [(3, 173, true), (3, 172, true), (3, 174, false), (4, 2, false), (99, 500, true)]
        {
            assert_eq!(check(id, bytes).is_ok(), is_accepted, "{id} {bytes}");
        }
        // An edit that shows or hides a post takes no more bytes if the post is counted already.
        assert!(archive.check_edit(PostId(3), None).is_ok() && archive.check_edit(PostId(4), None).is_err());
        archive.note_applied(Sequence(3));
        archive.advance(Sequence(1)).unwrap();
        assert!(check(4, 300).is_ok() && check(4, 400).is_err());
        archive.advance(Sequence(3)).unwrap();
        assert!(check(4, 872).is_ok() && check(4, 873).is_err(), "nothing waits");
    }
}

#[test]
fn writes_of_another_node_invalidate_cached_reads() {
    let store = Arc::new(FaultyArchive::remote(MemoryArchive::ordered(), Plan::default()));
    store.write(&Batch { posts: vec![(PostId(7), ArchivedRecord::Deleted)], ..Batch::default() }).unwrap();
    let archive = ReplicatedArchive::with_limits(Arc::clone(&store) as Arc<dyn RemoteArchive>, LIMITS).unwrap();
    archive.begin(Sequence(0)).unwrap();
    archive.advance(Sequence(1)).unwrap();
    assert_eq!(store.forgotten(), [None, None], "it is not known what changed up to the beginning");
    // This node reads the progress before it applies the record.
    archive.advance(Sequence(3)).unwrap();
    assert_eq!(store.forgotten(), []);
    archive.note_change(Sequence(3), PostId(5));
    assert_eq!(store.forgotten(), [Some(PostId(5))]);
    // A change that is listed, and an edit.
    archive.keep_edit(PostId(7), None, Some(true), UnixMicros(4));
    archive.note_change(Sequence(4), PostId(7));
    archive.advance(Sequence(4)).unwrap();
    assert_eq!(store.forgotten(), [Some(PostId(7)); 2]);
    // More changes than the list may have.
    for at in 5..6 + LIMITS.changes_max as u64 {
        archive.note_change(Sequence(at), PostId(at));
    }
    assert_eq!((store.forgotten(), archive.behind()), (vec![], 0));
    let last = Sequence(5 + LIMITS.changes_max as u64);
    for (through, expected) in [(Sequence(9), vec![None]), (last, vec![None]), (last.next(), vec![])] {
        archive.advance(through).unwrap();
        assert_eq!(store.forgotten(), expected, "{through}");
    }
}

#[test]
#[ignore = "takes 3 s of real time"]
fn a_round_waits_while_the_archive_makes_progress() {
    let archive = behind(0, 0);
    archive.set_followed();
    std::thread::scope(|threads| {
        let round = threads.spawn(|| archive.persist(Sequence(4)));
        for through in 1..=4 {
            // Together longer than the wait for one step.
            std::thread::park_timeout(PATIENCE * 2 / 5);
            archive.advance(Sequence(through)).unwrap();
        }
        round.join().unwrap().unwrap();
    });
}
