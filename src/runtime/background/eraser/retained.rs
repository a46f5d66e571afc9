//! Retained segments without what they say of erased users.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use tracing::warn;

use crate::clock::UnixMicros;
use crate::error::Error;
use crate::feed::event::Event;
use crate::id::{PostId, SourceId};
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::background::eraser::Eraser;
use crate::state::erasures::Erasure;
use crate::state::posts::Stored;
use crate::storage::archive::ArchivedRecord;
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::frame::{pack, unpack};
use crate::storage::journal::Sequence;
use crate::storage::retained::{self, EventFile, EventFiles};
use crate::storage::segment::Segment;

impl Eraser {
    /// Writes the segments that end before `from` as retained ones, without what they say of these users, whose posts no longer exist. Those of
    /// the journal are removed by the next snapshot. Returns false if none are retained; then those that are left from earlier are removed.
    ///
    /// The caller prevents snapshots, which would retain a segment as it is.
    pub(super) fn rewrite_retained(&self, erasures: &[Arc<Erasure>], from: Sequence) -> Result<bool, Error> {
        let Some(files) = &self.files else { return Ok(false) };
        let files = &**files;
        let mut all = EventFiles::list(files).map_err(|cause| not_rewritten(&cause))?.readable();
        all.retain(|file| file.last < from);
        let oldest = all.first().map_or(from, |file| file.first);
        let Some(retention) = self.shared.changes_retention(oldest) else {
            remove(files, &all)?;
            return Ok(false);
        };
        let kept = retention.kept(files, &all, self.shared.clock.now()).map_err(|cause| not_rewritten(&cause))?;
        let (removed, kept) = all.split_at(may_name_unknown(files, &all, erasures).max(all.len() - kept));
        remove(files, removed)?;
        let users = erasures.iter().filter_map(|erasure| erasure.user.clone()).collect();
        let mut since = Instant::now();
        for (nth, file) in kept.iter().enumerate() {
            match self.rewrite(files, *file, &users) {
                Err(Failure::Damaged(cause)) => {
                    // Readers could not get past it.
                    warn!("retained segments are removed up to a damaged one: {cause}");
                    remove(files, &kept[..=nth])?;
                }
                Err(Failure::Other(cause)) => return Err(cause),
                Ok(()) => {}
            }
            self.rest(&mut since)?;
        }
        Ok(true)
    }

    fn rewrite(&self, files: &dyn Files, file: EventFile, users: &BTreeSet<SourceId>) -> Result<(), Failure> {
        let segment = Segment::read(files, &file.name(), file.first)?;
        let (mut is_changed, mut failed) = (false, None);
        let bytes = retained::rewritten(&segment, |found, into| {
            let event: Event = unpack(found.payload)?;
            let left = match &event {
                Event::Edited { id, .. } => match self.exists(*id) {
                    Ok(exists) => exists.then_some(event.clone()),
                    Err(cause) => {
                        failed = Some(cause);
                        Some(event.clone())
                    }
                },
                _ => Some(event.clone()),
            };
            if failed.is_some() {
                return Err("the archive does not answer".to_owned());
            }
            let left = left.and_then(|event| event.without_users(users));
            if left.as_ref() == Some(&event) {
                into.extend_from_slice(found.payload);
            } else {
                is_changed = true;
                // It is no message of the stream, so sequences stay as they are.
                pack(&left.unwrap_or(Event::ErasureEnded { at: UnixMicros(0) }), into);
            }
            Ok(())
        });
        if let Some(cause) = failed {
            return Err(Failure::Other(cause));
        }
        let bytes = bytes?;
        let since = match file.retained_since {
            Some(_) if !is_changed => return Ok(()),
            Some(since) => UnixMicros(since.0.saturating_add(1)),
            None => self.shared.clock.now(),
        };
        retained::write(files, EventFile { retained_since: Some(since), ..file }, &bytes)?;
        // A reader of it goes on in the new one.
        Ok(remove(files, &[file])?)
    }

    /// Returns true if a post exists: what an edit says of another one is not needed.
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

/// Returns the number of these files, the oldest ones, up to the last one that may name a user whom nobody knows any more. An earlier process has
/// scrubbed the erasure, and has ended before it had removed the journal from before that. Of what it retained it has rewritten all.
fn may_name_unknown(files: &dyn Files, all: &[EventFile], erasures: &[Arc<Erasure>]) -> usize {
    let unknown = erasures.iter().filter(|erasure| erasure.user.is_none()).map(|erasure| erasure.at);
    let mut unknown: BTreeSet<UnixMicros> = unknown.collect();
    let mut before = 0;
    for (nth, file) in all.iter().enumerate() {
        if unknown.is_empty() {
            break;
        }
        let Ok(segment) = Segment::read(files, &file.name(), file.first) else { continue };
        let Ok(_) = segment.walk::<Infallible>(|found| {
            // The segment was begun after all events that name the user.
            if let Ok(Event::ErasureScrubbed { at }) = unpack(found.payload)
                && unknown.remove(&at)
            {
                before = nth;
            }
            Ok(())
        });
    }
    all[..before].iter().rposition(|file| file.retained_since.is_none()).map_or(0, |nth| nth + 1)
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
            cause => Self::Other(not_rewritten(&cause)),
        }
    }
}

fn not_rewritten(cause: &StorageError) -> Error {
    if cause.is_full() { Error::DiskFull(cause.to_string()) } else { Error::SnapshotFailed(cause.to_string()) }
}

/// Removes the retained ones of these files.
fn remove(files: &dyn Files, all: &[EventFile]) -> Result<(), Error> {
    let mut removed = all.iter().filter(|file| file.retained_since.is_some()).map(|file| file.name());
    let remove = |name: String| files.remove(&name).map_err(StorageError::io("remove", files.place(&name)));
    removed.try_for_each(remove).map_err(|cause| not_rewritten(&cause))
}
