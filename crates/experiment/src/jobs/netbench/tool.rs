//! The tools that run a test: ours, and those that ours is calibrated against. What they print is made one
//! of: full round trips, in microseconds, and goodput as the receiver counts it.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use datapath::Missing;
use serde_json::Value;
use testbed::Program;

use super::own::{self, note_p99};
use super::stated;
use crate::jobs::Outcome;
use crate::jobs::program::{agent, lowroad_command, program};
use crate::plan::Load;

/// Of sockperf's messages, in bytes: their header.
const LEAST: u64 = 14;
/// Where servers wait; all tools take it.
pub(super) const PORT: u16 = 12_866;
/// Where the tests of ours come in, if ports are published: those of a server that has all would be too many.
pub(super) const DATA_PORTS: [u16; 2] = [PORT + 1, PORT + 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Lowroad,
    Iperf3,
    Sockperf,
    Netperf,
}

/// One test between two hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) test: &'a str,
    pub(super) load: &'a Load,
    pub(super) server: IpAddr,
    /// Where the client reaches it.
    pub(super) target: IpAddr,
    /// Whether it is reached at ports that are published, and no others.
    pub(super) published: bool,
    pub(super) token: &'a Path,
}

impl Tool {
    pub(super) fn check(self) -> Result<(), Missing> {
        match self {
            Self::Lowroad => agent().map(drop),
            Self::Iperf3 => program("iperf3", "apt-get install iperf3"),
            Self::Sockperf => program("sockperf", "apt-get install sockperf"),
            Self::Netperf => program("netperf", "build it: Debian has no package of it"),
        }
    }

    /// What of a load it has not: nothing that was asked for is left out in silence.
    pub(super) fn lacks(self, test: &str, load: &Load) -> Option<String> {
        let has = match self {
            Self::Lowroad => return None,
            Self::Iperf3 => test == "tcp_stream",
            Self::Sockperf => matches!(test, "tcp_rr" | "udp_rr"),
            Self::Netperf => matches!(test, "tcp_rr" | "udp_rr" | "tcp_stream"),
        };
        let duration = load.duration.0;
        if !has {
            Some(format!("has no {test}"))
        } else if stated::rate(load).is_some() {
            Some("is measured in a closed loop alone".to_owned())
        } else if duration.subsec_nanos() != 0 {
            Some("counts whole seconds".to_owned())
        } else if self == Self::Sockperf && stated::size(load) < Some(LEAST) {
            Some(format!("has messages of {LEAST} bytes and more"))
        } else {
            None
        }
    }

    /// The end that answers, until it is ended.
    pub(super) fn server(self, asked: &Asked<'_>) -> Result<Program, Missing> {
        let address = asked.server.to_string();
        let port = PORT.to_string();
        let server = |name: &str, words: &[&str]| Program::new(name).args(words);
        Ok(match self {
            Self::Lowroad => {
                let listen = format!("{address}:{port}");
                Program::new(agent()?)
                    .args(["serve", "--listen", &listen, "--token-file"])
                    .args([asked.token])
                    .args(asked.published.then(|| "--data-ports".to_owned()))
                    .args(asked.published.then(data_ports))
                    .needs(asked.token)
            }
            Self::Iperf3 => server("iperf3", &["-s", "-B", &address, "-p", &port]),
            Self::Sockperf => {
                let words = ["server", "-i", &address, "-p", &port];
                let tcp = (asked.test == "tcp_rr").then_some("--tcp");
                server("sockperf", &words).args(tcp)
            }
            Self::Netperf => server("netserver", &["-D", "-L", &address, "-p", &port]),
        })
    }

    /// Whether the server waits for datagrams alone.
    pub(super) fn by_datagram(self, test: &str) -> bool {
        self == Self::Sockperf && test == "udp_rr"
    }

    /// The end that asks, which says what it came to and ends.
    pub(super) fn client(self, asked: &Asked<'_>, warmup: Duration) -> Command {
        let (address, port) = (asked.target.to_string(), PORT.to_string());
        let size = stated::size(asked.load).unwrap_or(1);
        let seconds = asked.load.duration.0.as_secs().to_string();
        match self {
            Self::Lowroad => {
                let target = format!("{address}:{port}");
                let duration = format!("{}us", asked.load.duration.0.as_micros());
                let warmup = format!("{}us", warmup.as_micros());
                let mut command = lowroad_command(&["netbench", "run", &target, "--json"]);
                command.args(["--test", asked.test, "--duration", &duration]);
                command.args(["--warmup", &warmup, "--histogram", "--token-file"]);
                command.arg(asked.token);
                if let Some(rate) = stated::rate(asked.load) {
                    command.args(["--rate", &format!("{rate}pps")]);
                }
                if size > 1 {
                    let size = format!("{size}B");
                    command.args(["--request", &size, "--response", &size]);
                }
                command
            }
            Self::Iperf3 => {
                let words = ["-c", &address, "-p", &port, "-t", &seconds, "--json"];
                let mut command = command("iperf3", &words);
                // A connection has to find its window: ours is warmed up, too.
                command.args(["-O", "1"]);
                command
            }
            Self::Sockperf => {
                let size = size.to_string();
                let words = ["ping-pong", "-i", &address, "-p", &port, "-t", &seconds];
                let mut command = command("sockperf", &words);
                // It prints half of that else.
                command.args(["-m", &size, "--full-rtt"]);
                if asked.test == "tcp_rr" {
                    command.arg("--tcp");
                }
                command
            }
            Self::Netperf => {
                let test = asked.test.to_uppercase();
                let words = ["-H", &address, "-p", &port, "-t", &test, "-l", &seconds];
                let mut command = command("netperf", &words);
                command.args(["-P", "0", "--", "-o", "THROUGHPUT,P50_LATENCY,P99_LATENCY"]);
                if stated::transacts(asked.test) {
                    command.args(["-r", &format!("{size},{size}")]);
                }
                command
            }
        }
    }

    /// What the client said.
    pub(super) fn read(self, test: &str, said: &str, outcome: &mut Outcome) -> Result<()> {
        let read = match self {
            Self::Lowroad => own::read(said, outcome),
            Self::Iperf3 => iperf3(said, outcome),
            Self::Sockperf => sockperf(said, outcome),
            Self::Netperf => netperf(test, said, outcome),
        };
        read.with_context(|| format!("{self:?} said {said:?}"))
    }
}

fn data_ports() -> String {
    let [first, last] = DATA_PORTS;
    format!("{first}-{last}")
}

fn command(program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words);
    command
}

fn iperf3(said: &str, outcome: &mut Outcome) -> Result<()> {
    let said: Value = serde_json::from_str(said)?;
    let rate = said["end"]["sum_received"]["bits_per_second"].as_f64();
    let rate = rate.context("no rate of what was received")?;
    outcome.values.insert("mbit_per_s".to_owned(), rate / 1e6);
    Ok(())
}

fn sockperf(said: &str, outcome: &mut Outcome) -> Result<()> {
    let percentile = |share: &str| -> Result<f64> {
        let line = said.lines().find_map(|line| {
            let (_, rest) = line.split_once("percentile ")?;
            let (of, value) = rest.split_once('=')?;
            (of.trim() == share).then(|| value.trim().parse::<f64>())
        });
        Ok(line.context("no percentiles")??)
    };
    let (p50, p99) = (percentile("50.000")?, percentile("99.000")?);
    // Of the window that it counts, without what it takes to warm up and to end.
    let line = said.lines().find(|line| line.contains("[Valid Duration]"));
    let line = line.context("no valid duration")?;
    let after = |name: &str| -> Option<f64> {
        let (_, rest) = line.split_once(name)?;
        let value = rest.split([' ', ';']).find(|word| !word.is_empty())?;
        value.parse().ok()
    };
    let pair = after("RunTime=").zip(after("ReceivedMessages="));
    let (seconds, messages) = pair.context("no count of messages")?;
    let values = [
        ("rtt_us_p50", p50),
        ("transactions_per_s", messages / seconds),
    ];
    let values = values.map(|(name, value)| (name.to_owned(), value));
    outcome.values.extend(values);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count"
    )]
    note_p99(messages as u64, Some(p99), outcome);
    Ok(())
}

fn netperf(test: &str, said: &str, outcome: &mut Outcome) -> Result<()> {
    let line = said.lines().last().context("it said nothing")?;
    let words: Result<Vec<f64>, _> = line.split(',').map(|word| word.trim().parse()).collect();
    let [rate, p50, p99] = words?[..] else {
        bail!("three values were asked for");
    };
    let values: &[(&str, f64)] = match stated::transacts(test) {
        true => &[
            ("transactions_per_s", rate),
            ("rtt_us_p50", p50),
            ("rtt_us_p99", p99),
        ],
        false => &[("mbit_per_s", rate)],
    };
    for (name, value) in values {
        outcome.values.insert((*name).to_owned(), *value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    fn values(tool: Tool, test: &str, said: &str) -> Vec<(String, f64)> {
        let mut outcome = Outcome::default();
        tool.read(test, said, &mut outcome).unwrap();
        outcome.values.into_iter().collect()
    }

    #[test]
    fn what_a_tool_has_not_is_told() {
        let mut load = Plan::find("netbench-calibration").unwrap().loads[0].clone();
        let lacks = |load: &Load, tool: Tool, test| tool.lacks(test, load).unwrap_or_default();
        assert_eq!(lacks(&load, Tool::Sockperf, "tcp_rr"), "");
        assert!(lacks(&load, Tool::Iperf3, "tcp_rr").contains("tcp_rr"));
        load.duration = "1500ms".parse().unwrap();
        assert!(lacks(&load, Tool::Netperf, "tcp_rr").contains("whole seconds"));
        load.duration = "2s".parse().unwrap();
        load.options = toml::from_str("test = 'tcp_rr'").unwrap();
        assert!(lacks(&load, Tool::Sockperf, "tcp_rr").contains("14 bytes"));
        load.options = toml::from_str("test = 'tcp_rr'\nrate = 10").unwrap();
        assert!(lacks(&load, Tool::Netperf, "tcp_rr").contains("closed loop"));
        assert_eq!(lacks(&load, Tool::Lowroad, "tcp_rr"), "");
    }

    #[test]
    fn what_other_tools_say_is_read() {
        let said = "sockperf: [Valid Duration] RunTime=2.000 sec; SentMessages=50001; ReceivedMessages=50000\n\
                    sockperf: ---> percentile 99.000 =   61.500\nsockperf: ---> percentile 50.000 =   39.250\n";
        let read = values(Tool::Sockperf, "tcp_rr", said);
        let expected = [
            ("rtt_us_p50".to_owned(), 39.25),
            ("rtt_us_p99".to_owned(), 61.5),
            ("transactions_per_s".to_owned(), 25_000.0),
        ];
        assert_eq!(read, expected);
        let said = r#"{"end": {"sum_received": {"bits_per_second": 2.5e9}}}"#;
        let read = values(Tool::Iperf3, "tcp_stream", said);
        assert_eq!(read, [("mbit_per_s".to_owned(), 2500.0)]);
        let read = values(Tool::Netperf, "tcp_rr", "20123.45,47,91\n");
        assert_eq!(read[2], ("transactions_per_s".to_owned(), 20_123.45));
        for (tool, said) in [
            (Tool::Sockperf, "sockperf: ERROR"),
            (Tool::Iperf3, "{}"),
            (Tool::Netperf, "1,2"),
            (Tool::Lowroad, ""),
        ] {
            let outcome = &mut Outcome::default();
            assert!(tool.read("tcp_rr", said, outcome).is_err(), "{tool:?}");
        }
    }

    #[test]
    fn few_transactions_have_no_99th_percentile() {
        let said = "sockperf: [Valid Duration] RunTime=2.000 sec; SentMessages=501; ReceivedMessages=500\n\
                    sockperf: ---> percentile 99.000 =   61.500\nsockperf: ---> percentile 50.000 =   39.250\n";
        let read = values(Tool::Sockperf, "tcp_rr", said);
        let names: Vec<_> = read.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["rtt_us_p50", "transactions_per_s"]);
    }
}
