//! Flows as the collectors that people run receive them: nfdump's and pmacct's.

use std::collections::HashMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use features::flow::Flow;
use features::sink::ipfix::UdpExporter;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sys::child::die_with_parent;
use sys::require::{Class, skip};

use crate::common::{
    self, arrow_schema, assert_same, captures, expected, flows, wait_until, write,
};

/// A collector that ends with the test.
struct Collector {
    child: Child,
    address: String,
}

fn is_missing(program: &str) -> bool {
    let missing = Command::new(program)
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_err();
    if missing {
        skip(Class::Core, &format!("needs {program}"));
    }
    missing
}

fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

impl Collector {
    /// Starts it, and waits until it listens.
    fn start(port: u16, command: &mut Command) -> Self {
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = die_with_parent(quiet).spawn().unwrap();
        let local = format!("0100007F:{port:04X}");
        wait_until("the collector listens", || {
            fs::read_to_string("/proc/net/udp")
                .unwrap()
                .contains(&local)
        });
        Self {
            child,
            address: format!("127.0.0.1:{port}"),
        }
    }

    fn send(&self, capture: &[u8]) {
        let sink = UdpExporter::connect(&self.address, &arrow_schema("ipfix"), 0).unwrap();
        let summary = write(capture, "ipfix", Box::new(sink));
        assert_eq!(summary.lost_rows, 0);
    }

    /// Is done with all that it was sent. What it has read last it may still be at: that is nothing.
    fn wait_for_all(&self) {
        self.wait_until_read();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"", &self.address).unwrap();
        self.wait_until_read();
    }

    fn wait_until_read(&self) {
        let port: u16 = self.address.rsplit(':').next().unwrap().parse().unwrap();
        let local = format!("0100007F:{port:04X}");
        wait_until("the collector has read everything", || {
            let sockets = fs::read_to_string("/proc/net/udp").unwrap();
            let line = sockets.lines().find(|line| line.contains(&local)).unwrap();
            assert!(line.trim_end().ends_with(" 0"), "datagrams dropped: {line}");
            line.contains(":00000000 ")
                && line.split_whitespace().nth(4) == Some("00000000:00000000")
        });
    }

    fn end(mut self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What nfdump shows of a flow: endpoints, and packets and bytes both ways.
type FlowLine = (String, String, u64, [u64; 4]);

fn flow_line(flow: &Flow) -> FlowLine {
    let address = |endpoint: features::Endpoint| endpoint.ip(flow.key.version).to_string();
    let ports = flow.key.protocol == 6 || flow.key.protocol == 17;
    let with_port = |endpoint: features::Endpoint| {
        let port = if ports { endpoint.port } else { 0 };
        format!("{} {port}", address(endpoint))
    };
    let (forward, backward) = (&flow.forward, &flow.backward);
    (
        with_port(flow.source()),
        with_port(flow.destination()),
        flow.key.protocol.into(),
        [
            forward.packets(),
            forward.ip_bytes,
            backward.packets(),
            backward.ip_bytes,
        ],
    )
}

fn nfdump(folder: &Path) -> Vec<FlowLine> {
    let output = Command::new("nfdump")
        .arg("-R")
        .arg(folder)
        .args(["-q", "-o", "json"])
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    // Objects one after the other, with or without an array around them.
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let array = format!("[{}]", text.trim().trim_end_matches(','));
    let records: Vec<HashMap<String, Value>> = serde_json::from_str(&array).unwrap();
    records.iter().map(nfdump_row).collect()
}

fn nfdump_row(record: &HashMap<String, Value>) -> FlowLine {
    let number = |name: &str| record.get(name).and_then(Value::as_u64).unwrap_or(0);
    let protocol = number("proto");
    let side = |end: &str| {
        let address = |version: &str| record.get(&format!("{end}{version}_addr"))?.as_str();
        let address = address("4").or_else(|| address("6")).unwrap();
        let port = if protocol == 6 || protocol == 17 {
            number(&format!("{end}_port"))
        } else {
            0
        };
        format!("{address} {port}")
    };
    let counts = ["in_packets", "in_bytes", "out_packets", "out_bytes"].map(number);
    (side("src"), side("dst"), protocol, counts)
}

#[test]
fn nfdump_has_every_flow_with_both_directions() {
    if is_missing("nfcapd") {
        return;
    }
    for (name, capture) in captures() {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut command = Command::new("nfcapd");
        command
            .args(["-b", "127.0.0.1", "-t", "3600", "-B", "16000000", "-p"])
            .arg(port.to_string());
        let collector = Collector::start(port, command.arg("-w").arg(folder.path()));
        collector.send(&capture);
        collector.wait_for_all();
        collector.end(Signal::SIGTERM);
        let wanted: Vec<_> = flows(&capture).iter().map(flow_line).collect();
        assert_same(&name, &nfdump(folder.path()), &wanted);
    }
}

#[test]
fn pmacct_has_every_flow_with_both_directions() {
    if is_missing("nfacctd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let (config, out) = (folder.path().join("config"), folder.path().join("out"));
    fs::write(&config, pmacct_config(folder.path(), port)).unwrap();
    let mut command = Command::new("nfacctd");
    let collector = Collector::start(port, command.arg("-f").arg(&config));
    // Its core listens before the plugin that writes has begun.
    let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    wait_until("its plugin works", || log().contains("Purging cache - END"));
    let mut wanted = Vec::new();
    for (_, capture) in captures() {
        collector.send(&capture);
        collector.wait_for_all();
        wanted.extend(expected(&capture));
    }
    // Its plugin writes what it still has when it ends, a moment after its core.
    collector.end(Signal::SIGINT);
    let lines = || {
        fs::read_to_string(&out)
            .unwrap_or_default()
            .matches('\n')
            .count()
    };
    wait_until("as many rows as flows", || lines() >= wanted.len());
    assert_same("pmacct", &pmacct(&out), &wanted);
}

fn pmacct_config(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    let own = [
        ("reverse_packets", "29305:86"),
        ("reverse_bytes", "29305:85"),
        ("flow_id", "148"),
    ];
    let own =
        own.map(|(name, field)| format!("name={name} field_type={field} len=8 semantics=u_int\n"));
    fs::write(format!("{folder}/primitives"), own.concat()).unwrap();
    format!(
        "daemonize: false\nlogfile: {folder}/log\nplugins: print\nnfacctd_ip: 127.0.0.1\nnfacctd_port: {port}\n\
         nfacctd_pipe_size: 16000000\nplugin_pipe_size: 20480000\nplugin_buffer_size: 10240\n\
         aggregate_primitives: {folder}/primitives\nprint_output: json\nprint_output_file: {folder}/out\n\
         aggregate: src_host, dst_host, src_port, dst_port, proto, flow_id, reverse_packets, reverse_bytes\n\
         print_output_file_append: true\nprint_refresh_time: 1\n"
    )
}

fn pmacct(out: &Path) -> Vec<common::Row> {
    let text = fs::read_to_string(out).unwrap();
    let row = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        // Its own numbers are numbers, and those of elements it was told of are text.
        let number = |name: &str| match &record[name] {
            Value::String(text) => text.parse().unwrap(),
            value => value.as_u64().unwrap(),
        };
        let counts = ["packets", "bytes", "reverse_packets", "reverse_bytes"].map(number);
        (number("flow_id"), counts)
    };
    text.lines().map(row).collect()
}
