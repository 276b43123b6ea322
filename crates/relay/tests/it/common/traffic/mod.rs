//! A capture of what a relay meets, valid and not, and what must become of each frame of it.
//!
//! Frames are known by what was built, so that nothing here reads them as the relay does.

mod invalid;
mod valid;

use std::net::SocketAddr;

use packet::build::Builder;
use relay::counters::DropReason;

use crate::common::relay_rig::{INGRESS_MAC, Rig, SENDER_MAC};

/// A frame of the capture.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) what: String,
    pub(crate) frame: Vec<u8>,
    pub(crate) fate: Fate,
    /// Sent as a sender's stack does that leaves the checksum to its device.
    pub(crate) partial: bool,
    /// Takes the way through the stack on every datapath, where others would overtake it.
    pub(crate) alone: bool,
}

/// What becomes of a frame.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// Every subscriber gets it whose path it fits.
    Relayed(Content),
    /// Received, and refused for this reason; of so many payload bytes.
    Refused(DropReason, usize),
    /// Headers that lie. Fast paths count them; the stack tells nobody whose it dropped.
    Malformed,
    /// Forwarded by the machine, which is a router too.
    Routed,
    /// Not the stream's, or nothing whole.
    Nothing,
}

/// What all copies of a datagram have in common.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) payload: Vec<u8>,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
}

/// Where the capture's datagrams come from and go to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
}

impl Ends {
    pub(crate) fn v4() -> Self {
        Self::new("10.91.0.1:4000", "10.91.0.2:5004")
    }

    pub(crate) fn v6() -> Self {
        Self::new("[fd91::1]:4000", "[fd91::2]:5004")
    }

    fn new(from: &str, to: &str) -> Self {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        Self { from, to }
    }

    fn is_v4(self) -> bool {
        self.to.is_ipv4()
    }

    /// A datagram of these ends, to be changed before it is framed.
    pub(crate) fn datagram(self, payload: impl Into<Vec<u8>>) -> Builder {
        packet::build::udp(self.from, self.to)
            .macs(SENDER_MAC, INGRESS_MAC)
            .payload(payload)
    }

    fn sent_from(self, address: &str) -> Self {
        let from = SocketAddr::new(address.parse().unwrap(), self.from.port());
        Self { from, ..self }
    }

    fn sent_to(self, to: &str) -> Self {
        let to = to.parse().unwrap();
        Self { to, ..self }
    }

    /// Another flow of the same sender.
    fn flow(self, number: usize) -> Self {
        let port = self.from.port() + u16::try_from(number % 4).unwrap();
        let from = SocketAddr::new(self.from.ip(), port);
        Self { from, ..self }
    }
}

/// The whole capture of one family, in a file's form and back.
pub(crate) fn capture(ends: Ends) -> Vec<Item> {
    let mut items = valid::items(ends);
    items.extend(invalid::items(ends));
    // The end is valid, so that what came before it has been handled when it arrives.
    items.push(Item::relayed(
        "the last",
        ends,
        numbered(999, 40),
        |built| built,
    ));
    through_a_file(items)
}

/// UDP payloads of a capture from elsewhere, as datagrams of these ends.
pub(crate) fn retargeted(name: &str, file: &[u8], ends: Ends, most: usize) -> Vec<Item> {
    let captured = packet::pcap::Reader::new(file).unwrap();
    let ethernet = captured
        .flatten()
        .filter(|one| one.link_type == packet::pcap::ETHERNET);
    let datagrams = ethernet.filter_map(|one| {
        let parsed = packet::parse::parse(&one.frame).ok()?;
        let udp = parsed.verdict == packet::parse::Verdict::Complete && parsed.udp_length >= 8;
        let length = usize::from(parsed.udp_length) - 8 * usize::from(udp);
        let payload = one.frame.get(parsed.payload..parsed.payload + length)?;
        (udp && parsed.ttl > 1 && length <= 1452)
            .then(|| (payload.to_vec(), parsed.ttl, parsed.tos))
    });
    let items = datagrams
        .take(most)
        .enumerate()
        .map(|(at, (payload, ttl, tos))| {
            let what = format!("{name}, datagram {at}");
            let flow = ends.flow(at / 16);
            let mut item = Item::relayed(&what, flow, payload.clone(), |built| {
                built.ttl(ttl).tos(tos)
            });
            item.fate = Fate::Relayed(Content {
                payload,
                ttl: ttl - 1,
                tos,
            });
            item
        });
    through_a_file(items.collect())
}

/// The frames as they come back from a capture file.
fn through_a_file(mut items: Vec<Item>) -> Vec<Item> {
    let mut writer = packet::pcap::Writer::new(Vec::new(), packet::pcap::ETHERNET).unwrap();
    for (time, item) in (0..).step_by(1000).zip(&items) {
        writer.write(time, &item.frame).unwrap();
    }
    let file = writer.finish().unwrap();
    let mut read = packet::pcap::Reader::new(&file[..]).unwrap();
    for item in &mut items {
        item.frame = read.next().unwrap().unwrap().frame;
    }
    assert!(read.next().is_none());
    items
}

/// A payload that no other datagram of the capture has, where it is long enough to say so.
pub(crate) fn numbered(number: u16, length: usize) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let mut payload: Vec<u8> = (0..=250).cycle().take(length).collect();
    for (byte, value) in payload.iter_mut().zip([high, low]) {
        *byte = value;
    }
    payload
}

impl Item {
    /// A datagram that is relayed as it is: TTL 64, no TOS.
    fn relayed(
        what: &str,
        ends: Ends,
        payload: Vec<u8>,
        change: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let frame = change(ends.datagram(payload.clone())).frame();
        let (ttl, tos) = (63, 0);
        Self::new(what, frame, Fate::Relayed(Content { payload, ttl, tos }))
    }

    fn new(what: &str, frame: Vec<u8>, fate: Fate) -> Self {
        Self {
            what: what.to_owned(),
            frame,
            fate,
            partial: false,
            alone: false,
        }
    }

    fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// The frame's flow: sender's address and port, by the bytes where untagged frames have them.
    pub(crate) fn flow(&self) -> Option<(&[u8], &[u8])> {
        let (address, port) = match self.frame.get(12..14)? {
            [8, 0] => (26..30, 34..36),
            _ => (22..38, 54..56),
        };
        Some((self.frame.get(address)?, self.frame.get(port)?))
    }

    /// Sends it on the wire.
    pub(crate) fn send(&self, rig: &Rig, ends: Ends) {
        match &self.fate {
            Fate::Relayed(content) if self.partial => {
                rig.send(
                    ends.from,
                    ends.to,
                    &content.payload,
                    content.ttl + 1,
                    content.tos,
                );
            }
            _ => rig.inject(&self.frame),
        }
    }
}
