//! Restores a data directory from a backup.

use std::fs::{self, File};
use std::path::Path;
use std::slice;
use std::sync::Arc;

use crate::backup::BackupError;
use crate::backup::counted_event::counted_event;
use crate::backup::manifest::{self, Erased, Found, JournalPiece, Manifest};
use crate::backup::new_directory::{
    NewDirectory, UNFINISHED, begin_journal, load, worlds_beside_detached_archive, write_segment,
};
use crate::backup::parts;
use crate::backup::store::Store;
use tidewire::clock::UnixMicros;
use tidewire::config::EngineConfig;
use tidewire::feed::followers::Sharding;
use tidewire::limits::ARCHIVE_CACHE_BYTES;
use tidewire::recovery::rebuilt::Rebuilt;
use tidewire::recovery::{Recovered, Recovery, RecoveryProgress, event};
use tidewire::state::world::World;
use tidewire::storage::archive::{self, Archive, ArchiveFromChunks, LocalArchive, RedbArchive};
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::journal::pieces::{self, Piece};
use tidewire::storage::journal::reader::segments;
use tidewire::storage::segment::{self, Segment};
use tidewire::storage::sequence::Sequence;
use tidewire::storage::snapshot;

/// The moment to restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// The end of the newest backup.
    Newest,
    /// The state after this event.
    Event(u64),
    /// The displayed state at this time: after the last event whose time is not later.
    Time(UnixMicros),
}

/// The end of a restore.
struct End<'a> {
    manifest: &'a Manifest,
    /// The last event.
    event: u64,
    left_out: Option<LeftOut>,
    snapshot_begun_at: Option<UnixMicros>,
}

/// Events directly after the last one, which have no time. They may be from before or after the requested time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LeftOut {
    /// The first of them.
    pub(crate) first: u64,
    /// The last of them.
    pub(crate) last: u64,
}

/// The result of a restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Restored {
    /// The last event.
    pub(crate) event: u64,
    /// The displayed time of the last event.
    pub(crate) at: UnixMicros,
    /// The cluster of the restored state, as text. None if it is of a server on one machine.
    pub(crate) cluster: Option<String>,
    /// The number of posts in memory.
    pub(crate) posts: usize,
    /// The number of posts and tombstones in the archive. None if the state relies on an archive that is not in the backup.
    pub(crate) archived: Option<u64>,
    /// The number of follow edges.
    pub(crate) edges: usize,
    /// Users who were erased later: they are visible again.
    pub(crate) visible_again: Vec<String>,
    /// Users who were erased between the snapshot and the last event. They are not visible, but the files still contain their data.
    pub(crate) in_files: Vec<String>,
    /// The events that a restore to a time left out, because they have no time.
    pub(crate) left_out: Option<LeftOut>,
    /// The time at which the snapshot was begun, if that was after the requested time. The snapshot may then contain later events without a
    /// time.
    pub(crate) snapshot_begun_at: Option<UnixMicros>,
}

impl Restored {
    /// Creates the result of a restore on one machine, without warnings.
    fn of(event: u64, at: UnixMicros, [posts, edges]: [usize; 2], archived: Option<u64>) -> Self {
        let (visible_again, in_files) = (Vec::new(), Vec::new());
        let (cluster, left_out, snapshot_begun_at) = (None, None, None);
        Self { event, at, cluster, posts, archived, edges, visible_again, in_files, left_out, snapshot_begun_at }
    }
}

/// The state to restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    /// The event or time to restore.
    pub(crate) moment: Moment,
    /// The name of the backup to use. None uses the newest backup that has the moment.
    pub(crate) backup: Option<String>,
}

/// Restores the wanted state from the backups of a store into a directory, which is empty or does not exist.
pub(crate) fn restore(store: &Store, found: Found, wanted: &Wanted, directory: &Path) -> Result<Restored, BackupError> {
    let Found { manifests, unreadable } = found;
    let (place, among) = match &wanted.backup {
        None => (store.place(""), &manifests[..]),
        Some(name) => (manifest::place_of(store, name), named(store, &manifests, unreadable, name)?),
    };
    let End { manifest, event, left_out, snapshot_begun_at } = choose(store, place, among, wanted.moment)?;
    let new = NewDirectory::begin(directory)?;
    write(store, manifest, event, new.unfinished())?;
    let restored = match manifest.epoch {
        None => check(new.unfinished(), event)?,
        Some(_) => rebuild(new.unfinished(), manifest, event)?,
    };
    new.publish()?;
    let of_erased = |is_wanted: &dyn Fn(u64) -> bool| users(&manifests, is_wanted);
    Ok(Restored {
        visible_again: of_erased(&|erased| erased > event),
        // The snapshot of a cluster is written again, without erased data. A node removes the rest.
        in_files: of_erased(&|erased| manifest.epoch.is_none() && erased > manifest.sequence && erased <= event),
        left_out,
        snapshot_begun_at,
        ..restored
    })
}

/// Builds one snapshot of a cluster's backup, up to its last record, and opens it. The directory is that of a node; all temporary files in
/// it are removed.
pub(super) fn rebuilt_snapshot(store: &Store, manifest: &Manifest, directory: &Path) -> Result<File, BackupError> {
    let unfinished = directory.join(UNFINISHED);
    // Remains of a process that ended here.
    let _ = fs::remove_dir_all(&unfinished);
    let event = manifest.last();
    let written = write(store, manifest, event, &unfinished);
    let opened = written.and_then(|()| rebuild(&unfinished, manifest, event)).and_then(|_| {
        let path = unfinished.join(snapshot::name(Sequence(event)));
        File::open(&path).map_err(BackupError::file("read", path.display().to_string()))
    });
    let _ = fs::remove_dir_all(&unfinished);
    opened
}

/// Returns the users whose erasures began at these events, each once.
fn users(manifests: &[Manifest], is_wanted: &dyn Fn(u64) -> bool) -> Vec<String> {
    let all = manifests.iter().flat_map(|manifest| &manifest.erased);
    let mut users: Vec<String> =
        all.filter(|Erased { event, .. }| is_wanted(*event)).map(|erased| erased.user.clone()).collect();
    users.sort_unstable();
    users.dedup();
    users
}

/// Returns the backup of this name as a slice of one.
fn named<'a>(
    store: &Store,
    manifests: &'a [Manifest],
    unreadable: Vec<(String, BackupError)>,
    name: &str,
) -> Result<&'a [Manifest], BackupError> {
    if let Some((_, cause)) = unreadable.into_iter().find(|(unreadable, _)| unreadable == name) {
        return Err(cause);
    }
    let found = manifests.iter().find(|manifest| manifest.name() == name);
    found.map(slice::from_ref).ok_or_else(|| BackupError::NoSuchBackup { place: manifest::place_of(store, name) })
}

/// Returns the newest of the backups that has the moment, and the event to end at. Errors name the place.
fn choose<'a>(store: &Store, place: String, manifests: &'a [Manifest], moment: Moment) -> Result<End<'a>, BackupError> {
    let Some(newest) = manifests.last() else { return Err(BackupError::NoBackup { place }) };
    let out_of_range =
        |wanted: String| BackupError::OutOfRange { wanted, place: place.clone(), ranges: ranges(manifests) };
    let end = |manifest: &'a Manifest, event| End { manifest, event, left_out: None, snapshot_begun_at: None };
    match moment {
        Moment::Newest => Ok(end(newest, newest.last())),
        Moment::Event(event) => {
            let has = |manifest: &&Manifest| (manifest.through..=manifest.last()).contains(&event);
            let found = manifests.iter().rev().find(has);
            found.map(|manifest| end(manifest, event)).ok_or_else(|| out_of_range(format!("event {event}")))
        }
        Moment::Time(time) => {
            let has = |manifest: &&Manifest| (manifest.through_at..=manifest.copied_at).contains(&time.0);
            let with_time = || manifests.iter().rev().filter(has);
            // A later snapshot may contain deletes after the time, even if no event with a time is between them.
            let found = with_time().find(|manifest| manifest.begun_at <= time.0).or_else(|| with_time().next());
            let found = found.ok_or_else(|| out_of_range(format!("the time {time}")))?;
            let (event, left_out) = last_event_at(store, found, time)?;
            let begun_at = UnixMicros(found.begun_at);
            Ok(End { manifest: found, event, left_out, snapshot_begun_at: (begun_at > time).then_some(begun_at) })
        }
    }
}

/// Returns the ranges of events and times that can be restored, as text.
fn ranges(manifests: &[Manifest]) -> String {
    let range = |manifest: &Manifest| {
        let (from, to) = (manifest.begins(), manifest.copied_at());
        format!("events {} to {} ({from} to {to})", manifest.through, manifest.last())
    };
    manifests.iter().map(range).collect::<Vec<_>>().join(", ")
}

/// Returns the last event of a backup whose displayed time is not after `time`, and the events directly after it that have no time. These
/// may be later than `time`. They often include the mistake to undo, because deletes and unfollows have no time.
fn last_event_at(store: &Store, manifest: &Manifest, time: UnixMicros) -> Result<(u64, Option<LeftOut>), BackupError> {
    let (mut last, mut drift_us, mut followed) = (manifest.through, manifest.drift_us, manifest.followed_from.clone());
    let mut left_out: Option<LeftOut> = None;
    // The records of a cluster's log determine which later ones count.
    let is_read = |piece: &&JournalPiece| followed.is_some() || piece.last > manifest.through;
    let pieces: Vec<_> = manifest.journal.iter().filter(is_read).collect();
    for piece in pieces {
        let segment = read_piece(store, piece)?;
        let mut is_later = false;
        segment.walk(|found| {
            let (sequence, is_after) = (found.sequence.0, found.sequence.0 > manifest.through);
            let damaged = |what| BackupError::Damaged { place: segment.place.clone(), what };
            let counted = match &mut followed {
                _ if is_later => None,
                Some(followed) => counted_event(followed, &segment.place, &found)?,
                None if is_after => Some(event(found.payload).map_err(damaged)?),
                None => None,
            };
            if is_later || !is_after {
                return Ok(());
            }
            match counted.map(|event| event.taken(drift_us)) {
                Some(Some(taken)) if taken.shown() > time => is_later = true,
                Some(Some(taken)) => (last, drift_us, left_out) = (sequence, taken.drift_us, None),
                Some(None) => left_out.get_or_insert(LeftOut { first: sequence, last: sequence }).last = sequence,
                // A record without an event does not change anything visible.
                None if left_out.is_none() => last = sequence,
                None => {}
            }
            Ok::<_, BackupError>(())
        })?;
        if is_later {
            break;
        }
    }
    Ok((last, left_out))
}

/// Writes the files of a backup, with the journal up to `event`, to a new directory.
fn write(store: &Store, manifest: &Manifest, event: u64, directory: &Path) -> Result<(), BackupError> {
    let files = DiskFiles::open(directory).map_err(StorageError::io("create", directory.display().to_string()))?;
    let name = snapshot::name(Sequence(manifest.sequence));
    let place = files.place(&name);
    let file = files.create(&name).map_err(BackupError::file("create", &*place))?;
    for part in &manifest.snapshot {
        file.append(&parts::read(store, part)?).map_err(BackupError::file("write", &*place))?;
    }
    file.sync().map_err(BackupError::file("sync", &*place))?;
    if let Some(chunks) = &manifest.archive {
        let archive = ArchiveFromChunks::create(&directory.join(archive::FILE))?;
        for chunk in chunks {
            archive.add(&parts::read(store, chunk)?)?;
        }
        archive.finish()?;
    }
    for piece in manifest.journal.iter().filter(|piece| piece.first <= event) {
        let segment = read_piece(store, piece)?;
        if let Some(Piece { first, bytes, .. }) = pieces::cut(&segment, Sequence(0), Sequence(event))? {
            write_segment(&files, first, &bytes)?;
        }
    }
    // Without segments, nothing was written during the snapshot.
    if segments(&files)?.is_empty() { begin_journal(&files, Sequence(event)) } else { Ok(()) }
}

fn read_piece(store: &Store, piece: &JournalPiece) -> Result<Segment, BackupError> {
    let mut bytes = Vec::new();
    for part in &piece.parts {
        bytes.extend(parts::read(store, part)?);
    }
    let place = store.place(&format!("the journal from event {} to {}", piece.first, piece.last));
    Ok(Segment::of_bytes(place, Sequence(piece.first), bytes)?)
}

/// Loads everything as a start does. This reads all of the snapshot and of the journal. An archive in Cassandra is not read.
fn check(directory: &Path, event: u64) -> Result<Restored, BackupError> {
    let path = directory.join(archive::FILE);
    let archive = if path.exists() { Some(Arc::new(RedbArchive::open(&path, ARCHIVE_CACHE_BYTES)?)) } else { None };
    let progress = &RecoveryProgress::default();
    let recovered = match &archive {
        Some(archive) => {
            archive.stop_waiting();
            archive.check()?;
            load(directory, Some(Arc::clone(archive)), progress)?
        }
        None => {
            let files = DiskFiles::open(directory).map_err(StorageError::io("use", directory.display().to_string()))?;
            let make_world = &worlds_beside_detached_archive(event)?;
            Recovery { files: &files, make_world, repair: false, progress }.run()?
        }
    };
    let Recovered { world, tail, last_instant, .. } = recovered;
    if tail.last.0 != event {
        return Err(BackupError::Incomplete { found: tail.last.0, expected: event });
    }
    let (posts, edges, has_archived_posts) = (world.posts.len(), world.edges(), world.has_archived_posts());
    drop(world);
    let archived = match archive {
        None => (!has_archived_posts).then_some(0),
        Some(archive) => {
            archive.close();
            Some(archive::ReadOnlyArchive::open(&path, ARCHIVE_CACHE_BYTES)?.totals()?.posts)
        }
    };
    Ok(Restored::of(event, last_instant.shown(), [posts, edges], archived))
}

/// Builds one snapshot from the snapshot of a node and the copied records after it. A node continues with the log from there.
fn rebuild(directory: &Path, manifest: &Manifest, event: u64) -> Result<Restored, BackupError> {
    let place = directory.display().to_string();
    let files: Arc<dyn Files> = Arc::new(DiskFiles::open(directory).map_err(StorageError::io("use", &*place))?);
    let has_archive = manifest.followed_from.as_ref().is_some_and(|followed| followed.membership.has_archive());
    let beside_archive = worlds_beside_detached_archive(event)?;
    let make_world = || match has_archive {
        true => beside_archive(),
        false => World::create(EngineConfig::default().celebrity, Sharding::new(1)),
    };
    let rebuilt = Rebuilt::from_copies(Arc::clone(&files), &make_world)?;
    if rebuilt.followed.sequence.0 != event {
        return Err(BackupError::Incomplete { found: rebuilt.followed.sequence.0, expected: event });
    }
    rebuilt.write(Arc::clone(&files), manifest.copied_at())?;
    let whole = snapshot::name(Sequence(event));
    let superfluous = files.list().map_err(BackupError::file("read", &*place))?.into_iter().filter(|name| {
        let is_copied = segment::parse_name(name).is_some() || snapshot::parse_name(name).is_some();
        is_copied && *name != whole
    });
    for name in superfluous {
        files.remove(&name).map_err(BackupError::file("remove", files.place(&name)))?;
    }
    let (world, at) = (&rebuilt.state.world, rebuilt.state.last_instant.shown());
    let (posts, edges, cluster) = (world.posts.len(), world.edges(), rebuilt.followed.membership.cluster());
    let archived = (!world.has_archived_posts()).then_some(0);
    Ok(Restored { cluster: Some(cluster.to_string()), ..Restored::of(event, at, [posts, edges], archived) })
}
