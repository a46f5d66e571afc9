//! Reads text files of operators with a size limit, because a path may name a device that never ends.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Returns the text of a file of at most `bytes_max` bytes.
///
/// # Errors
/// Fails if the file cannot be read, is larger than `bytes_max`, or is not UTF-8.
pub(crate) fn read_text(file: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(file)?.take(bytes_max + 1).read_to_end(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it is larger than {bytes_max} bytes")));
    }
    String::from_utf8(text).map_err(|cause| io::Error::new(io::ErrorKind::InvalidData, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_up_to_the_limit_are_read_and_larger_or_endless_ones_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12345").unwrap();
        assert_eq!(read_text(file.path(), 5).unwrap(), "12345");
        assert_eq!(read_text(file.path(), 4).unwrap_err().to_string(), "it is larger than 4 bytes");
        std::fs::write(file.path(), [0xff]).unwrap();
        assert_eq!(read_text(file.path(), 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
        if cfg!(unix) {
            assert!(read_text(Path::new("/dev/zero"), 1_000).is_err());
        }
    }
}
