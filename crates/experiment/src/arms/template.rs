//! Texts with placeholders, and command lines of them.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;

use anyhow::{Result, anyhow};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The values of placeholders. One with several values is several words of a command line.
pub(crate) type Values = BTreeMap<&'static str, Vec<String>>;

/// A text in which `{name}` stands for a value and `{{name}}` for `{name}`. All other braces are text: configuration
/// files of other programs have many.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Template(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

impl Template {
    #[cfg(test)]
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.pieces().into_iter().filter_map(|piece| match piece {
            Piece::Placeholder(name) => Some(name),
            Piece::Text(_) => None,
        })
    }

    /// The text with the values in place, several of them separated by spaces.
    ///
    /// # Errors
    /// A placeholder has no value.
    pub(crate) fn expand(&self, values: &Values) -> Result<String> {
        let pieces = self.pieces().into_iter();
        let texts = pieces.map(|piece| match piece {
            Piece::Text(text) => Ok(text.to_owned()),
            Piece::Placeholder(name) => Ok(value(values, name)?.join(" ")),
        });
        texts.collect()
    }

    /// The words that it stands for: the values of a placeholder that is the whole text, else one.
    fn words(&self, values: &Values) -> Result<Vec<String>> {
        match self.pieces().as_slice() {
            [Piece::Placeholder(name)] => Ok(value(values, name)?.to_vec()),
            _ => Ok(vec![self.expand(values)?]),
        }
    }

    fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        let (mut text, mut rest) = (self.0.as_str(), self.0.as_str());
        while let Some(at) = rest.find('{') {
            rest = &rest[at..];
            let before = &text[..text.len() - rest.len()];
            if let Some(name) = placeholder_name(rest, "{{", "}}") {
                pieces.extend([Piece::Text(before), Piece::Text(&rest[1..name.len() + 3])]);
                rest = &rest[name.len() + 4..];
                text = rest;
            } else if let Some(name) = placeholder_name(rest, "{", "}") {
                pieces.extend([Piece::Text(before), Piece::Placeholder(name)]);
                rest = &rest[name.len() + 2..];
                text = rest;
            } else {
                rest = &rest[1..];
            }
        }
        pieces.push(Piece::Text(text));
        pieces.retain(|piece| *piece != Piece::Text(""));
        pieces
    }
}

fn value<'a>(values: &'a Values, name: &str) -> Result<&'a [String]> {
    let value = values.get(name).map(Vec::as_slice);
    value.ok_or_else(|| anyhow!("the placeholder {{{name}}} has no value here"))
}

/// The placeholder's name that the text begins with, between these.
fn placeholder_name<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let inner = text.strip_prefix(open)?;
    let name = &inner[..inner.find(close)?];
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    (starts && name.chars().all(plain)).then_some(name)
}

/// A command of a program's arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandLine {
    /// A program and its arguments.
    Words(Vec<Template>),
    /// Lines for a shell, which ends at the first that fails.
    Shell(Template),
}

impl CommandLine {
    pub(crate) fn templates(&self) -> &[Template] {
        match self {
            Self::Words(words) => words,
            Self::Shell(text) => std::slice::from_ref(text),
        }
    }

    /// The program that it starts, where that is written out.
    pub(crate) fn program(&self) -> Option<&str> {
        match self {
            Self::Words(words) => {
                let first = words.first()?;
                first.placeholders().next().is_none().then(|| first.text())
            }
            Self::Shell(_) => None,
        }
    }

    /// The words to execute, with the values in place.
    ///
    /// # Errors
    /// A placeholder has no value.
    pub(crate) fn words(&self, values: &Values) -> Result<Vec<String>> {
        match self {
            Self::Words(words) => {
                let words = words.iter().map(|word| word.words(values));
                Ok(words.collect::<Result<Vec<_>>>()?.concat())
            }
            Self::Shell(text) => {
                let text = text.expand(values)?;
                Ok(vec!["sh".to_owned(), "-ec".to_owned(), text])
            }
        }
    }

    pub(crate) fn command(&self, values: &Values) -> Result<Command> {
        let words = self.words(values)?;
        let (program, arguments) = words
            .split_first()
            .ok_or_else(|| anyhow!("an empty command"))?;
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(command)
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<&str> = self.templates().iter().map(Template::text).collect();
        f.write_str(&texts.join(" "))
    }
}

impl<'de> Deserialize<'de> for CommandLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CommandLineVisitor)
    }
}

struct CommandLineVisitor;

impl<'de> Visitor<'de> for CommandLineVisitor {
    type Value = CommandLine;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of words, or a text for the shell")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<CommandLine, E> {
        match text.trim() {
            "" => Err(E::custom("an empty command")),
            text => Ok(CommandLine::Shell(Template(text.to_owned()))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<CommandLine, A::Error> {
        let mut line = Vec::new();
        while let Some(word) = words.next_element::<Template>()? {
            line.push(word);
        }
        match line.first() {
            Some(first) if !first.0.is_empty() => Ok(CommandLine::Words(line)),
            _ => Err(serde::de::Error::custom("an empty command")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        let value = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Values::from([
            ("port", value(&["5004"])),
            ("subscribers", value(&["10.0.0.1:7000", "10.0.0.1:7001"])),
        ])
    }

    fn expanded(text: &str) -> String {
        Template::new(text).expand(&values()).unwrap()
    }

    #[test]
    fn braces_of_other_languages_are_text() {
        for (text, wanted) in [
            ("listen {port};", "listen 5004;"),
            ("{port}{port}", "50045004"),
            (
                "events { worker_connections 1; }",
                "events { worker_connections 1; }",
            ),
            (
                "stream {{ server { listen {port}; } }}",
                "stream {{ server { listen 5004; } }}",
            ),
            ("f'{{port}}' = {port}", "f'{port}' = 5004"),
            ("${{port}}", "${port}"),
            ("{Port} {po rt} {9} {} {", "{Port} {po rt} {9} {} {"),
            ("to {subscribers}", "to 10.0.0.1:7000 10.0.0.1:7001"),
            ("", ""),
        ] {
            assert_eq!(expanded(text), wanted, "{text}");
        }
        let names: Vec<String> = Template::new("{a} {{b}} {c_1}{a}")
            .placeholders()
            .map(str::to_owned)
            .collect();
        assert_eq!(names, ["a", "c_1", "a"]);
        let unknown = Template::new("{host}").expand(&values()).unwrap_err();
        assert!(unknown.to_string().contains("{host}"), "{unknown}");
    }

    #[derive(Debug, Deserialize)]
    struct Section {
        command: CommandLine,
    }

    fn words(text: &str) -> Vec<String> {
        let section: Section = toml::from_str(&format!("command = {text}")).unwrap();
        section.command.words(&values()).unwrap()
    }

    #[test]
    fn several_values_are_several_words() {
        assert_eq!(
            words(r#"["relay", "{port}", "{subscribers}", "to={subscribers}"]"#),
            [
                "relay",
                "5004",
                "10.0.0.1:7000",
                "10.0.0.1:7001",
                "to=10.0.0.1:7000 10.0.0.1:7001"
            ]
        );
        assert_eq!(
            words(r#""exec relay {port}""#),
            ["sh", "-ec", "exec relay 5004"]
        );
    }

    #[test]
    fn command_without_words_is_refused() {
        for text in ["[]", "\"  \"", "[\"\"]", "3"] {
            let section = toml::from_str::<Section>(&format!("command = {text}"));
            let error = section.unwrap_err().to_string();
            assert!(
                error.contains("an empty command") || error.contains("a list of words"),
                "{text}: {error}"
            );
        }
    }
}
