//! Configuration files: TOML in, typed values out, every complaint with its file and line.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use datapath::{Classify, ErrorClass};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A value that remembers where in the file it stands; its `span()` goes to [`Document::error`].
pub use toml::Spanned;

/// A configuration file's name and text.
#[derive(Clone, Debug)]
pub struct Document {
    name: String,
    text: String,
}

/// One complaint: `relay.toml:14: unknown key "destinaton"; did you mean "destination"?`
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The file as the user named it.
    pub file: String,
    /// Counted from 1; absent when the file could not be read.
    pub line: Option<usize>,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        ErrorClass::Input
    }
}

/// The HTTP interface of a program, off until its token file exists.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    pub listen: SocketAddr,
    pub token_file: PathBuf,
}

impl Http {
    /// As it was asked for, if it listens on a loopback address.
    pub fn check(asked: Option<Spanned<Self>>, document: &Document) -> Result<Option<Self>, Error> {
        let Some(asked) = asked else {
            return Ok(None);
        };
        let listen = asked.get_ref().listen;
        if listen.ip().is_loopback() {
            return Ok(Some(asked.into_inner()));
        }
        let message = format!("http: {listen} is not a loopback address");
        Err(document.error(asked.span(), message))
    }
}

/// Reads a file into a type.
pub fn load<T: DeserializeOwned>(path: impl AsRef<Path>) -> Result<T, Error> {
    Document::read(path)?.parse()
}

impl Document {
    /// Reads a file without interpreting it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let name = path.as_ref().display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => Ok(Self { name, text }),
            Err(error) => Err(Error {
                file: name,
                line: None,
                message: match error.kind() {
                    io::ErrorKind::InvalidData => "is not a text file in UTF-8".to_owned(),
                    _ => error.to_string(),
                },
            }),
        }
    }

    /// A document that is in no file; `name` stands in messages.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
        }
    }

    /// The name of the file as the user wrote it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The typed value. Unknown keys are refused by types that say `deny_unknown_fields`, and the
    /// nearest known key is named; `flatten` and untagged enums lose the line.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        toml::from_str(&self.text).map_err(|error| {
            let message = error.message();
            let span = error.span();
            let value = span.clone().and_then(|span| self.text.get(span));
            let message = suggest(message)
                .or_else(|| self.explain_value(span.as_ref()?, value?, message))
                .unwrap_or_else(|| message.to_owned());
            Error {
                line: span.map(|span| self.line(&span)),
                ..self.error(0..0, message)
            }
        })
    }

    /// What is wrong with a value, after its key: `work: expected a duration such as "5us", found 5`. None where the
    /// error is about the syntax of the file.
    fn explain_value(&self, span: &Range<usize>, value: &str, message: &str) -> Option<String> {
        let start = self.text[..span.start].rfind('\n').map_or(0, |at| at + 1);
        let (key, _) = self.text[start..span.start].rsplit_once('=')?;
        // The last key, also within an inline table or a list.
        let key = key.trim_end().rsplit(['{', ',', ' ', '[']).next()?;
        let what = match message.strip_prefix("invalid type: ") {
            Some(rest) => {
                let (_, expected) = rest.split_once(", expected ")?;
                format!("expected {expected}, found {value}")
            }
            None if message.ends_with("socket address syntax") => {
                units::socket_address(value.trim_matches(['"', '\''])).err()?
            }
            None if message.ends_with("IP address syntax") => {
                format!("{value} is not an IP address")
            }
            // A check of the program's own names the key.
            None if message.starts_with(key) => return None,
            None => message.to_owned(),
        };
        Some(format!("{key}: {what}"))
    }

    /// A complaint about what stands at `span`.
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> Error {
        Error {
            file: self.name.clone(),
            line: Some(self.line(&span)),
            message: message.into(),
        }
    }

    fn line(&self, span: &Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }
}

/// Serde's words for an unknown field or variant, as ours with the nearest known one.
fn suggest(message: &str) -> Option<String> {
    let (what, rest) = if let Some(rest) = message.strip_prefix("unknown field `") {
        ("key", rest)
    } else {
        ("value", message.strip_prefix("unknown variant `")?)
    };
    let (unknown, rest) = rest.split_once('`')?;
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let hint = match nearest(unknown, &known) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if known.is_empty() => "none is known here".into(),
        None => format!("known here: {}", known.join(", ")),
    };
    Some(format!("unknown {what} \"{unknown}\"; {hint}"))
}

/// The known word that differs least from `word`, if by no more than a third of its letters.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    known
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for i in 0..=from.len() {
        for j in 0..=to.len() {
            if i == 0 || j == 0 {
                rows[i][j] = i + j;
                continue;
            }
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            rows[i][j] = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            let swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
            if swapped {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only their shape is read")]
    struct Relay {
        datapath: Option<Datapath>,
        #[serde(default)]
        subscriber: Vec<Subscriber>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Datapath {
        Recv,
        AfXdp,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only their shape is read")]
    struct Subscriber {
        name: Spanned<String>,
        destination: SocketAddr,
    }

    fn complaint(text: &str) -> String {
        Document::new("r.toml", text)
            .parse::<Relay>()
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn an_unknown_key_names_its_line_and_the_nearest_known_one() {
        let text = "datapath = \"recv\"\n\n[[subscriber]]\nname = \"a\"\ndestinaton = \"x\"\n";
        assert_eq!(
            complaint(text),
            "r.toml:5: unknown key \"destinaton\"; did you mean \"destination\"?"
        );
        assert_eq!(
            complaint("colour = 1\n"),
            "r.toml:1: unknown key \"colour\"; known here: datapath, subscriber"
        );
        assert_eq!(
            complaint("datapath = \"af_xdp\"\n"),
            "r.toml:1: unknown value \"af_xdp\"; did you mean \"af-xdp\"?"
        );
    }

    #[test]
    fn a_wrong_value_and_broken_syntax_name_their_lines() {
        let wrong = "[[subscriber]]\nname = \"a\"\ndestination = \"192.0.2.1\"\n";
        assert_eq!(
            complaint(wrong),
            "r.toml:3: destination: \"192.0.2.1\" has no port; write 192.0.2.1:5004"
        );
        assert_eq!(
            complaint("[[subscriber]]\nname = 5\n"),
            "r.toml:2: name: expected a string, found 5"
        );
        assert!(complaint("\n\nname = \n").starts_with("r.toml:3: "));
        assert!(
            load::<Relay>("/nonexistent/r.toml")
                .unwrap_err()
                .to_string()
                .starts_with("/nonexistent/r.toml: No such file")
        );
    }

    #[test]
    fn a_program_complains_about_the_line_a_value_stands_on() {
        let document = Document::new(
            "r.toml",
            "[[subscriber]]\ndestination = \"192.0.2.1:5004\"\nname = \"edge\"\n",
        );
        let relay: Relay = document.parse().unwrap();
        let error = document.error(relay.subscriber[0].name.span(), "subscriber \"edge\": loop");
        assert_eq!(error.to_string(), "r.toml:3: subscriber \"edge\": loop");
    }
}
