//! Signs records with a key that both ends received at set-up. A checksum detects damage, but not a
//! broker that forges records.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ring::{digest, hmac};

use crate::log::Id;

/// The length of an HMAC-SHA256, in bytes.
const SIGNATURE: usize = 32;
/// The length of the key in bytes. The file has it in hexadecimal digits.
const SECRET: usize = 32;
/// Separates signatures of records from signatures of anything else.
const PURPOSE: &[u8] = b"lowroad replicate record 1\0";

/// The signature of a record.
pub type Signature = [u8; SIGNATURE];

/// The secret that both ends share.
#[derive(Clone, Debug)]
pub struct Key(hmac::Key);

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0}: no key: a line of 64 hexadecimal digits is expected")]
    Malformed(PathBuf),
}

impl Key {
    /// Generates a key and writes it to a new file that only its owner can read.
    ///
    /// # Errors
    /// [`KeyError::Io`], also if the file exists.
    pub fn create(path: &Path) -> Result<(), KeyError> {
        let error = at(path);
        let mut secret = [0; SECRET];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| error(errno.into()))?;
        let text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(&error)?;
        writeln!(file, "{text}").map_err(&error)?;
        file.sync_all().map_err(&error)
    }

    /// # Errors
    /// [`KeyError`]
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = process::secret::read(path).map_err(at(path))?;
        let secret = digits(text.trim()).ok_or_else(|| KeyError::Malformed(path.to_owned()))?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &secret)))
    }

    /// The signature of a record's bytes under its number in a log.
    pub fn sign(&self, id: &Id, number: u64, bytes: &[u8]) -> Signature {
        let mut signature = [0; SIGNATURE];
        let tag = hmac::sign(&self.0, &signed_bytes(id, number, bytes));
        for (to, from) in signature.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        signature
    }

    /// Whether the signature was made with this key. The comparison takes constant time.
    pub fn signed(&self, id: &Id, number: u64, bytes: &[u8], signature: &[u8]) -> bool {
        hmac::verify(&self.0, &signed_bytes(id, number, bytes), signature).is_ok()
    }
}

/// The bytes to sign. Each part has a fixed length.
fn signed_bytes(id: &Id, number: u64, bytes: &[u8]) -> Vec<u8> {
    let digest = digest::digest(&digest::SHA256, bytes);
    [PURPOSE, id, &number.to_le_bytes(), digest.as_ref()].concat()
}

fn at(path: &Path) -> impl Fn(io::Error) -> KeyError {
    move |source| KeyError::Io {
        path: path.to_owned(),
        source,
    }
}

fn digits(text: &str) -> Option<[u8; SECRET]> {
    let mut secret = [0; SECRET];
    if text.len() != 2 * SECRET || !text.is_ascii() {
        return None;
    }
    for (index, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(secret)
}
