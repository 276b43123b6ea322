//! The bearer token: read from a file that only its owner can read, compared in constant time.

use std::hint::black_box;
use std::io;
use std::path::Path;

use crate::StartError;

/// Shorter tokens can be guessed.
const MIN_TOKEN_LEN: usize = 16;

pub(crate) struct Token(Vec<u8>);

impl Token {
    /// Reads the first line's text; refuses what others can read or guess.
    pub(crate) fn read(path: &Path) -> Result<Self, StartError> {
        let refuse = |reason: String| StartError::Token {
            path: path.into(),
            reason,
        };
        let text = process::secret::read(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                refuse(format!("{error}; HTTP is off until a token file exists"))
            }
            _ => refuse(error.to_string()),
        })?;
        let token = text.lines().next().unwrap_or_default().trim();
        if token.len() < MIN_TOKEN_LEN {
            return Err(refuse(format!(
                "the token is shorter than {MIN_TOKEN_LEN} characters"
            )));
        }
        Ok(Self(token.as_bytes().to_vec()))
    }

    /// Whether an `Authorization` header's value carries it. The time taken depends on the given
    /// value's length alone.
    pub(crate) fn matches(&self, authorization: &[u8]) -> bool {
        let Some((scheme, given)) = authorization.split_at_checked("Bearer ".len()) else {
            return false;
        };
        let differences = given
            .iter()
            .zip(self.0.iter().cycle())
            .fold(0, |differences, (a, b)| black_box(differences | (a ^ b)));
        scheme.eq_ignore_ascii_case(b"Bearer ") && given.len() == self.0.len() && differences == 0
    }
}
