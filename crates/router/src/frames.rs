//! Ethernet frames in one piece of memory, and traffic for a table made up.

use std::io::Read;
use std::net::SocketAddr;

use acl::{Address, Key, generate};
use lpm::Rib;
use packet::pcap::{self, Block, ETHERNET, Reader};
use packet::{build, protocol};

use crate::engine::Contents;
use crate::random::Random;
use crate::traffic::{Destinations, Pattern};

/// Frames, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// What traffic is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// How destinations are drawn from the routes; without, packets are drawn from the rules.
    pub pattern: Option<Pattern>,
    pub packets: usize,
    /// Of these, per cent that are IPv6.
    pub ipv6: u8,
    /// Bytes of a frame, at least: headers may be longer.
    pub length: usize,
    pub seed: u64,
}

impl Mix {
    /// Packets of IPv4 and of IPv6.
    fn families(&self) -> (usize, usize) {
        let v6 = self.packets * usize::from(self.ipv6.min(100)) / 100;
        (self.packets - v6, v6)
    }
}

impl Frames {
    pub fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    /// The Ethernet frames of a capture, `most` of them at most, and how many others it has before.
    ///
    /// # Errors
    /// A broken capture.
    pub fn read(input: impl Read, most: usize) -> Result<(Self, u64), pcap::Error> {
        let mut reader = Reader::new(input)?;
        let (mut block, mut frames, mut others) = (Block::new(), Self::default(), 0);
        while frames.len() < most && reader.read_block(&mut block)? {
            for frame in block.frames() {
                if frame.link_type != ETHERNET {
                    others += 1;
                } else if frames.len() < most {
                    frames.push(frame.bytes);
                }
            }
        }
        Ok((frames, others))
    }

    /// UDP datagrams and what else rules ask for, to destinations of these tables; the same for the
    /// same seed.
    pub fn generate(contents: &Contents, mix: &Mix) -> Self {
        let (v4, v6) = mix.families();
        let keys4 = keys(&contents.v4, &contents.rules.v4, mix, v4);
        let keys6 = keys(&contents.v6, &contents.rules.v6, mix, v6);
        Self::of(keys4, keys6, mix)
    }

    /// UDP datagrams from and to any address and port, whatever tables have: `pattern` is of no account.
    pub fn anywhere(mix: &Mix) -> Self {
        let (v4, v6) = mix.families();
        Self::of(udp(v4, mix.seed), udp(v6, mix.seed), mix)
    }

    fn of(keys4: Vec<Key<u32>>, keys6: Vec<Key<u128>>, mix: &Mix) -> Self {
        let v6 = keys6.len();
        let (mut keys4, mut keys6) = (keys4.into_iter(), keys6.into_iter());
        let mut frames = Self::default();
        for at in 0..mix.packets {
            // Spread evenly among the others.
            let six = (at + 1) * v6 / mix.packets > at * v6 / mix.packets;
            let frame = if six {
                keys6.next().map(|key| frame(&key, mix.length))
            } else {
                keys4.next().map(|key| frame(&key, mix.length))
            };
            if let Some(frame) = frame {
                frames.push(&frame);
            }
        }
        frames
    }

    #[inline]
    pub fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    pub fn get_mut(&mut self, at: usize) -> &mut [u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &mut self.bytes[start..self.ends[at]]
    }

    /// Forgets them all, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All of them together.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

fn keys<A: Address>(rib: &Rib<A>, rules: &[acl::Rule<A>], mix: &Mix, count: usize) -> Vec<Key<A>> {
    let mut keys = generate::keys_within(rules, count, mix.seed);
    if let Some(pattern) = mix.pattern {
        let destinations = Destinations::new(rib, pattern, Random::new(mix.seed));
        for (key, destination) in keys.iter_mut().zip(destinations) {
            let ports = (key.source_port(), key.destination_port());
            *key = Key::new(key.source(), destination, ports, key.protocol);
        }
    }
    keys
}

fn udp<A: Address>(count: usize, seed: u64) -> Vec<Key<A>> {
    let keys = generate::keys_anywhere(count, seed).into_iter();
    let udp = |key: Key<A>| Key {
        protocol: protocol::UDP,
        ..key
    };
    keys.map(udp).collect()
}

fn frame<A: Address>(key: &Key<A>, length: usize) -> Vec<u8> {
    let (from, to) = (key.source().ip(), key.destination().ip());
    let source = SocketAddr::new(from, key.source_port());
    let destination = SocketAddr::new(to, key.destination_port());
    let builder = match key.protocol {
        protocol::TCP => build::tcp(source, destination, 0x10, 0),
        // Numbers that extension headers have would make another packet of it.
        number if number == protocol::UDP || packet::ipv6::is_extension(number) => {
            build::udp(source, destination)
        }
        protocol::ICMP | protocol::ICMPV6 => build::echo(from, to),
        number => {
            // Where protocols with ports have them.
            let ports = [key.source_port, key.destination_port].concat();
            build::other(from, to, number).payload([&ports[..], &[0; 4]].concat())
        }
    };
    let headers = builder.frame().len();
    let missing = length.saturating_sub(headers);
    if missing == 0 {
        return builder.frame();
    }
    match key.protocol {
        protocol::UDP | protocol::TCP => builder.payload(vec![0; missing]),
        _ => builder.padding(missing),
    }
    .frame()
}
