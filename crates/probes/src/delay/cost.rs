//! The cost of the probes for one packet.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};

use libbpf_rs::{ProgramInput, ProgramMut};
use packet::payload;
use sys::netns::Namespace;

use super::{DelayConfig, MatchKey, Point, StampFrom, Subscriber, load};
use crate::Error;

/// Nanoseconds a packet, warm: the same packet over and over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// At the sender: parse, stamp, clock.
    pub egress_ns: f64,
    /// At the receiver: clock, parse, match, count, histogram.
    pub ingress_ns: f64,
    /// The null probe at either side: the loop of the measurement, the call, the parser.
    pub null_egress_ns: f64,
    pub null_ingress_ns: f64,
}

impl Cost {
    /// The cost of stamping and matching in addition to the null probes, for the pair.
    pub fn pair_ns(&self) -> f64 {
        self.egress_ns + self.ingress_ns - self.null_egress_ns - self.null_ingress_ns
    }
}

/// Runs the programs on one packet `repeat` times each and keeps the fastest of five rounds: what
/// else runs on the machine can only make a round slower.
///
/// # Errors
/// Any error of loading or running the programs.
pub fn cost(repeat: u32) -> Result<Cost, Error> {
    let address = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 5004));
    let mut config = DelayConfig {
        sender: Some(here()?),
        receivers: vec![here()?],
        key: MatchKey::Lowroad { run: 1 },
        stamp: StampFrom::Egress,
        subscribers: vec![Subscriber { address, flow: 0 }],
        capacity: 64,
        window: 64,
        split_histograms: false,
        null: false,
    };
    let (egress_ns, ingress_ns) = both(&config, repeat)?;
    config.null = true;
    let (null_egress_ns, null_ingress_ns) = both(&config, repeat)?;
    Ok(Cost {
        egress_ns,
        ingress_ns,
        null_egress_ns,
        null_ingress_ns,
    })
}

fn here() -> Result<Point, Error> {
    Ok(Point {
        namespace: Namespace::current()?,
        ifindex: 1,
    })
}

fn both(config: &DelayConfig, repeat: u32) -> Result<(f64, f64), Error> {
    let mut storage = MaybeUninit::uninit();
    let skel = load(config, &mut storage)?;
    let frame = frame();
    Ok((
        fastest(&skel.progs.stamp_departure, &frame, repeat)?,
        fastest(&skel.progs.match_arrival_0, &frame, repeat)?,
    ))
}

fn fastest(program: &ProgramMut<'_>, frame: &[u8], repeat: u32) -> Result<f64, Error> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let input = ProgramInput {
            data_in: Some(frame),
            repeat,
            ..Default::default()
        };
        let output = program
            .test_run(input)
            .map_err(Error::bpf("running a probe on a packet"))?;
        best = best.min(output.duration.as_secs_f64() * 1e9);
    }
    Ok(best)
}

/// An Ethernet frame with one datagram of ours to 192.0.2.1:5004.
fn frame() -> Vec<u8> {
    const UDP_LEN: u16 = 8 + 40;
    let mut frame = vec![0; 14 + 20 + usize::from(UDP_LEN)];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(20 + UDP_LEN).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[30..34].copy_from_slice(&[192, 0, 2, 1]);
    frame[36..38].copy_from_slice(&5004_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&UDP_LEN.to_be_bytes());
    let header = payload::Header {
        run: 1,
        flow: 0,
        sequence: 0,
        intended_ns: 0,
        sent_ns: 0,
    };
    header.write(&mut frame[42..]);
    frame
}
