//! The lines of the protocol that we read, and the messages that we write.

use serde::Deserialize;

/// A message as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Whose message it is: a consumer's come under the subjects that they were published to.
    pub subscription: u32,
    pub subject: String,
    pub reply: Option<String>,
    /// The lines of the header, as they came; empty if it has none.
    pub headers: String,
    pub body: Vec<u8>,
}

impl Message {
    /// What a server says instead of a message: 100 for a heartbeat, 503 where nobody listens.
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

/// What a server says of itself.
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

/// A line that a server sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Info(&'a str),
    Ping,
    Error(&'a str),
    /// `head` of the `all` bytes that follow are headers.
    Message {
        subscription: u32,
        subject: &'a str,
        reply: Option<&'a str>,
        head: usize,
        all: usize,
    },
    Other,
}

impl<'a> Line<'a> {
    /// None for a line that no server sends.
    pub(crate) fn parse(line: &'a str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let size = |text: &str| text.parse::<usize>().ok();
        Some(match (word, words.as_slice()) {
            ("INFO", _) => Self::Info(rest),
            ("PING", _) => Self::Ping,
            ("-ERR", _) => Self::Error(rest.trim_matches('\'')),
            ("MSG", [subject, id, reply @ .., all]) => Self::Message {
                subscription: id.parse().ok()?,
                subject,
                reply: reply.first().copied(),
                head: 0,
                all: size(all)?,
            },
            ("HMSG", [subject, id, reply @ .., head, all]) => Self::Message {
                subscription: id.parse().ok()?,
                subject,
                reply: reply.first().copied(),
                head: size(head).filter(|head| Some(*head) <= size(all))?,
                all: size(all)?,
            },
            ("MSG" | "HMSG", _) => return None,
            _ => Self::Other,
        })
    }
}

/// Appends a message to what is to be sent.
pub(crate) fn put(
    to: &mut Vec<u8>,
    subject: &str,
    reply: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) {
    if headers.is_empty() {
        to.extend(format!("PUB {subject} {reply} {}\r\n", body.len()).bytes());
    } else {
        let mut head = "NATS/1.0\r\n".to_owned();
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        let all = head.len() + body.len();
        let sizes = format!("HPUB {subject} {reply} {} {all}\r\n{head}", head.len());
        to.extend(sizes.bytes());
    }
    to.extend(body);
    to.extend(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let message = |subject, reply, head, all| {
            Some(Line::Message {
                subscription: 1,
                subject,
                reply,
                head,
                all,
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
