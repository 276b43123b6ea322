//! The wire format: lines that a server sends, and messages that a client sends.

use serde::Deserialize;

/// A message from a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The number of the subscription, which identifies its consumer: the subject is the one that the message was
    /// published to.
    pub subscription: u32,
    pub subject: String,
    pub reply: Option<String>,
    /// The header's lines, verbatim; empty without a header.
    pub headers: String,
    pub body: Vec<u8>,
}

impl Message {
    /// The status code of a message from the server itself: 100 for a heartbeat, 503 for no responders.
    pub fn status(&self) -> Option<u16> {
        let first = self.headers.strip_prefix("NATS/1.0 ")?;
        first.get(..3)?.parse().ok()
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

pub(crate) fn header<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    headers.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The content of a server's `INFO`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Info {
    pub(crate) headers: bool,
    pub(crate) tls_required: bool,
    pub(crate) tls_available: bool,
    pub(crate) nonce: Option<String>,
    pub(crate) max_payload: usize,
    /// The other servers of its cluster.
    pub(crate) connect_urls: Vec<String>,
}

/// A line from a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Info(&'a str),
    Ping,
    Error(&'a str),
    /// `total_length` bytes follow, of which the first `header_length` are headers.
    Message {
        subscription: u32,
        subject: &'a str,
        reply: Option<&'a str>,
        header_length: usize,
        total_length: usize,
    },
    Other,
}

impl<'a> Line<'a> {
    /// Parses a line; none for a malformed one.
    pub(crate) fn parse(line: &'a str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let size = |text: &str| text.parse::<usize>().ok();
        Some(match (word, words.as_slice()) {
            ("INFO", _) => Self::Info(rest),
            ("PING", _) => Self::Ping,
            ("-ERR", _) => Self::Error(rest.trim_matches('\'')),
            ("MSG", [subject, id, reply @ .., total]) => Self::Message {
                subscription: id.parse().ok()?,
                subject,
                reply: reply.first().copied(),
                header_length: 0,
                total_length: size(total)?,
            },
            ("HMSG", [subject, id, reply @ .., header, total]) => Self::Message {
                subscription: id.parse().ok()?,
                subject,
                reply: reply.first().copied(),
                header_length: size(header).filter(|header| Some(*header) <= size(total))?,
                total_length: size(total)?,
            },
            ("MSG" | "HMSG", _) => return None,
            _ => Self::Other,
        })
    }
}

/// Appends a message in wire format.
pub(crate) fn encode(
    output: &mut Vec<u8>,
    subject: &str,
    reply: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) {
    if headers.is_empty() {
        output.extend(format!("PUB {subject} {reply} {}\r\n", body.len()).bytes());
    } else {
        let mut header = "NATS/1.0\r\n".to_owned();
        for (name, value) in headers {
            header += &format!("{name}: {value}\r\n");
        }
        header += "\r\n";
        let total = header.len() + body.len();
        let line = format!("HPUB {subject} {reply} {} {total}\r\n", header.len());
        output.extend(line.bytes().chain(header.bytes()));
    }
    output.extend(body);
    output.extend(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let message = |subject, reply, header_length, total_length| {
            Some(Line::Message {
                subscription: 1,
                subject,
                reply,
                header_length,
                total_length,
            })
        };
        assert_eq!(Line::parse("MSG a.b 1 5"), message("a.b", None, 0, 5));
        assert_eq!(Line::parse("MSG a 1 r 5"), message("a", Some("r"), 0, 5));
        assert_eq!(Line::parse("HMSG a 1 r 5 9"), message("a", Some("r"), 5, 9));
        assert_eq!(Line::parse("HMSG a 1 9 5"), None);
        assert_eq!(Line::parse("MSG a 1 five"), None);
        assert_eq!(Line::parse("MSG"), None);
        assert_eq!(Line::parse("PING"), Some(Line::Ping));
        assert_eq!(Line::parse("-ERR 'no'"), Some(Line::Error("no")));
        assert_eq!(Line::parse("+OK"), Some(Line::Other));
    }

    #[test]
    fn a_status_and_headers_are_found() {
        let message = Message {
            headers: "NATS/1.0 503\r\nA: b\r\n".to_owned(),
            ..Message::default()
        };
        assert_eq!(message.status(), Some(503));
        assert_eq!(message.header("a"), Some("b"));
        assert_eq!(Message::default().status(), None);
    }
}
