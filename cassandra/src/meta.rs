//! The metadata of an archive in Cassandra: its format, its owner, the event up to which it has everything, and its largest ids.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::connection::Core;
use super::datacentre;
use super::options::CassandraOptions;
use super::write::write_time;
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{ArchiveError, LargestIds};
use tidewire::storage::identity::Identity;
use tidewire::storage::sequence::Sequence;

const FORMAT: &str = "format";
const IDENTITY: &str = "identity";
const THROUGH: &str = "through";
const WRITTEN: &str = "written";
const LARGEST_IDS: &str = "largest_ids";
const HELD_BACK: &str = "held_back";
const DATACENTRE: &str = "datacentre";
const EXPIRES: &str = "expires";
const COPIES: &str = "copies";

/// Maximum number of attempts to store the largest ids while another process stores its own.
const ATTEMPTS: u32 = 4;

/// The largest ids, as they are stored.
#[derive(Debug)]
pub(super) struct StoredIds {
    /// For readers: also contains the ids that are about to be stored.
    pub(super) ids: Arc<LargestIds>,
    stored: LargestIds,
    /// None if nothing is stored.
    version: Option<i64>,
    /// False after a failure: then the stored value is unknown.
    is_known: bool,
}

/// The known version of the stored list of sources that are held back.
#[derive(Debug, Default)]
pub(super) struct StoredSources {
    /// The version that this process read or stored last. The outer option is `None` if it is unknown, the inner one if no list exists.
    version: Option<Option<i64>>,
}

impl Core {
    async fn meta(&self, key: &'static str) -> Result<Option<(Vec<u8>, Option<i64>)>, ArchiveError> {
        let found = self.read(&self.statements.meta, (key,)).await?;
        match self.first_row::<(Option<Vec<u8>>, Option<i64>)>(found)? {
            None => Ok(None),
            Some((Some(value), version)) => Ok(Some((value, version))),
            Some((None, _)) => Err(self.wrong(key)),
        }
    }

    fn wrong(&self, key: &str) -> ArchiveError {
        self.damaged(format_args!("the row {key} of the table meta is not valid in any version"))
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

    /// Returns the largest event with which anything may have been written. None if the archive is of a version that stored no such
    /// event.
    pub(super) async fn written(&self) -> Result<Option<Sequence>, ArchiveError> {
        Ok(self.number(WRITTEN).await?.map(Sequence))
    }

    /// Stores that data may have been written with this event. Call it before the data is written.
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

    /// Returns true if data in the archive may expire: data that is written from now on, or data that was written before.
    pub(super) async fn note_expiry(&self) -> Result<bool, ArchiveError> {
        if self.meta(EXPIRES).await?.is_some() {
            return Ok(true);
        }
        if self.ttl_seconds > 0 {
            self.create_meta(EXPIRES, vec![1]).await?;
        }
        Ok(self.ttl_seconds > 0)
    }

    /// Stores the named datacentre, if one is named, for all users of the archive.
    pub(super) async fn put_datacentre(&self, options: &CassandraOptions) -> Result<(), ArchiveError> {
        let Some(name) = &options.datacentre else { return Ok(()) };
        let value = name.as_bytes().to_vec();
        let done = match self.meta(DATACENTRE).await? {
            None => self.write(&self.statements.create_meta, (DATACENTRE, value, 1_i64)).await?,
            Some((_, version)) => {
                let next = version.unwrap_or(0) + 1;
                self.write(&self.statements.change_meta, (value, next, DATACENTRE, version)).await?
            }
        };
        if self.is_applied(done)? {
            return Ok(());
        }
        let why = "another process has changed its datacentre".to_owned();
        Err(ArchiveError::Unavailable { place: self.place.clone(), why })
    }

    /// Rejects a datacentre that differs from the stored one.
    pub(super) async fn check_datacentre(&self, options: &CassandraOptions) -> Result<(), ArchiveError> {
        let Some(name) = &options.datacentre else { return Ok(()) };
        match self.meta(DATACENTRE).await? {
            None => self.put_datacentre(options).await,
            Some((value, _)) if value == name.as_bytes() => Ok(()),
            Some((value, _)) => {
                let why = format!(
                    "is used through the datacentre {}, and --archive-datacenter names {name}: name the same one, or run \
                    \"tidewire archive init\" with this one while no server uses the archive",
                    String::from_utf8_lossy(&value)
                );
                Err(datacentre::refused(&options.url, why))
            }
        }
    }

    /// Returns the sources that are held back.
    pub(super) async fn held_back(&self, stored: &mut StoredSources) -> Result<BTreeSet<SourceId>, ArchiveError> {
        let found = self.meta(HELD_BACK).await?;
        let (bytes, version) = found.map_or((Vec::new(), None), |(bytes, version)| (bytes, version));
        let sources = decode_sources(&bytes).ok_or_else(|| self.wrong(HELD_BACK))?;
        stored.version = Some(version);
        Ok(sources)
    }

    /// Stores the sources that are held back, unless another process has done so since they were read.
    pub(super) async fn set_held_back(
        &self,
        stored: &mut StoredSources,
        sources: &BTreeSet<SourceId>,
    ) -> Result<(), ArchiveError> {
        let changed = |place: &str| ArchiveError::Unavailable {
            place: place.to_owned(),
            why: "another process has changed which sources are held back".to_owned(),
        };
        // The stored version is unknown until the write is confirmed.
        let before = stored.version.take().ok_or_else(|| changed(&self.place))?;
        let (value, version) = (encode_sources(sources), before.map_or(1, |before| before + 1));
        let done = match before {
            None => self.write(&self.statements.create_meta, (HELD_BACK, value, version)).await?,
            Some(before) => self.write(&self.statements.change_meta, (value, version, HELD_BACK, before)).await?,
        };
        if !self.is_applied(done)? {
            return Err(changed(&self.place));
        }
        stored.version = Some(Some(version));
        Ok(())
    }

    /// Counts one more copy of another archive, and returns the number of copies.
    pub(super) async fn count_copy(&self) -> Result<u64, ArchiveError> {
        let found = self.meta(COPIES).await?;
        let count = match &found {
            None => 1,
            Some((value, _)) => {
                let bytes = value.as_slice().try_into().map_err(|_| self.wrong(COPIES))?;
                u64::from_be_bytes(bytes).saturating_add(1)
            }
        };
        let value = count.to_be_bytes().to_vec();
        let is_counted = match found {
            None => self.create_meta(COPIES, value).await?,
            Some((_, version)) => {
                let next = version.unwrap_or(0) + 1;
                let done = self.write(&self.statements.change_meta, (value, next, COPIES, version)).await?;
                self.is_applied(done)?
            }
        };
        if is_counted {
            return Ok(count);
        }
        let why = "another process has begun a copy".to_owned();
        Err(ArchiveError::Unavailable { place: self.place.clone(), why })
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

    /// Reads the ids that other machines have stored.
    pub(super) async fn learn(&mut self, core: &Core) -> Result<(), ArchiveError> {
        self.is_known = false;
        self.read(core).await?;
        let (ids, others) = self.stored.parts();
        self.ids.note(ids.into_iter().chain(others));
        Ok(())
    }

    /// Stores ids that may exist soon, before their posts are written. Stores nothing if all of them are stored already.
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
            // The stored value is unknown until the write is confirmed.
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
        let why = "another process stores its largest ids continuously".to_owned();
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

/// Returns the bytes of a list of sources: the length of each id, and the id.
fn encode_sources(sources: &BTreeSet<SourceId>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for source in sources {
        let id = source.as_str().as_bytes();
        bytes.extend(u16::try_from(id.len()).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend(id);
    }
    bytes
}

fn decode_sources(mut bytes: &[u8]) -> Option<BTreeSet<SourceId>> {
    let mut sources = BTreeSet::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let (id, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        sources.insert(SourceId::new(std::str::from_utf8(id).ok()?).ok()?);
        bytes = rest;
    }
    bytes.is_empty().then_some(sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::storage::archive::samples::source;

    #[test]
    fn the_list_of_held_back_sources_is_decoded_as_it_was_encoded() {
        for ids in [&[][..], &["ann"], &["ann", "bob", "tag:tea"]] {
            let sources: BTreeSet<SourceId> = ids.iter().map(|id| source(id)).collect();
            assert_eq!(decode_sources(&encode_sources(&sources)), Some(sources));
        }
        for bad in [&[0][..], &[0, 4, b'a'], &[0, 1, 0xFF], &[0, 0], &[0, 1, b'a', 0]] {
            assert_eq!(decode_sources(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_largest_ids_are_decoded_as_they_were_encoded() {
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
