//! Rewriting retained segments without the data of erased users.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

use tracing::warn;

use crate::clock::UnixMicros;
use crate::error::Error;
use crate::feed::event::Event;
use crate::id::{PostId, SourceId};
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::background::eraser::Eraser;
use crate::runtime::background::snapshotter::snapshot_failed;
use crate::state::posts::Stored;
use crate::state::sources::erasures::Erasure;
use crate::storage::archive::ArchivedRecord;
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::frame::{pack, unpack};
use crate::storage::retained::{self, EventFile, EventFiles};
use crate::storage::segment::Segment;
use crate::storage::sequence::Sequence;

impl Eraser {
    /// Writes the segments that end before `from` as retained segments without the data of these users, whose posts no
    /// longer exist. Removes segments that are not to be retained; the next snapshot removes those of the journal. The
    /// caller prevents snapshots, which would retain a segment unchanged.
    pub(super) fn rewrite_retained(&self, erasures: &[Arc<Erasure>], from: Sequence) -> Result<(), Error> {
        let Some(files) = &self.files else { return Ok(()) };
        let files = &**files;
        let listed = EventFiles::list(files).map_err(|cause| snapshot_failed(&cause))?;
        let mut all = listed.readable();
        all.retain(|file| file.last < from);
        let named_until = self.may_name_unknown(files, &all, erasures)?;
        let kept = {
            // From here on, no consumer can register that needs the files removed here or by the next snapshot.
            let mut journal_begins = self.shared.change_consumers.hold_journal();
            let oldest = all.first().map_or(from, |file| file.first);
            let kept = match self.shared.changes_retention(oldest) {
                Some(retention) => retention.kept(files, &all, self.shared.clock.now()),
                None => Ok(0),
            };
            let kept = kept.map_err(|cause| snapshot_failed(&cause))?;
            let (removed, kept) = all.split_at(named_until.max(all.len() - kept));
            *journal_begins = kept.first().map_or(from, |file| file.first);
            remove(files, listed.obsolete.into_iter().chain(retained_of(removed)))?;
            kept
        };
        let users = erasures.iter().filter_map(|erasure| erasure.user.clone()).collect();
        let (mut since, mut written) = (Instant::now(), Vec::with_capacity(kept.len()));
        for file in kept {
            match self.rewrite(files, *file, &users) {
                Ok(file) => written.push(file),
                Err(Failure::Damaged(cause)) => {
                    // Readers could not read past the damaged segment.
                    warn!("removing retained segments up to a damaged one: {cause}");
                    written.push(*file);
                    remove(files, retained_of(&written))?;
                }
                Err(Failure::Other(cause)) => return Err(cause),
            }
            self.rest(&mut since)?;
        }
        Ok(())
    }

    /// Returns how many of these files, from the oldest on, end with the last journal segment that may name a user
    /// whose id is lost. An earlier process scrubbed such an erasure, and ended before it had removed the older
    /// journal. That process had rewritten all of its retained segments.
    fn may_name_unknown(
        &self,
        files: &dyn Files,
        all: &[EventFile],
        erasures: &[Arc<Erasure>],
    ) -> Result<usize, Error> {
        let unknown = erasures.iter().filter(|erasure| erasure.user.is_none()).map(|erasure| erasure.at);
        let unknown: BTreeSet<UnixMicros> = unknown.collect();
        let (mut before, mut since) = (all.len(), Instant::now());
        while before > 0 && !unknown.is_empty() {
            self.rest(&mut since)?;
            before -= 1;
            let is_first_after = match has_scrubbed(files, all[before], &unknown) {
                // Segments up to a damaged one are not retained.
                Err(Failure::Damaged(_)) => true,
                Err(Failure::Other(cause)) => return Err(cause),
                Ok(has) => has,
            };
            // This segment was begun after all events that name the user.
            if is_first_after {
                break;
            }
        }
        let before = if unknown.is_empty() { 0 } else { before };
        Ok(all[..before].iter().rposition(|file| !file.is_retained()).map_or(0, |nth| nth + 1))
    }

    fn rewrite(&self, files: &dyn Files, file: EventFile, users: &BTreeSet<SourceId>) -> Result<EventFile, Failure> {
        let segment = Segment::read(files, &file.name(), file.first)?;
        let (mut is_changed, mut failed) = (false, None);
        let bytes = retained::rewritten(&segment, |found, into| {
            let event: Event = unpack(found.payload)?;
            let is_needed = match &event {
                Event::Edited { id, .. } => self.exists(*id).map_err(|cause| failed.insert(cause).to_string())?,
                _ => true,
            };
            let left = if is_needed { event.clone().without_users(users) } else { None };
            if left.as_ref() == Some(&event) {
                into.extend_from_slice(found.payload);
            } else {
                is_changed = true;
                // This event is not part of the change stream, and it preserves the sequences.
                pack(&left.unwrap_or(Event::ErasureEnded { at: UnixMicros(0) }), into);
            }
            Ok(())
        });
        if let Some(cause) = failed {
            return Err(Failure::Other(cause));
        }
        let bytes = bytes?;
        let since = match file.retained_since {
            Some(_) if !is_changed => return Ok(file),
            Some(since) => UnixMicros(since.0.saturating_add(1)),
            None => self.shared.clock.now(),
        };
        let written = EventFile { retained_since: Some(since), ..file };
        retained::write(files, written, &bytes)?;
        // A reader of the old file continues in the new one.
        remove(files, retained_of(&[file]))?;
        Ok(written)
    }

    /// Returns true if a post exists. Edits of other posts are not needed.
    fn exists(&self, id: PostId) -> Result<bool, Error> {
        let world = &self.shared.world;
        match (world.posts.stored(id), world.archive()) {
            (Some(Stored::Live(_)), _) => Ok(true),
            (None, Some(archive)) => {
                let found = archive.post(id).map_err(|cause| archive_failed(&cause))?;
                Ok(matches!(found, Some(ArchivedRecord::Post(_))))
            }
            (Some(Stored::Deleted) | None, _) => Ok(false),
        }
    }
}

/// Returns true if a segment contains the scrubbing of one of these erasures.
fn has_scrubbed(files: &dyn Files, file: EventFile, erasures: &BTreeSet<UnixMicros>) -> Result<bool, Failure> {
    let segment = Segment::read(files, &file.name(), file.first)?;
    let is_one =
        |payload: &[u8]| matches!(unpack(payload), Ok(Event::ErasureScrubbed { at }) if erasures.contains(&at));
    let mut has = false;
    let Ok(_) = segment.walk::<Infallible>(|found| {
        has |= is_one(found.payload);
        Ok(())
    });
    Ok(has)
}

enum Failure {
    /// The segment cannot be read, now or later.
    Damaged(StorageError),
    Other(Error),
}

impl From<Error> for Failure {
    fn from(cause: Error) -> Self {
        Self::Other(cause)
    }
}

impl From<StorageError> for Failure {
    fn from(cause: StorageError) -> Self {
        match cause {
            StorageError::Damaged { .. } | StorageError::Foreign { .. } | StorageError::TooLarge { .. } => {
                Self::Damaged(cause)
            }
            cause => Self::Other(snapshot_failed(&cause)),
        }
    }
}

/// Returns the names of the retained ones of these files.
fn retained_of(all: &[EventFile]) -> impl Iterator<Item = String> {
    all.iter().filter(|file| file.is_retained()).map(|file| file.name())
}

/// Removes files, some of which may be gone already.
fn remove(files: &dyn Files, names: impl IntoIterator<Item = String>) -> Result<(), Error> {
    names.into_iter().try_for_each(|name| match files.remove(&name) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => {
            Err(snapshot_failed(&StorageError::io("remove", files.place(&name))(cause)))
        }
        Ok(()) | Err(_) => Ok(()),
    })
}
