//! Addresses: `nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT][,HOST[:PORT]…]/NAME`.

use std::str::FromStr;

use crate::credentials::Credentials;

const DEFAULT_PORT: u16 = 4222;

/// The address of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `HOST:PORT` each, in the order in which a client tries them.
    pub servers: Vec<String>,
    pub identity: Identity,
    /// The path: a stream's name.
    pub name: String,
    /// Whether the scheme is `tls://`.
    pub tls: bool,
}

/// How a client logs in.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Identity {
    #[default]
    Anonymous,
    Token(String),
    User(String, String),
    Key(Credentials),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: write nats://HOST:PORT/NAME")]
pub struct BadAddress(String);

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let invalid = || BadAddress(without_secrets(text));
        let (tls, rest) = match text.split_once("://") {
            Some(("nats", rest)) => (false, rest),
            Some(("tls", rest)) => (true, rest),
            _ => return Err(invalid()),
        };
        let (authority, name) = rest.split_once('/').ok_or_else(invalid)?;
        let (identity, servers) = parse_authority(authority);
        let is_legal = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if servers.is_empty() || name.is_empty() || !name.chars().all(is_legal) {
            return Err(invalid());
        }
        Ok(Self {
            servers,
            identity,
            name: name.to_owned(),
            tls,
        })
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Token(_) => "Token",
            Self::User(..) => "User",
            Self::Key(_) => "Key",
        })
    }
}

/// Parses `[USER:PASSWORD@|TOKEN@]HOST[:PORT][,HOST[:PORT]…]` to an identity and servers, `HOST:PORT` each.
pub fn parse_authority(authority: &str) -> (Identity, Vec<String>) {
    let (identity, servers) = match authority.rsplit_once('@') {
        None => (Identity::Anonymous, authority),
        Some((login, servers)) => (parse_login(login), servers),
    };
    let servers = servers.split(',').filter(|server| !server.is_empty());
    (identity, servers.map(with_port).collect())
}

/// An address as it may be shown: without what precedes the servers.
pub fn without_secrets(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, rest)) => format!("…@{rest}"),
        None => text.to_owned(),
    }
}

/// A login: `USER:PASSWORD`, or a token.
pub fn parse_login(text: &str) -> Identity {
    match text.split_once(':') {
        Some((user, password)) => Identity::User(user.into(), password.into()),
        None => Identity::Token(text.into()),
    }
}

/// Adds the default port to a host without one.
fn with_port(server: &str) -> String {
    let has_port = server.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    if has_port {
        server.to_owned()
    } else {
        format!("{server}:{DEFAULT_PORT}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let address: Address = "nats://me:secret@a,b:99,[::1]/APP_1".parse().unwrap();
        assert_eq!(address.servers, ["a:4222", "b:99", "[::1]:4222"]);
        assert_eq!(address.name, "APP_1");
        let me = Identity::User("me".to_owned(), "secret".to_owned());
        assert_eq!(address.identity, me);
        let address: Address = "tls://t@h:1/S".parse().unwrap();
        assert!(address.tls);
        assert_eq!(address.identity, Identity::Token("t".to_owned()));
        let address: Address = "nats://h/S".parse().unwrap();
        assert_eq!(address.identity, Identity::Anonymous);
    }

    #[test]
    fn no_address_is_refused_without_saying_its_secrets() {
        for invalid in [
            "h:1/S",
            "http://h/S",
            "nats://h:1",
            "nats://h/",
            "nats:///S",
            "nats://h/a.b",
        ] {
            assert!(invalid.parse::<Address>().is_err(), "{invalid}");
        }
        let error = "nats://me:secret@h/a b".parse::<Address>().unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
