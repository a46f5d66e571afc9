//! One run of backups: appends the new journal to the newest backup, and begins another backup if one is due.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::{info, warn};

use crate::backup::cluster::ClusterSource;
use crate::backup::counted_event::counted_event;
use crate::backup::figures::BackupFigures;
use crate::backup::manifest::{self, Erased, JournalPiece, Manifest, Part};
use crate::backup::parts::{self, Uploads};
use crate::backup::store::Store;
use crate::backup::{BackupError, BackupOptions, retention};
use tidewire::clock::UnixMicros;
use tidewire::engine::{BackupBase, Engine};
use tidewire::feed::event::Event;
use tidewire::recovery::rebuilt::followed_in;
use tidewire::storage::archive::ArchiveSnapshot;
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::frame::unpack;
use tidewire::storage::identity::Identity;
use tidewire::storage::journal::pieces::{self, Piece};
use tidewire::storage::log::{LogError, copied};
use tidewire::storage::segment::Segment;
use tidewire::storage::sequence::Sequence;

/// Bytes of journal from which on another backup is begun, if they are also a share of the snapshot and the archive. So all backups
/// together copy a bounded multiple of the written data, and the replay of a restore is a fraction of the data that it loads.
const JOURNAL_BYTES: u64 = 64 << 20;

/// One in this many bytes of the snapshot and the archive: see [`JOURNAL_BYTES`].
const JOURNAL_SHARE: u64 = 4;

/// Number of pieces of the journal from which on another backup is begun. The manifest lists each of them, and every run writes it.
const JOURNAL_PIECES: usize = 4_096;

/// Maximum time for which a node of a cluster may continue a run after another node has taken over. Parts without a manifest are not
/// removed earlier.
const RUN_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The first bytes of the payload of each event of this kind: a MessagePack map with one key.
const ERASED: &[u8] = b"\x81\xa6erased";
const ERASURE_ENDED: &[u8] = b"\x81\xaderasure_ended";

/// Backs up one engine to one place.
pub struct Backups {
    engine: Engine,
    files: Arc<dyn Files>,
    identity: Identity,
    /// The cluster, if the engine is one of its nodes.
    cluster: Option<ClusterSource>,
    options: BackupOptions,
    store: Store,
    figures: Arc<BackupFigures>,
    stopping: Arc<AtomicBool>,
    /// All backups of the place, oldest first. None until they are read, and after a run that failed in the middle.
    known: Option<Known>,
    /// Checksums of the parts that a failed run has stored.
    left: HashSet<String>,
    /// True if the last run only checked the backups of another node.
    has_only_looked: bool,
}

struct Known {
    /// The epoch of the cluster at the time of this read. None on one machine.
    epoch: Option<u64>,
    manifests: Vec<Manifest>,
    /// True if this process may append to the last one.
    continues: bool,
    /// Checksums of the parts in the store.
    stored: HashSet<String>,
}

impl Backups {
    /// Prepares backups of `engine`, on one machine. Nothing is written before the first run.
    ///
    /// # Errors
    /// Fails if the store cannot be used, or the engine has no data directory.
    pub fn new(
        engine: Engine,
        options: BackupOptions,
        figures: Arc<BackupFigures>,
        stopping: Arc<AtomicBool>,
    ) -> Result<Self, BackupError> {
        let files = engine.data_files().ok_or(BackupError::NoDataDirectory)?;
        let identity = files.identity().ok_or(BackupError::NoDataDirectory)?;
        let store = Store::open(&options.to, true)?;
        let (cluster, known, left, has_only_looked) = (None, None, HashSet::new(), false);
        Ok(Self { engine, files, identity, cluster, options, store, figures, stopping, known, left, has_only_looked })
    }

    /// Changes these to backups of a cluster, of which the engine is a node.
    #[must_use]
    pub fn of_cluster(mut self, cluster: ClusterSource) -> Self {
        self.cluster = Some(cluster);
        self
    }

    /// Returns true if an erasure waits for a run, or if this node has taken over and a run is due.
    pub(super) fn is_wanted(&self) -> bool {
        let has_taken_over = self.has_only_looked && self.cluster.as_ref().is_some_and(|of| of.epoch().is_some());
        let is_due = || self.figures.age_seconds(self.now()) >= self.options.every.as_secs();
        self.engine.wants_backup() || has_taken_over && is_due()
    }

    /// Copies all committed events.
    ///
    /// # Errors
    /// Fails if the store or the data directory cannot be read or written. The next run continues.
    pub fn run(&mut self) -> Result<(), BackupError> {
        let ran = self.attempt();
        if !matches!(ran, Ok(()) | Err(BackupError::Stopping)) {
            self.figures.failures.fetch_add(1, Ordering::Relaxed);
        }
        ran
    }

    fn attempt(&mut self) -> Result<(), BackupError> {
        let epoch = self.cluster.as_ref().map(ClusterSource::epoch);
        self.has_only_looked = epoch == Some(None);
        if self.has_only_looked {
            self.known = None;
            return self.look();
        }
        let epoch = epoch.flatten();
        let mut known = match self.known.take().filter(|known| known.epoch == epoch) {
            Some(known) => known,
            None => self.read(epoch)?,
        };
        match self.check_alone(&known) {
            Ok(()) => {}
            // A replaced node or a new sequencer has written another manifest.
            Err(BackupError::Shared { .. }) if epoch.is_some() => known = self.read(epoch)?,
            Err(cause) => {
                // Remember the manifests, so that the next run finds the manifest of the other process again.
                self.known = Some(known);
                return Err(cause);
            }
        }
        let ran = self.run_on(&mut known);
        match ran {
            Ok(()) => (self.known, self.left) = (Some(known), HashSet::new()),
            // Read the store again before the next run: it may have stored a manifest although the answer was lost. The stored parts of an
            // unfinished backup need not be sent again.
            Err(_) => self.left = known.stored,
        }
        ran
    }

    /// Records the age of the newest backup that another node has made.
    fn look(&self) -> Result<(), BackupError> {
        let manifests = manifest::read_all(&self.store)?;
        if let Some(newest) = manifests.last() {
            newest.check_identity(&self.store, &self.identity.to_string())?;
            self.figures.complete(newest.copied_at());
        }
        self.note(&manifests);
        Ok(())
    }

    fn note(&self, manifests: &[Manifest]) {
        self.figures.backups.store(manifests.len() as u64, Ordering::Relaxed);
        self.figures.restorable_from.store(retention::restorable_from(manifests), Ordering::Relaxed);
    }

    fn run_on(&self, known: &mut Known) -> Result<(), BackupError> {
        let Some((now, committed)) = self.committed_until(known) else { return Ok(()) };
        self.append(known, committed, now)?;
        if self.is_due(known) {
            self.begin(known)?;
        }
        self.remove_old(known)?;
        let last = known.manifests.last();
        self.keep_journal_after(Sequence(last.map_or(0, Manifest::last)));
        self.figures.complete(last.map_or(now, Manifest::copied_at));
        self.note(&known.manifests);
        self.figures.stored_bytes.store(manifest::stored_bytes(&known.manifests), Ordering::Relaxed);
        Ok(())
    }

    /// Begins another backup.
    fn begin(&self, known: &mut Known) -> Result<(), BackupError> {
        let Some((now, _)) = self.committed_until(known) else { return Ok(()) };
        let base = self.engine.backup_base()?;
        // The snapshot may have taken minutes.
        if self.committed_until(known).is_none() {
            return Ok(());
        }
        // Append up to the beginning of the new backup to the last one, so that every event between them can be restored.
        self.append(known, base.through, now)?;
        let manifest = self.upload(known, &base, now)?;
        manifest.write(&self.store)?;
        info!("began the backup {} at event {} in {}", manifest.name(), manifest.through, self.store.place(""));
        known.manifests.push(manifest);
        known.continues = true;
        Ok(())
    }

    /// Reads the store, and removes the remains of interrupted runs.
    fn read(&self, epoch: Option<u64>) -> Result<Known, BackupError> {
        let manifests = manifest::read_all(&self.store)?;
        let identity = self.identity.to_string();
        manifests.iter().try_for_each(|manifest| manifest.check_identity(&self.store, &identity))?;
        // A node that has just been replaced may be about to write the manifest of its parts.
        let until = epoch.map_or(UnixMicros(i64::MAX), |_| self.now().saturating_sub(RUN_MAX));
        let stored = retention::sweep(&self.store, &manifests, &self.left, until)?;
        let is_whole = |manifest: &Manifest| manifest.parts().all(|part| stored.contains(&part.sha256));
        let continues = match manifests.last().filter(|last| is_whole(last)) {
            Some(last) => self.has_history_of(last)?,
            None => false,
        };
        if let Some(last) = manifests.last() {
            self.figures.complete(last.copied_at());
        }
        Ok(Known { epoch, manifests, continues, stored })
    }

    /// Returns true if the journal still has the last copied events, byte for byte. After a restore to an earlier event it has different
    /// ones.
    ///
    /// # Errors
    /// Fails if the journal cannot be read now: another backup would leave a gap of events that can be restored.
    fn has_history_of(&self, manifest: &Manifest) -> Result<bool, BackupError> {
        let Some(last) = manifest.journal.last() else { return Ok(false) };
        let mut is_same = false;
        let copied = self.pieces(Sequence(last.first - 1), Sequence(last.last), |piece| {
            is_same = parts::split(&piece.bytes).map(parts::describe).eq(last.parts.iter().cloned());
            Ok(())
        });
        match copied {
            Ok(()) => Ok(is_same),
            Err(
                BackupError::Storage(StorageError::Missing { .. } | StorageError::Damaged { .. })
                | BackupError::Log(LogError::Deleted { .. } | LogError::Shorter { .. }),
            ) => Ok(false),
            Err(cause) => Err(cause),
        }
    }

    /// Fails if another process has written manifests to this place.
    fn check_alone(&self, known: &Known) -> Result<(), BackupError> {
        let ours: HashSet<String> = known.manifests.iter().map(Manifest::name).collect();
        match manifest::names(&self.store)?.into_iter().find(|name| !ours.contains(name)) {
            Some(name) => Err(BackupError::Shared { place: self.store.place(&name) }),
            None => Ok(()),
        }
    }

    fn is_due(&self, known: &Known) -> bool {
        let Some(last) = known.manifests.last().filter(|last| known.continues && !last.has_ended_erasure) else {
            return true;
        };
        let journal_bytes = last.journal_bytes();
        let is_long = journal_bytes >= JOURNAL_BYTES.max(last.base_bytes() / JOURNAL_SHARE)
            || last.journal.len() >= JOURNAL_PIECES;
        let oldest = self.now().saturating_sub(self.options.begin_every);
        is_long || (last.begun_at <= oldest.0 && self.committed().0 > last.through)
    }

    /// Appends the journal up to `through` to the last backup, if this process may continue it. It may not continue it if events are
    /// missing. The appended journal contains all events up to the time `at`.
    fn append(&self, known: &mut Known, through: Sequence, at: UnixMicros) -> Result<(), BackupError> {
        let Some(mut last) = known.manifests.last().cloned().filter(|_| known.continues) else { return Ok(()) };
        let after = Sequence(last.last());
        last.epoch = known.epoch;
        match self.copy_journal(known, &mut last, after, through) {
            Ok(()) => {}
            Err(
                cause @ (BackupError::Storage(StorageError::Missing { .. })
                | BackupError::Log(LogError::Deleted { .. })),
            ) => {
                warn!("{cause}; beginning another backup; the moments in between cannot be restored");
                known.continues = false;
                return Ok(());
            }
            Err(cause) => return Err(cause),
        }
        last.copied_at = at.0;
        last.write(&self.store)?;
        self.keep_journal_after(Sequence(last.last()));
        // A backup of another node keeps its own manifest, because this node writes one under another name.
        let name = last.name();
        known.manifests.retain(|manifest| manifest.name() != name);
        known.manifests.push(last);
        Ok(())
    }

    /// Stores the journal after `after` up to `through`, and adds it to a manifest.
    fn copy_journal(
        &self,
        known: &mut Known,
        manifest: &mut Manifest,
        after: Sequence,
        through: Sequence,
    ) -> Result<(), BackupError> {
        let mut uploads = Uploads::new(&self.store, &mut known.stored, &self.figures, &self.stopping);
        self.pieces(after, through, |Piece { first, last, bytes }| {
            let parts = parts::split(&bytes).map(|part| uploads.part(part.to_vec())).collect::<Result<_, _>>()?;
            let piece = Segment::of_bytes(self.store.place("the journal"), first, bytes)?;
            piece.walk(|found| {
                let is_of_erasure = [ERASED, ERASURE_ENDED].iter().any(|kind| found.payload.starts_with(kind));
                let event = match &mut manifest.followed_to {
                    Some(followed) => counted_event(followed, &piece.place, &found)?,
                    None if is_of_erasure => unpack(found.payload).ok(),
                    None => None,
                };
                match event {
                    Some(Event::Erased { user, .. }) => {
                        manifest.erased.push(Erased { event: found.sequence.0, user: user.to_string() });
                    }
                    Some(Event::ErasureEnded { .. }) => {
                        manifest.has_ended_erasure |= found.sequence.0 > manifest.through;
                    }
                    _ => {}
                }
                Ok::<_, BackupError>(())
            })?;
            manifest.journal.push(JournalPiece { first: first.0, last: last.0, parts });
            Ok(())
        })
    }

    /// Stores a snapshot with its archive and the journal that it needs. They contain all events up to the time `at`.
    fn upload(&self, known: &mut Known, base: &BackupBase, at: UnixMicros) -> Result<Manifest, BackupError> {
        let place = self.files.place(&base.snapshot.file);
        let (content, _) = self.files.read(&base.snapshot.file).map_err(BackupError::file("read", &*place))?;
        let is_of_cluster = self.cluster.is_some();
        let followed_from = is_of_cluster.then(|| followed_in(&*self.files, &base.snapshot.file)).transpose()?;
        let mut uploads = Uploads::new(&self.store, &mut known.stored, &self.figures, &self.stopping);
        let snapshot = uploads.file(content, &place)?;
        let archive = base.archive.as_ref().map(|view| upload_archive(&**view, &mut uploads)).transpose()?;
        let mut manifest = Manifest {
            format: Manifest::format_in(known.epoch),
            identity: self.identity.to_string(),
            epoch: known.epoch,
            begun_at: base.snapshot.taken_at.0,
            sequence: base.snapshot.sequence.0,
            through: base.through.0,
            through_at: base.last_instant.shown().0,
            drift_us: base.last_instant.drift_us,
            copied_at: at.0,
            snapshot,
            archive,
            journal: Vec::new(),
            followed_to: followed_from.clone(),
            followed_from,
            erased: Vec::new(),
            has_ended_erasure: false,
        };
        self.copy_journal(known, &mut manifest, base.snapshot.sequence, base.through)?;
        Ok(manifest)
    }

    /// Calls `each` with the journal after `after`, up to and including `through`. In a cluster the journal is the log.
    fn pieces(
        &self,
        after: Sequence,
        through: Sequence,
        each: impl FnMut(Piece) -> Result<(), BackupError>,
    ) -> Result<(), BackupError> {
        match &self.cluster {
            None => pieces::copy(&*self.files, after, through, each),
            Some(cluster) => copied::copy(&*cluster.log, self.identity, after, through, each),
        }
    }

    /// Retains the journal after this event on one machine. In a cluster, the settings of the log determine its retention.
    fn keep_journal_after(&self, backed_up: Sequence) {
        if self.cluster.is_none() {
            self.engine.keep_journal_after(Some(backed_up));
        }
    }

    fn remove_old(&self, known: &mut Known) -> Result<(), BackupError> {
        if self.cluster.as_ref().is_some_and(|cluster| cluster.epoch() != known.epoch) {
            // The new sequencer removes old backups.
            return Ok(());
        }
        for _ in 0..retention::superfluous(&known.manifests, self.options.keep, self.now()) {
            let gone = known.manifests.remove(0);
            info!("removing the expired backup {} from {}", gone.name(), self.store.place(""));
            retention::remove(&self.store, &gone, &known.manifests, &mut known.stored)?;
        }
        Ok(())
    }

    /// Returns the time and the last event committed until then. Returns none if another node has taken over, which may have committed
    /// events that this node has not read.
    fn committed_until(&self, known: &Known) -> Option<(UnixMicros, Sequence)> {
        // Read the time first: events committed after it may not be in the copy. Read the epoch last: then no other node has taken over
        // before.
        let (now, committed) = (self.now(), self.committed());
        let takes_writes = self.cluster.as_ref().is_none_or(|cluster| cluster.epoch() == known.epoch);
        takes_writes.then_some((now, committed))
    }

    /// Returns the last committed event.
    fn committed(&self) -> Sequence {
        self.engine.journal().map_or(Sequence(0), |journal| journal.committed.last())
    }

    fn now(&self) -> UnixMicros {
        self.engine.shared().clock.now()
    }
}

fn upload_archive(view: &dyn ArchiveSnapshot, uploads: &mut Uploads<'_>) -> Result<Vec<Part>, BackupError> {
    let (mut parts, mut failed) = (Vec::new(), None);
    view.chunks(&mut |chunk| match uploads.part(chunk) {
        Ok(part) => {
            parts.push(part);
            true
        }
        Err(cause) => {
            failed = Some(cause);
            false
        }
    })?;
    failed.map_or(Ok(parts), Err)
}
