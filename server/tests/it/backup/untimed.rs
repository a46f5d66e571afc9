//! Restores to a time, and the events that have no time: a mistaken delete is not restored with what was before it.

use tidewire::clock::UnixMicros;

use super::*;

/// Deletes posts that are live, and returns the sequences of the first and the last delete.
async fn delete_some(town: &mut Town, count: usize) -> (u64, u64) {
    let first = last_event(&town.engine) + 1;
    let live: Vec<usize> = (0..town.oracle.posts.len()).filter(|nth| !town.oracle.posts[*nth].deleted).collect();
    for nth in &live[live.len() - count..] {
        town.engine.delete(PostId(town.oracle.posts[*nth].id)).await.unwrap();
        town.oracle.posts[*nth].deleted = true;
    }
    (first, last_event(&town.engine))
}

/// A time after all that was written, and before all that is written afterwards.
async fn now_alone() -> UnixMicros {
    time_passes().await;
    let now = SystemClock.now();
    time_passes().await;
    now
}

#[test]
fn deletes_after_the_restored_time_are_omitted_and_named() {
    for (deletes, is_followed) in [(3, true), (3, false), (1, true), (0, true)] {
        run(async move {
            let place = Place::new();
            let mut town = Town::new(open(&place.data()));
            town.settle(2).await;
            let mut backups = place.backups(&town.engine, place.options());
            back_up(&mut backups).unwrap();
            // These deletes are surely before the time, because a post comes after them.
            delete_some(&mut town, 2).await;
            town.publish("ann", |draft| draft).await;
            let before = Moment::of(&town);
            let time = now_alone().await;
            let (first, last) = delete_some(&mut town, deletes).await;
            let after = Moment::of(&town);
            if is_followed {
                town.publish("bob", |draft| draft).await;
            }
            back_up(&mut backups).unwrap();
            town.engine.shutdown();
            let ran = place.restore("time", &format!("--to-time {time}"));
            let expected = match deletes {
                0 => String::new(),
                1 => format!(
                    "warning: event {first} has no time and is left out; --to-sequence {last} restores it, too\n"
                ),
                _ => format!(
                    "warning: events {first} to {last} have no time and are left out; --to-sequence {last} restores them, too\n"
                ),
            };
            assert_eq!((ran.code, ran.err), (0, expected), "{deletes} {is_followed}");
            before.check(&place.path("time")).await;
            let ran = place.restore("with", &format!("--to-sequence {last}"));
            assert_eq!((ran.code, &*ran.err), (0, ""), "the named sequence has them");
            after.check(&place.path("with")).await;
        });
    }
}

#[test]
fn a_backup_begun_after_the_time_is_used_only_if_no_older_one_exists() {
    run(async {
        let place = Place::new();
        let mut town = Town::new(open(&place.data()));
        town.settle(2).await;
        let mut backups = place.backups(&town.engine, BackupOptions { begin_every: Duration::ZERO, ..place.options() });
        back_up(&mut backups).unwrap();
        town.publish("ann", |draft| draft).await;
        let before = Moment::of(&town);
        let time = now_alone().await;
        let (first, last) = delete_some(&mut town, 3).await;
        let after = Moment::of(&town);
        // Its snapshot has the deletes, and no event with a time is between them and the requested time.
        back_up(&mut backups).unwrap();
        town.engine.shutdown();
        assert_eq!(place.objects("backups").len(), 2);
        let ran = place.restore("older", &format!("--to-time {time}"));
        assert!(ran.code == 0 && ran.err.contains(&format!("events {first} to {last} have no time")), "{}", ran.err);
        assert!(!ran.err.contains("the snapshot was begun"), "{}", ran.err);
        before.check(&place.path("older")).await;
        std::fs::remove_file(&place.objects("backups")[0]).unwrap();
        let ran = place.restore("alone", &format!("--to-time {time}"));
        assert!(ran.code == 0 && ran.err.starts_with("warning: the snapshot was begun at "), "{}", ran.err);
        after.check(&place.path("alone")).await;
    });
}
