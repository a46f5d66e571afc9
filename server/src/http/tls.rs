//! TLS: loads the certificate, and loads it again when its files change.
//!
//! Responsible for:
//! - refusing certificates and keys that do not match, and keeping the current certificate if the new files are invalid.
//!
//! Not responsible for:
//! - TLS connections (`actix_http`), the interval of the checks (`http::serve`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use tracing::{error, info};

use crate::http::auth::access_file::Stamp;

/// The reason a certificate cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read or parsed as PEM.
    #[error("{}: {cause}", file.display())]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The underlying error.
        cause: rustls::pki_types::pem::Error,
    },
    /// The file contains no certificate.
    #[error("{}: no certificate in it", file.display())]
    Empty {
        /// The path of the file.
        file: PathBuf,
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
    chain: PathBuf,
    key: PathBuf,
    shown: RwLock<ServedCertificate>,
}

#[derive(Debug)]
struct ServedCertificate {
    certified: Arc<CertifiedKey>,
    /// The stamps of the files at the last attempt to load them.
    as_of: [Stamp; 2],
    /// The stamps of the files at the last check.
    seen: [Stamp; 2],
}

impl Certificate {
    /// Loads a certificate chain, with the server's certificate first, and its private key, both as PEM.
    ///
    /// # Errors
    /// The error names the file that cannot be used.
    pub fn read(chain: PathBuf, key: PathBuf) -> Result<Arc<Self>, CertificateError> {
        // The stamps are taken before the files are read, so that a concurrent change is detected at the next check.
        let as_of = stamps(&chain, &key);
        let certified = Arc::new(certified(&chain, &key)?);
        Ok(Arc::new(Self { chain, key, shown: RwLock::new(ServedCertificate { certified, as_of, seen: as_of }) }))
    }

    /// Loads the files again if they have changed and are unchanged since the last check: a file that is still changing may be incomplete.
    /// If the new files are invalid, an error is logged and the current certificate is kept.
    pub fn renew(&self) {
        let as_of = stamps(&self.chain, &self.key);
        let seen = std::mem::replace(&mut self.shown.write().seen, as_of);
        if as_of != seen || as_of == self.shown.read().as_of {
            return;
        }
        let renewed = certified(&self.chain, &self.key);
        let mut shown = self.shown.write();
        shown.as_of = as_of;
        match renewed {
            Ok(certified) => {
                shown.certified = Arc::new(certified);
                info!("loaded a new certificate from {}", self.chain.display());
            }
            Err(cause) => error!("the previous certificate is kept: {cause}"),
        }
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
        Some(Arc::clone(&self.shown.read().certified))
    }
}

fn stamps(chain: &Path, key: &Path) -> [Stamp; 2] {
    [chain, key].map(Stamp::of)
}

fn certified(chain: &Path, key: &Path) -> Result<CertifiedKey, CertificateError> {
    let unreadable = |file: &Path| {
        let file = file.to_owned();
        move |cause| CertificateError::Unreadable { file, cause }
    };
    let certificates = CertificateDer::pem_file_iter(chain).map_err(unreadable(chain))?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(unreadable(chain))?;
    if certificates.is_empty() {
        return Err(CertificateError::Empty { file: chain.to_owned() });
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable(key))?;
    CertifiedKey::from_der(certificates, private, &ring::default_provider()).map_err(|cause| {
        let (certificates, key) = (chain.to_owned(), key.to_owned());
        CertificateError::Unusable { certificates, key, cause }
    })
}
