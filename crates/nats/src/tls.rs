//! Certificates: the authorities that a client trusts, and its own certificate.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The system's authorities on Debian and many other distributions.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The TLS configuration of a client. A client that has one never sends in the clear.
#[derive(Clone, Debug)]
pub struct Tls(pub(crate) Arc<ClientConfig>);

impl Tls {
    /// Reads PEM files: `authorities` to trust instead of the system's, and the client's certificate with its
    /// key.
    ///
    /// # Errors
    /// The file, and why it cannot be used.
    pub fn read(
        authorities: Option<&Path>,
        certificate: Option<(&Path, &Path)>,
    ) -> io::Result<Self> {
        let path = authorities.unwrap_or_else(|| Path::new(SYSTEM_AUTHORITIES));
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            let added = roots.add(certificate);
            // The system's collection may have certificates that rustls cannot use.
            if authorities.is_some() {
                added.map_err(|error| invalid(path, &error))?;
            }
        }
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(io::Error::other)?
                .with_root_certificates(roots);
        let Some((certificate, key)) = certificate else {
            return Ok(Self(Arc::new(builder.with_no_client_auth())));
        };
        let secret = process::secret::read(key)
            .map_err(pem::Error::Io)
            .and_then(|text| PrivateKeyDer::from_pem_slice(text.as_bytes()))
            .map_err(|error| pem_error(key, error))?;
        let config = builder
            .with_client_auth_cert(certificates(certificate)?, secret)
            .map_err(|error| invalid(certificate, &error))?;
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| pem_error(path, error))?;
    if all.is_empty() {
        return Err(invalid(path, &"no certificate in it"));
    }
    Ok(all)
}

fn pem_error(path: &Path, error: pem::Error) -> io::Error {
    match error {
        pem::Error::Io(error) => {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        }
        error => invalid(path, &error),
    }
}

fn invalid(path: &Path, what: &dyn std::fmt::Display) -> io::Error {
    let text = format!("{}: {what}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}
