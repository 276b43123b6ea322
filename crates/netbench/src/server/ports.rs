//! The ports of tests' own sockets: those that a firewall lets through, or an address translator publishes.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use super::POLL_INTERVAL;

/// The previous test may still be closing its sockets.
const REUSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A port, or a range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(RangeInclusive<u16>);

impl Ports {
    /// Opens the first port that is free.
    pub(super) fn first_free<T>(&self, open: impl Fn(u16) -> io::Result<T>) -> io::Result<T> {
        let in_use = |opened: &io::Result<T>| {
            let kind = opened.as_ref().err().map(io::Error::kind);
            kind == Some(io::ErrorKind::AddrInUse)
        };
        let until = Instant::now() + REUSE_TIMEOUT;
        loop {
            let opened = self.0.clone().map(&open).find(|opened| !in_use(opened));
            if let Some(opened) = opened {
                return opened;
            }
            if Instant::now() > until {
                return Err(io::Error::other(format!("ports {self} are all in use")));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl From<RangeInclusive<u16>> for Ports {
    fn from(ports: RangeInclusive<u16>) -> Self {
        Self(ports)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
        match port(first).zip(port(last)) {
            Some((first, last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(format!("{text:?}: ports are 7412 or 7412-7420")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn first_free_port_is_opened() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let open = |port| UdpSocket::bind(("127.0.0.1", port));
        let ports: Ports = port.to_string().parse().unwrap();
        let said = ports.first_free(open).unwrap_err().to_string();
        assert_eq!(said, format!("ports {port}-{port} are all in use"));
        drop(taken);
        assert!(ports.first_free(open).is_ok());
        // An address of another machine is refused for another reason.
        let elsewhere = ports.first_free(|port| UdpSocket::bind(("192.0.2.1", port)));
        assert!(!elsewhere.unwrap_err().to_string().contains("in use"));
    }

    #[test]
    fn malformed_range_is_refused() {
        assert_eq!("7412-7420".parse(), Ok(Ports::from(7412..=7420)));
        for wrong in ["", "0", "9-8", "70000", "1-2-3", "a-b", "7412-"] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
        }
    }
}
