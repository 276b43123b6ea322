//! Conversations: how many frames two endpoints exchanged, and how many bytes these had on the wire;
//! as tshark counts them, and as our flows add up.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use features::flow::Flow;
use features::{Extractor, Options};
use packet::pcap::Reader;
use packet::protocol;

/// One of tshark's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Tcp,
    Udp,
    Ipv4,
    Ipv6,
}

pub(super) type Endpoint = (IpAddr, u16);

/// A table, and two endpoints in order; ports are 0 in the tables of addresses.
pub(super) type Pair = (Table, [Endpoint; 2]);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

pub(super) type Conversations = BTreeMap<Pair, Count>;

const TABLES: [(Table, &str, &str); 4] = [
    (Table::Tcp, "tcp", "TCP"),
    (Table::Udp, "udp", "UDP"),
    (Table::Ipv4, "ip", "IPv4"),
    (Table::Ipv6, "ipv6", "IPv6"),
];

/// No frame is longer than this many bits can say.
const LENGTH_BITS: u32 = 20;

pub(super) fn pair(table: Table, one: Endpoint, other: Endpoint) -> Pair {
    (table, [one.min(other), one.max(other)])
}

/// Whether there is a tshark; reports the skip when not.
pub(super) fn tshark_is_present() -> bool {
    let present = Command::new("tshark").arg("--version").output().is_ok();
    if !present {
        sys::require::skip(sys::require::Class::Core, "needs tshark");
    }
    present
}

/// tshark's conversations. IPv4 fragments it takes one by one, because it is told to. Those of IPv6
/// it would count once reassembled; told otherwise, it counts first ones, and the others are taken
/// from its list of packets.
pub(super) fn by_tshark(capture: &Path) -> Conversations {
    let fragments = tshark(
        capture,
        &["-Y", "ipv6.fraghdr.offset > 0 || ipv6.fraghdr.more == 1"]
            .into_iter()
            .chain(["-T", "fields", "-E", "occurrence=f"])
            .chain(["-e", "ipv6.fraghdr.offset", "-e", "frame.len"])
            .chain(["-e", "ipv6.src", "-e", "ipv6.dst"])
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    );
    let mut arguments = vec!["-o".to_owned(), "ip.defragment:FALSE".to_owned()];
    if !fragments.is_empty() {
        arguments.extend(["-o".to_owned(), "ipv6.defragment:FALSE".to_owned()]);
    }
    arguments.push("-q".to_owned());
    arguments.extend(tables());
    let mut conversations = parse(&tshark(capture, &arguments));
    for line in fragments.lines() {
        later_fragment(line, &mut conversations);
    }
    conversations
}

/// Its tables print bytes in kB. Frames are exact in them: so each table is asked for again with the
/// frames that have a bit set in their length, for each bit.
fn tables() -> impl Iterator<Item = String> {
    TABLES.iter().flat_map(|(_, name, _)| {
        let bits = (0..LENGTH_BITS).map(move |bit| format!("conv,{name},frame.len & {}", 1 << bit));
        let tables = std::iter::once(format!("conv,{name}")).chain(bits);
        tables.flat_map(|table| ["-z".to_owned(), table])
    })
}

/// What it prints.
pub(super) fn tshark(capture: &Path, arguments: &[String]) -> String {
    let output = Command::new("tshark")
        // Whoever runs the test may have preferences.
        .env("WIRESHARK_CONFIG_DIR", "/nonexistent")
        .arg("-r")
        .arg(capture)
        .args(arguments)
        .output()
        .expect("tshark");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", capture.display());
    String::from_utf8(output.stdout).expect("text")
}

fn parse(output: &str) -> Conversations {
    let mut conversations = Conversations::new();
    let mut table = Table::Tcp;
    let mut weight: Option<u64> = None;
    for line in output.lines() {
        if let Some(title) = line.strip_suffix(" Conversations") {
            let known = TABLES.iter().find(|(_, _, name)| *name == title);
            table = known.unwrap_or_else(|| panic!("{line}")).0;
        } else if let Some(filter) = line.strip_prefix("Filter:") {
            weight = filter.rsplit(' ').next().and_then(|bit| bit.parse().ok());
        } else if line.contains("<->") {
            let (pair, frames) = row(table, line);
            let count: &mut Count = conversations.entry(pair).or_default();
            match weight {
                None => count.frames += frames,
                Some(weight) => count.bytes += frames * weight,
            }
        }
    }
    conversations
}

/// Two endpoints, then frames and bytes with their unit: there, back, and both.
fn row(table: Table, line: &str) -> (Pair, u64) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let endpoint = |text: &str| match table {
        Table::Tcp | Table::Udp => {
            let (address, port) = text.rsplit_once(':').expect("a port");
            (read(address), read(port))
        }
        Table::Ipv4 | Table::Ipv6 => (read(text), 0),
    };
    let pair = pair(table, endpoint(words[0]), endpoint(words[2]));
    (pair, read(words[9]))
}

fn read<T: FromStr>(text: &str) -> T {
    let value = text.parse();
    value.unwrap_or_else(|_| panic!("tshark prints {text:?}"))
}

fn later_fragment(line: &str, conversations: &mut Conversations) {
    let fields: Vec<&str> = line.split('\t').collect();
    if fields[0] != "0" {
        let [from, to] = [2, 3].map(|at| (read(fields[at]), 0));
        let count = conversations
            .entry(pair(Table::Ipv6, from, to))
            .or_default();
        count.frames += 1;
        count.bytes += read::<u64>(fields[1]);
    }
}

/// What our flows add up to, by the headers that tunnels have outside.
pub(super) fn by_flows(capture: &Path) -> Conversations {
    let mut conversations = Conversations::new();
    let count = |flow: Box<Flow>| add(&flow, &mut conversations);
    let mut extractor = Extractor::new(&Options::default(), count);
    let file = BufReader::new(File::open(capture).expect("the capture"));
    for captured in Reader::new(file).expect("a capture") {
        let captured = captured.unwrap_or_else(|error| panic!("{}: {error}", capture.display()));
        extractor.frame(&captured.as_frame());
    }
    assert_eq!(extractor.finish().unaccounted(), 0);
    conversations
}

fn add(flow: &Flow, conversations: &mut Conversations) {
    const UDP_LITE: u8 = 136;
    let [from, to] = [flow.source(), flow.destination()]
        .map(|endpoint| (endpoint.ip(flow.key.version), endpoint.port));
    let (frames, bytes) = (flow.packets(), flow.wire().sum);
    let addresses = match flow.key.version {
        4 => Table::Ipv4,
        _ => Table::Ipv6,
    };
    let mut add = |pair, frames, bytes| {
        let count = conversations.entry(pair).or_default();
        count.frames += frames;
        count.bytes += bytes;
    };
    add(pair(addresses, (from.0, 0), (to.0, 0)), frames, bytes);
    let ports = match flow.key.protocol {
        protocol::TCP => Table::Tcp,
        protocol::UDP | UDP_LITE => Table::Udp,
        _ => return,
    };
    // Its tables of ports have those packets only whose ports can be read in their own header.
    let [there, back] = flow.remarks().headless;
    let frames = frames - there.count - back.count;
    if frames > 0 {
        add(pair(ports, from, to), frames, bytes - there.sum - back.sum);
    }
}
