//! Makes passes of several processes in turn and compares them pass by pass.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A process that serves one or more engines.
struct Peer {
    command: String,
    process: Child,
    answers: BufReader<ChildStdout>,
}

/// Each of `engines` is ENGINE=COMMAND; equal commands are one process.
pub(crate) fn compare(passes: u64, traffics: &str, engines: &[&str]) {
    let mut peers: Vec<Peer> = Vec::new();
    let mut serving = Vec::new();
    for engine in engines {
        let (engine, command) = engine.split_once('=').expect("ENGINE=COMMAND");
        let known = peers.iter().position(|peer| peer.command == command);
        serving.push((engine, known.unwrap_or(peers.len())));
        if known.is_none() {
            peers.push(Peer::start(command));
        }
    }
    for traffic in traffics.split(',') {
        let mut times = vec![Vec::new(); engines.len()];
        let mut wrong = vec![0; engines.len()];
        for pass in 0..passes as usize {
            // Who goes first changes, so that no one always follows the same other.
            for turn in 0..engines.len() {
                let at = (pass + turn) % engines.len();
                let (engine, peer) = serving[at];
                let (ns, errors) = peers[peer].pass(engine, traffic);
                times[at].push(ns);
                wrong[at] += errors;
            }
        }
        for (at, (engine, _)) in serving.iter().enumerate() {
            let ratios: Vec<_> = times[0]
                .iter()
                .zip(&times[at])
                .map(|(a, b)| b / a)
                .collect();
            let (ns, ratio) = (spread(times[at].clone()), spread(ratios));
            println!(
                "{traffic:<15} {engine:<16} {:5.2} ns ({:.2}-{:.2})  x{:.2} ({:.2}-{:.2})  n={passes} wrong={}",
                ns[1], ns[0], ns[2], ratio[1], ratio[0], ratio[2], wrong[at]
            );
        }
    }
    for peer in peers {
        peer.stop();
    }
}

/// Least, median, greatest.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    ]
}

impl Peer {
    fn start(command: &str) -> Self {
        let mut process = Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        // What comes before is the peer's own.
        while !read(&mut answers).contains("\"ready\"") {}
        Self {
            command: command.into(),
            process,
            answers,
        }
    }

    fn pass(&mut self, engine: &str, traffic: &str) -> (f64, u64) {
        let request = format!("pass {engine} {traffic}\n");
        let input = self.process.stdin.as_mut().unwrap();
        input.write_all(request.as_bytes()).unwrap();
        let answer = read(&mut self.answers);
        let field = |name: &str| {
            let found = answer.split_once(&format!("\"{name}\":"));
            let (_, rest) = found.unwrap_or_else(|| panic!("{engine}: {answer}"));
            let end = rest.find([',', '}']).unwrap();
            rest[..end].parse::<f64>().unwrap()
        };
        (field("ns"), field("wrong") as u64)
    }

    fn stop(mut self) {
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }
}

fn read(answers: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    let read = answers.read_line(&mut line).unwrap();
    assert!(read > 0, "the process ended");
    line
}
