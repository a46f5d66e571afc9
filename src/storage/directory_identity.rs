//! The identity of a data directory: it shows which files belong together.
//!
//! The file `identity` contains one line of text: `tidewire`, the identity as 32 hexadecimal digits, and the CRC-32C of its 16 bytes as 8
//! digits. It is written under another name and then renamed, before any file that contains the identity is written. If the file is
//! missing, the identity is taken from the headers of the other files or from the archive.

use std::io::{self, Read};
use std::sync::Arc;

use crate::storage::error::StorageError;
use crate::storage::files::{AppendFile, Files, replace};
use crate::storage::identity::{IDENTITY_BYTES, Identity};
use crate::storage::journal::reader::segments;
use crate::storage::retained;
use crate::storage::segment::{self, SEGMENT_HEADER_BYTES_MAX};
use crate::storage::snapshot::{self, SNAPSHOT_HEADER_BYTES_MAX};

/// Name of the file that contains the identity.
pub const FILE: &str = "identity";

/// Maximum bytes that are read from the file. A valid file is shorter.
const FILE_BYTES_MAX: u64 = 100;

/// Returns the identity of a directory, and creates one for a new directory. `archive` is the path of the directory's archive and the
/// identity in it, if there is one.
///
/// # Errors
/// Fails if the files belong to several directories (nothing is written then), or if the identity cannot be written.
pub fn establish(files: &dyn Files, archive: Option<(String, Identity)>) -> Result<Identity, StorageError> {
    let (mut found, has_file) = find_with_file(files)?;
    if let Some((place, of_archive)) = archive {
        compare(files, place, of_archive)?;
        // It may be only in the archive, if the other files have format 1.
        found = Some(of_archive);
    }
    let identity = found.map_or_else(random_identity, Ok)?;
    if !has_file {
        write_file(files, identity)?;
    }
    Ok(identity)
}

/// Returns the cluster of a node's directory, or none if the directory has no identity yet. Writes nothing.
///
/// # Errors
/// Fails if the directory is that of a server on one machine.
pub fn cluster_of(files: &dyn Files) -> Result<Option<u64>, StorageError> {
    let of_one_machine = || StorageError::OfOneMachine { directory: files.place("").trim_end_matches('/').to_owned() };
    match find(files)? {
        Some(found) => found.cluster().map(Some).ok_or_else(of_one_machine),
        // The files of the first formats have no identity.
        None if !segments(files)?.is_empty() || !snapshot::snapshots(files)?.is_empty() => Err(of_one_machine()),
        None => Ok(None),
    }
}

/// Gives a directory without an identity that of a node of `cluster`. Does nothing if the directory has this identity already.
///
/// # Errors
/// Fails if the directory belongs to another cluster, or to a server on one machine. Then it writes nothing.
pub fn establish_of_cluster(files: &dyn Files, cluster: u64) -> Result<Identity, StorageError> {
    if let Some(found) = cluster_of(files)?.filter(|found| *found != cluster) {
        let directory = files.place("").trim_end_matches('/').to_owned();
        return Err(StorageError::OfOtherCluster { directory, found, cluster });
    }
    let identity = Identity::of_cluster(cluster);
    let (_, has_file) = find_with_file(files)?;
    if !has_file {
        write_file(files, identity)?;
    }
    Ok(identity)
}

/// Rejects the directory of a cluster node: its state comes from the log of the cluster, and must not change without the log.
///
/// # Errors
/// Fails if the directory belongs to a cluster node.
pub fn refuse_of_cluster(files: &dyn Files) -> Result<(), StorageError> {
    let cluster = find(files)?.and_then(Identity::cluster);
    let directory = files.place("").trim_end_matches('/').to_owned();
    cluster.map_or(Ok(()), |cluster| Err(StorageError::OfNode { directory, cluster }))
}

/// Compares the identity of an archive with that of the other files of a directory. Writes nothing.
///
/// # Errors
/// Fails if they differ, or if the other files belong to several directories.
pub fn compare(files: &dyn Files, place: String, of_archive: Identity) -> Result<(), StorageError> {
    match find(files)? {
        Some(expected) if expected != of_archive => {
            Err(StorageError::Mixed { place, found: of_archive, other: files.place(FILE), expected })
        }
        _ => Ok(()),
    }
}

/// Returns the identity that the files of a directory share, or none if no file has one.
///
/// # Errors
/// Fails if the files belong to several directories.
pub fn find(files: &dyn Files) -> Result<Option<Identity>, StorageError> {
    find_with_file(files).map(|(found, _)| found)
}

/// As [`find`]. The second value is true if the file `identity` exists.
fn find_with_file(files: &dyn Files) -> Result<(Option<Identity>, bool), StorageError> {
    let names = files.list().map_err(StorageError::io("read the directory", files.place("")))?;
    let stored = if names.iter().any(|name| name == FILE) { Some(read(files)?) } else { None };
    let mut known = stored.map(|identity| (FILE.to_owned(), identity));
    let retained = names.iter().filter(|name| retained::parse_name(name).is_some()).cloned();
    let of_segments = segments(files)?.into_iter().map(|(name, _)| name).chain(retained);
    let of_segments = of_segments.map(|name| (name, SEGMENT_HEADER_BYTES_MAX));
    let of_snapshots = snapshot::snapshots(files)?.into_iter().map(|(name, _)| (name, SNAPSHOT_HEADER_BYTES_MAX));
    for (name, header_bytes) in of_segments.chain(of_snapshots) {
        let header = match read_start(files, &name, header_bytes as u64) {
            // A running server may delete a file meanwhile. A file that cannot be read is reported later, by the code that reads its
            // content.
            Err(_) => continue,
            Ok(header) => header,
        };
        let found = segment::parse_identity(&header).or_else(|| snapshot::parse_identity(&header));
        match (found, &known) {
            (Some(found), Some((other, expected))) if found != *expected => {
                let (place, other) = (files.place(&name), files.place(other));
                return Err(StorageError::Mixed { place, found, other, expected: *expected });
            }
            (Some(found), None) => known = Some((name, found)),
            _ => {}
        }
    }
    Ok((known.map(|(_, identity)| identity), stored.is_some()))
}

fn random_identity() -> Result<Identity, StorageError> {
    let mut bytes = [0; IDENTITY_BYTES];
    let failed = |cause: getrandom::Error| io::Error::other(cause.to_string());
    getrandom::fill(&mut bytes).map_err(failed).map_err(StorageError::io("take", "random bytes of the system"))?;
    Ok(Identity(bytes))
}

fn read_start(files: &dyn Files, name: &str, bytes: u64) -> io::Result<Vec<u8>> {
    let mut header = Vec::new();
    files.read(name)?.0.take(bytes).read_to_end(&mut header)?;
    Ok(header)
}

fn read(files: &dyn Files) -> Result<Identity, StorageError> {
    let line = read_start(files, FILE, FILE_BYTES_MAX).map_err(StorageError::io("read", files.place(FILE)))?;
    let identity = str::from_utf8(&line).ok().and_then(Identity::of_line);
    identity.ok_or_else(|| StorageError::BadIdentity { place: files.place(FILE) })
}

fn write_file(files: &dyn Files, identity: Identity) -> Result<(), StorageError> {
    replace(files, FILE, identity.line().as_bytes()).map_err(StorageError::io("write", files.place(FILE)))
}

/// The files of a directory with a known identity. New segments and snapshots in it contain this identity.
pub struct Identified {
    files: Arc<dyn Files>,
    identity: Identity,
}

impl Identified {
    /// Adds `identity` to `files`.
    pub fn new(files: Arc<dyn Files>, identity: Identity) -> Self {
        Self { files, identity }
    }
}

impl Files for Identified {
    fn identity(&self) -> Option<Identity> {
        Some(self.identity)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        self.files.create(name)
    }

    fn reopen(&self, name: &str, keep_bytes: u64) -> io::Result<Arc<dyn AppendFile>> {
        self.files.reopen(name, keep_bytes)
    }

    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        self.files.read(name)
    }

    fn read_from(&self, name: &str, offset_bytes: u64) -> io::Result<Box<dyn Read + Send>> {
        self.files.read_from(name, offset_bytes)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.files.sync_directory()
    }

    fn bytes_of(&self, name: &str) -> io::Result<u64> {
        self.files.bytes_of(name)
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.files.free_bytes()
    }

    fn place(&self, name: &str) -> String {
        self.files.place(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::files::faulty::{FaultyFiles, Plan};
    use crate::storage::files::memory::MemoryFiles;
    use crate::storage::sequence::Sequence;

    #[test]
    fn the_identity_is_created_once_and_a_damaged_one_is_refused() {
        let files = MemoryFiles::default();
        let identity = establish(&files, None).unwrap();
        assert_eq!(establish(&files, None).unwrap(), identity);
        assert_ne!(establish(&MemoryFiles::default(), None).unwrap(), identity);
        for at in 0..files.content(FILE).len() {
            let damaged = files.copied();
            damaged.tamper(FILE, |bytes| bytes[at] ^= 1);
            assert!(matches!(establish(&damaged, None), Err(StorageError::BadIdentity { .. })), "byte {at}");
        }
    }

    #[test]
    fn an_identity_is_established_after_a_crash_or_power_loss_at_any_write() {
        for at in 1..10 {
            let files = MemoryFiles::default();
            let plan = Plan { die_at: Some(at), ..Plan::default() };
            let made = establish(&FaultyFiles::new(files.clone(), plan), None);
            for seed in 0..20 {
                let left = files.forked();
                left.lose_power(&mut fastrand::Rng::with_seed(seed));
                let found = establish(&left, None).unwrap();
                assert!(made.as_ref().map_or(true, |made| *made == found), "operation {at}, seed {seed}");
                assert_eq!(establish(&left, None).unwrap(), found);
            }
        }
    }

    #[test]
    fn a_missing_identity_is_restored_from_other_files_and_mixed_files_are_named() {
        let [one, other] = [Identity([1; 16]), Identity([2; 16])];
        let files = MemoryFiles::default();
        files.put(&segment::name(Sequence(1)), segment::header(Sequence(1)));
        assert_eq!(find(&files).unwrap(), None, "format 1 has none");
        files.put(&segment::name(Sequence(9)), segment::header_with(Sequence(9), Some(one)));
        assert_eq!((find(&files).unwrap(), establish(&files, None).unwrap()), (Some(one), one));
        files.put(&segment::name(Sequence(20)), segment::header_with(Sequence(20), Some(other)));
        let refused = establish(&files, None).unwrap_err().to_string();
        for part in [&*segment::name(Sequence(20)), FILE, &one.to_string(), &other.to_string()] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}
