//! The key of pseudonyms, as a file holds it.

use ring::hmac;

/// Bytes of a key. For IP addresses, the first half is the key of AES and the second half makes the padding.
pub const KEY_BYTES: usize = 32;

/// A key. It is never printed.
pub struct Key([u8; KEY_BYTES]);

/// Why a file holds no key. The message does not quote the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "holds {0} bytes; a key has {KEY_BYTES} bytes, or {digits} hexadecimal digits: (umask 077; head -c {KEY_BYTES} /dev/urandom > KEYFILE) makes one",
    digits = 2 * KEY_BYTES
)]
pub struct KeyError(usize);

impl Key {
    /// Reads the bytes of a file: the key itself, or its hexadecimal digits with white space around.
    ///
    /// # Errors
    /// If they are neither.
    pub fn read(bytes: &[u8]) -> Result<Self, KeyError> {
        if let Ok(key) = bytes.try_into() {
            return Ok(Self(key));
        }
        hexadecimal(bytes.trim_ascii())
            .map(Self)
            .ok_or(KeyError(bytes.len()))
    }

    /// A key for one use, so that no two uses share a cipher.
    pub(super) fn derive(&self, purpose: &str) -> [u8; KEY_BYTES] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let tag = hmac::sign(&key, purpose.as_bytes());
        let mut derived = [0; KEY_BYTES];
        derived.copy_from_slice(tag.as_ref());
        derived
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

fn hexadecimal(text: &[u8]) -> Option<[u8; KEY_BYTES]> {
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != KEY_BYTES || !rest.is_empty() {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, pair) in key.iter_mut().zip(pairs) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from(high? << 4 | low?).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_digits_are_the_same_key() {
        let key: [u8; KEY_BYTES] = std::array::from_fn(|at| 7 * u8::try_from(at).unwrap());
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        for text in [digits.clone(), format!("{digits}\n"), digits.to_uppercase()] {
            assert_eq!(Key::read(text.as_bytes()).unwrap().bytes(), &key);
        }
        assert_eq!(Key::read(&key).unwrap().bytes(), &key);
    }

    #[test]
    fn other_files_hold_no_key() {
        let signed = format!("+{}", "0".repeat(63));
        for bytes in [&b""[..], &[7; 31], &[7; 33], &[7; 64], signed.as_bytes()] {
            let error = Key::read(bytes).unwrap_err();
            assert_eq!(error, KeyError(bytes.len()));
        }
    }

    #[test]
    fn debug_output_hides_the_key() {
        let key = Key::read(&[65; KEY_BYTES]).unwrap();
        assert_eq!(format!("{key:?}"), "Key { .. }");
    }
}
