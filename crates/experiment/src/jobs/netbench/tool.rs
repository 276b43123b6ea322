//! The tools that run a test: ours, and those that ours is calibrated against. What they print is made one
//! of: full round trips, in microseconds, and goodput as the receiver counts it.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use datapath::Missing;
use netbench::Test;
use serde_json::Value;
use testbed::Program;

use super::client_report::{self, note_p99};
use super::metric_names;
use crate::jobs::netbench::load::Load;
use crate::outcome::Outcome;
use crate::program::{Lowroad, agent, program};

/// The shortest message of sockperf in bytes: its header.
const SOCKPERF_MIN_LEN: u64 = 14;
/// The longest write of iperf3 in bytes.
const IPERF3_MAX_LEN: u64 = 1 << 20;
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

/// A test between two hosts, as a load asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TestRequest<'a> {
    pub(super) test: Test,
    pub(super) load: &'a Load,
    pub(super) lowroad: &'a Lowroad,
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
            Self::Netperf => program("netperf", "build it: Debian does not package it"),
        }
    }

    /// Why it cannot run a load: no option of a load is ignored silently.
    pub(super) fn lacks(self, test: Test, load: &Load) -> Option<String> {
        let has = match self {
            Self::Lowroad => return None,
            Self::Iperf3 => matches!(test, Test::TcpStream | Test::UdpStream),
            Self::Sockperf => matches!(test, Test::TcpRr | Test::UdpRr),
            Self::Netperf => matches!(test, Test::TcpRr | Test::UdpRr | Test::TcpStream),
        };
        let duration = load.duration.0;
        let size = message_size(test, load);
        if !has {
            Some(format!("has no {test}"))
        } else if load.rate().is_some() && test != Test::UdpStream {
            Some("is measured in a closed loop alone".to_owned())
        } else if load.flows() > 1 {
            Some("is measured in one flow alone".to_owned())
        } else if duration.subsec_nanos() != 0 {
            Some("counts whole seconds".to_owned())
        } else if self == Self::Sockperf && size < Some(SOCKPERF_MIN_LEN) {
            Some(format!("has messages of {SOCKPERF_MIN_LEN} bytes and more"))
        } else if test == Test::UdpStream && size.is_none() {
            Some("has datagrams of another size by default: the load needs a size".to_owned())
        } else if self == Self::Iperf3 && size > Some(IPERF3_MAX_LEN) {
            Some(format!(
                "writes no more than {IPERF3_MAX_LEN} bytes at once"
            ))
        } else {
            None
        }
    }

    /// The end that answers, until it is ended.
    pub(super) fn server(self, request: &TestRequest<'_>) -> Result<Program, Missing> {
        let address = request.server.to_string();
        let port = PORT.to_string();
        let server = |name: &str, words: &[&str]| Program::new(name).args(words);
        Ok(match self {
            Self::Lowroad => {
                let listen = format!("{address}:{port}");
                // Both ends of another build are its own.
                let program = match *request.lowroad == Lowroad::own() {
                    true => Program::new(agent()?),
                    false => request.lowroad.payload(&["netbench"]),
                };
                program
                    .args(["serve", "--listen", &listen, "--token-file"])
                    .args([request.token])
                    .args(request.published.then(|| "--data-ports".to_owned()))
                    .args(request.published.then(data_ports))
                    .needs(request.token)
            }
            Self::Iperf3 => server("iperf3", &["-s", "-B", &address, "-p", &port]),
            Self::Sockperf => {
                let words = ["server", "-i", &address, "-p", &port];
                let tcp = (request.test == Test::TcpRr).then_some("--tcp");
                server("sockperf", &words).args(tcp)
            }
            Self::Netperf => server("netserver", &["-D", "-L", &address, "-p", &port]),
        })
    }

    /// Whether the server waits for datagrams alone.
    pub(super) fn by_datagram(self, test: Test) -> bool {
        self == Self::Sockperf && test == Test::UdpRr
    }

    /// The end that asks, which says what it came to and ends.
    pub(super) fn client(self, request: &TestRequest<'_>, warmup: Duration) -> Command {
        let (address, port) = (request.target.to_string(), PORT.to_string());
        let size = message_size(request.test, request.load);
        let seconds = request.load.duration.0.as_secs().to_string();
        match self {
            Self::Lowroad => {
                let target = SocketAddr::new(request.target, PORT).to_string();
                let test = (request.test, request.load);
                let mut command = own_client(request.lowroad, &target, test, warmup);
                // A test without a server refuses the flag.
                if request.test.needs_server() {
                    command.arg("--token-file").arg(request.token);
                }
                command
            }
            Self::Iperf3 => {
                let words = ["-c", &address, "-p", &port, "-t", &seconds, "--json"];
                let mut command = command("iperf3", &words);
                // A connection has to find its window: ours is warmed up, too.
                command.args(["-O", "1"]);
                if let Some(size) = size {
                    command.args(["-l", &size.to_string()]);
                }
                if let Some(rate) = request.load.rate() {
                    let bits = rate * size.unwrap_or_default() * 8;
                    command.args(["-u", "-b", &bits.to_string()]);
                }
                command
            }
            Self::Sockperf => {
                let size = size.unwrap_or(1).to_string();
                let words = ["ping-pong", "-i", &address, "-p", &port, "-t", &seconds];
                let mut command = command("sockperf", &words);
                // It prints half of that else.
                command.args(["-m", &size, "--full-rtt"]);
                if request.test == Test::TcpRr {
                    command.arg("--tcp");
                }
                command
            }
            Self::Netperf => {
                let test = request.test.name().to_uppercase();
                let words = ["-H", &address, "-p", &port, "-t", &test, "-l", &seconds];
                let mut command = command("netperf", &words);
                command.args(["-P", "0", "--", "-o", "THROUGHPUT,P50_LATENCY,P99_LATENCY"]);
                let size = match request.test.streams() {
                    true => size.map(|size| ("-m", size.to_string())),
                    false => size.map(|size| ("-r", format!("{size},{size}"))),
                };
                if let Some((option, size)) = size {
                    command.args([option, &size]);
                }
                command
            }
        }
    }

    /// Reads the client's output.
    pub(super) fn read(self, test: Test, said: &str, outcome: &mut Outcome) -> Result<()> {
        let read = match self {
            Self::Lowroad => client_report::read(test, said, outcome),
            Self::Iperf3 => iperf3(test, said, outcome),
            Self::Sockperf => sockperf(test, said, outcome),
            Self::Netperf => netperf(test, said, outcome),
        };
        read.with_context(|| format!("{self:?} printed {said:?}"))
    }
}

/// The size of messages: a given one, or that of our transactions.
fn message_size(test: Test, load: &Load) -> Option<u64> {
    let usual = (!test.streams()).then(|| test.default_transaction().into());
    load.size().or(usual)
}

/// Our own client of a server, wherever that is, without the token.
pub(super) fn own_client(
    lowroad: &Lowroad,
    target: &str,
    (test, load): (Test, &Load),
    warmup: Duration,
) -> Command {
    let duration = format!("{}us", load.duration.0.as_micros());
    let warmup = format!("{}us", warmup.as_micros());
    let mut command = lowroad.command(&["netbench", "run", target, "--json"]);
    // Streams have no latencies, and refuse the flag.
    if !test.streams() {
        command.arg("--histogram");
    }
    command.args(["--test", test.name(), "--duration", &duration]);
    command.args(["--warmup", &warmup]);
    if let Some(rate) = load.rate() {
        command.args(["--rate", &format!("{rate}pps")]);
    }
    let flows = load.flows();
    if flows > 1 {
        command.args(["--flows", &flows.to_string()]);
    }
    if let Some(size) = load.size() {
        let size = format!("{size}B");
        match test.has_messages() {
            true => command.args(["--message", &size]),
            false => command.args(["--request", &size, "--response", &size]),
        };
    }
    command
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

fn iperf3(test: Test, said: &str, outcome: &mut Outcome) -> Result<()> {
    let said: Value = serde_json::from_str(said)?;
    let rate = said["end"]["sum_received"]["bits_per_second"].as_f64();
    let rate = rate.context("no rate of what was received")?;
    outcome
        .values
        .insert(metric_names::goodput(test), rate / 1e6);
    if test.measures_loss() {
        let lost = said["end"]["sum"]["lost_percent"].as_f64();
        let lost = lost.context("no share of what was lost")?;
        outcome.values.insert(metric_names::loss(test), lost);
    }
    Ok(())
}

fn sockperf(test: Test, said: &str, outcome: &mut Outcome) -> Result<()> {
    let percentile = |share: &str| -> Result<f64> {
        let line = said.lines().find_map(|line| {
            let (_, rest) = line.split_once("percentile ")?;
            let (of, value) = rest.split_once('=')?;
            (of.trim() == share).then(|| value.trim().parse::<f64>())
        });
        Ok(line.context("no percentiles")??)
    };
    let (p50, p99) = (percentile("50.000")?, percentile("99.000")?);
    // The counted window, without warm-up and end.
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
        (metric_names::p50(test), p50),
        (metric_names::TRANSACTIONS.to_owned(), messages / seconds),
    ];
    outcome.values.extend(values);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count"
    )]
    note_p99(test, messages as u64, Some(p99), outcome);
    Ok(())
}

fn netperf(test: Test, said: &str, outcome: &mut Outcome) -> Result<()> {
    let line = said.lines().last().context("it printed nothing")?;
    let words: Result<Vec<f64>, _> = line.split(',').map(|word| word.trim().parse()).collect();
    let [rate, p50, p99] = words?[..] else {
        bail!("three values were asked for");
    };
    let values = match test.streams() {
        false => vec![
            (metric_names::TRANSACTIONS.to_owned(), rate),
            (metric_names::p50(test), p50),
            (metric_names::p99(test), p99),
        ],
        true => vec![(metric_names::goodput(test), rate)],
    };
    outcome.values.extend(values);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::loads_of;

    fn values(tool: Tool, test: Test, said: &str) -> Vec<(String, f64)> {
        let mut outcome = Outcome::default();
        tool.read(test, said, &mut outcome).unwrap();
        outcome.values.into_iter().collect()
    }

    #[test]
    fn what_a_tool_has_not_is_told() {
        let mut load = loads_of::<Load>("netbench-calibration").remove(0);
        let lacks = |load: &Load, tool: Tool, test| tool.lacks(test, load).unwrap_or_default();
        assert_eq!(lacks(&load, Tool::Sockperf, Test::TcpRr), "");
        assert!(lacks(&load, Tool::Iperf3, Test::TcpRr).contains("tcp_rr"));
        load.duration = "1500ms".parse().unwrap();
        assert!(lacks(&load, Tool::Netperf, Test::TcpRr).contains("whole seconds"));
        load.duration = "2s".parse().unwrap();
        load.options = toml::from_str("test = 'tcp_rr'").unwrap();
        assert!(lacks(&load, Tool::Sockperf, Test::TcpRr).contains("14 bytes"));
        load.options = toml::from_str("test = 'tcp_rr'\nrate = 10").unwrap();
        assert!(lacks(&load, Tool::Netperf, Test::TcpRr).contains("closed loop"));
        assert_eq!(lacks(&load, Tool::Lowroad, Test::TcpRr), "");
        load.options = toml::from_str("test = 'tcp_rr'\nflows = 2").unwrap();
        assert!(lacks(&load, Tool::Netperf, Test::TcpRr).contains("one flow"));
        load.options = toml::from_str("test = 'tcp_stream'\nsize = 1048577").unwrap();
        assert!(lacks(&load, Tool::Iperf3, Test::TcpStream).contains("1048576 bytes"));
        load.options = toml::from_str("test = 'udp_stream'\nrate = 1000").unwrap();
        assert!(lacks(&load, Tool::Iperf3, Test::UdpStream).contains("needs a size"));
        load.options = toml::from_str("test = 'udp_stream'\nrate = 1000\nsize = 1250").unwrap();
        assert_eq!(lacks(&load, Tool::Iperf3, Test::UdpStream), "");
    }

    #[test]
    fn what_a_load_asks_for_is_asked_of_the_tool() {
        let asked = |tool: Tool, options: &str| {
            let mut load = loads_of::<Load>("netbench-calibration").remove(0);
            load.options = toml::from_str(options).unwrap();
            let address = IpAddr::from([192, 0, 2, 1]);
            let asked = TestRequest {
                lowroad: &Lowroad::own(),
                test: load.test().unwrap(),
                load: &load,
                server: address,
                target: address,
                published: false,
                token: Path::new("token"),
            };
            let command = tool.client(&asked, Duration::ZERO);
            let words: Vec<_> = command
                .get_args()
                .map(|word| word.to_string_lossy())
                .collect();
            words.join(" ")
        };
        for (tool, options, words) in [
            (
                Tool::Lowroad,
                "test = 'udp_stream'\nrate = 500\nsize = 64\nflows = 2",
                "--rate 500pps --flows 2 --message 64B",
            ),
            (
                Tool::Lowroad,
                "test = 'icmp'\nsize = 1400",
                "--message 1400B",
            ),
            (
                Tool::Lowroad,
                "test = 'tcp_crr'\nsize = 9",
                "--request 9B --response 9B",
            ),
            (
                Tool::Lowroad,
                "test = 'tcp_rr'",
                "run 192.0.2.1:12866 --json",
            ),
            (Tool::Iperf3, "test = 'tcp_stream'\nsize = 256", "-l 256"),
            (
                Tool::Iperf3,
                "test = 'udp_stream'\nrate = 1000\nsize = 1250",
                "-l 1250 -u -b 10000000",
            ),
            (Tool::Sockperf, "test = 'udp_rr'\nsize = 99", "-m 99"),
            (Tool::Netperf, "test = 'tcp_stream'\nsize = 256", "-m 256"),
            (Tool::Netperf, "test = 'tcp_rr'", "-r 1,1"),
            (Tool::Netperf, "test = 'udp_rr'", "-r 16,16"),
        ] {
            let said = asked(tool, options);
            assert!(said.contains(words), "{options}: {said}");
        }
        let plain = asked(Tool::Lowroad, "test = 'tcp_stream'");
        assert!(
            !plain.contains("--flows") && !plain.contains("--message"),
            "{plain}"
        );
    }

    #[test]
    fn what_other_tools_say_is_read() {
        let said = "sockperf: [Valid Duration] RunTime=2.000 sec; SentMessages=50001; ReceivedMessages=50000\n\
                    sockperf: ---> percentile 99.000 =   61.500\nsockperf: ---> percentile 50.000 =   39.250\n";
        let read = values(Tool::Sockperf, Test::TcpRr, said);
        let expected = [
            ("tcp_rr_us_p50".to_owned(), 39.25),
            ("tcp_rr_us_p99".to_owned(), 61.5),
            ("transactions_per_s".to_owned(), 25_000.0),
        ];
        assert_eq!(read, expected);
        let said = r#"{"end": {"sum_received": {"bits_per_second": 2.5e9}}}"#;
        let read = values(Tool::Iperf3, Test::TcpStream, said);
        assert_eq!(read, [("tcp_stream_mbps".to_owned(), 2500.0)]);
        let said =
            r#"{"end": {"sum_received": {"bits_per_second": 1e7}, "sum": {"lost_percent": 0.5}}}"#;
        let read = values(Tool::Iperf3, Test::UdpStream, said);
        let expected = [
            ("udp_stream_loss_pct".to_owned(), 0.5),
            ("udp_stream_mbps".to_owned(), 10.0),
        ];
        assert_eq!(read, expected);
        let read = values(Tool::Netperf, Test::TcpRr, "20123.45,47,91\n");
        assert_eq!(read[2], ("transactions_per_s".to_owned(), 20_123.45));
        for (tool, said) in [
            (Tool::Sockperf, "sockperf: ERROR"),
            (Tool::Iperf3, "{}"),
            (Tool::Netperf, "1,2"),
            (Tool::Lowroad, ""),
        ] {
            let outcome = &mut Outcome::default();
            assert!(tool.read(Test::TcpRr, said, outcome).is_err(), "{tool:?}");
        }
    }

    #[test]
    fn few_transactions_have_no_99th_percentile() {
        let said = "sockperf: [Valid Duration] RunTime=2.000 sec; SentMessages=501; ReceivedMessages=500\n\
                    sockperf: ---> percentile 99.000 =   61.500\nsockperf: ---> percentile 50.000 =   39.250\n";
        let read = values(Tool::Sockperf, Test::TcpRr, said);
        let names: Vec<_> = read.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["tcp_rr_us_p50", "transactions_per_s"]);
    }
}
