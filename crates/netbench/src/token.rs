//! A secret that both ends know. Each proves to the other that it knows it without sending it, and authenticates its
//! messages by it.

use std::io;
use std::path::{Path, PathBuf};

use datapath::{Classify, ErrorClass};
use process::secret;

/// The size of the server's challenge, in bytes.
pub(crate) const CHALLENGE: usize = 32;
/// Separates these answers from those of other protocols.
const PURPOSE: &str = "lowroad netbench 2 token";
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
    #[error("{}: a token has at least {MIN_LENGTH} characters", .0.display())]
    Short(PathBuf),
}

impl Classify for TokenError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Input
    }
}

impl Token {
    /// From a file that only its owner can read, the caller or root: its first line.
    ///
    /// # Errors
    /// [`TokenError`]
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = secret::read(path).map_err(|cause| TokenError::Io {
            path: path.to_owned(),
            cause,
        })?;
        let word = text.lines().next().unwrap_or_default().trim();
        if word.len() < MIN_LENGTH {
            return Err(TokenError::Short(path.to_owned()));
        }
        Ok(Self::of(word))
    }

    fn of(word: &str) -> Self {
        Self(blake3::derive_key(PURPOSE, word.as_bytes()))
    }

    /// The proof of one end that it knows the token: the client by the server's challenge, the server by the client's.
    /// Both challenges are part of it, so that it fits one connection only.
    pub(crate) fn answer(&self, of: Role, challenges: &Challenges) -> [u8; 32] {
        self.hash(of.purpose(), challenges)
    }

    /// Takes the same time wherever the answer differs.
    pub(crate) fn is_answer(&self, of: Role, challenges: &Challenges, answer: &[u8; 32]) -> bool {
        blake3::Hash::from_bytes(self.answer(of, challenges)) == *answer
    }

    /// The key that authenticates the messages of one connection.
    pub(crate) fn session_key(&self, challenges: &Challenges) -> SessionKey {
        SessionKey::of(self.hash(b"messages", challenges))
    }

    fn hash(&self, purpose: &[u8], challenges: &Challenges) -> [u8; 32] {
        let text = [purpose, &challenges.server, &challenges.client].concat();
        *blake3::keyed_hash(&self.0, &text).as_bytes()
    }
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

impl Role {
    fn purpose(self) -> &'static [u8] {
        match self {
            Self::Client => b"client",
            Self::Server => b"server",
        }
    }
}

/// What each end of a connection has chosen at random.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenges {
    pub(crate) server: Challenge,
    pub(crate) client: Challenge,
}

/// Authenticates the messages of one connection.
pub(crate) struct SessionKey([u8; 32]);

impl SessionKey {
    pub(crate) fn of(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// The code of message number `number` of an end.
    pub(crate) fn code<const N: usize>(&self, from: Role, number: u64, body: &[u8]) -> [u8; N] {
        let text = [from.purpose(), &number.to_le_bytes(), body].concat();
        let mut code = [0; N];
        let hash = blake3::keyed_hash(&self.0, &text);
        for (to, byte) in code.iter_mut().zip(hash.as_bytes()) {
            *to = *byte;
        }
        code
    }

    /// Takes the same time wherever the code differs.
    pub(crate) fn is_code<const N: usize>(
        &self,
        from: Role,
        number: u64,
        body: &[u8],
        code: &[u8; N],
    ) -> bool {
        let right = self.code::<N>(from, number, body);
        let pairs = right.iter().zip(code);
        pairs.fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
    }
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey(..)")
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
    fn answer_fits_one_token_connection_and_end() {
        let (token, other) = (Token::of("a long word"), Token::of("another word"));
        let challenges = Challenges {
            server: [1; 32],
            client: [2; 32],
        };
        let answer = token.answer(Role::Client, &challenges);
        assert!(token.is_answer(Role::Client, &challenges, &answer));
        assert!(!other.is_answer(Role::Client, &challenges, &answer));
        // A server cannot repeat the client's own answer.
        assert!(!token.is_answer(Role::Server, &challenges, &answer));
        let client = [3; 32];
        let later = Challenges {
            client,
            ..challenges
        };
        assert!(!token.is_answer(Role::Client, &later, &answer));
        let code = token
            .session_key(&challenges)
            .code::<16>(Role::Client, 0, b"x");
        assert!(
            token
                .session_key(&challenges)
                .is_code(Role::Client, 0, b"x", &code)
        );
        assert!(
            !token
                .session_key(&later)
                .is_code(Role::Client, 0, b"x", &code)
        );
    }
}
