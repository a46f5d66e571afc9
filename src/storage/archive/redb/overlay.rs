//! A read-only file for a database that writes whenever it opens one: the writes stay in memory.

use std::fs::File;
use std::io;
use std::ops::Bound;

use parking_lot::RwLock;
use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

use super::buffered_file::overlay;

/// A file, and the writes that are overlaid on it in memory. redb writes little when it opens and closes a file.
#[derive(Debug)]
pub(super) struct OverlaidFile {
    file: FileBackend,
    is_locked: bool,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    bytes: u64,
    /// Bytes of the file that are visible. The rest was truncated.
    bytes_of_file: u64,
    written: Vec<(u64, Vec<u8>)>,
}

impl OverlaidFile {
    /// Wraps a file that the database locks while it is open, so that nobody writes to it.
    pub(super) fn new(file: File) -> Result<Self, DatabaseError> {
        Self::with(file, true)
    }

    /// Wraps a file without a lock: no process waits for it, and others may write to it meanwhile.
    pub(super) fn without_lock(file: File) -> Result<Self, DatabaseError> {
        Self::with(file, false)
    }

    fn with(file: File, is_locked: bool) -> Result<Self, DatabaseError> {
        let bytes = file.metadata().map_err(redb::StorageError::from)?.len();
        let state = State { bytes, bytes_of_file: bytes, written: Vec::new() };
        Ok(Self { file: FileBackend::new(file)?, is_locked, state: RwLock::new(state) })
    }

    /// Returns the file that has the locks. redb opens a file without locks like one that nobody else can open.
    fn lockable(&self) -> Result<&FileBackend, BackendError> {
        if self.is_locked { Ok(&self.file) } else { Err(BackendError::Unsupported) }
    }
}

impl StorageBackend for OverlaidFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.read().bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.read();
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= state.bytes);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let of_file = state.bytes_of_file.saturating_sub(offset).min(out.len() as u64) as usize;
        let (of_file, rest) = out.split_at_mut(of_file);
        if !of_file.is_empty() {
            self.file.read(offset, of_file)?;
        }
        rest.fill(0);
        state.written.iter().for_each(|(from, data)| overlay(*from, data, offset, out));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.write();
        state.bytes = len;
        state.bytes_of_file = state.bytes_of_file.min(len);
        state.written.retain_mut(|(from, data)| {
            data.truncate(len.saturating_sub(*from) as usize);
            !data.is_empty()
        });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.write();
        state.written.retain(|(from, older)| *from != offset || older.len() != data.len());
        state.written.push((offset, data.to_vec()));
        state.bytes = state.bytes.max(offset + data.len() as u64);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    // The engine locks the file exclusively; read-only users share the lock.

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.lockable()?.try_lock_shared_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.lockable()?.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.lockable()?.lock_shared_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.lockable()?.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.lockable()?.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.lockable()?.query_lock_range(start, end)
    }
}
