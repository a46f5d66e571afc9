//! TLS: the certificate that is shown, read anew when its files change.
//!
//! Responsible for:
//! - refusing files that do not belong together, and keeping the certificate that works when new ones do not.
//!
//! Not responsible for:
//! - connections (`actix_http`), when to look for changes (`http::serve`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use tracing::{error, info};

use crate::http::auth::file::Stamp;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read as what it should be.
    #[error("{}: {cause}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: rustls::pki_types::pem::Error,
    },
    /// There is none in the file.
    #[error("{}: no certificate in it", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// They do not belong together, or are of a kind that is not known.
    #[error("{} and {}: {cause}", certificates.display(), key.display())]
    Unusable {
        /// The chain of certificates.
        certificates: PathBuf,
        /// The private key.
        key: PathBuf,
        /// Why.
        cause: rustls::Error,
    },
}

/// A certificate out of two files.
#[derive(Debug)]
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    shown: RwLock<Shown>,
}

#[derive(Debug)]
struct Shown {
    certified: Arc<CertifiedKey>,
    /// What the files were like when they were read, or tried to be.
    as_of: [Stamp; 2],
    /// And at the last look.
    seen: [Stamp; 2],
}

impl Certificate {
    /// Reads a chain of certificates, the server's own first, and its private key, both as PEM.
    ///
    /// # Errors
    /// Names the file that cannot be used.
    pub fn read(chain: PathBuf, key: PathBuf) -> Result<Arc<Self>, CertificateError> {
        // Before they are read: a change meanwhile is seen later.
        let as_of = stamps(&chain, &key);
        let certified = Arc::new(certified(&chain, &key)?);
        Ok(Arc::new(Self { chain, key, shown: RwLock::new(Shown { certified, as_of, seen: as_of }) }))
    }

    /// Reads the files again if they have changed, and not since the last look: who writes them may be half through. What does not
    /// work is told in the log, and the one before stays.
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
                info!("a new certificate from {}", self.chain.display());
            }
            Err(cause) => error!("the certificate before stays: {cause}"),
        }
    }

    /// How to serve with it.
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
