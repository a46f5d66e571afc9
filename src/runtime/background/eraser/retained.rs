//! Retained segments without what they say of erased users.

use std::collections::BTreeSet;
use std::time::Instant;

use tracing::warn;

use crate::clock::UnixMicros;
use crate::error::Error;
use crate::feed::event::Event;
use crate::id::{PostId, SourceId};
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::background::eraser::Eraser;
use crate::state::posts::Stored;
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::frame::{pack, unpack};
use crate::storage::journal::Sequence;
use crate::storage::retained::{self, EventFile};
use crate::storage::segment::Segment;

impl Eraser {
    /// Writes all segments that end before `from` as retained ones, without what they say of these users: their posts no longer exist. Those of
    /// the journal are removed by the next snapshot. If none are to be retained, the ones that are left from earlier are removed.
    ///
    /// The caller prevents snapshots, which would retain a segment as it is.
    pub(super) fn rewrite_retained(&self, users: BTreeSet<SourceId>, from: Sequence) -> Result<(), Error> {
        let Some(files) = &self.files else { return Ok(()) };
        let files = &**files;
        let all = retained::list_with_journal(files).map_err(|cause| not_rewritten(&cause))?;
        if self.shared.changes_retention().is_none() {
            return remove(files, &all);
        }
        let mut since = Instant::now();
        for (nth, pair) in all.windows(2).enumerate().filter(|(_, pair)| pair[1].first <= from) {
            match self.rewrite(files, pair[0], &users) {
                Err(Failure::Damaged(cause)) => {
                    // Readers could not get past it.
                    warn!("retained segments are removed up to a damaged one: {cause}");
                    remove(files, &all[..=nth])?;
                }
                Err(Failure::Other(cause)) => return Err(cause),
                Ok(()) => {}
            }
            self.rest(&mut since)?;
        }
        Ok(())
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
        let since = match file.retained_since {
            Some(_) if !is_changed => return Ok(()),
            Some(since) => UnixMicros(since.0 + 1),
            None => self.shared.clock.now(),
        };
        Ok(retained::write(files, EventFile { retained_since: Some(since), ..file }, &bytes?)?)
    }

    /// Returns true if a post exists: what an edit says of another one is not needed.
    fn exists(&self, id: PostId) -> Result<bool, Error> {
        let world = &self.shared.world;
        match (world.posts.stored(id), world.archive()) {
            (Some(Stored::Live(_)), _) => Ok(true),
            (None, Some(archive)) => Ok(archive.post(id).map_err(|cause| archive_failed(&cause))?.is_some()),
            (Some(Stored::Deleted) | None, _) => Ok(false),
        }
    }
}

enum Failure {
    /// The segment cannot be read, now or later.
    Damaged(StorageError),
    Other(Error),
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
    let removed = all.iter().filter(|file| file.retained_since.is_some()).map(|file| file.name());
    let remove = |name: String| files.remove(&name).map_err(StorageError::io("remove", files.place(&name)));
    removed.map(remove).collect::<Result<(), _>>().map_err(|cause| not_rewritten(&cause))
}
