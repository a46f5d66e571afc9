//! Backups: what was copied can be restored, as it was after any copied event.

mod choice;
mod clocks;
mod counted;
mod damage;
mod of_cluster;
mod old_posts_elsewhere;
mod program;
mod untimed;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testkit::eventually_async;

use tidewire::clock::{Clock as _, SystemClock};
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::journal::writer::JournalOptions;
use tidewire::storage::sequence::Sequence;
use tidewire_server::backup::figures::BackupFigures;
use tidewire_server::backup::run::Backups;
use tidewire_server::backup::{BackupError, BackupOptions};

use crate::erasure::{MARKER, OTHERS, Town, ZOE, holding, open, run, small};
use crate::tools::{self, Ran};
use testkit::oracle::Oracle;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Waits until the clock shows a later time than every event has. Events of the same microsecond get later times than the clock shows.
async fn time_passes() {
    let later = SystemClock.now().saturating_add(Duration::from_millis(2));
    eventually_async("time passes", async || SystemClock.now() > later).await;
}

/// A place with a data directory, a store beside it, and directories to restore into.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    fn store(&self) -> PathBuf {
        self.path("store")
    }

    fn options(&self) -> BackupOptions {
        let to = format!("file://{}", self.store().display()).parse().unwrap();
        BackupOptions { to, every: DAY, keep: DAY, begin_every: DAY }
    }

    fn backups(&self, engine: &Engine, options: BackupOptions) -> Backups {
        Backups::new(engine.clone(), options, Arc::<BackupFigures>::default(), Arc::default()).unwrap()
    }

    /// Restores into a new directory, with further arguments.
    fn restore(&self, into: &str, arguments: &str) -> Ran {
        let from = format!("restore --from file://{} --data-dir {into} {arguments}", self.store().display());
        tools::run(self.0.path(), &from)
    }

    /// Exports what the arguments name, and imports it into a directory, which it returns.
    fn export_and_import(&self, arguments: &str, name: &str) -> PathBuf {
        let run = |words: String| {
            let ran = tools::run(self.0.path(), &words);
            assert_eq!(ran.code, 0, "{words}: {}", ran.err);
        };
        run(format!("export {arguments} --out {name}.ndjson"));
        run(format!("import state {name}.ndjson --data-dir {name}-imported"));
        self.path(&format!("{name}-imported"))
    }

    /// Names of the objects in a folder of the store, sorted.
    fn objects(&self, folder: &str) -> Vec<PathBuf> {
        let found =
            std::fs::read_dir(self.store().join(folder)).map(|entries| entries.map(|entry| entry.unwrap().path()));
        let mut found: Vec<_> = found.into_iter().flatten().collect();
        found.sort();
        found
    }
}

/// Runs backups once. They block, so the test's own runtime cannot run them.
fn back_up(backups: &mut Backups) -> Result<(), BackupError> {
    thread::scope(|scope| scope.spawn(|| backups.run()).join().unwrap())
}

/// The last event of an engine.
fn last_event(engine: &Engine) -> u64 {
    engine.journal().unwrap().committed.last().0
}

/// What everybody sees after an event.
struct Moment {
    event: u64,
    oracle: Oracle,
}

impl Moment {
    fn of(town: &Town) -> Self {
        Self { event: last_event(&town.engine), oracle: town.oracle.clone() }
    }

    /// Opens a restored directory, and compares what everybody sees.
    async fn check(&self, restored: &Path) {
        let town = Town { engine: open(restored), oracle: self.oracle.clone() };
        assert_eq!(last_event(&town.engine), self.event);
        town.check().await;
        town.engine.shutdown();
    }
}

/// Erases a user, with runs of backups when the erasure waits for one.
async fn erase(town: &mut Town, backups: &mut Backups) {
    town.erase().await;
    eventually_async("the erasure ends", async || {
        if town.engine.wants_backup() {
            back_up(backups).unwrap();
        }
        town.engine.erasures().count == 0
    })
    .await;
}

/// Posts, an edit and a delete, of which some are of posts that are in the archive.
async fn go_on(town: &mut Town, round: usize) {
    for author in OTHERS {
        let tea = |draft| Draft { tags: vec![SourceId::tag("tea").unwrap()], ..draft };
        town.publish(author, |draft| if author == "bob" { tea(draft) } else { draft }).await;
    }
    let live: Vec<usize> = (0..town.oracle.posts.len())
        .filter(|nth| !town.oracle.posts[*nth].deleted && town.oracle.posts[*nth].repost_of.is_none())
        .collect();
    let [edited, deleted, hidden] = [round * 5, round * 7 + 3, live.len() - 2].map(|nth| live[nth % live.len()]);
    let body = format!("\"edited in round {round}\"");
    let of = |nth: usize| PostId(town.oracle.posts[nth].id);
    town.engine.edit(of(edited), Some(Body::new(&body).unwrap()), None).await.unwrap();
    town.engine.edit(of(hidden), None, Some(true)).await.unwrap();
    town.engine.delete(of(deleted)).await.unwrap();
    town.oracle.posts[edited].body = body;
    town.oracle.posts[hidden].hidden = true;
    town.oracle.posts[deleted].deleted = true;
}

/// Writes and backs up in turn, and restores every moment. Another backup is begun after the time `begin_every`.
fn assert_every_moment_is_restored(begin_every: Duration) {
    run(async move {
        let place = Place::new();
        let mut town = Town::new(open(&place.data()));
        town.settle(8).await;
        let mut backups = place.backups(&town.engine, BackupOptions { begin_every, ..place.options() });
        back_up(&mut backups).unwrap();
        let mut moments = vec![Moment::of(&town)];
        for round in 0..5 {
            go_on(&mut town, round).await;
            moments.push(Moment::of(&town));
            if round % 2 == 1 {
                back_up(&mut backups).unwrap();
            }
            if round == 3 {
                erase(&mut town, &mut backups).await;
                back_up(&mut backups).unwrap();
                moments.push(Moment::of(&town));
            }
        }
        back_up(&mut backups).unwrap();
        assert!(town.engine.shared().world.has_archived());
        // What is written afterwards is in no backup.
        go_on(&mut town, 9).await;
        let bases = place.objects("backups").len();
        assert_eq!(bases > 3, begin_every.is_zero(), "{bases} backups");
        for (nth, moment) in moments.iter().enumerate() {
            let into = format!("at-{}", moment.event);
            let restored = place.restore(&into, &format!("--to-sequence {}", moment.event));
            assert_eq!(restored.code, 0, "{}", restored.err);
            assert!(restored.out.contains(&format!("event:    {}\n", moment.event)), "{}", restored.out);
            let is_before = !moment.oracle.posts.iter().any(|post| post.author == ZOE && post.deleted)
                || moment.oracle.posts.iter().any(|post| post.author == ZOE && !post.deleted);
            assert_eq!(
                restored.err.contains(&format!("{ZOE} was erased after this event")),
                is_before,
                "{}",
                restored.err
            );
            if nth % 3 == 1 {
                moment.check(&place.export_and_import(&format!("--data-dir {into}"), &into)).await;
            }
            moment.check(&place.path(&into)).await;
        }
        let again = place.export_and_import(&format!("--from file://{}", place.store().display()), "newest");
        moments.last().unwrap().check(&again).await;
        assert_eq!(holding(&again, &[MARKER]), [""; 0], "nothing of the erased user is exported");
        let newest = place.restore("newest", "");
        assert_eq!(newest.code, 0, "{}", newest.err);
        moments.last().unwrap().check(&place.path("newest")).await;
        assert_eq!(holding(&place.path("newest"), &[MARKER]), [""; 0], "the newest backup began after the erasure");
        town.engine.shutdown();
    });
}

#[test]
fn every_moment_after_the_first_backup_is_restored_as_it_was() {
    assert_every_moment_is_restored(DAY);
}

#[test]
fn every_moment_is_restored_from_many_backups() {
    assert_every_moment_is_restored(Duration::ZERO);
}

#[test]
fn times_and_events_outside_the_backups_are_refused_with_the_available_range() {
    run(async {
        let place = Place::new();
        let mut town = Town::new(open(&place.data()));
        town.settle(2).await;
        let mut backups = place.backups(&town.engine, place.options());
        back_up(&mut backups).unwrap();
        let first = last_event(&town.engine);
        go_on(&mut town, 0).await;
        back_up(&mut backups).unwrap();
        let last = last_event(&town.engine);
        let ranges = format!("events {first} to {last} (");
        for (arguments, wanted) in [
            (format!("--to-sequence {}", first - 1), format!("event {}", first - 1)),
            (format!("--to-sequence {}", last + 1), format!("event {}", last + 1)),
            ("--to-time 2020-01-01T00:00:00Z".to_owned(), "the time 2020-01-01T00:00:00.000000Z".to_owned()),
            ("--to-time 2120-01-01T00:00:00Z".to_owned(), "the time 2120-01-01T00:00:00.000000Z".to_owned()),
        ] {
            let refused = place.restore("none", &arguments);
            assert_eq!(refused.code, 1);
            assert!(refused.err.contains(&format!("{wanted} cannot be restored from file://")), "{}", refused.err);
            assert!(refused.err.contains(&ranges), "{}", refused.err);
            assert!(!place.path("none").exists());
        }
        let listed = tools::run(place.0.path(), &format!("restore --list --from file://{}", place.store().display()));
        assert!(listed.out.starts_with(&format!("events {first} to {last}, ")), "{}", listed.out);
        town.engine.shutdown();
    });
}

#[test]
fn restoring_a_time_includes_everything_written_before_it() {
    run(async {
        let place = Place::new();
        let mut town = Town::new(open(&place.data()));
        town.settle(2).await;
        let mut backups = place.backups(&town.engine, place.options());
        back_up(&mut backups).unwrap();
        let mut moments = Vec::new();
        for round in 0..4 {
            go_on(&mut town, round).await;
            // The last event of a moment has a time of its own.
            town.publish("ann", |draft| draft).await;
            moments.push((town.engine.shared().clock.now(), Moment::of(&town)));
            time_passes().await;
        }
        back_up(&mut backups).unwrap();
        for (nth, (time, moment)) in moments.iter().enumerate() {
            let into = format!("time-{nth}");
            let restored = place.restore(&into, &format!("--to-time {time}"));
            assert_eq!(restored.code, 0, "{}", restored.err);
            moment.check(&place.path(&into)).await;
        }
        town.engine.shutdown();
    });
}

#[test]
fn a_restored_directory_continues_with_its_own_history() {
    run(async {
        let place = Place::new();
        let mut town = Town::new(open(&place.data()));
        town.settle(2).await;
        let mut backups = place.backups(&town.engine, place.options());
        back_up(&mut backups).unwrap();
        go_on(&mut town, 0).await;
        let early = Moment::of(&town);
        go_on(&mut town, 1).await;
        back_up(&mut backups).unwrap();
        let left = Moment::of(&town);
        town.engine.shutdown();
        drop(backups);
        assert_eq!(place.restore("again", &format!("--to-sequence {}", early.event)).code, 0);
        let before = early.oracle.clone();
        let mut again = Town { engine: open(&place.path("again")), oracle: early.oracle };
        go_on(&mut again, 2).await;
        let in_both = Moment::of(&again);
        assert_eq!(in_both.event, left.event);
        let mut backups = place.backups(&again.engine, place.options());
        back_up(&mut backups).unwrap();
        assert_eq!(place.objects("backups").len(), 2, "the other history is not appended to");
        for round in 3..6 {
            go_on(&mut again, round).await;
        }
        back_up(&mut backups).unwrap();
        let taken = Moment::of(&again);
        assert!(taken.event > left.event);
        again.engine.shutdown();
        assert_eq!(place.restore("taken", "").code, 0);
        taken.check(&place.path("taken")).await;
        // Both histories have this event, and only the first one has an earlier event.
        assert_eq!(place.restore("both", &format!("--to-sequence {}", in_both.event)).code, 0);
        in_both.check(&place.path("both")).await;
        let before = Moment { event: early.event, oracle: before };
        assert_eq!(place.restore("before", &format!("--to-sequence {}", before.event)).code, 0);
        before.check(&place.path("before")).await;
    });
}

/// An engine whose journal begins a segment after a few events.
fn open_in_segments(directory: &Path) -> Engine {
    let journal = JournalOptions { segment_bytes: 1_000, ..JournalOptions::default() };
    let storage = StorageConfig { directory: directory.to_owned(), journal, ..StorageConfig::default() };
    Engine::open(small(), &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
}

#[test]
fn a_restart_continues_the_backup() {
    run(async {
        let place = Place::new();
        let mut town = Town::new(open_in_segments(&place.data()));
        town.settle(3).await;
        for round in 0..3 {
            go_on(&mut town, round).await;
            // As the server does before the first run.
            town.engine.keep_journal_after(Some(Sequence(0)));
            let mut backups = place.backups(&town.engine, place.options());
            back_up(&mut backups).unwrap();
            go_on(&mut town, 10 + round).await;
            back_up(&mut backups).unwrap();
            go_on(&mut town, 20 + round).await;
            // Two snapshots make all segments superfluous that no backup needs.
            town.engine.snapshot().await.unwrap();
            go_on(&mut town, 30 + round).await;
            town.engine.snapshot().await.unwrap();
            drop(backups);
            town.engine.shutdown();
            town.engine = open_in_segments(&place.data());
        }
        let mut backups = place.backups(&town.engine, place.options());
        back_up(&mut backups).unwrap();
        assert_eq!(place.objects("backups").len(), 1);
        let moment = Moment::of(&town);
        town.engine.shutdown();
        assert_eq!(place.restore("again", "").code, 0);
        moment.check(&place.path("again")).await;
    });
}

#[test]
fn old_backups_and_their_unshared_objects_are_removed() {
    run(async {
        let place = Place::new();
        let mut town = Town::new(open(&place.data()));
        town.settle(8).await;
        let options = BackupOptions { begin_every: Duration::ZERO, keep: Duration::from_millis(1), ..place.options() };
        let mut backups = place.backups(&town.engine, options);
        let mut objects = Vec::new();
        for round in 0..4 {
            go_on(&mut town, round).await;
            back_up(&mut backups).unwrap();
            time_passes().await;
            back_up(&mut backups).unwrap();
            assert_eq!(place.objects("backups").len(), 1, "round {round}");
            objects.push(place.objects("objects").len());
        }
        assert!(objects.iter().all(|count| *count < objects[0] + 6), "{objects:?}");
        let moment = Moment::of(&town);
        town.engine.shutdown();
        assert_eq!(place.restore("again", "").code, 0);
        moment.check(&place.path("again")).await;
    });
}

#[test]
fn data_of_an_erased_user_leaves_the_store_with_the_last_older_backup() {
    run(async {
        let place = Place::new();
        let mut town = Town::new(open(&place.data()));
        town.settle(8).await;
        let mut backups =
            place.backups(&town.engine, BackupOptions { keep: Duration::from_millis(1), ..place.options() });
        back_up(&mut backups).unwrap();
        erase(&mut town, &mut backups).await;
        // The first run begins a backup without the user, the second one finds it old enough to be alone.
        back_up(&mut backups).unwrap();
        time_passes().await;
        back_up(&mut backups).unwrap();
        assert_eq!(place.objects("backups").len(), 1);
        assert_eq!(holding(&place.store().join("backups"), &[ZOE]), [""; 0]);
        let moment = Moment::of(&town);
        town.engine.shutdown();
        assert_eq!(place.restore("again", "").code, 0);
        assert_eq!(holding(&place.path("again"), &[ZOE, MARKER]), [""; 0]);
        moment.check(&place.path("again")).await;
    });
}

#[test]
fn a_stopped_run_leaves_the_store_unchanged() {
    run(async {
        let place = Place::new();
        let mut town = Town::new(open(&place.data()));
        town.settle(2).await;
        let stopping = Arc::new(AtomicBool::new(true));
        let mut backups =
            Backups::new(town.engine.clone(), place.options(), Arc::default(), Arc::clone(&stopping)).unwrap();
        assert!(matches!(back_up(&mut backups), Err(BackupError::Stopping)));
        assert!(place.objects("backups").is_empty());
        stopping.store(false, Ordering::Relaxed);
        back_up(&mut backups).unwrap();
        assert_eq!(place.restore("again", "").code, 0);
        let moment = Moment::of(&town);
        town.engine.shutdown();
        moment.check(&place.path("again")).await;
    });
}
