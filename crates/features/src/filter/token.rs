//! The words and signs of an expression, each with its column.

use super::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    /// A word in quotes: never a keyword.
    Quoted,
    And,
    Or,
    Not,
    Open,
    Close,
    Comma,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    /// The text without quotes.
    pub(super) text: &'a str,
    pub(super) column: usize,
}

/// Splits an expression into tokens, one at a time.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a str,
    column: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            column: 1,
        }
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, Error> {
        let blank = self.rest.len() - self.rest.trim_start().len();
        self.take(blank);
        let column = self.column;
        let token = |kind, text| Token { kind, text, column };
        for (sign, kind) in [
            ("&&", Kind::And),
            ("||", Kind::Or),
            ("!", Kind::Not),
            ("(", Kind::Open),
            (")", Kind::Close),
            (",", Kind::Comma),
        ] {
            if self.rest.starts_with(sign) {
                return Ok(token(kind, self.take(sign.len())));
            }
        }
        let Some(first) = self.rest.chars().next() else {
            return Ok(token(Kind::End, ""));
        };
        match first {
            '"' | '\'' => self.quoted(first),
            '&' | '|' => Err(Error::new(
                column,
                format!("expected \"{first}{first}\", found \"{first}\""),
            )),
            _ => {
                let size = self.rest.find(ends_word).unwrap_or(self.rest.len());
                let word = self.take(size);
                Ok(token(keyword(word), word))
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Token<'a>, Error> {
        let column = self.column;
        let size = self.rest[1..].find(quote).ok_or_else(|| {
            Error::new(column, format!("expected a closing {quote} for this one"))
        })?;
        let text = self.take(size + 2);
        Ok(Token {
            kind: Kind::Quoted,
            text: &text[1..=size],
            column,
        })
    }

    /// Takes the next `size` bytes.
    fn take(&mut self, size: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(size);
        self.rest = rest;
        self.column += taken.chars().count();
        taken
    }
}

fn ends_word(of: char) -> bool {
    of.is_whitespace() || "()!&|,\"'".contains(of)
}

fn keyword(word: &str) -> Kind {
    match word {
        "and" => Kind::And,
        "or" => Kind::Or,
        "not" => Kind::Not,
        _ => Kind::Word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(Kind, String, usize)> {
        let mut tokens = Tokens::new(text);
        let mut all = Vec::new();
        loop {
            let token = tokens.next().expect("a token");
            if token.kind == Kind::End {
                return all;
            }
            all.push((token.kind, token.text.to_owned(), token.column));
        }
    }

    #[test]
    fn columns_count_characters() {
        let found = all("ä&& !(b,'c d')");
        let expected = [
            (Kind::Word, "ä", 1),
            (Kind::And, "&&", 2),
            (Kind::Not, "!", 5),
            (Kind::Open, "(", 6),
            (Kind::Word, "b", 7),
            (Kind::Comma, ",", 8),
            (Kind::Quoted, "c d", 9),
            (Kind::Close, ")", 14),
        ];
        let expected: Vec<_> = expected
            .map(|(kind, text, column)| (kind, text.to_owned(), column))
            .into();
        assert_eq!(found, expected);
    }

    #[test]
    fn half_a_sign_and_an_open_quote_are_refused() {
        for (text, column) in [("tcp & udp", 5), ("net in 'x", 8)] {
            let mut tokens = Tokens::new(text);
            let error = loop {
                match tokens.next() {
                    Ok(token) => assert_ne!(token.kind, Kind::End),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.column, column, "{error}");
        }
    }
}
