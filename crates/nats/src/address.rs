//! `nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT][,HOST[:PORT]…]/NAME`: servers, who asks, and what for.

use std::str::FromStr;

use crate::credentials::Credentials;

const PORT: u16 = 4222;

/// Where a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `HOST:PORT` each, tried in this order.
    pub servers: Vec<String>,
    pub identity: Identity,
    /// What follows the servers.
    pub name: String,
    /// Whether it begins with `tls://`.
    pub tls: bool,
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Identity {
    #[default]
    Nobody,
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
        let wrong = || BadAddress(without_secrets(text));
        let (tls, rest) = match text.split_once("://") {
            Some(("nats", rest)) => (false, rest),
            Some(("tls", rest)) => (true, rest),
            _ => return Err(wrong()),
        };
        let (servers, name) = rest.split_once('/').ok_or_else(wrong)?;
        let (identity, servers) = identity(servers);
        let servers: Vec<String> = servers
            .split(',')
            .filter(|server| !server.is_empty())
            .map(|server| with_port(server, PORT))
            .collect();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if servers.is_empty() || name.is_empty() || !name.chars().all(plain) {
            return Err(wrong());
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
            Self::Nobody => "Nobody",
            Self::Token(_) => "Token",
            Self::User(..) => "User",
            Self::Key(_) => "Key",
        })
    }
}

fn identity(servers: &str) -> (Identity, &str) {
    match servers.rsplit_once('@') {
        None => (Identity::Nobody, servers),
        Some((who, servers)) => match who.split_once(':') {
            Some((user, password)) => (Identity::User(user.into(), password.into()), servers),
            None => (Identity::Token(who.into()), servers),
        },
    }
}

fn without_secrets(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, rest)) => format!("…@{rest}"),
        None => text.to_owned(),
    }
}

/// `HOST[:PORT]` with the port that it has by default.
fn with_port(server: &str, port: u16) -> String {
    let named = server.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    if named {
        server.to_owned()
    } else {
        format!("{server}:{port}")
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
    }

    #[test]
    fn no_address_is_refused_without_saying_its_secrets() {
        for wrong in [
            "h:1/S",
            "http://h/S",
            "nats://h:1",
            "nats://h/",
            "nats:///S",
            "nats://h/a.b",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
        let error = "nats://me:secret@h/a b".parse::<Address>().unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
