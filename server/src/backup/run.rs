//! One run of backups: appends the new journal to the newest backup, and begins another backup when one is due.
//!
//! Responsible for:
//! - the order of writes: parts, then the manifest, then the removal of what is too old;
//! - continuing the backup of an earlier process if the journal is the same, and else beginning another one.
//!
//! Not responsible for:
//! - when runs take place (`schedule`), objects (`parts`), the engine's files (`tidewire::engine`).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{info, warn};

use crate::backup::figures::BackupFigures;
use crate::backup::manifest::{self, Erased, JournalPiece, Manifest, Part};
use crate::backup::parts::{self, Uploads};
use crate::backup::store::Store;
use crate::backup::{BackupError, BackupOptions, retention};
use tidewire::clock::UnixMicros;
use tidewire::engine::{BackupBase, Engine};
use tidewire::feed::event::Event;
use tidewire::storage::archive::ArchiveView;
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::frame::unpack;
use tidewire::storage::journal::Sequence;
use tidewire::storage::journal::pieces::{self, Piece};
use tidewire::storage::segment::Segment;

/// Journal of the newest backup from which on another one is begun, if it is also a quarter of the snapshot: a restore replays it.
const JOURNAL_BYTES: u64 = 64 << 20;

/// See [`JOURNAL_BYTES`]: one in this many bytes of the snapshot.
const JOURNAL_SHARE: u64 = 4;

/// What the payload of each event of this kind begins with: a MessagePack map with one key.
const ERASED: &[u8] = b"\x81\xa6erased";
const ERASURE_ENDED: &[u8] = b"\x81\xaderasure_ended";

/// Backs up one engine to one place.
pub struct Backups {
    engine: Engine,
    files: Arc<dyn Files>,
    identity: String,
    options: BackupOptions,
    store: Store,
    figures: Arc<BackupFigures>,
    stopping: Arc<AtomicBool>,
    /// All backups of the place, oldest first. None until they are read, and after a run that failed in the middle.
    known: Option<Known>,
}

struct Known {
    manifests: Vec<Manifest>,
    /// True if this process may append to the last one.
    continues: bool,
    /// Checksums of the parts in the store.
    stored: HashSet<String>,
}

impl Backups {
    /// Prepares backups of `engine`. Nothing is written before the first run.
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
        let identity = files.identity().ok_or(BackupError::NoDataDirectory)?.to_string();
        let store = Store::open(&options.to, true)?;
        Ok(Self { engine, files, identity, options, store, figures, stopping, known: None })
    }

    /// Returns the options.
    pub fn options(&self) -> &BackupOptions {
        &self.options
    }

    /// Returns true if an erasure waits for a run.
    pub(super) fn is_wanted(&self) -> bool {
        self.engine.wants_backup()
    }

    /// Copies everything that was committed until now.
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
        let mut known = match self.known.take() {
            Some(known) => known,
            None => self.read()?,
        };
        if let Err(cause) = self.check_alone(&known) {
            // The next run has to find the manifest of the other process again.
            self.known = Some(known);
            return Err(cause);
        }
        self.run_on(&mut known)?;
        self.known = Some(known);
        Ok(())
    }

    fn run_on(&self, known: &mut Known) -> Result<(), BackupError> {
        // Read first: what is written from here on may not be in this copy.
        let now = self.now();
        self.append(known, self.committed(), now)?;
        if self.is_due(known) {
            self.begin(known)?;
        }
        self.remove_old(known)?;
        let last = known.manifests.last();
        self.engine.keep_journal_after(Some(Sequence(last.map_or(0, Manifest::last))));
        self.figures.complete(last.map_or(now, Manifest::copied_at));
        self.figures.backups.store(known.manifests.len() as u64, Ordering::Relaxed);
        self.figures.stored_bytes.store(retention::stored_bytes(&known.manifests), Ordering::Relaxed);
        Ok(())
    }

    /// Begins another backup.
    fn begin(&self, known: &mut Known) -> Result<(), BackupError> {
        let now = self.now();
        let base = self.engine.backup_base()?;
        // The last backup reaches to the beginning of the new one, so that every event between them can be restored.
        self.append(known, base.through, now)?;
        let manifest = self.upload(known, &base, now)?;
        manifest.write(&self.store)?;
        info!("began the backup {} of event {} in {}", manifest.name(), manifest.through, self.store.place(""));
        known.manifests.push(manifest);
        known.continues = true;
        Ok(())
    }

    /// Reads what is in the store, and removes what an interrupted run left there.
    fn read(&self) -> Result<Known, BackupError> {
        let manifests = manifest::read_all(&self.store)?;
        if let Some(other) = manifests.iter().find(|manifest| manifest.identity != self.identity) {
            let (place, found, expected) = (self.store.place(""), other.identity.clone(), self.identity.clone());
            return Err(BackupError::OtherIdentity { place, found, expected });
        }
        let stored = retention::sweep(&self.store, &manifests)?;
        let is_whole = |manifest: &Manifest| manifest.parts().all(|part| stored.contains(&part.sha256));
        let continues = manifests.last().is_some_and(|last| is_whole(last) && self.has_history_of(last));
        if let Some(last) = manifests.last() {
            self.figures.complete(last.copied_at());
        }
        Ok(Known { manifests, continues, stored })
    }

    /// Returns true if the journal still has the last copied events, byte for byte. After a restore to an earlier event it has others.
    fn has_history_of(&self, manifest: &Manifest) -> bool {
        let Some(last) = manifest.journal.last() else { return false };
        let mut is_same = false;
        let copied = pieces::copy(&*self.files, Sequence(last.first - 1), Sequence(last.last), |piece| {
            is_same = parts::split(&piece.bytes).map(parts::describe).eq(last.parts.iter().cloned());
            Ok::<_, StorageError>(())
        });
        copied.is_ok() && is_same
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
        let is_long = journal_bytes >= JOURNAL_BYTES.max(last.snapshot_bytes() / JOURNAL_SHARE);
        let oldest = self.now().saturating_sub(self.options.begin_every);
        is_long || (last.begun_at <= oldest.0 && self.committed().0 > last.through)
    }

    /// Appends the journal up to `through` to the last backup, if this process may. If events are missing, it may not any more. All events
    /// up to the time `at` are among them.
    fn append(&self, known: &mut Known, through: Sequence, at: UnixMicros) -> Result<(), BackupError> {
        let Some(mut last) = known.manifests.last().cloned().filter(|_| known.continues) else { return Ok(()) };
        let after = Sequence(last.last());
        match self.copy_journal(known, &mut last, after, through) {
            Ok(()) => {}
            Err(BackupError::Storage(cause @ StorageError::Missing { .. })) => {
                warn!("{cause}; another backup is begun, and events in between cannot be restored one by one");
                known.continues = false;
                return Ok(());
            }
            Err(cause) => return Err(cause),
        }
        last.copied_at = at.0;
        last.write(&self.store)?;
        self.engine.keep_journal_after(Some(Sequence(last.last())));
        known.manifests.pop();
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
        pieces::copy(&*self.files, after, through, |Piece { first, last, bytes }| {
            let parts = parts::split(&bytes).map(|part| uploads.part(part.to_vec())).collect::<Result<_, _>>()?;
            let piece = Segment::of_bytes(self.store.place("the journal"), first, bytes)?;
            piece.walk(|event| {
                manifest.has_ended_erasure |=
                    event.sequence.0 > manifest.through && event.payload.starts_with(ERASURE_ENDED);
                if event.payload.starts_with(ERASED)
                    && let Ok(Event::Erased { user, .. }) = unpack(event.payload)
                {
                    manifest.erased.push(Erased { event: event.sequence.0, user: user.to_string() });
                }
                Ok::<_, BackupError>(())
            })?;
            manifest.journal.push(JournalPiece { first: first.0, last: last.0, parts });
            Ok(())
        })
    }

    /// Stores a snapshot with its archive and the journal that it needs. All events up to the time `at` are in them.
    fn upload(&self, known: &mut Known, base: &BackupBase, at: UnixMicros) -> Result<Manifest, BackupError> {
        let place = self.files.place(&base.snapshot.file);
        let (content, _) = self.files.read(&base.snapshot.file).map_err(BackupError::file("read", &*place))?;
        let mut uploads = Uploads::new(&self.store, &mut known.stored, &self.figures, &self.stopping);
        let snapshot = uploads.file(content, &place)?;
        let archive = base.archive.as_ref().map(|view| upload_archive(&**view, &mut uploads)).transpose()?;
        let mut manifest = Manifest {
            format: Manifest::FORMAT,
            identity: self.identity.clone(),
            begun_at: base.snapshot.taken_at.0,
            sequence: base.snapshot.sequence.0,
            through: base.through.0,
            through_at: base.last_instant.shown().0,
            lead_us: base.last_instant.lead_us,
            copied_at: at.0,
            snapshot,
            archive,
            journal: Vec::new(),
            erased: Vec::new(),
            has_ended_erasure: false,
        };
        self.copy_journal(known, &mut manifest, base.snapshot.sequence, base.through)?;
        Ok(manifest)
    }

    fn remove_old(&self, known: &mut Known) -> Result<(), BackupError> {
        for _ in 0..retention::superfluous(&known.manifests, self.options.keep, self.now()) {
            let gone = known.manifests.remove(0);
            info!("removing the backup {} from {}: it is too old", gone.name(), self.store.place(""));
            retention::remove(&self.store, &gone, &known.manifests, &mut known.stored)?;
        }
        Ok(())
    }

    /// Returns the last committed event.
    fn committed(&self) -> Sequence {
        Sequence(self.engine.journal().map_or(0, |journal| journal.last.load(Ordering::Relaxed)))
    }

    fn now(&self) -> UnixMicros {
        self.engine.shared().clock.now()
    }
}

fn upload_archive(view: &dyn ArchiveView, uploads: &mut Uploads<'_>) -> Result<Vec<Part>, BackupError> {
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
