//! Power loss, failing disks and processes that die: what was acknowledged is there afterwards.

use tidewire::storage::files::Files;
use tidewire::storage::files::faulty::{FaultyFiles, Plan};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::{Durability, Journal, JournalError};

use crate::kept::{History, check_prefix, journal, seeds, snapshot, written};

/// A2: writes, commits, syncs and snapshots at random, and then the power goes.
fn lose_power(seed: u64, durability: Durability) {
    let random = &mut fastrand::Rng::with_seed(seed);
    let length = random.usize(1..60);
    let history = History::random(random, length);
    let files = MemoryFiles::default();
    let mut journal = journal(files.clone(), durability, random.u64(100..2_000)).unwrap();
    let (mut committed, mut synced) = (0, 0);
    for (nth, event) in history.events.iter().enumerate() {
        journal.append(event).unwrap();
        if random.u8(0..10) < 4 {
            journal.commit().unwrap();
            committed = nth + 1;
        }
        if random.u8(0..10) == 0 {
            journal.sync().unwrap();
            synced = committed;
        }
        if random.u8(0..20) == 0 {
            // As the keeper does it: the journal is synced before the snapshot has its name.
            journal.sync().unwrap();
            synced = committed;
            snapshot(&files, &history, committed).unwrap();
        }
    }
    if durability == Durability::Always {
        synced = committed;
    }
    drop(journal);
    files.lose_power(random);
    let kept = check_prefix(&files, &history, synced);
    // And again, after the journal went on from there.
    let tail = crate::kept::recover(&files, false).unwrap().tail;
    assert_eq!(tail.last.0 as usize, kept);
}

#[test]
fn power_loss_takes_nothing_that_was_synced() {
    for seed in 0..seeds(2_000) {
        lose_power(seed, Durability::Always);
        lose_power(seed, Durability::Never);
    }
    (0..5).for_each(|seed| lose_power(seed, Durability::EverySecond));
}

/// A11: a run with rotation and snapshots in which the process dies at its `k`-th operation that writes.
#[test]
fn a_process_may_die_before_any_write() {
    let history = History::random(&mut fastrand::Rng::with_seed(11), 40);
    let run = |plan: Plan| {
        let files = MemoryFiles::default();
        let faulty = FaultyFiles::new(files.clone(), plan);
        let mut acknowledged = 0;
        let mut work = || -> Option<()> {
            let mut journal = journal(faulty.clone(), Durability::Always, 600).ok()?;
            for (nth, event) in history.events.iter().enumerate() {
                journal.append(event).ok()?;
                journal.commit().ok()?;
                acknowledged = nth + 1;
                if nth % 13 == 12 {
                    snapshot(&faulty, &history, nth + 1).ok()?;
                }
            }
            journal.close().ok()
        };
        work();
        (files, acknowledged, faulty.operations())
    };
    let (_, all, operations) = run(Plan::default());
    assert_eq!(all, history.events.len());
    assert!(operations > 100);
    for die_at in 1..=operations {
        let (files, acknowledged, _) = run(Plan { die_at: Some(die_at), ..Plan::default() });
        check_prefix(&files.copied(), &history, acknowledged);
        for seed in 0..4 {
            let (files, acknowledged, _) = run(Plan { die_at: Some(die_at), ..Plan::default() });
            files.lose_power(&mut fastrand::Rng::with_seed(seed));
            check_prefix(&files, &history, acknowledged);
        }
    }
}

/// A7: the `k`-th sync fails, and those after it claim to succeed.
#[test]
fn after_a_failed_sync_nothing_is_acknowledged() {
    let history = History::random(&mut fastrand::Rng::with_seed(7), 40);
    let mut failures = 0;
    for fail_sync in 1..=50 {
        let files = MemoryFiles::default();
        let faulty = FaultyFiles::new(files.clone(), Plan { fail_sync: Some(fail_sync), ..Plan::default() });
        let Ok(mut journal) = journal(faulty, Durability::Always, 600) else { continue };
        let mut acknowledged = 0;
        let mut failed = false;
        for (nth, event) in history.events.iter().enumerate() {
            journal.append(event).unwrap();
            match journal.commit() {
                Ok(()) => {
                    assert!(!failed, "event {nth} was acknowledged after sync {fail_sync} had failed");
                    acknowledged = nth + 1;
                }
                Err(JournalError::Failed(_)) => failed = true,
                Err(full) => panic!("{full}"),
            }
        }
        failures += u32::from(failed);
        drop(journal);
        files.lose_power(&mut fastrand::Rng::with_seed(fail_sync));
        check_prefix(&files, &history, acknowledged);
    }
    assert!(failures > 30, "{failures} runs had a failing sync");
}

/// A8: there is room for some more bytes, then for none, then for all.
#[test]
fn a_full_disk_refuses_leaves_no_half_record_and_goes_on() {
    let history = History::random(&mut fastrand::Rng::with_seed(8), 30);
    let whole = written(&history, 1_000).bytes();
    for room in (100..whole).step_by(37) {
        let files = MemoryFiles::default();
        files.limit(Some(room));
        let mut journal = journal(files.clone(), Durability::Always, 1_000).unwrap();
        let mut refused = 0;
        for event in &history.events {
            loop {
                journal.append(event).unwrap();
                match journal.commit() {
                    Ok(()) => break,
                    Err(JournalError::DiskFull { place }) => assert!(place.contains("journal-"), "{place}"),
                    Err(failed) => panic!("{failed}"),
                }
                refused += 1;
                // Still full for a while.
                if refused == 3 {
                    files.limit(None);
                }
            }
        }
        assert_eq!(refused, 3);
        journal.close().unwrap();
        assert_eq!(check_prefix(&files, &history, history.events.len()), history.events.len());
    }
}

#[test]
fn a_snapshot_for_which_there_is_no_room_leaves_the_older_ones() {
    let history = History::random(&mut fastrand::Rng::with_seed(9), 30);
    let files = written(&history, 100_000);
    snapshot(&files, &history, 10).unwrap();
    files.limit(Some(files.bytes() + 100));
    assert!(snapshot(&files, &history, 30).is_err());
    check_prefix(&files, &history, 30);
    assert!(files.list().unwrap().iter().any(|name| name.ends_with(".unfinished")));
}
