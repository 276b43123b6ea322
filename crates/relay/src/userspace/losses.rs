//! Counts what the network stack dropped at a socket before userspace could read it.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::unix::fs::FileExt;

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

    pub(super) fn read(&self) -> StackDrops {
        let v4 = text(&self.v4);
        let v6 = self.v6.as_ref().map(text).unwrap_or_default();
        let both = |name: &str| v4_counter(&v4, name) + v6_counter(&v6, &format!("Udp6{name}"));
        StackDrops {
            bad_checksum: both("InCsumErrors"),
            queue_full: both("RcvbufErrors") + both("MemErrors"),
        }
    }
}

/// What the namespace's sockets lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StackDrops {
    bad_checksum: u64,
    queue_full: u64,
}

/// Follows what one socket lost. Its own counter has what its full queue refused and, of wrong
/// checksums, those of longer datagrams, which are verified as they are copied to userspace. Short
/// ones are verified before the socket is known, and are in the namespace's counter only.
#[derive(Debug)]
pub(super) struct Losses {
    socket_drops: u32,
    stack_drops: StackDrops,
}

/// Datagrams lost since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LossCounts {
    pub(super) bad_checksum: u64,
    pub(super) queue_full: u64,
}

impl Losses {
    pub(super) fn watch(socket: &UdpSocket, stack: &Stack) -> Self {
        Self {
            stack_drops: stack.read(),
            socket_drops: sys::socket::drops(socket).unwrap_or(0),
        }
    }

    /// What the socket lost since the last call. `drops` is its own counter; `earlier` and `later` are the namespace's,
    /// read before and after that: what the socket has is in the later, and what the earlier lacks is in the next
    /// difference. `alone` says that the namespace's wrong checksums can be taken to be this socket's.
    pub(super) fn take(
        &mut self,
        drops: Option<u32>,
        (earlier, later): (StackDrops, StackDrops),
        alone: bool,
    ) -> LossCounts {
        let drops = drops.unwrap_or(self.socket_drops);
        let dropped = u64::from(drops.wrapping_sub(self.socket_drops));
        let lost = split(dropped, self.stack_drops, later, alone);
        self.socket_drops = drops;
        self.stack_drops = StackDrops {
            queue_full: earlier.queue_full,
            ..later
        };
        lost
    }
}

fn split(dropped: u64, before: StackDrops, after: StackDrops, alone: bool) -> LossCounts {
    let queue_full = dropped.min(after.queue_full.saturating_sub(before.queue_full));
    let bad_checksum = if alone {
        after.bad_checksum.saturating_sub(before.bad_checksum)
    } else {
        dropped - queue_full
    };
    LossCounts {
        bad_checksum,
        queue_full,
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

    #[test]
    fn the_stack_says_why_a_socket_dropped() {
        let drops = |bad_checksum, queue_full| StackDrops {
            bad_checksum,
            queue_full,
        };
        let lost = |dropped, after, alone| {
            let lost = split(dropped, drops(10, 10), after, alone);
            (lost.bad_checksum, lost.queue_full)
        };
        assert_eq!(lost(2, drops(13, 10), true), (3, 0), "one was short");
        assert_eq!(
            lost(2, drops(13, 10), false),
            (2, 0),
            "the short one may be another's"
        );
        assert_eq!(lost(4, drops(10, 14), true), (0, 4));
        assert_eq!(lost(4, drops(12, 12), true), (2, 2));
        assert_eq!(lost(4, drops(10, 20), false), (0, 4));
    }
}
