//! What an archive in Cassandra knows of itself: its format, whose it is, up to which event it has everything, and its largest ids.
//!
//! Responsible for:
//! - the rows of the table `meta`, and refusing rows that no version writes;
//! - storing that an id may be there before its post is.
//!
//! Not responsible for:
//! - what the engine makes of them.

use std::sync::Arc;

use super::connection::Core;
use super::write::write_time;
use crate::id::PostId;
use crate::storage::archive::{ArchiveError, LargestIds};
use crate::storage::identity::Identity;
use crate::storage::journal::Sequence;

const FORMAT: &str = "format";
const IDENTITY: &str = "identity";
const THROUGH: &str = "through";
const WRITTEN: &str = "written";
const LARGEST_IDS: &str = "largest_ids";

/// Attempts to store largest ids while another process does.
const ATTEMPTS: u32 = 4;

/// The largest ids, as they are stored.
#[derive(Debug)]
pub(super) struct StoredIds {
    /// For readers: it has also the ids that are about to be stored.
    pub(super) ids: Arc<LargestIds>,
    stored: LargestIds,
    /// None if nothing is stored.
    version: Option<i64>,
    /// False after a failure: then it is not known what is stored.
    is_known: bool,
}

impl Core {
    async fn meta(&self, key: &'static str) -> Result<Option<(Vec<u8>, Option<i64>)>, ArchiveError> {
        let found = self.read(&self.statements.meta, (key,)).await?;
        let rows = found.into_rows_result().map_err(|cause| self.damaged(cause))?;
        let row = rows.maybe_first_row::<(Option<Vec<u8>>, Option<i64>)>().map_err(|cause| self.damaged(cause))?;
        match row {
            None => Ok(None),
            Some((Some(value), version)) => Ok(Some((value, version))),
            Some((None, _)) => Err(self.wrong(key)),
        }
    }

    fn wrong(&self, key: &str) -> ArchiveError {
        self.damaged(format_args!("the row {key} of the table meta is not what any version writes"))
    }

    async fn number(&self, key: &'static str) -> Result<Option<u64>, ArchiveError> {
        let Some((value, _)) = self.meta(key).await? else { return Ok(None) };
        let bytes = value.try_into().map_err(|_| self.wrong(key))?;
        Ok(Some(u64::from_be_bytes(bytes)))
    }

    /// Returns the format, or none if no archive was ever created here.
    pub(super) async fn format(&self) -> Result<Option<u64>, ArchiveError> {
        self.number(FORMAT).await
    }

    /// Stores the format, unless there is one.
    pub(super) async fn create_format(&self, format: u64) -> Result<(), ArchiveError> {
        self.create_meta(FORMAT, format.to_be_bytes().to_vec()).await.map(drop)
    }

    /// Returns the event up to which the archive has everything that left memory.
    pub(super) async fn through(&self) -> Result<Sequence, ArchiveError> {
        Ok(Sequence(self.number(THROUGH).await?.unwrap_or(0)))
    }

    /// Stores this event, unless a later one is stored.
    pub(super) async fn put_through(&self, through: Sequence) -> Result<(), ArchiveError> {
        let row = (THROUGH, through.0.to_be_bytes().to_vec(), write_time(through));
        self.write(&self.statements.put_meta, row).await.map(drop)
    }

    /// Returns the largest event with which anything may have been written, or none if a version wrote it that stored no such event.
    pub(super) async fn written(&self) -> Result<Option<Sequence>, ArchiveError> {
        Ok(self.number(WRITTEN).await?.map(Sequence))
    }

    /// Stores that something may have been written with this event, before it is.
    pub(super) async fn put_written(&self, as_of: Sequence) -> Result<(), ArchiveError> {
        let row = (WRITTEN, as_of.0.to_be_bytes().to_vec(), write_time(as_of));
        self.write(&self.statements.put_meta, row).await.map(drop)
    }

    pub(super) async fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        let Some((value, _)) = self.meta(IDENTITY).await? else { return Ok(None) };
        let bytes = value.try_into().map_err(|_| self.wrong(IDENTITY))?;
        Ok(Some(Identity(bytes)))
    }

    /// Stores an identity, unless there is one.
    pub(super) async fn create_identity(&self, identity: Identity) -> Result<(), ArchiveError> {
        self.create_meta(IDENTITY, identity.0.to_vec()).await.map(drop)
    }

    /// Stores a value. Returns false if there was one.
    async fn create_meta(&self, key: &'static str, value: Vec<u8>) -> Result<bool, ArchiveError> {
        let done = self.write(&self.statements.create_meta, (key, value, 1_i64)).await?;
        self.is_applied(done)
    }
}

impl StoredIds {
    /// Reads the largest ids.
    pub(super) async fn load(core: &Core) -> Result<Self, ArchiveError> {
        let mut stored = Self { ids: Arc::default(), stored: LargestIds::default(), version: None, is_known: false };
        stored.read(core).await?;
        let (ids, others) = stored.stored.parts();
        stored.ids = Arc::new(LargestIds::restored(ids, others));
        Ok(stored)
    }

    async fn read(&mut self, core: &Core) -> Result<(), ArchiveError> {
        let found = core.meta(LARGEST_IDS).await?;
        (self.stored, self.version) = match found {
            None => (LargestIds::default(), None),
            Some((bytes, version)) => {
                let (ids, others) = decode(&bytes).ok_or_else(|| core.wrong(LARGEST_IDS))?;
                (LargestIds::restored(ids, others), Some(version.ok_or_else(|| core.wrong(LARGEST_IDS))?))
            }
        };
        self.is_known = true;
        Ok(())
    }

    /// Learns which ids other machines have stored.
    pub(super) async fn learn(&mut self, core: &Core) -> Result<(), ArchiveError> {
        self.is_known = false;
        self.read(core).await?;
        let (ids, others) = self.stored.parts();
        self.ids.note(ids.into_iter().chain(others));
        Ok(())
    }

    /// Stores that ids may be there, before their posts are. Nothing is stored if that is known of all of them.
    pub(super) async fn note(&mut self, core: &Core, ids: &[PostId]) -> Result<(), ArchiveError> {
        self.ids.note(ids.iter().copied());
        for _ in 0..ATTEMPTS {
            if !self.is_known {
                self.read(core).await?;
            }
            let new: Vec<PostId> = ids.iter().copied().filter(|id| !self.stored.may_have(*id)).collect();
            if new.is_empty() {
                return Ok(());
            }
            let (known, others) = self.stored.parts();
            let next = LargestIds::restored(known, others);
            next.note(new);
            // Until it is certain that it was stored, it is not known what is.
            self.is_known = false;
            let (value, version) = (encode(&next), self.version.map_or(1, |version| version + 1));
            let statements = &core.statements;
            let done = match self.version {
                None => core.write(&statements.create_meta, (LARGEST_IDS, value, version)).await?,
                Some(before) => core.write(&statements.change_meta, (value, version, LARGEST_IDS, before)).await?,
            };
            if core.is_applied(done)? {
                (self.stored, self.version, self.is_known) = (next, Some(version), true);
                return Ok(());
            }
        }
        let why = "another process stores its largest ids all the time".to_owned();
        Err(ArchiveError::Unavailable { place: core.place.clone(), why })
    }
}

/// Returns the bytes of largest ids: the bound of all others if there is one, and the ids that are known one by one.
fn encode(ids: &LargestIds) -> Vec<u8> {
    let (ids, others) = ids.parts();
    let mut bytes = vec![u8::from(others.is_some())];
    bytes.extend(others.map_or(0, |others| others.0).to_be_bytes());
    bytes.extend(ids.iter().flat_map(|id| id.0.to_be_bytes()));
    bytes
}

fn decode(bytes: &[u8]) -> Option<(Vec<PostId>, Option<PostId>)> {
    let (has_others, rest) = bytes.split_first()?;
    let (numbers, []) = rest.as_chunks::<8>() else { return None };
    let (others, ids) = numbers.split_first()?;
    let others = PostId(u64::from_be_bytes(*others));
    let others = match has_others {
        0 => None,
        1 => Some(others),
        _ => return None,
    };
    Some((ids.iter().map(|id| PostId(u64::from_be_bytes(*id))).collect(), others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_ids_are_restored_from_their_bytes() {
        for count in [0, 3, 2_000] {
            let ids = LargestIds::default();
            ids.note((0..count).map(PostId));
            let (known, others) = decode(&encode(&ids)).unwrap();
            assert_eq!(LargestIds::restored(known, others).parts(), ids.parts());
        }
        for bad in [&[][..], &[0], &[2, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 7]] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
