//! Removal of old backups, and of parts that no backup needs.
//!
//! A manifest is removed before its parts, so every listed backup is complete.

use std::collections::HashSet;
use std::time::Duration;

use tracing::warn;

use crate::backup::BackupError;
use crate::backup::manifest::{Manifest, Part, needed};
use crate::backup::parts::{self, FOLDER};
use crate::backup::store::{Listed, Store};
use tidewire::clock::UnixMicros;

/// Returns how many of the oldest backups are superfluous: the next one begins before the time from which everything must be retained.
pub(super) fn superfluous(manifests: &[Manifest], keep: Duration, now: UnixMicros) -> usize {
    let from = now.saturating_sub(keep);
    let next_began = manifests.iter().skip(1).map(|next| next.through_at.max(next.begun_at));
    next_began.take_while(|began| *began <= from.0).count()
}

/// Returns the time from which the backups have every event, to the end of the newest one; 0 without a backup.
pub(super) fn restorable_from(manifests: &[Manifest]) -> i64 {
    let Some((newest, before)) = manifests.split_last() else { return 0 };
    let mut oldest = newest;
    for manifest in before.iter().rev() {
        // If the journal between two backups is lost, the events in between cannot be restored one by one.
        if manifest.last() < oldest.through {
            break;
        }
        oldest = manifest;
    }
    oldest.through_at
}

/// Removes the backup `gone`, and the parts that only it needs.
pub(super) fn remove(
    store: &Store,
    gone: &Manifest,
    rest: &[Manifest],
    stored: &mut HashSet<String>,
) -> Result<(), BackupError> {
    gone.remove(store)?;
    let needed = needed(rest);
    for part in gone.parts().filter(|part| !needed.contains_key(&*part.sha256)) {
        // Removed from the set first: if the removal fails, the object may or may not exist.
        if stored.remove(&part.sha256) {
            store.remove(&parts::name(part))?;
        }
    }
    Ok(())
}

/// Compares the store with the manifests. Removes parts that no backup needs, except for `left` and for parts written after `until`, and
/// returns the checksums of the existing parts. Logs backups with missing parts.
pub(super) fn sweep(
    store: &Store,
    manifests: &[Manifest],
    left: &HashSet<String>,
    until: UnixMicros,
) -> Result<HashSet<String>, BackupError> {
    let needed = needed(manifests);
    let mut stored = HashSet::new();
    // Other objects do not belong to backups, so they are not removed.
    let is_sha256 =
        |name: &str| name.len() == 64 && name.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let parts = store.list(FOLDER)?.into_iter().filter(|listed| is_sha256(&listed.name));
    for Listed { name: sha256, bytes, modified } in parts {
        match needed.get(&*sha256) {
            Some(expected) if *expected == bytes => drop(stored.insert(sha256)),
            Some(_) => {}
            None if left.contains(&sha256) => drop(stored.insert(sha256)),
            None if modified > until => {}
            None => store.remove(&parts::name(&Part { sha256, bytes }))?,
        }
    }
    for manifest in manifests {
        let lost = manifest.parts().filter(|part| !stored.contains(&part.sha256)).count();
        if lost > 0 {
            warn!("{lost} objects of the backup {} are missing or damaged in {}", manifest.name(), store.place(""));
        }
    }
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::manifest::JournalPiece;

    const HOUR: i64 = 3_600_000_000;

    /// Returns a backup that was begun at this hour.
    fn begun(hour: i64) -> Manifest {
        Manifest {
            format: 1,
            identity: String::new(),
            epoch: None,
            begun_at: hour * HOUR,
            sequence: 0,
            through: 0,
            // The last event is an hour older.
            through_at: (hour - 1) * HOUR,
            drift_us: 0,
            copied_at: 0,
            snapshot: Vec::new(),
            archive: None,
            journal: Vec::new(),
            followed_from: None,
            followed_to: None,
            erased: Vec::new(),
            has_ended_erasure: false,
        }
    }

    #[test]
    fn events_are_restorable_from_the_oldest_backup_that_others_follow_without_a_gap() {
        // For each backup: the hour, the first event that can be restored, and the last one. Then the expected hour.
        for (backups, expected) in [
            (&[][..], 0),
            (&[(5, 10, 10)], 4),
            (&[(5, 10, 20), (6, 20, 30)], 4),
            (&[(5, 10, 20), (6, 21, 30)], 5),
            (&[(5, 10, 20), (6, 21, 30), (7, 30, 30)], 5),
            (&[(5, 10, 20), (6, 20, 30), (7, 31, 40)], 6),
        ] {
            let manifest = |(hour, first, last): &(i64, u64, u64)| Manifest {
                through: *first,
                journal: vec![JournalPiece { first: *first, last: *last, parts: Vec::new() }],
                ..begun(*hour)
            };
            let manifests: Vec<_> = backups.iter().map(manifest).collect();
            assert_eq!(restorable_from(&manifests), expected * HOUR, "{backups:?}");
        }
    }

    #[test]
    fn a_backup_is_removed_when_the_next_one_covers_the_retention_period() {
        let keep = Duration::from_secs(24 * 3_600);
        for (hours, now, expected) in [
            (&[][..], 100, 0),
            (&[0], 1_000, 0),
            (&[0, 30], 53, 0),
            (&[0, 30], 54, 1),
            (&[0, 30, 40, 50], 64, 2),
            (&[0, 30, 40, 50], 1_000, 3),
        ] {
            let manifests: Vec<_> = hours.iter().map(|hour| begun(*hour)).collect();
            assert_eq!(superfluous(&manifests, keep, UnixMicros(now * HOUR)), expected, "{hours:?} at {now}");
        }
    }

    #[test]
    fn unreferenced_parts_are_removed_unless_a_failed_run_just_stored_them() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file://{}", directory.path().display()).parse().unwrap();
        let store = Store::open(&url, true).unwrap();
        let [needed, left, orphan] = ["needed", "left", "orphan"].map(|content| {
            let part = parts::describe(content.as_bytes());
            store.put(&parts::name(&part), content.as_bytes().to_vec()).unwrap();
            part
        });
        store.put(&format!("{FOLDER}/README"), b"not of a backup".to_vec()).unwrap();
        let manifest = [Manifest { snapshot: vec![needed.clone()], ..begun(0) }];
        let of_failed_run = HashSet::from([left.sha256.clone()]);
        let names = || {
            let mut names: Vec<String> = store.list(FOLDER).unwrap().into_iter().map(|listed| listed.name).collect();
            names.sort();
            names
        };
        let there = HashSet::from([needed.sha256.clone(), left.sha256.clone()]);
        // Another node of the cluster may be about to write a manifest with young parts.
        let swept = sweep(&store, &manifest, &of_failed_run, UnixMicros(0)).unwrap();
        assert_eq!((swept, names().len()), (there.clone(), 4), "{}", orphan.sha256);
        let swept = sweep(&store, &manifest, &of_failed_run, UnixMicros(i64::MAX)).unwrap();
        assert_eq!(swept, there);
        let mut expected = vec!["README".to_owned(), needed.sha256, left.sha256];
        expected.sort();
        assert_eq!(names(), expected);
    }
}
