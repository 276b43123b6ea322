//! A capture replayed over a veth pair: the frames that arrive are the frames of the file.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;

use loadgen::{Amount, Backend, FarEnd, Load, Replay, SendReport, SkipCounts, Timing, Verdict};
use packet::build;
use packet::payload::Header;
use packet::pcap::{ETHERNET, Writer};
use sys::mmsg::{self, DONT_WAIT};
use sys::socket::{self, Family};

use crate::support::{self, Topology};

/// A capture of frames 100 us apart.
fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let mut capture = Writer::new(File::create(path).unwrap(), ETHERNET).unwrap();
    for (time, frame) in (0..).step_by(100_000).zip(frames) {
        capture.write(time, frame).unwrap();
    }
    capture.finish().unwrap();
}

/// Numbered datagrams of the run that the far end counts, and one TCP segment between them.
fn captured(load: &Load, to: SocketAddr, packets: u64) -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = (0..packets)
        .map(|sequence| {
            let mut payload = vec![0x5a; 61];
            let header = Header {
                run: load.run,
                flow: 0,
                sequence,
                intended_ns: 1,
                sent_ns: 2,
            };
            header.write(&mut payload);
            build::udp(load.source, to)
                .macs(load.source_mac, load.destination_mac)
                .payload(payload)
                .frame()
        })
        .collect();
    let segment = build::tcp(load.source, to, 0x10, 0).macs(load.source_mac, load.destination_mac);
    frames.insert(3, segment.frame());
    frames
}

/// Replays a capture for `to` and returns the sequence numbers that a socket at the load's
/// destination received, and what was said.
fn replay(
    world: &Topology,
    load: &mut Load,
    to: SocketAddr,
    redirect: bool,
) -> (Vec<u64>, SendReport) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap");
    write_capture(&path, &captured(load, to, 50));
    load.backend = Backend::Pcap(Replay {
        path,
        timing: Timing::Scaled(2.0),
        redirect,
    });
    world
        .far
        .run(|| {
            let at = load.destinations[0];
            let receiver = socket::unbound(Family::from(at.ip())).unwrap();
            // Behind an XDP program each datagram takes a page, and the usual buffer has 50.
            socket::receive_buffer(&receiver, 1 << 20).unwrap();
            socket::bind(&receiver, at).unwrap();
            let far = FarEnd::attach(world.far_index, load.run, 1, Verdict::Pass).unwrap();
            let sent = world.generate(load).unwrap();
            let mut buffer = [0; 100];
            let mut sequences = Vec::new();
            // The device counts a frame before the socket has it.
            support::until(|| {
                while let Ok(meta) = mmsg::receive_one(&receiver, &mut buffer, DONT_WAIT) {
                    assert_eq!((meta.source, meta.len), (Some(load.source), 61));
                    assert_eq!(buffer[40..61], [0x5a; 21]);
                    sequences.push(Header::read(&buffer).unwrap().sequence);
                }
                far.counts().unwrap().packets() >= 50 && sequences.len() >= 50
            });
            (sequences, sent)
        })
        .unwrap()
}

#[test]
fn frames_arrive_as_they_were_captured() {
    if !sys::require::root() {
        return;
    }
    for v6 in [false, true] {
        let world = Topology::new();
        let mut load = world.load(Backend::Socket, v6, 1);
        load.amount = Amount::Packets(u64::MAX);
        let to = load.destinations[0];
        let (sequences, sent) = replay(&world, &mut load, to, false);
        assert_eq!(sequences, (0..50).collect::<Vec<_>>());
        assert_eq!((sent.scheduled, sent.sent), (51, 51));
        assert_eq!(sent.skipped, SkipCounts::default());
        // 51 frames 100 us apart at twice the speed.
        assert!(sent.elapsed_ns >= 2_500_000, "{}", sent.elapsed_ns);
        assert_eq!(sent.lateness.count(), 51);
    }
}

#[test]
fn datagrams_for_elsewhere_are_redirected_and_the_rest_left_out() {
    if !sys::require::root() {
        return;
    }
    for (v6, elsewhere) in [(false, "203.0.113.9:53"), (true, "[2001:db8:9::9]:53")] {
        let world = Topology::new();
        let mut load = world.load(Backend::Socket, v6, 1);
        load.amount = Amount::Packets(u64::MAX);
        let elsewhere = elsewhere.parse().unwrap();
        let (sequences, sent) = replay(&world, &mut load, elsewhere, true);
        assert_eq!(sequences, (0..50).collect::<Vec<_>>());
        let not_udp = 1;
        assert_eq!(
            (sent.sent, sent.skipped),
            (
                50,
                SkipCounts {
                    not_udp,
                    ..SkipCounts::default()
                }
            )
        );
    }
}

/// Every capture of the corpus is either replayed whole or refused in words, and its frames are
/// all accounted for.
#[test]
fn real_captures_are_accounted_for() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    if !sys::require::root() {
        return;
    }
    let world = Topology::new();
    let mut load = world.load(Backend::Socket, false, 1);
    load.amount = Amount::Packets(200);
    let mut replayed = 0;
    for entry in std::fs::read_dir(corpus.join("pcap")).unwrap() {
        let path = entry.unwrap().path();
        load.backend = Backend::Pcap(Replay {
            path: path.clone(),
            timing: Timing::Rate(1e5),
            redirect: true,
        });
        match world.generate(&load) {
            Ok(sent) => {
                assert_eq!(sent.scheduled, sent.sent + sent.refused + sent.errors);
                replayed += sent.sent;
            }
            Err(error) => {
                let words = error.to_string();
                let expected = ["cut off", "not a pcap", "packets, at"];
                assert!(expected.iter().any(|e| words.contains(e)), "{words}");
            }
        }
    }
    assert!(replayed > 0);
}
