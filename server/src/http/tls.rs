//! TLS: loads the certificate, and loads it again when its files change.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use tracing::{error, info};

use crate::http::certificates::{CertificatesError, certificates};
use crate::http::watched_files::WatchedFiles;

/// The reason a certificate cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file contains no readable certificates.
    #[error(transparent)]
    Chain(#[from] CertificatesError),
    /// The file of the private key cannot be read or parsed as PEM.
    #[error("{}: {cause}", file.display())]
    Key {
        /// The path of the file.
        file: PathBuf,
        /// The underlying error.
        cause: rustls::pki_types::pem::Error,
    },
    /// The certificate and the key do not match, or their type is not supported.
    #[error("{} and {}: {cause}", certificates.display(), key.display())]
    Unusable {
        /// The path of the certificate chain.
        certificates: PathBuf,
        /// The path of the private key.
        key: PathBuf,
        /// The underlying error.
        cause: rustls::Error,
    },
}

/// A TLS certificate that is loaded from two files.
#[derive(Debug)]
pub struct Certificate {
    /// The certificate chain and the private key.
    files: Mutex<WatchedFiles<2>>,
    served: RwLock<Arc<CertifiedKey>>,
}

impl Certificate {
    /// Loads a certificate chain, with the server's certificate first, and its private key, both as PEM.
    ///
    /// # Errors
    /// The error names the file that cannot be used.
    pub fn read(chain: PathBuf, key: PathBuf) -> Result<Arc<Self>, CertificateError> {
        let files = WatchedFiles::new([chain, key]);
        let served = certified(files.files())?;
        Ok(Arc::new(Self { files: Mutex::new(files), served: RwLock::new(Arc::new(served)) }))
    }

    /// Loads the files again if they have changed and are unchanged since the last check, or if they were unusable before. If they are
    /// unusable now, retains the current certificate and logs an error.
    pub fn renew(&self) {
        let mut files = self.files.lock();
        if !files.is_read_due() {
            return;
        }
        match certified(files.files()) {
            Ok(certified) => {
                *self.served.write() = Arc::new(certified);
                let was_failing = files.note_success();
                let [chain, key] = files.files().each_ref().map(|file| file.display());
                match was_failing {
                    true => info!("the certificate {chain} and its key {key} can be used again: loaded them"),
                    false => info!("loaded a new certificate from {chain}"),
                }
            }
            Err(cause) => {
                if files.note_failure(cause.to_string()) {
                    error!("keeping the previous certificate: {cause}");
                }
            }
        }
    }

    /// Makes the next [`Self::renew`] load the files, even if they have not changed.
    pub fn ask(&self) {
        self.files.lock().ask();
    }

    /// Returns the TLS configuration that serves this certificate.
    pub(super) fn config(self: &Arc<Self>) -> ServerConfig {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("ring has ciphers for TLS 1.2 and 1.3");
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::<Self>::clone(self));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.served.read()))
    }
}

fn certified([chain, key]: &[PathBuf; 2]) -> Result<CertifiedKey, CertificateError> {
    let certificates = certificates(chain)?;
    let unreadable = |cause| CertificateError::Key { file: key.to_owned(), cause };
    let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable)?;
    CertifiedKey::from_der(certificates, private, &ring::default_provider()).map_err(|cause| {
        let (certificates, key) = (chain.to_owned(), key.to_owned());
        CertificateError::Unusable { certificates, key, cause }
    })
}
