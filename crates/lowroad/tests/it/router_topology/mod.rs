//! A router between hosts, each in a namespace.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use testbed::{Child, Host, HostSpec, LinkKind, LinkSpec, Topology};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// The host `router`, with a link to each of the others.
pub(crate) fn topology(others: &[&str]) -> Topology {
    let mut topology = Topology::default();
    for name in [&["router"], others].concat() {
        let mut host = HostSpec::native();
        host.settings.forward = name == "router";
        topology.host.insert(name.to_owned(), host);
    }
    for other in others {
        let mut link = LinkSpec::new(LinkKind::Direct, &["router", other]);
        // A redirected frame is sent as it is.
        link.settings.tx_checksum = false;
        link.settings.tso = false;
        link.settings.udp_segmentation = false;
        topology.link.push(link);
    }
    topology
}

/// Starts a router whose devices lead to these hosts, with a configuration and a control socket `r.sock` in `folder`.
/// `more` follows the keys of the section `[router]`.
pub(crate) fn serve_between(
    router: &Host,
    peers: &[&str],
    folder: &Path,
    datapath: &str,
    more: &str,
) -> Child {
    let device = |peer: &&str| router.interface(peer).unwrap().name.clone();
    let devices: Vec<String> = peers.iter().map(device).collect();
    let control = folder.join("r.sock");
    let text = format!(
        "[router]\ndatapath = \"{datapath}\"\ninterfaces = {devices:?}\ncontrol = {control:?}\n{more}"
    );
    let config = folder.join("r.toml");
    fs::write(&config, text).unwrap();
    serve(router, &config)
}

/// Starts the router and waits until it says that it is ready.
fn serve(host: &Host, config: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowroad"));
    command
        .args(["router", "run", "--config"])
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

pub(crate) fn ask(control: &Path, question: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .arg("router")
        .args(question)
        .arg("--control")
        .arg(control)
        .output()
        .unwrap()
}

/// What it answers in JSON.
pub(crate) fn answer(control: &Path, question: &[&str]) -> Value {
    let output = ask(control, &[question, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}
