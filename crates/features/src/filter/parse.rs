//! The grammar: a subset of pcap-filter(7), with lists of operands and networks in files.
//!
//! As there, `not` binds closest, `and` and `or` bind alike and from the left, and an operand without
//! qualifiers gets those of the test before it: `port 80 or 443`.

use std::net::IpAddr;

use packet::protocol;

use super::Error;
use super::expression::{Expression, Sides, Test};
use super::operand;
use super::token::{Kind, Token, Tokens};

/// Parentheses and negations in each other.
const MAX_DEPTH: u32 = 64;
/// Tests in an expression.
const MAX_TESTS: usize = 512;
/// Operands in one list.
const MAX_OPERANDS: usize = 65_536;

const TEST: &str = "a test as tcp, dst port 443 or net 10.0.0.0/8";

const SCTP: u8 = 132;

/// Words that stand for a protocol, and the IP version that it is of.
const PROTOCOLS: [(&str, u8, Option<u8>); 8] = [
    ("tcp", protocol::TCP, None),
    ("udp", protocol::UDP, None),
    ("sctp", SCTP, None),
    ("icmp", protocol::ICMP, Some(4)),
    ("icmp6", protocol::ICMPV6, Some(6)),
    ("igmp", 2, Some(4)),
    ("esp", 50, None),
    ("gre", 47, None),
];

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<Expression, Error> {
    let mut tokens = Tokens::new(text);
    let mut parser = Parser {
        next: tokens.next()?,
        tokens,
        carried: None,
        depth: 0,
        tests: 0,
    };
    let expression = parser.expression()?;
    match parser.next.kind {
        Kind::End => Ok(expression),
        Kind::Close => Err(parser.unexpected("and, or, or the end: no parenthesis is open")),
        _ => Err(parser.unexpected("and, or, or the end")),
    }
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    /// The current token.
    next: Token<'a>,
    /// The qualifiers of the latest test that had any.
    carried: Option<Qualifiers>,
    depth: u32,
    tests: usize,
}

/// The qualifiers that determine the meaning of an operand.
#[derive(Clone, Copy, Debug)]
struct Qualifiers {
    protocol: Option<Protocol>,
    sides: Sides,
    of: Of,
}

#[derive(Clone, Copy, Debug)]
enum Protocol {
    Version(u8),
    Number(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Host,
    Net,
    Port,
    Proto,
}

impl<'a> Parser<'a> {
    fn expression(&mut self) -> Result<Expression, Error> {
        let mut expression = self.term()?;
        loop {
            match self.next.kind {
                Kind::And => {
                    self.advance()?;
                    expression = expression.and(self.term()?);
                }
                Kind::Or => {
                    self.advance()?;
                    expression = expression.or(self.term()?);
                }
                _ => return Ok(expression),
            }
        }
    }

    fn term(&mut self) -> Result<Expression, Error> {
        let start = self.next;
        match start.kind {
            Kind::Not => self.deeper(start, |parser| {
                parser.advance()?;
                Ok(parser.term()?.negated())
            }),
            Kind::Open => self.parentheses(),
            Kind::Word | Kind::Quoted => self.test(),
            _ => Err(self.unexpected(TEST)),
        }
    }

    fn parentheses(&mut self) -> Result<Expression, Error> {
        let open = self.next;
        self.deeper(open, |parser| {
            parser.advance()?;
            let inside = parser.expression()?;
            if parser.next.kind != Kind::Close {
                let column = open.column;
                return Err(parser.unexpected(&format!(
                    "and, or, or \")\" for the parenthesis of column {column}"
                )));
            }
            parser.advance()?;
            Ok(inside)
        })
    }

    fn deeper(
        &mut self,
        at: Token<'a>,
        read: impl FnOnce(&mut Self) -> Result<Expression, Error>,
    ) -> Result<Expression, Error> {
        if self.depth == MAX_DEPTH {
            let what = format!("more than {MAX_DEPTH} parentheses and negations in each other");
            return Err(Error::new(at.column, what));
        }
        self.depth += 1;
        let expression = read(self)?;
        self.depth -= 1;
        Ok(expression)
    }

    /// One test with its qualifiers, or an operand that uses the previous test's qualifiers.
    fn test(&mut self) -> Result<Expression, Error> {
        self.count()?;
        if let Some(&(_, number, version)) = PROTOCOLS.iter().find(|(name, ..)| self.is(name)) {
            self.advance()?;
            return match number {
                protocol::TCP | protocol::UDP | SCTP => self.qualified(Protocol::Number(number)),
                _ => Ok(self.plain(protocol_of(number, version))),
            };
        }
        for (word, version) in [("ip", 4), ("ip6", 6)] {
            if self.is(word) {
                self.advance()?;
                return self.qualified(Protocol::Version(version));
            }
        }
        for word in ["greater", "less", "vlan"] {
            if self.is(word) {
                self.advance()?;
                let test = self.numbered(word)?;
                return Ok(self.plain(Expression::Test(test)));
            }
        }
        self.operands(None)
    }

    /// A test whose qualifiers cannot be reused.
    fn plain(&mut self, expression: Expression) -> Expression {
        self.carried = None;
        expression
    }

    /// A protocol on its own, or one that qualifies the operands after it.
    fn qualified(&mut self, protocol: Protocol) -> Result<Expression, Error> {
        let words = ["src", "dst", "host", "net", "port", "portrange", "proto"];
        if !words.iter().any(|word| self.is(word)) {
            return Ok(self.plain(protocol.expression()));
        }
        self.operands(Some(protocol))
    }

    /// `[src|dst] [host|net|port|portrange|proto] OPERANDS`.
    fn operands(&mut self, protocol: Option<Protocol>) -> Result<Expression, Error> {
        let sides = self.sides()?;
        let at = self.next;
        let of = self.kind()?;
        let bare = of.is_none() && sides.is_none();
        let qualifiers = self.carried.filter(|_| bare).unwrap_or_else(|| Qualifiers {
            protocol,
            sides: sides.unwrap_or(Sides::Either),
            of: of.unwrap_or(Of::Host),
        });
        if !bare {
            qualifiers.check(sides, at)?;
            self.carried = Some(qualifiers);
            if self.next.kind == Kind::Open {
                return self.parentheses();
            }
        }
        if !matches!(self.next.kind, Kind::Word | Kind::Quoted) {
            return Err(self.unexpected(qualifiers.of.expected()));
        }
        if bare && self.next.text.parse::<IpAddr>().is_err() {
            self.check_bare(qualifiers)?;
        }
        self.carried = Some(qualifiers);
        let expression = Expression::Test(self.list(qualifiers)?);
        Ok(match qualifiers.protocol {
            Some(protocol) => protocol.expression().and(expression),
            None => expression,
        })
    }

    /// Checks a word at the start of a test: it is an operand if its type is known, else not a test.
    fn check_bare(&self, qualifiers: Qualifiers) -> Result<(), Error> {
        let text = self.next.text;
        let digits = text.starts_with(|first: char| first.is_ascii_digit());
        if digits && qualifiers.of != Of::Host {
            return Ok(());
        }
        let known = match text {
            "arp" | "rarp" | "ether" | "mpls" | "pppoes" | "broadcast" | "multicast"
            | "gateway" => ": only IP packets are filtered, by their own headers",
            "inbound" | "outbound" => ": --direction chooses",
            _ if text.contains('[') => ": bytes cannot be tested",
            _ => "",
        };
        Err(self.unexpected(&format!("{TEST}{known}")))
    }

    /// `src`, `dst`, `src or dst`, `src and dst`.
    fn sides(&mut self) -> Result<Option<Sides>, Error> {
        if self.is("dst") {
            self.advance()?;
            return Ok(Some(Sides::Destination));
        }
        if !self.is("src") {
            return Ok(None);
        }
        self.advance()?;
        let both = match self.next.kind {
            Kind::And => Sides::Both,
            Kind::Or => Sides::Either,
            _ => return Ok(Some(Sides::Source)),
        };
        self.advance()?;
        if !self.is("dst") {
            return Err(self.unexpected("dst after src and, src or"));
        }
        self.advance()?;
        Ok(Some(both))
    }

    fn kind(&mut self) -> Result<Option<Of>, Error> {
        let kinds = [
            ("host", Of::Host),
            ("net", Of::Net),
            ("port", Of::Port),
            ("portrange", Of::Port),
            ("proto", Of::Proto),
        ];
        let Some(&(_, of)) = kinds.iter().find(|(word, _)| self.is(word)) else {
            return Ok(None);
        };
        self.advance()?;
        Ok(Some(of))
    }

    /// Operands separated by commas, or the file that contains them.
    fn list(&mut self, qualifiers: Qualifiers) -> Result<Test, Error> {
        let sides = qualifiers.sides;
        if qualifiers.of == Of::Net && self.is("in") {
            self.advance()?;
            return self.file(sides);
        }
        Ok(match qualifiers.of {
            Of::Host => Test::Networks(sides, self.comma_list(operand::host)?),
            Of::Net => Test::Networks(sides, self.comma_list(operand::network)?),
            Of::Port => Test::Ports(sides, self.comma_list(operand::ports)?),
            Of::Proto => Test::Protocol(self.one(|text| {
                let named = PROTOCOLS.iter().find(|(name, ..)| *name == text);
                let number = || operand::number("a protocol's number (0 to 255)", text);
                named.map_or_else(number, |&(_, number, _)| Ok(number))
            })?),
        })
    }

    fn file(&mut self, sides: Sides) -> Result<Test, Error> {
        let name = self.next;
        if !matches!(name.kind, Kind::Word | Kind::Quoted) || name.text.is_empty() {
            return Err(self.unexpected("a file's name"));
        }
        self.advance()?;
        Ok(Test::List(sides, name.text.to_owned(), name.column))
    }

    fn numbered(&mut self, word: &str) -> Result<Test, Error> {
        let length = |text: &str| operand::number("a number of bytes", text);
        Ok(match word {
            "greater" => Test::Length(self.one(length)?, u32::MAX),
            "less" => Test::Length(0, self.one(length)?),
            _ if self
                .next
                .text
                .starts_with(|first: char| first.is_ascii_digit()) =>
            {
                let what = "a VLAN id (0 to 4095)";
                let id = self.one(|text| {
                    let id = operand::number(what, text).ok().filter(|&id| id < 4096);
                    id.ok_or_else(|| operand::expected(what, text))
                })?;
                Test::Vlan(id, id)
            }
            _ => Test::Vlan(0, u16::MAX),
        })
    }

    fn comma_list<T>(&mut self, read: fn(&str) -> Result<T, String>) -> Result<Vec<T>, Error> {
        let mut list = vec![self.one(read)?];
        while self.next.kind == Kind::Comma {
            if list.len() == MAX_OPERANDS {
                let what = format!("more than {MAX_OPERANDS} in one list; net in FILE takes more");
                return Err(Error::new(self.next.column, what));
            }
            self.advance()?;
            list.push(self.one(read)?);
        }
        Ok(list)
    }

    fn one<T>(&mut self, read: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Error> {
        let Token { text, column, .. } = self.next;
        let value = read(text).map_err(|what| Error::new(column, what))?;
        self.advance()?;
        Ok(value)
    }

    fn count(&mut self) -> Result<(), Error> {
        self.tests += 1;
        if self.tests > MAX_TESTS {
            let what = "lists with commas, and net in FILE, are one";
            let what = format!("more than {MAX_TESTS} tests; {what}");
            return Err(Error::new(self.next.column, what));
        }
        Ok(())
    }

    fn is(&self, word: &str) -> bool {
        self.next.kind == Kind::Word && self.next.text == word
    }

    fn advance(&mut self) -> Result<(), Error> {
        self.next = self.tokens.next()?;
        Ok(())
    }

    fn unexpected(&self, expected: &str) -> Error {
        Error::new(
            self.next.column,
            operand::expected(expected, self.next.text),
        )
    }
}

impl Protocol {
    fn expression(self) -> Expression {
        match self {
            Self::Version(version) => Expression::Test(Test::Version(version)),
            Self::Number(number) => protocol_of(number, None),
        }
    }
}

fn protocol_of(number: u8, version: Option<u8>) -> Expression {
    let test = Expression::Test(Test::Protocol(number));
    match version {
        Some(version) => Expression::Test(Test::Version(version)).and(test),
        None => test,
    }
}

impl Qualifiers {
    /// Rejects invalid combinations, as tcpdump does.
    fn check(self, sides: Option<Sides>, at: Token<'_>) -> Result<(), Error> {
        let what = match (self.protocol, self.of) {
            (_, Of::Proto) if sides.is_some() => "expected proto without src and dst",
            (Some(Protocol::Version(_)), Of::Port) => "expected tcp, udp or sctp before port",
            (Some(Protocol::Number(_)), Of::Host | Of::Net | Of::Proto) => {
                "expected port after tcp, udp and sctp; put \"and\" between two tests"
            }
            _ => return Ok(()),
        };
        Err(Error::new(at.column, what))
    }
}

impl Of {
    fn expected(self) -> &'static str {
        match self {
            Self::Host => "an address",
            Self::Net => "a network as 10.0.0.0/8, or in FILE",
            Self::Port => "a port (0 to 65535)",
            Self::Proto => "a protocol's number (0 to 255)",
        }
    }
}
