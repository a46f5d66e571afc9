//! Reads files of certificates.

use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};

/// The reason why a file of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    /// The file cannot be read, or it is not valid PEM.
    #[error("{}: {cause}", file.display())]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The error of the PEM parser.
        cause: pem::Error,
    },
    /// The file has no certificate.
    #[error("{}: no certificate in it", file.display())]
    Empty {
        /// The path of the file.
        file: PathBuf,
    },
}

/// Returns the certificates of a PEM file, in their order.
///
/// # Errors
/// Every error names the file.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, CertificatesError> {
    let unreadable = |cause| CertificatesError::Unreadable { file: file.to_owned(), cause };
    let read = CertificateDer::pem_file_iter(file).map_err(unreadable)?;
    let certificates: Vec<_> = read.collect::<Result<_, _>>().map_err(unreadable)?;
    if certificates.is_empty() { Err(CertificatesError::Empty { file: file.to_owned() }) } else { Ok(certificates) }
}
