//! Creates certificates for set-up: a small authority, and a certificate for the server and for
//! each replica.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use datapath::{Classify, ErrorClass};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use ring::digest;
use rustls::pki_types::DnsName;

const YEAR: u64 = 31_556_952;

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0} exists already; choose another folder, or remove the file")]
    Exists(PathBuf),
    #[error(
        "{0}: no name for a certificate: letters, digits, dots and hyphens, neither ca nor server"
    )]
    Name(String),
    #[error("{what}: {source}")]
    Certificate { what: String, source: rcgen::Error },
}

impl Classify for KeysError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Name(_) | Self::Exists(_) | Self::Certificate { .. } => ErrorClass::Input,
            Self::Io { .. } => ErrorClass::Failed,
        }
    }
}

/// The certificates to create.
#[derive(Clone, Debug)]
pub struct KeyFiles {
    /// Names and addresses by which replicas reach the server. If empty, no server certificate is
    /// created.
    pub server: Vec<String>,
    /// The names of the replicas. A file is named after each.
    pub clients: Vec<String>,
    /// The certificates are valid from the start of this year for this many years.
    pub years: u16,
}

/// Creates the authority in this folder if there is none, and certificates issued by it. Returns
/// the created files. Existing files are never overwritten. Keys and the folder are readable only
/// by their owner.
///
/// # Errors
/// [`KeysError`]
pub fn make(folder: &Path, made: &KeyFiles) -> Result<Vec<PathBuf>, KeysError> {
    for name in &made.clients {
        let reserved = name == "ca" || name == "server" || name.contains('*');
        if reserved || DnsName::try_from(name.as_str()).is_err() {
            return Err(KeysError::Name(name.clone()));
        }
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(at(folder))?;
    let mut files = Vec::new();
    let authority = authority(folder, made.years, &mut files)?;
    if !made.server.is_empty() {
        let params = params(made.server.clone(), "server", made.years)?;
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        issue(folder, "server", params, usage, &authority, &mut files)?;
    }
    for name in &made.clients {
        let params = params(vec![name.clone()], name, made.years)?;
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        issue(folder, name, params, usage, &authority, &mut files)?;
    }
    Ok(files)
}

fn authority(
    folder: &Path,
    years: u16,
    files: &mut Vec<PathBuf>,
) -> Result<Issuer<'static, KeyPair>, KeysError> {
    let wrong = of("ca");
    let path = folder.join("ca.key");
    let (key, new) = match process::secret::read(&path) {
        Ok(text) => (KeyPair::from_pem(&text).map_err(&wrong)?, false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (KeyPair::generate().map_err(&wrong)?, true)
        }
        Err(source) => return Err(KeysError::Io { path, source }),
    };
    // An issuer consists of its name and its key, so the key file is enough to recreate the same
    // one.
    let mut params = params(Vec::new(), &authority_name(&key), years)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    if new {
        let certificate = params.self_signed(&key).map_err(&wrong)?;
        write(folder, "ca.key", 0o600, &key.serialize_pem(), files)?;
        write(folder, "ca.pem", 0o644, &certificate.pem(), files)?;
    }
    Ok(Issuer::new(params, key))
}

/// Distinguishes two authorities, because a certificate names its issuer.
fn authority_name(key: &KeyPair) -> String {
    let hash = digest::digest(&digest::SHA256, key.public_key_raw());
    let digits = hash
        .as_ref()
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"));
    format!("lowroad replicate {}", digits.collect::<String>())
}

fn issue(
    folder: &Path,
    name: &str,
    mut params: CertificateParams,
    usage: ExtendedKeyUsagePurpose,
    authority: &Issuer<'static, KeyPair>,
    files: &mut Vec<PathBuf>,
) -> Result<(), KeysError> {
    let wrong = of(name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(&wrong)?;
    let certificate = params.signed_by(&key, authority).map_err(&wrong)?;
    let [pem, secret] = ["pem", "key"].map(|kind| format!("{name}.{kind}"));
    write(folder, &secret, 0o600, &key.serialize_pem(), files)?;
    write(folder, &pem, 0o644, &certificate.pem(), files)
}

fn params(names: Vec<String>, common: &str, years: u16) -> Result<CertificateParams, KeysError> {
    let named = names.join(", ");
    let mut params = CertificateParams::new(names).map_err(of(&named))?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let year = since.map_or(0, |since| since.as_secs() / YEAR);
    let year = 1970 + i32::try_from(year).unwrap_or(0);
    // Clocks may differ.
    params.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
    params.not_after = rcgen::date_time_ymd(year + i32::from(years), 1, 1);
    Ok(params)
}

fn write(
    folder: &Path,
    name: &str,
    mode: u32,
    text: &str,
    files: &mut Vec<PathBuf>,
) -> Result<(), KeysError> {
    let path = folder.join(name);
    write_new(&path, mode, text).map_err(at(&path))?;
    files.push(path);
    Ok(())
}

fn write_new(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn at(path: &Path) -> impl Fn(io::Error) -> KeysError {
    move |source| {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::AlreadyExists => KeysError::Exists(path),
            _ => KeysError::Io { path, source },
        }
    }
}

fn of(what: &str) -> impl Fn(rcgen::Error) -> KeysError {
    move |source| KeysError::Certificate {
        what: what.to_owned(),
        source,
    }
}
