//! Files that fail by a plan, for tests.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::storage::files::memory::MemoryFiles;
use crate::storage::files::{AppendFile, Files};

/// The faults to inject. Operations are counted from 1.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// The number of the sync that fails. It fails once and discards the unsynced data; later syncs return success without writing this
    /// data, as real disks do.
    pub fail_sync: Option<u64>,
    /// From this write operation on, all write operations fail, as if the process were dead.
    pub die_at: Option<u64>,
    /// The numbers of the first and the last file creation that fail, and the OS error code they fail with.
    pub fail_creates: Option<(u64, u64, i32)>,
    /// Duration of every sync.
    pub sync_takes: Duration,
}

/// Files with injected faults. Clones share the same files and faults.
#[derive(Clone)]
pub struct FaultyFiles {
    files: MemoryFiles,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults(Mutex<State>);

#[derive(Default)]
struct State {
    plan: Plan,
    syncs: u64,
    creates: u64,
    operations: u64,
}

impl FaultyFiles {
    /// Wraps `files` so that they fail by `plan`.
    pub fn new(files: MemoryFiles, plan: Plan) -> Self {
        Self { files, faults: Arc::new(Faults(Mutex::new(State { plan, ..State::default() }))) }
    }

    /// The number of write operations so far.
    pub fn operations(&self) -> u64 {
        self.faults.0.lock().operations
    }
}

impl Faults {
    /// Counts a write operation. Fails if the process is dead by the plan.
    fn write(&self) -> io::Result<()> {
        let state = &mut *self.0.lock();
        state.operations += 1;
        match state.plan.die_at {
            Some(at) if state.operations >= at => Err(io::Error::other("the process is dead")),
            _ => Ok(()),
        }
    }

    fn create(&self) -> io::Result<()> {
        self.write()?;
        let state = &mut *self.0.lock();
        state.creates += 1;
        match state.plan.fail_creates {
            Some((from, to, cause)) if (from..=to).contains(&state.creates) => Err(io::Error::from_raw_os_error(cause)),
            _ => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.write()?;
        let (fails, takes) = {
            let state = &mut *self.0.lock();
            state.syncs += 1;
            (state.plan.fail_sync == Some(state.syncs), state.plan.sync_takes)
        };
        if !takes.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "a slow disk blocks its callers")]
            std::thread::sleep(takes);
        }
        if fails { Err(io::Error::other("the disk could not be written")) } else { Ok(()) }
    }
}

struct FaultyFile {
    file: Arc<dyn AppendFile>,
    name: String,
    files: MemoryFiles,
    faults: Arc<Faults>,
}

impl FaultyFiles {
    fn wrapped(&self, name: &str, file: Arc<dyn AppendFile>) -> Arc<dyn AppendFile> {
        let (name, files) = (name.to_owned(), self.files.clone());
        Arc::new(FaultyFile { file, name, files, faults: Arc::clone(&self.faults) })
    }
}

impl Files for FaultyFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        self.faults.create()?;
        Ok(self.wrapped(name, self.files.create(name)?))
    }

    fn reopen(&self, name: &str, keep_bytes: u64) -> io::Result<Arc<dyn AppendFile>> {
        self.faults.write()?;
        Ok(self.wrapped(name, self.files.reopen(name, keep_bytes)?))
    }

    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        self.files.read(name)
    }

    fn read_from(&self, name: &str, offset_bytes: u64) -> io::Result<Box<dyn Read + Send>> {
        self.files.read_from(name, offset_bytes)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.faults.write()?;
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.faults.write()?;
        self.files.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.faults.sync()?;
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

impl AppendFile for FaultyFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.faults.write()?;
        self.file.append(bytes)
    }

    fn cut(&self, keep_bytes: u64) -> io::Result<()> {
        self.faults.write()?;
        self.file.cut(keep_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.sync().inspect_err(|_| self.files.forget_unsynced(&self.name))?;
        self.file.sync()
    }
}
