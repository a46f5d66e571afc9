//! A disk whose syncs a test holds up, for as long as it likes.

use std::io::{self, Read};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::files::{AppendFile, Files};

#[derive(Clone, Default)]
pub struct HeldFiles {
    pub files: MemoryFiles,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_held: Mutex<bool>,
    let_go: Condvar,
}

impl HeldFiles {
    pub fn hold(&self, is_held: bool) {
        *self.gate.is_held.lock() = is_held;
        self.gate.let_go.notify_all();
    }

    fn held(&self, file: Arc<dyn AppendFile>) -> Arc<dyn AppendFile> {
        Arc::new(HeldFile { file, gate: Arc::clone(&self.gate) })
    }
}

struct HeldFile {
    file: Arc<dyn AppendFile>,
    gate: Arc<Gate>,
}

impl AppendFile for HeldFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)
    }

    fn cut(&self, keep_bytes: u64) -> io::Result<()> {
        self.file.cut(keep_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.gate.let_go.wait_while(&mut self.gate.is_held.lock(), |is_held| *is_held);
        self.file.sync()
    }
}

impl Files for HeldFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        Ok(self.held(self.files.create(name)?))
    }

    fn reopen(&self, name: &str, keep_bytes: u64) -> io::Result<Arc<dyn AppendFile>> {
        Ok(self.held(self.files.reopen(name, keep_bytes)?))
    }

    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        self.files.read(name)
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

    fn place(&self, name: &str) -> String {
        self.files.place(name)
    }
}
