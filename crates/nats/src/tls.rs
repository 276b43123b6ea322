//! Whom to believe to be the server, and what we show it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Where Debian and many others keep the authorities that everybody trusts.
const EVERYBODY: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A connection with it is encrypted, or is none.
#[derive(Clone, Debug)]
pub struct Tls(pub(crate) Arc<ClientConfig>);

impl Tls {
    /// Trusts the authorities of a PEM file, or those that everybody does; shows a certificate if its
    /// and its key's PEM files are named.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn read(authorities: Option<&Path>, own: Option<(&Path, &Path)>) -> io::Result<Self> {
        let path = authorities.unwrap_or_else(|| Path::new(EVERYBODY));
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            let added = roots.add(certificate);
            // A machine's own collection may have some that rustls does not know how to use.
            if authorities.is_some() {
                added.map_err(|error| wrong(path, &error))?;
            }
        }
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(io::Error::other)?
                .with_root_certificates(roots);
        let Some((certificate, key)) = own else {
            return Ok(Self(Arc::new(builder.with_no_client_auth())));
        };
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| of_pem(key, error))?;
        let config = builder
            .with_client_auth_cert(certificates(certificate)?, secret)
            .map_err(|error| wrong(certificate, &error))?;
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| of_pem(path, error))?;
    if all.is_empty() {
        return Err(wrong(path, &"no certificate in it"));
    }
    Ok(all)
}

fn of_pem(path: &Path, error: pem::Error) -> io::Error {
    match error {
        pem::Error::Io(error) => {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        }
        error => wrong(path, &error),
    }
}

fn wrong(path: &Path, what: &dyn std::fmt::Display) -> io::Error {
    let text = format!("{}: {what}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}
