//! Trusted server certificates: the command line and the nodes of a cluster accept only servers whose certificate a given file contains
//! or signs.
//!
//! `openssl req -x509` marks its certificates as those of an authority. `webpki` refuses such a certificate as that of a server, because
//! an authority's key should not be on a server. This module accepts it if the file contains exactly the same bytes. Then its key alone
//! authenticates the server, and only the server has this key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, OtherError, RootCertStore,
    SignatureScheme,
};

use crate::http::certificates::{CertificatesError, certificates};

/// The reason why the file of trusted certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file contains no readable certificates.
    #[error(transparent)]
    File(#[from] CertificatesError),
    /// No certificate of the file can verify others.
    #[error("{}: {cause}", file.display())]
    Unusable {
        /// The path of the file.
        file: PathBuf,
        /// The defect of its certificates.
        cause: String,
    },
}

/// The reason why an authority's certificate is refused as that of a server.
#[derive(thiserror::Error)]
#[error(
    "the server's certificate is a CA certificate, as `openssl req -x509` makes it, and not in {0}: add it to this file"
)]
struct NotPinned(String);

/// The same text as `Display`, because `rustls` prints the cause of a refusal in this form.
impl fmt::Debug for NotPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns a TLS configuration that accepts servers whose certificate this PEM file contains or signs.
///
/// # Errors
/// Every error names the file.
pub fn trusted(file: &Path) -> Result<Arc<ClientConfig>, TrustError> {
    let unusable = |cause: &dyn fmt::Display| TrustError::Unusable { file: file.to_owned(), cause: cause.to_string() };
    let pinned = certificates(file)?;
    let mut authorities = RootCertStore::empty();
    authorities.add_parsable_certificates(pinned.iter().cloned());
    let provider = Arc::new(ring::default_provider());
    let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider));
    let by_authority = by_authority.build().map_err(|cause| unusable(&cause))?;
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    // The configuration verifies every certificate: it is "dangerous" only because the verifier below is not part of the library.
    let config = config.map_err(|cause| unusable(&cause))?.dangerous();
    let verifier = Arc::new(AuthorityOrPinned { by_authority, pinned, file: file.to_owned() });
    Ok(Arc::new(config.with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// Accepts certificates that an authority has signed, and the authority's own certificate, if it is pinned.
#[derive(Debug)]
struct AuthorityOrPinned {
    by_authority: Arc<WebPkiServerVerifier>,
    pinned: Vec<CertificateDer<'static>>,
    /// The file that contains these certificates.
    file: PathBuf,
}

impl ServerCertVerifier for AuthorityOrPinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let verified = self.by_authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        // `webpki` checks the time before the kind of certificate, so an expired certificate fails for that reason.
        match verified {
            Err(refused) if is_of_authority(&refused) => {}
            verified => return verified,
        }
        if !self.pinned.iter().any(|pinned| pinned == end_entity) {
            let cause = OtherError(Arc::new(NotPinned(self.file.display().to_string())));
            return Err(CertificateError::Other(cause).into());
        }
        match verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name) {
            // `openssl req -x509` writes no names by default that a client could compare.
            Err(TlsError::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }))
                if presented.is_empty() =>
            {
                Ok(ServerCertVerified::assertion())
            }
            named => named.map(|()| ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.by_authority.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.by_authority.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// Returns true if a certificate was refused only because it is that of an authority.
fn is_of_authority(refused: &TlsError) -> bool {
    let TlsError::InvalidCertificate(CertificateError::Other(OtherError(cause))) = refused else { return false };
    matches!(cause.downcast_ref::<webpki::Error>(), Some(webpki::Error::CaUsedAsEndEntity))
}
