//! A secret that both ends know. The client proves that it knows it without sending it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use datapath::{Classify, ErrorClass};

/// The size of the server's challenge, in bytes.
pub(crate) const CHALLENGE: usize = 32;
/// Separates these answers from those of other protocols.
const PURPOSE: &str = "lowroad netbench 1 token";
/// Shorter secrets can be guessed.
const MIN_LENGTH: usize = 8;

pub(crate) type Challenge = [u8; CHALLENGE];

/// The key that is derived from the secret.
#[derive(Clone)]
pub struct Token([u8; 32]);

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("{}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("{}: others can read the token; chmod 600 it", .0.display())]
    Open(PathBuf),
    #[error("{}: a token has at least {MIN_LENGTH} characters", .0.display())]
    Short(PathBuf),
}

impl Classify for TokenError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Input
    }
}

impl Token {
    /// From a file that only its owner can read: its first line.
    ///
    /// # Errors
    /// [`TokenError`]
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let io = |cause| TokenError::Io {
            path: path.to_owned(),
            cause,
        };
        if fs::metadata(path).map_err(io)?.mode() & 0o077 != 0 {
            return Err(TokenError::Open(path.to_owned()));
        }
        let text = fs::read_to_string(path).map_err(io)?;
        let word = text.lines().next().unwrap_or_default().trim();
        if word.len() < MIN_LENGTH {
            return Err(TokenError::Short(path.to_owned()));
        }
        Ok(Self::of(word))
    }

    fn of(word: &str) -> Self {
        Self(blake3::derive_key(PURPOSE, word.as_bytes()))
    }

    pub(crate) fn answer(&self, challenge: &Challenge) -> [u8; 32] {
        *blake3::keyed_hash(&self.0, challenge).as_bytes()
    }

    /// Takes the same time wherever the answer differs.
    pub(crate) fn answers(&self, challenge: &Challenge, answer: &[u8; 32]) -> bool {
        blake3::keyed_hash(&self.0, challenge) == *answer
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_fits_one_token_and_challenge() {
        let (token, other) = (Token::of("a long word"), Token::of("another word"));
        let answer = token.answer(&[1; 32]);
        assert!(token.answers(&[1; 32], &answer));
        assert!(!token.answers(&[2; 32], &answer));
        assert!(!other.answers(&[1; 32], &answer));
    }
}
