//! A disk in memory with power losses, which are as bad as those of a real disk may be.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::storage::files::{AppendFile, Files};

/// The files of a directory in memory. Clones refer to the same directory.
#[derive(Debug, Clone, Default)]
pub struct MemoryFiles(Arc<Mutex<Disk>>);

#[derive(Clone, Debug, Default)]
struct Disk {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names since the directory was synced. None means that the name was removed.
    unsynced_names: Vec<(String, Option<usize>)>,
    bytes_max: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Cut(usize),
}

impl MemoryFiles {
    /// Simulates a power loss. Synced data survives; `random` decides which unsynced data survives.
    pub fn lose_power(&self, random: &mut fastrand::Rng) {
        let disk = &mut *self.0.lock();
        for content in &mut disk.files {
            for change in std::mem::take(&mut content.unsynced) {
                change.survive_in_part(&mut content.durable, random);
            }
            content.now.clone_from(&content.durable);
        }
        for (name, file) in std::mem::take(&mut disk.unsynced_names) {
            if random.bool() {
                set(&mut disk.durable_names, name, file);
            }
        }
        disk.names = disk.durable_names.clone();
    }

    /// Discards the unsynced changes of a file, as a kernel may do after a failed write to the disk: the data can still be read, but a
    /// later sync does not make it durable.
    pub fn forget_unsynced(&self, name: &str) {
        let disk = &mut *self.0.lock();
        if let Ok(file) = disk.find(name) {
            disk.files[file].unsynced.clear();
        }
    }

    /// Limits the total bytes of all files to `bytes_max`, or removes the limit.
    pub fn limit(&self, bytes_max: Option<u64>) {
        self.0.lock().bytes_max = bytes_max;
    }

    /// Total bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.0.lock().bytes()
    }

    /// Changes the content of a file, including the durable one, to simulate damage.
    ///
    /// # Panics
    /// Panics if there is no such file.
    pub fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let disk = &mut *self.0.lock();
        let content = &mut disk.files[disk.names[name]];
        change(&mut content.now);
        content.durable.clone_from(&content.now);
        content.unsynced.clear();
    }

    /// Returns the content of a file.
    ///
    /// # Panics
    /// Panics if there is no such file.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let disk = self.0.lock();
        disk.files[disk.names[name]].now.clone()
    }

    /// Returns an independent disk with the same content, all of it synced.
    #[must_use]
    pub fn copied(&self) -> Self {
        let copy = Self::default();
        let disk = self.0.lock();
        for (name, file) in &disk.names {
            copy.put(name, disk.files[*file].now.clone());
        }
        drop(disk);
        copy
    }

    /// Returns an independent disk with the current state of this one, including the unsynced changes. It is for simulating a crash while
    /// this disk is still in use.
    #[must_use]
    pub fn forked(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().clone())))
    }

    /// Stores a synced file under `name`.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let disk = &mut *self.0.lock();
        let content = Content { now: bytes.clone(), durable: bytes, unsynced: Vec::new() };
        disk.files.push(content);
        let file = disk.files.len() - 1;
        disk.names.insert(name.to_owned(), file);
        disk.durable_names.insert(name.to_owned(), file);
    }
}

impl Change {
    fn survive_in_part(self, durable: &mut Vec<u8>, random: &mut fastrand::Rng) {
        match self {
            Self::Cut(keep) if random.bool() => durable.truncate(keep),
            Self::Cut(_) => {}
            Self::Write { at, bytes } => {
                let kept = match random.u8(0..4) {
                    0 => 0,
                    1 => random.usize(0..=bytes.len()),
                    _ => bytes.len(),
                };
                if kept > 0 {
                    // If an earlier write was dropped, the file has a hole there.
                    durable.resize(durable.len().max(at + kept), 0);
                    durable[at..at + kept].copy_from_slice(&bytes[..kept]);
                }
            }
        }
    }

    fn happen(self, durable: &mut Vec<u8>) {
        match self {
            Self::Cut(keep) => durable.truncate(keep),
            Self::Write { at, bytes } => {
                // The content is shorter than `at` only if an earlier change was discarded.
                durable.resize(at, 0);
                durable.extend(bytes);
            }
        }
    }
}

impl Disk {
    fn bytes(&self) -> u64 {
        self.names.values().map(|file| self.files[*file].now.len() as u64).sum()
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name.to_owned()))
    }

    fn set_name(&mut self, name: &str, file: Option<usize>) {
        set(&mut self.names, name.to_owned(), file);
        self.unsynced_names.push((name.to_owned(), file));
    }
}

fn set(names: &mut BTreeMap<String, usize>, name: String, file: Option<usize>) {
    match file {
        Some(file) => names.insert(name, file),
        None => names.remove(&name),
    };
}

/// An open handle of one file.
struct OpenFile {
    disk: Arc<Mutex<Disk>>,
    file: usize,
}

impl Files for MemoryFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        let disk = &mut *self.0.lock();
        if disk.names.contains_key(name) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, name.to_owned()));
        }
        disk.files.push(Content::default());
        let file = disk.files.len() - 1;
        disk.set_name(name, Some(file));
        Ok(Arc::new(OpenFile { disk: Arc::clone(&self.0), file }))
    }

    fn reopen(&self, name: &str, keep_bytes: u64) -> io::Result<Arc<dyn AppendFile>> {
        let file = self.0.lock().find(name)?;
        let open = OpenFile { disk: Arc::clone(&self.0), file };
        open.cut(keep_bytes)?;
        Ok(Arc::new(open))
    }

    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        let disk = self.0.lock();
        let content = disk.files[disk.find(name)?].now.clone();
        let bytes = content.len() as u64;
        Ok((Box::new(Cursor::new(content)), bytes))
    }

    fn bytes_of(&self, name: &str) -> io::Result<u64> {
        let disk = self.0.lock();
        Ok(disk.files[disk.find(name)?].now.len() as u64)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let disk = &mut *self.0.lock();
        let file = disk.find(from)?;
        disk.set_name(to, Some(file));
        disk.set_name(from, None);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let disk = &mut *self.0.lock();
        disk.find(name)?;
        disk.set_name(name, None);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let disk = &mut *self.0.lock();
        disk.unsynced_names.clear();
        disk.durable_names = disk.names.clone();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let disk = self.0.lock();
        Ok(disk.bytes_max.map(|most| most.saturating_sub(disk.bytes())))
    }

    fn place(&self, name: &str) -> String {
        format!("memory/{name}")
    }
}

impl AppendFile for OpenFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let disk = &mut *self.disk.lock();
        let free_bytes = disk.bytes_max.map_or(u64::MAX, |bytes_max| bytes_max.saturating_sub(disk.bytes()));
        let fitting = &bytes[..bytes.len().min(usize::try_from(free_bytes).unwrap_or(usize::MAX))];
        let content = &mut disk.files[self.file];
        content.unsynced.push(Change::Write { at: content.now.len(), bytes: fitting.to_vec() });
        content.now.extend(fitting);
        if fitting.len() < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn cut(&self, keep_bytes: u64) -> io::Result<()> {
        let content = &mut self.disk.lock().files[self.file];
        let keep = usize::try_from(keep_bytes).unwrap_or(usize::MAX);
        if keep < content.now.len() {
            content.now.truncate(keep);
            content.unsynced.push(Change::Cut(keep));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let content = &mut self.disk.lock().files[self.file];
        for change in std::mem::take(&mut content.unsynced) {
            change.happen(&mut content.durable);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_bytes_survive_a_power_loss_and_unsynced_ones_may_be_torn() {
        let (mut lost, mut torn, mut whole, mut nameless) = (0, 0, 0, 0);
        for seed in 0..400 {
            let files = MemoryFiles::default();
            let file = files.create("a").unwrap();
            file.append(b"safe").unwrap();
            file.sync().unwrap();
            files.sync_directory().unwrap();
            file.append(b"1234").unwrap();
            file.append(b"5678").unwrap();
            let late = files.create("b").unwrap();
            late.append(b"x").unwrap();
            late.sync().unwrap();
            files.lose_power(&mut fastrand::Rng::with_seed(seed));
            let content = files.content("a");
            assert!(content.starts_with(b"safe"));
            match &content[4..] {
                b"" => lost += 1,
                b"12345678" => whole += 1,
                _ => torn += 1,
            }
            nameless += u32::from(!files.list().unwrap().contains(&"b".to_owned()));
        }
        assert!(lost > 10 && torn > 10 && whole > 10 && nameless > 10, "{lost} {torn} {whole} {nameless}");
    }

    #[test]
    fn a_full_disk_stores_the_bytes_that_fit_and_freed_space_is_usable() {
        let files = MemoryFiles::default();
        files.limit(Some(6));
        let file = files.create("a").unwrap();
        file.append(b"1234").unwrap();
        assert_eq!(file.append(b"5678").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(files.content("a"), b"123456");
        file.cut(4).unwrap();
        file.append(b"56").unwrap();
        files.rename("a", "b").unwrap();
        assert_eq!((files.list().unwrap(), files.content("b")), (vec!["b".to_owned()], b"123456".to_vec()));
    }
}
