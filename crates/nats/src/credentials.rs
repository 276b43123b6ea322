//! Login with a private key that never leaves this machine: a `.creds` file, or only the seed of an NKEY.
//! <https://github.com/nats-io/nkeys> describes the format of keys.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// The prefix of a seed, in its first five bits.
const SEED_PREFIX: u8 = 18 << 3;
/// The prefix of a user's public key.
const USER_PREFIX: u8 = 20 << 3;

/// A user's key, and the JWT that the server's operator signed for it, where the server uses JWTs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    jwt: Option<String>,
    seed: Seed,
}

#[derive(Clone, PartialEq, Eq)]
struct Seed([u8; 32]);

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed")
    }
}

impl Credentials {
    /// # Errors
    /// Those of [`process::secret::read`], or `InvalidData` if it has no seed of a user.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = process::secret::read(path)?;
        let no_seed =
            || io::Error::new(io::ErrorKind::InvalidData, "no seed of a user's key in it");
        let seed = block(&text, "USER NKEY SEED").unwrap_or_else(|| text.trim());
        Ok(Self {
            jwt: block(&text, "NATS USER JWT").map(str::to_owned),
            seed: Seed(parse_seed(seed).ok_or_else(no_seed)?),
        })
    }

    /// The fields of `CONNECT` that answer the server's nonce: names and values.
    pub(crate) fn sign(&self, nonce: &str) -> Option<[(&'static str, String); 2]> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&self.seed.0).ok()?;
        let signature = URL_SAFE_NO_PAD.encode(pair.sign(nonce.as_bytes()));
        let user = match &self.jwt {
            Some(jwt) => ("jwt", jwt.clone()),
            None => ("nkey", public_key(pair.public_key().as_ref())),
        };
        Some([user, ("sig", signature)])
    }
}

/// The content of a PEM-like block: its first line.
fn block<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.contains(&format!("BEGIN {name}")))?;
    lines.find(|line| !line.is_empty())
}

fn parse_seed(text: &str) -> Option<[u8; 32]> {
    let bytes = decode(text)?;
    let (payload, checksum) = bytes.split_last_chunk::<2>()?;
    let [first, second, seed @ ..] = payload else {
        return None;
    };
    let kind = ((first & 7) << 5) | (second >> 3);
    let is_intact = crc16(payload).to_le_bytes() == *checksum;
    (is_intact && first & 0xf8 == SEED_PREFIX && kind == USER_PREFIX)
        .then_some(seed)?
        .try_into()
        .ok()
}

fn public_key(key: &[u8]) -> String {
    let mut bytes = vec![USER_PREFIX];
    bytes.extend(key);
    bytes.extend(crc16(&bytes).to_le_bytes());
    encode(&bytes)
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

/// Encodes to the base 32 of RFC 4648, without padding.
fn encode(bytes: &[u8]) -> String {
    let (mut text, mut buffer, mut bits) = (String::new(), 0_u32, 0);
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(letter(buffer >> bits));
        }
    }
    if bits > 0 {
        text.push(letter(buffer << (5 - bits)));
    }
    text
}

fn letter(bits: u32) -> char {
    char::from(ALPHABET[(bits & 31) as usize])
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut buffer, mut bits) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == letter)?;
        buffer = (buffer << 5) | u32::try_from(value).ok()?;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((buffer >> bits) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn seed(key: [u8; 32]) -> String {
        let mut bytes = vec![SEED_PREFIX | (USER_PREFIX >> 5), (USER_PREFIX & 31) << 3];
        bytes.extend(key);
        bytes.extend(crc16(&bytes).to_le_bytes());
        encode(&bytes)
    }

    #[test]
    fn seeds_are_read_as_they_are_written() {
        let text = seed([7; 32]);
        assert!(text.starts_with("SU"), "{text}");
        assert_eq!(text.len(), 58);
        assert_eq!(parse_seed(&text), Some([7; 32]));
        assert_eq!(parse_seed(&text.replacen('A', "B", 1)), None, "a checksum");
        assert_eq!(parse_seed(&public_key(&[7; 32])), None, "a public key");
        assert_eq!(parse_seed(""), None);
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn a_creds_file_has_both() {
        let path = std::env::temp_dir().join(format!("creds-{}", std::process::id()));
        let key = seed([9; 32]);
        let text = format!(
            "-----BEGIN NATS USER JWT-----\nabc.def\n------END NATS USER JWT------\n\nnotes\n\n\
             -----BEGIN USER NKEY SEED-----\n{key}\n------END USER NKEY SEED------\n"
        );
        fs::write(&path, text).unwrap();
        let open = Credentials::read(&path).unwrap_err().to_string();
        assert!(open.contains("chmod 600"), "{open}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let read = Credentials::read(&path);
        fs::remove_file(&path).unwrap();
        let read = read.unwrap();
        assert_eq!(read.jwt.as_deref(), Some("abc.def"));
        let [user, signature] = read.sign("nonce").unwrap();
        assert_eq!(user, ("jwt", "abc.def".to_owned()));
        assert_eq!(signature.1.len(), 86);
    }
}
