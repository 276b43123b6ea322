//! The real binary relays on every datapath: 200 packets in, the same 200 to each subscriber, no more.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use testbed::{Bed, Child, Host, HostSpec, LinkKind, LinkSpec, Topology};

const PACKETS: u32 = 200;
const PAYLOAD: usize = 172;
const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn every_datapath_relays_each_packet_to_each_subscriber_once() {
    if !sys::require::root() {
        return;
    }
    for datapath in relay::datapaths() {
        let name = datapath.name();
        datapath
            .check()
            .unwrap_or_else(|missing| panic!("{name}: {missing}"));
        relays(name);
    }
}

fn relays(datapath: &str) {
    let bed = Bed::up(&topology(), &format!("smoke-{datapath}")).unwrap();
    let (sender, relay) = (bed.host("sender").unwrap(), bed.host("relay").unwrap());
    let receivers = ["one", "two"].map(|name| receiver(bed.host(name).unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let ingest = SocketAddr::new(relay.interface("sender").unwrap().v4, 5004);
    let config = folder.path().join("relay.toml");
    let text = configuration(datapath, folder.path(), ingest, &receivers);
    fs::write(&config, text).unwrap();

    let mut served = serve(relay, &config);
    sender
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for number in 0..PACKETS {
                let mut payload = [0; PAYLOAD];
                payload[..4].copy_from_slice(&number.to_be_bytes());
                socket.send_to(&payload, ingest).unwrap();
            }
        })
        .unwrap();
    let expected: BTreeSet<u32> = (0..PACKETS).collect();
    let received = receivers.each_ref().map(received);
    let status = served.stop(TIMEOUT).unwrap();
    for (number, received) in received.iter().enumerate() {
        assert_eq!(received, &expected, "{datapath}: subscriber {number}");
    }
    assert!(status.success(), "{datapath}: {status}");
    for receiver in &receivers {
        receiver.set_nonblocking(true).unwrap();
        let more = receiver
            .recv(&mut [0; PAYLOAD])
            .map_err(|error| error.kind());
        assert_eq!(
            more,
            Err(ErrorKind::WouldBlock),
            "{datapath}: a packet too many"
        );
    }
}

fn topology() -> Topology {
    let mut topology = Topology::default();
    for name in ["sender", "relay", "one", "two"] {
        topology.host.insert(name.to_owned(), HostSpec::native());
    }
    topology.link = ["sender", "one", "two"]
        .map(|end| LinkSpec::new(LinkKind::Direct, &[end, "relay"]))
        .to_vec();
    topology
}

fn receiver(host: &Host) -> UdpSocket {
    let address = host.interface("relay").unwrap().v4;
    let socket = host
        .run(|| UdpSocket::bind((address, 6000)).unwrap())
        .unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    // It is read only once all are sent: a frame from XDP takes more than a kibibyte of the queue.
    sys::socket::receive_buffer(&socket, 4 << 20).unwrap();
    socket
}

fn configuration(
    datapath: &str,
    folder: &std::path::Path,
    ingest: SocketAddr,
    receivers: &[UdpSocket],
) -> String {
    let control = folder.join("relay.sock");
    let mut text = format!(
        "[relay]\ncontrol = {control:?}\n\
         [[stream]]\nname = \"smoke\"\nlisten = \"{ingest}\"\n\
         datapath = \"{datapath}\"\nsource = \"any\"\n"
    );
    for (number, receiver) in receivers.iter().enumerate() {
        let to = receiver.local_addr().unwrap();
        text += &format!("[[stream.subscriber]]\nname = \"edge-{number}\"\nto = \"{to}\"\n");
    }
    text
}

/// Starts the relay and waits until it says that it is ready.
fn serve(host: &Host, config: &std::path::Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowroad"));
    command
        .args(["relay", "serve", "--config"])
        .arg(config)
        .stdout(Stdio::piped());
    let mut child = host.spawn(command).unwrap();
    let mut output = BufReader::new(child.stdout().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.starts_with("ready"), "{line:?}");
    // Its last words are its counters: shown with a failure.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::stderr()));
    child
}

fn received(socket: &UdpSocket) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    let mut payload = [0; 2048];
    while numbers.len() < PACKETS as usize {
        match socket.recv(&mut payload) {
            Ok(PAYLOAD) => {
                let number = u32::from_be_bytes(payload[..4].try_into().unwrap());
                assert!(numbers.insert(number), "{number} came twice");
            }
            Ok(length) => panic!("a packet of {length} bytes"),
            Err(_) => break,
        }
    }
    numbers
}
