//! Loads certificates and keys from PEM files for TLS 1.3. Both ends present a certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::Error;

/// The files that an end needs.
#[derive(Clone, Debug)]
pub struct Files {
    /// Its own certificate, followed by intermediate certificates, if any.
    pub certificate: PathBuf,
    /// The private key, readable only by its owner.
    pub key: PathBuf,
    /// The authority that must have issued the other end's certificate.
    pub authority: PathBuf,
}

impl Files {
    /// # Errors
    /// [`Error::File`]
    pub fn server(&self) -> Result<Arc<ServerConfig>, Error> {
        let provider = provider();
        let roots = Arc::new(self.roots()?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| wrong(&self.authority, &error))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain()?, self.key()?)
            .map_err(|error| wrong(&self.certificate, &error))?;
        // Every connection has to present its certificate. A resumed session would not.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// # Errors
    /// [`Error::File`]
    pub fn client(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(self.chain()?, self.key()?)
            .map_err(|error| wrong(&self.certificate, &error))?;
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authority)? {
            roots
                .add(certificate)
                .map_err(|error| wrong(&self.authority, &error))?;
        }
        Ok(roots)
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        certificates(&self.certificate)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, Error> {
        let text = process::secret::read(&self.key).map_err(|error| wrong(&self.key, &error))?;
        PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| wrong(&self.key, &format!("no key in PEM: {error}")))
    }
}

/// The first DNS name of a certificate, or the beginning of its SHA-256 if it has none.
pub(super) fn name(certificate: &CertificateDer<'_>) -> String {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    let name = parsed
        .ok()
        .and_then(|it| it.valid_dns_names().next().map(str::to_owned));
    name.unwrap_or_else(|| {
        let hash = digest::digest(&digest::SHA256, certificate);
        let digits = hash
            .as_ref()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"));
        format!("sha256:{}", digits.collect::<String>())
    })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(provider::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| wrong(path, &format!("no certificate in PEM: {error}")))?;
    if all.is_empty() {
        return Err(wrong(path, &"no certificate in PEM"));
    }
    Ok(all)
}

fn wrong(path: &Path, what: &impl ToString) -> Error {
    Error::File {
        path: path.to_owned(),
        what: what.to_string(),
    }
}
