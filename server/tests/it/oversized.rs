//! Files that are far larger than any version writes, or never end, in place of those of a data directory: refused, for no more memory
//! and reading than their first bytes take.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidewire::clock::UnixMicros;
use tidewire::storage::archive::RedbArchive;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::files::{AppendFile, Files};
use tidewire::storage::segment::{self, End, Segment};
use tidewire::storage::sequence::Sequence;
use tidewire::storage::snapshot::{self, SnapshotHeader, SnapshotWriter};

use testkit::histories::recover;

const HUGE_BYTES: u64 = 200 << 30;

/// What a refusal may read: a few blocks.
const READ_BYTES_MAX: u64 = 4 << 20;

/// Bytes of a snapshot before its first block.
const HEADER_BYTES: usize = 32;

/// A directory whose reads are counted.
struct Counted {
    files: DiskFiles,
    read_bytes: Arc<AtomicU64>,
}

struct CountedReader(Box<dyn Read + Send>, Arc<AtomicU64>);

impl Read for CountedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(into)?;
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Counted {
    fn open(directory: &Path) -> Self {
        Self { files: DiskFiles::open(directory).unwrap(), read_bytes: Arc::default() }
    }

    fn read_bytes(&self) -> u64 {
        self.read_bytes.swap(0, Ordering::Relaxed)
    }
}

impl Files for Counted {
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
        let (reader, bytes) = self.files.read(name)?;
        Ok((Box::new(CountedReader(reader, Arc::clone(&self.read_bytes))), bytes))
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

fn enlarge(path: &Path, begin: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(begin).unwrap();
    file.set_len(HUGE_BYTES).unwrap();
}

/// A block that claims to be stored in as many bytes as its header can say, its checksum right.
fn greedy_block() -> Vec<u8> {
    let mut block = vec![1, 0];
    for number in [1, 64 << 20, u32::MAX, 0] {
        block.extend(u32::to_le_bytes(number));
    }
    block.extend(crc32c::crc32c(&block).to_le_bytes());
    block
}

#[test]
fn a_segment_of_200_gigabytes_is_refused_without_reading_it() {
    for begin in [Vec::new(), segment::header(Sequence(1))] {
        let place = tempfile::tempdir().unwrap();
        enlarge(&place.path().join(segment::name(Sequence(1))), &begin);
        let files = Counted::open(place.path());
        let refused = recover(&files, false).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(&segment::name(Sequence(1))) && refused.contains("larger than"), "{refused}");
        assert!(files.read_bytes() <= READ_BYTES_MAX);
    }
}

#[test]
fn a_snapshot_of_200_gigabytes_is_skipped_after_its_first_bytes() {
    let name = snapshot::name(Sequence(7));
    let snapshot = {
        let place = tempfile::tempdir().unwrap();
        let files = DiskFiles::open(place.path()).unwrap();
        let header = SnapshotHeader { sequence: Sequence(7), taken_at: UnixMicros(1) };
        let writer = SnapshotWriter::begin(&files, header, false).unwrap();
        writer.finish(Sequence(7), UnixMicros(1), false).unwrap();
        fs::read(place.path().join(&name)).unwrap()
    };
    let whole = snapshot;
    let header = &whole[..HEADER_BYTES];
    for begin in [vec![], header.to_vec(), [header, &greedy_block()].concat(), whole.clone()] {
        let place = tempfile::tempdir().unwrap();
        enlarge(&place.path().join(&name), &begin);
        let files = Counted::open(place.path());
        let found = recover(&files, false).unwrap();
        assert_eq!(found.report.skipped.len(), 1);
        assert!(found.report.skipped[0].contains(&name), "{:?}", found.report.skipped);
        let read = files.read_bytes();
        assert!(read <= READ_BYTES_MAX, "{read} bytes were read");
    }
}

#[test]
fn an_empty_archive_of_200_gigabytes_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("archive.redb");
    enlarge(&path, b"");
    let refused = RedbArchive::open(&path, 1 << 20).unwrap_err().to_string();
    assert!(refused.contains("archive.redb is not an archive: it has bad magic bytes"), "{refused}");
}

/// Runs the program with no more memory to take than this, whatever it asks for.
fn limited(arguments: &[&str]) -> Output {
    let script = "ulimit -v 2000000; exec \"$@\"";
    let program = env!("CARGO_BIN_EXE_tidewire");
    let mut command = Command::new("timeout");
    command.args(["60", "sh", "-c", script, "sh", program]).args(arguments);
    testkit::output(&mut command)
}

#[test]
fn tools_refuse_devices_and_pipes_and_read_no_huge_file_into_memory() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let (segment, snapshot) = (segment::name(Sequence(1)), snapshot::name(Sequence(1)));
    for (tool, name) in [("journal", &segment), ("snapshot", &snapshot)] {
        let text = |what: &str, output: Output| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{tool} on {what}: {:?} {said}", output.status);
            said
        };
        symlink("/dev/zero", path(name)).unwrap();
        let said = text("a device", limited(&[tool, "verify", path(name).to_str().unwrap()]));
        assert!(said.contains("it is not a regular file"), "{said}");
        fs::remove_file(path(name)).unwrap();
        assert!(Command::new("mkfifo").arg(path(name)).status().unwrap().success());
        let said = text("a pipe", limited(&[tool, "verify", path(name).to_str().unwrap()]));
        assert!(said.contains("it is not a regular file"), "{said}");
        fs::remove_file(path(name)).unwrap();
        enlarge(&path(name), b"");
        text("a huge file", limited(&[tool, "verify", path(name).to_str().unwrap()]));
        fs::remove_file(path(name)).unwrap();
    }
}

#[test]
fn an_endless_segment_is_read_up_to_its_reported_length() {
    /// Says that it is empty, as a device does, and is not.
    struct Endless(DiskFiles, Arc<AtomicU64>);

    impl Files for Endless {
        fn read(&self, _: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
            Ok((Box::new(CountedReader(Box::new(io::repeat(0)), Arc::clone(&self.1))), 0))
        }
        fn list(&self) -> io::Result<Vec<String>> {
            self.0.list()
        }
        fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
            self.0.create(name)
        }
        fn reopen(&self, name: &str, keep_bytes: u64) -> io::Result<Arc<dyn AppendFile>> {
            self.0.reopen(name, keep_bytes)
        }
        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            self.0.rename(from, to)
        }
        fn remove(&self, name: &str) -> io::Result<()> {
            self.0.remove(name)
        }
        fn sync_directory(&self) -> io::Result<()> {
            self.0.sync_directory()
        }
        fn place(&self, name: &str) -> String {
            self.0.place(name)
        }
    }

    let place = tempfile::tempdir().unwrap();
    let files = Endless(DiskFiles::open(place.path()).unwrap(), Arc::default());
    let segment = Segment::read(&files, &segment::name(Sequence(1)), Sequence(1)).unwrap();
    assert_eq!(segment.walk(|_| Ok::<_, ()>(())).unwrap().end, End::Torn);
    assert!(files.1.load(Ordering::Relaxed) <= READ_BYTES_MAX);
}
