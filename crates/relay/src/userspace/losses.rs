//! What the network stack dropped at a socket before userspace could read it.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The namespace's counters of UDP, as of the namespace it was opened in.
#[derive(Debug)]
pub(super) struct Stack {
    v4: File,
    /// Absent where IPv6 is.
    v6: Option<File>,
}

impl Stack {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            v4: File::open("/proc/thread-self/net/snmp")?,
            v6: File::open("/proc/thread-self/net/snmp6").ok(),
        })
    }

    fn bad_checksums(&self) -> u64 {
        let v6 = self.v6.as_ref().map(text).unwrap_or_default();
        v4_counter(&text(&self.v4), "InCsumErrors") + v6_counter(&v6, "Udp6InCsumErrors")
    }
}

/// Follows what one socket lost. Its own counter has what its full queue refused. Checksums are
/// verified as datagrams are copied to userspace, and wrong ones are counted for the namespace.
#[derive(Debug)]
pub(super) struct Losses {
    stack: Arc<Stack>,
    socket_drops: u32,
    bad_checksums: u64,
}

/// Datagrams lost since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) bad_checksum: u64,
    pub(super) queue_full: u64,
}

impl Losses {
    pub(super) fn watch(socket: &UdpSocket, stack: Arc<Stack>) -> Self {
        Self {
            socket_drops: sys::socket::drops(socket).unwrap_or(0),
            bad_checksums: stack.bad_checksums(),
            stack,
        }
    }

    /// `alone` says that the namespace's wrong checksums can be taken to be this socket's.
    pub(super) fn take(&mut self, socket: &UdpSocket, alone: bool) -> Lost {
        let drops = sys::socket::drops(socket).unwrap_or(self.socket_drops);
        let queue_full = u64::from(drops.wrapping_sub(self.socket_drops));
        self.socket_drops = drops;
        let mut bad_checksum = 0;
        if alone {
            let bad_checksums = self.stack.bad_checksums();
            bad_checksum = bad_checksums.saturating_sub(self.bad_checksums);
            self.bad_checksums = bad_checksums;
        }
        Lost {
            bad_checksum,
            queue_full,
        }
    }
}

/// The whole of a proc file, which is generated anew by a read at 0.
fn text(file: &File) -> String {
    let mut bytes = vec![0; 16_384];
    let mut used = 0;
    while let Ok(read @ 1..) = file.read_at(&mut bytes[used..], used as u64) {
        used += read;
    }
    bytes.truncate(used);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Two lines begin with `Udp:`: the names, then the values.
fn v4_counter(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return 0;
    };
    names
        .split_whitespace()
        .zip(values.split_whitespace())
        .find(|(candidate, _)| *candidate == name)
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

fn v6_counter(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .find(|(candidate, _)| *candidate == name)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let v4 = "Ip: A B\nIp: 1 2\nUdp: InDatagrams RcvbufErrors InCsumErrors\nUdp: 9 8 7\n\
                  UdpLite: InDatagrams RcvbufErrors InCsumErrors\nUdpLite: 1 1 1\n";
        assert_eq!(v4_counter(v4, "RcvbufErrors"), 8);
        assert_eq!(v4_counter(v4, "InCsumErrors"), 7);
        assert_eq!(v4_counter(v4, "Absent"), 0);
        let v6 = "Udp6InDatagrams                 \t3\nUdp6InCsumErrors                \t5\n";
        assert_eq!(v6_counter(v6, "Udp6InCsumErrors"), 5);
    }
}
