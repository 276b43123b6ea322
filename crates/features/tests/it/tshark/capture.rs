//! A capture, and what frames are made of. In a sweep each frame has a source address of its own, which
//! a failure then names.

use std::io::{self, BufWriter};
use std::net::{IpAddr, SocketAddr};

use packet::build::{self, Builder};
use packet::pcap::Writer;
use tempfile::NamedTempFile;

/// A capture in the making.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) name: &'static str,
    link_type: u32,
    /// What was kept of each frame, and its length on the wire.
    frames: Vec<(Vec<u8>, usize)>,
}

impl Capture {
    pub(super) fn new(name: &'static str, link_type: u32) -> Self {
        Self {
            name,
            link_type,
            frames: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, frame: Vec<u8>) {
        let length = frame.len();
        self.frames.push((frame, length));
    }

    pub(super) fn extend(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        frames.into_iter().for_each(|frame| self.add(frame));
    }

    pub(super) fn add_cut(&mut self, frame: &[u8], kept: usize) {
        self.frames.push((frame[..kept].to_vec(), frame.len()));
    }

    pub(super) fn file(&self) -> NamedTempFile {
        let file = NamedTempFile::new().expect("a file");
        self.write(&file).expect("room for it");
        file
    }

    fn write(&self, file: &NamedTempFile) -> io::Result<()> {
        let mut writer = Writer::new(BufWriter::new(file.reopen()?), self.link_type)?;
        for (index, (frame, length)) in (1..).zip(&self.frames) {
            let length = u32::try_from(*length).expect("short frames");
            writer.write_cut(index * 1_000_000, length, frame)?;
        }
        writer.finish()?;
        Ok(())
    }
}

/// Where the IP header starts in an Ethernet frame without tags.
pub(super) const L3: usize = 14;

pub(super) const V4: &str = "10.0.0.2:2222";
pub(super) const V6: &str = "[fd00::2]:2222";

pub(super) fn at(address: &str) -> SocketAddr {
    address.parse().expect("an address")
}

pub(super) fn ip(address: &str) -> IpAddr {
    address.parse().expect("an address")
}

/// The n-th source.
pub(super) fn from(n: usize, to: &str) -> SocketAddr {
    if at(to).is_ipv4() {
        at(&format!("10.1.{}.{}:1111", n >> 8, n & 0xff))
    } else {
        at(&format!("[fd01::{:x}]:1111", n + 1))
    }
}

pub(super) fn tcp(n: usize, to: &str) -> Builder {
    build::tcp(from(n, to), at(to), 0x10, 0).payload([0; 30])
}

pub(super) fn udp(n: usize, to: &str) -> Builder {
    build::udp(from(n, to), at(to)).payload([0; 30])
}

/// TCP and UDP over both versions.
pub(super) fn plain() -> Vec<Builder> {
    vec![tcp(0, V4), udp(1, V4), tcp(0, V6), udp(1, V6)]
}
