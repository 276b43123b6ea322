use std::net::SocketAddr;

use packet::build;
use packet::pcap::{ETHERNET, Frame};

use super::*;
use crate::dissect::{Tunnels, dissect, tcp_flag};

const SECOND: i64 = 1_000_000_000;

/// A table and what it has exported.
struct Bench {
    table: Table,
    rows: Vec<Flow>,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        Self {
            table: Table::new(Timers::default(), limits),
            rows: Vec::new(),
        }
    }

    fn frame(&mut self, time_ns: i64, frame: &[u8]) {
        let frame = Frame {
            timestamp_ns: time_ns,
            original_length: u32::try_from(frame.len()).unwrap(),
            link_type: ETHERNET,
            bytes: frame,
        };
        let packet = dissect(&frame, Tunnels::Outer).unwrap();
        self.table.add(&packet, &mut |flow| self.rows.push(*flow));
    }

    fn datagram(&mut self, time_ns: i64, port: u16) {
        let frame = build::udp(client(port), server())
            .payload(vec![0; 10])
            .frame();
        self.frame(time_ns, &frame);
    }

    fn segment(&mut self, time_ns: i64, forward: bool, flags: u8) {
        let (from, to) = if forward {
            (client(1), server())
        } else {
            (server(), client(1))
        };
        self.frame(time_ns, &build::tcp(from, to, flags, 0).frame());
    }

    fn sweep(&mut self, horizon_ns: i64) {
        self.table
            .sweep(horizon_ns, &mut |flow| self.rows.push(*flow));
    }

    /// Why each row was exported, and its packets.
    fn ends(&self) -> Vec<(End, u64)> {
        self.rows
            .iter()
            .map(|flow| (flow.end, flow.packets()))
            .collect()
    }
}

fn client(port: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 0, 1].into(), port)
}

fn server() -> SocketAddr {
    "10.0.0.2:443".parse().unwrap()
}

#[test]
fn a_flow_ends_at_its_idle_timeout_whoever_notices() {
    let mut by_packet = Bench::new(Limits::default());
    by_packet.datagram(0, 1);
    by_packet.datagram(120 * SECOND - 1, 1);
    by_packet.datagram(240 * SECOND - 1, 1);
    assert_eq!(by_packet.ends(), [(End::Idle, 2)]);
    let mut by_sweep = Bench::new(Limits::default());
    by_sweep.datagram(0, 1);
    by_sweep.datagram(120 * SECOND - 1, 1);
    by_sweep.sweep(239 * SECOND);
    assert_eq!(by_sweep.ends(), []);
    // A sweep goes by buckets of about half a second: late it may be, early never.
    by_sweep.sweep(242 * SECOND);
    assert_eq!(by_sweep.rows, by_packet.rows);
}

#[test]
fn a_long_flow_goes_on_as_another() {
    let mut bench = Bench::new(Limits::default());
    for minute in 0..=30 {
        bench.datagram(minute * 60 * SECOND, 1);
    }
    assert_eq!(bench.ends(), [(End::Active, 30)]);
    assert_eq!(bench.table.packets(), 1);
}

#[test]
fn a_closed_connection_takes_stragglers_until_its_linger_is_over() {
    let mut bench = Bench::new(Limits::default());
    bench.segment(0, true, tcp_flag::SYN);
    bench.segment(1, true, tcp_flag::FIN | tcp_flag::ACK);
    bench.segment(2, false, tcp_flag::FIN | tcp_flag::ACK);
    bench.segment(4 * SECOND, true, tcp_flag::ACK);
    bench.segment(10 * SECOND, true, tcp_flag::ACK);
    assert_eq!(bench.ends(), [(End::Closed, 4)]);
    assert!(!bench.rows[0].midstream);
}

#[test]
fn a_closed_connection_is_swept_by_its_linger() {
    let mut bench = Bench::new(Limits::default());
    bench.segment(0, true, tcp_flag::SYN);
    bench.segment(1, false, tcp_flag::RST);
    bench.sweep(20 * SECOND);
    assert_eq!(bench.ends(), [(End::Closed, 2)]);
    assert!(bench.table.is_empty());
}

#[test]
fn one_fin_closes_nothing() {
    let mut bench = Bench::new(Limits::default());
    bench.segment(0, true, tcp_flag::SYN);
    bench.segment(1, false, tcp_flag::FIN | tcp_flag::ACK);
    bench.segment(60 * SECOND, true, tcp_flag::ACK);
    assert_eq!(bench.ends(), []);
}

#[test]
fn a_syn_with_another_number_opens_another_flow() {
    let mut bench = Bench::new(Limits::default());
    let syn = |sequence: u32| {
        let mut frame = build::tcp(client(1), server(), tcp_flag::SYN, 0).frame();
        frame[38..42].copy_from_slice(&sequence.to_be_bytes());
        frame
    };
    bench.frame(0, &syn(7));
    bench.segment(1, false, tcp_flag::RST | tcp_flag::ACK);
    bench.frame(2, &syn(7));
    assert_eq!(bench.ends(), [], "the same number is a retransmission");
    bench.frame(3, &syn(8));
    assert_eq!(bench.ends(), [(End::Closed, 3)]);
}

#[test]
fn the_answer_to_an_unseen_syn_is_backward_and_midstream() {
    let mut bench = Bench::new(Limits::default());
    bench.segment(0, false, tcp_flag::SYN | tcp_flag::ACK);
    bench.segment(1, true, tcp_flag::ACK);
    bench.table.drain(&mut |flow| bench.rows.push(*flow));
    let flow = &bench.rows[0];
    assert_eq!((flow.forward.packets(), flow.backward.packets()), (1, 1));
    assert_eq!(flow.source().port, 1);
    assert!(flow.midstream);
}

#[test]
fn a_full_table_exports_quiet_flows_and_keeps_busy_ones() {
    let limits = Limits {
        most_flows: 100,
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    bench.datagram(0, 60_000);
    for port in 0..1000_u16 {
        let now = i64::from(port) * SECOND / 5;
        bench.datagram(now, port);
        bench.datagram(now, 60_000);
        bench.sweep(now);
    }
    assert!(bench.table.len() <= 100);
    assert!(bench.rows.iter().all(|flow| flow.packets() == 1));
    assert!(bench.rows.iter().any(|flow| flow.end == End::Full));
    let open = bench.table.packets();
    assert_eq!(open + bench.rows.len() as u64, 2001);
}

#[test]
fn an_early_row_has_the_id_of_the_last() {
    let limits = Limits {
        early_packets: Some(2),
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    for time in 0..5 {
        bench.datagram(time, 1);
    }
    bench.sweep(1000 * SECOND);
    assert_eq!(bench.ends(), [(End::Early, 2), (End::Idle, 5)]);
    assert_eq!(bench.rows[0].id(), bench.rows[1].id());
}

#[test]
fn a_clock_that_goes_back_ends_nothing() {
    let mut bench = Bench::new(Limits::default());
    bench.datagram(1000 * SECOND, 1);
    bench.datagram(10 * SECOND, 1);
    bench.datagram(1001 * SECOND, 1);
    assert_eq!(bench.ends(), []);
    bench.table.drain(&mut |flow| bench.rows.push(*flow));
    let flow = &bench.rows[0];
    assert_eq!(flow.remarks().out_of_order, 1);
    assert_eq!(
        (flow.gaps.min(), flow.gaps.max()),
        (Some(0), Some(SECOND as u64))
    );
}

#[test]
fn a_clock_that_starts_anew_still_ends_flows() {
    let mut bench = Bench::new(Limits::default());
    bench.datagram(1_000_000 * SECOND, 1);
    bench.datagram(10 * SECOND, 2);
    bench.sweep(10 * SECOND);
    bench.sweep(200 * SECOND);
    assert_eq!(bench.ends(), [(End::Idle, 1)]);
}

#[test]
fn sweeps_at_any_time_leave_rows_as_they_are() {
    let run = |every: usize| {
        let mut bench = Bench::new(Limits::default());
        let mut time = 0;
        for step in 0..5000_usize {
            time += i64::try_from(step % 97).unwrap() * SECOND / 10;
            bench.datagram(time, u16::try_from(step % 13 * (step % 7)).unwrap());
            if step % every == 0 {
                bench.sweep(time);
            }
        }
        bench.table.drain(&mut |flow| bench.rows.push(*flow));
        let mut rows: Vec<(u64, u64, u64)> = bench
            .rows
            .iter()
            .map(|flow| (flow.id(), flow.packets(), flow.gaps.sum))
            .collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!(run(1), run(10_000));
    assert_eq!(run(17), run(10_000));
}
