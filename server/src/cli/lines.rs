//! The lines of a plain or gzip file: numbered, of bounded length.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;

use crate::cli::terminal;

/// Maximum bytes of a line. It suffices for a post with the largest body and its other fields.
pub const LINE_BYTES_MAX: usize = tidewire::limits::REQUEST_BYTES_MAX;

/// A numbered line, or the reason why it cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub struct InputLine {
    /// The line number, from 1.
    pub number: u64,
    /// The text without the line end, or the reason why it is invalid.
    pub text: Result<String, &'static str>,
}

/// The error for a file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}{}: {cause}", file.display(), after(*line))]
pub struct ReadError {
    file: PathBuf,
    line: u64,
    cause: io::Error,
}

fn after(line: u64) -> String {
    if line == 0 { String::new() } else { format!(" after line {line}") }
}

/// A file that is read once, from its beginning to its end.
pub(crate) struct Input {
    /// The text, decompressed.
    pub(crate) reader: Box<dyn BufRead>,
    /// Bytes of the (possibly compressed) file that were read so far.
    pub(crate) read_bytes: Arc<AtomicU64>,
    /// The progress bar over the bytes of the file.
    pub(crate) bar: ProgressBar,
}

/// An iterator over the lines of a file.
pub struct Lines {
    file: PathBuf,
    reader: Box<dyn BufRead>,
    number: u64,
    /// True after a read error. No lines follow.
    failed: bool,
    /// Bytes of the file that were read so far. `taken_bytes` is the part of them that [`Lines::taken`] has returned.
    read_bytes: Arc<AtomicU64>,
    taken_bytes: u64,
    /// The progress bar over the bytes of the file.
    pub bar: ProgressBar,
}

/// A reader that counts the bytes it reads.
struct Counted<R> {
    inner: R,
    read_bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Input {
    /// Opens `file`, or the standard input if it is `-`. Gzip is recognized by its first bytes, not by the name.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(crate) fn open(file: &Path) -> Result<Self, ReadError> {
        let failed = |cause| ReadError { file: file.to_owned(), line: 0, cause };
        let (raw, bytes): (Box<dyn Read>, _) = if file == Path::new("-") {
            (Box::new(stdin()), None)
        } else {
            let opened = File::open(file).map_err(failed)?;
            let metadata = opened.metadata().map_err(failed)?;
            if metadata.is_dir() {
                return Err(failed(io::ErrorKind::IsADirectory.into()));
            }
            (Box::new(opened), Some(metadata.len()))
        };
        let bar = terminal::progress(bytes);
        let read_bytes = Arc::<AtomicU64>::default();
        let raw = Counted { inner: raw, read_bytes: Arc::clone(&read_bytes) };
        let reader = decompressed(Box::new(BufReader::with_capacity(1 << 16, raw))).map_err(failed)?;
        Ok(Self { reader, read_bytes, bar })
    }
}

impl Lines {
    /// Opens `file`, or the standard input if it is `-`. Gzip is recognized by its first bytes, not by the name.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(file: &Path) -> Result<Self, ReadError> {
        let Input { reader, read_bytes, bar } = Input::open(file)?;
        Ok(Self { file: file.to_owned(), reader, number: 0, failed: false, read_bytes, taken_bytes: 0, bar })
    }

    /// Returns the bytes of the (possibly compressed) file that were read since the last call.
    pub fn taken(&mut self) -> u64 {
        let read_bytes = self.read_bytes.load(Ordering::Relaxed);
        read_bytes - std::mem::replace(&mut self.taken_bytes, read_bytes)
    }

    fn read(&mut self) -> io::Result<Option<Result<String, &'static str>>> {
        let mut bytes = Vec::new();
        let limit = LINE_BYTES_MAX as u64 + 1;
        self.reader.by_ref().take(limit).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if self.number == 0 && is_wide(&bytes) {
            let why = "the file is UTF-16 or UTF-32: convert it to UTF-8";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        } else if bytes.len() as u64 == limit {
            self.reader.skip_until(b'\n')?;
            return Ok(Some(Err("the line is too long")));
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        if bytes.starts_with(BYTE_ORDER_MARK) {
            // Files that were concatenated also contain it in the middle.
            bytes.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(Some(String::from_utf8(bytes).map_err(|_| "the line is not UTF-8")))
    }

    /// Creates the error for a file of another format, which its last line shows.
    pub(crate) fn refused(&self, why: &str) -> ReadError {
        let why = format!("line {}: {why}", self.number);
        ReadError { file: self.file.clone(), line: 0, cause: io::Error::new(io::ErrorKind::InvalidData, why) }
    }
}

/// The bytes that Windows programs write at the beginning of a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns true if a file with this beginning has characters of two or four bytes: it begins with their byte order mark, or one of the
/// first two bytes is zero.
fn is_wide(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") || bytes.iter().take(2).any(|byte| *byte == 0)
}

fn decompressed(mut reader: Box<dyn BufRead>) -> io::Result<Box<dyn BufRead>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    if reader.fill_buf()?.starts_with(&GZIP) {
        return Ok(Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(reader))));
    }
    Ok(reader)
}

impl Iterator for Lines {
    type Item = Result<InputLine, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.read() {
            Ok(None) => None,
            Ok(Some(text)) => {
                self.number += 1;
                Some(Ok(InputLine { number: self.number, text }))
            }
            Err(cause) => {
                self.failed = true;
                Some(Err(ReadError { file: self.file.clone(), line: self.number, cause }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    impl Lines {
        fn of(bytes: &'static [u8]) -> Self {
            let reader = decompressed(Box::new(bytes)).unwrap();
            let (read_bytes, bar) = (Arc::default(), ProgressBar::hidden());
            Self { file: "test".into(), reader, number: 0, failed: false, read_bytes, taken_bytes: 0, bar }
        }
    }

    #[test]
    fn byte_order_marks_are_stripped_and_other_encodings_are_refused() {
        let expected = [(1, Ok("a".to_owned())), (2, Ok("b".to_owned())), (3, Ok("c\u{feff}".to_owned()))];
        assert_eq!(texts(Lines::of("\u{feff}a\r\n\u{feff}b\nc\u{feff}".as_bytes())), expected);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all("\u{feff}a\n".as_bytes()).unwrap();
        assert_eq!(texts(Lines::of(packed.finish().unwrap().leak()))[0].1, Ok("a".to_owned()));
        for bytes in [
            &b"\xff\xfea\0\n\0"[..],
            b"\xfe\xff\0a\0\n",
            b"a\0\n\0b\0",
            b"\0a\0\n",
            b"\xff\xfe\0\0a\0\0\0",
            b"\0\0\xfe\xff",
        ] {
            let read: Vec<_> = Lines::of(bytes).collect();
            let [Err(cause)] = &read[..] else { panic!("{bytes:?} is read: {read:?}") };
            assert_eq!(cause.to_string(), "cannot read test: the file is UTF-16 or UTF-32: convert it to UTF-8");
        }
        assert_eq!(texts(Lines::of(b"a\nb\0\n"))[1], (2, Ok("b\0".to_owned())), "only the beginning of a file tells");
    }

    fn texts(lines: Lines) -> Vec<(u64, Result<String, &'static str>)> {
        lines.map(|line| line.unwrap()).map(|line| (line.number, line.text)).collect()
    }

    #[test]
    fn lines_are_numbered_with_any_line_ending() {
        let expected = [(1, Ok("a".to_owned())), (2, Ok(String::new())), (3, Ok("b".to_owned()))];
        assert_eq!(texts(Lines::of(b"a\r\n\nb")), expected);
        assert_eq!(texts(Lines::of(b"a\n\nb\n")), expected);
        assert_eq!(texts(Lines::of(b"")), []);
    }

    #[test]
    fn gzip_is_detected_by_its_magic_bytes() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(b"a\nb\n").unwrap();
        let packed: &'static [u8] = packed.finish().unwrap().leak();
        assert_eq!(texts(Lines::of(packed)).len(), 2);
        let cut = Lines::of(&packed[..packed.len() - 9]).last().unwrap();
        assert!(cut.is_err(), "a file that ends early is no success");
    }

    #[test]
    fn an_invalid_line_does_not_hide_the_next_one() {
        let longest = "x".repeat(LINE_BYTES_MAX);
        let text: &'static str = format!("{longest}\n{longest}y\nz\n").leak();
        let lines = texts(Lines::of(text.as_bytes()));
        assert_eq!(lines[0], (1, Ok(longest)));
        assert_eq!(lines[1..], [(2, Err("the line is too long")), (3, Ok("z".to_owned()))]);
        assert_eq!(texts(Lines::of(b"\xff\nz"))[0], (1, Err("the line is not UTF-8")));
    }
}
