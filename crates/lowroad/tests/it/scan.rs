//! A scan has as many flows as packets: memory stays within bounds, and every packet is accounted for.

use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sys::resource::{UsageWho, getrusage};
use packet::build;
use packet::pcap::{ETHERNET, Writer};
use serde_json::Value;

const MIB: i64 = 1 << 20;

#[test]
fn half_a_million_flows_of_a_packet_fit_beside_a_small_table() {
    let account = scan(500_000, &["--max-flows", "25000"], 224 * MIB);
    assert_eq!(account["table_full"], 475_000, "{account:#}");
}

#[test]
fn half_a_million_flows_of_a_packet_fit_beside_a_small_table_of_several_workers() {
    let arguments = ["--max-flows", "25000", "--threads", "3"];
    scan(500_000, &arguments, 256 * MIB);
}

#[test]
#[ignore = "two million flows"]
fn two_million_flows_of_a_packet_fit_beside_a_small_table() {
    let account = scan(2_000_000, &["--max-flows", "100000"], 512 * MIB);
    assert_eq!(account["table_full"], 1_900_000, "{account:#}");
}

#[test]
#[ignore = "two million flows"]
fn two_million_flows_of_a_packet_fit_beside_a_small_table_of_several_workers() {
    let arguments = ["--max-flows", "100000", "--threads", "3"];
    scan(2_000_000, &arguments, 768 * MIB);
}

#[test]
fn fifty_million_flows_of_a_packet_fit_into_two_gib() {
    if sys::require::requested("a scan of 50 million packets, for some minutes") {
        scan(50_000_000, &[], 2048 * MIB);
    }
}

/// Has the program read a scan of so many packets from a pipe; what it says, once that is exact and it
/// was never larger than this.
fn scan(packets: u32, arguments: &[&str], most: i64) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["features", "--json", "pcap", "-", "--schema", "nfstream.v1"])
        .args(["-o", "/dev/null", "--format", "parquet"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("lowroad starts");
    let said = thread::scope(|scope| {
        let input = BufWriter::with_capacity(1 << 16, child.stdin.take().expect("a pipe"));
        scope.spawn(move || generate(input, packets).expect("lowroad reads"));
        finished(child)
    });
    let account: Value = serde_json::from_slice(&said).expect("an account");
    for name in ["packets", "packets_exported", "flows", "rows"] {
        assert_eq!(account[name], packets, "{name}: {account:#}");
    }
    for name in ["packets_unaccounted", "rows_lost"] {
        assert_eq!(account[name], 0, "{name}: {account:#}");
    }
    // In KiB, of the largest child: a test is a process of its own.
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("usage");
    let largest = usage.max_rss() * 1024;
    assert!(largest < most, "{} MiB", largest / MIB);
    account
}

fn finished(child: Child) -> Vec<u8> {
    let output = child.wait_with_output().expect("lowroad ends");
    assert!(output.status.success(), "{}", output.status);
    output.stdout
}

/// A SYN to an address of its own each microsecond: no flow ends by itself.
fn generate(output: impl Write, packets: u32) -> std::io::Result<()> {
    let scanner = SocketAddr::from(([192, 0, 2, 1], 40_000));
    let mut frame = build::tcp(scanner, SocketAddr::from(([0; 4], 80)), 0x02, 0).frame();
    let mut writer = Writer::new(output, ETHERNET)?;
    for number in 0..packets {
        let to = Ipv4Addr::from_bits(0x0b00_0000 + number);
        frame[30..34].copy_from_slice(&to.octets());
        writer.write(1_700_000_000_000_000_000 + i64::from(number) * 1000, &frame)?;
    }
    writer.finish()?.flush()
}
