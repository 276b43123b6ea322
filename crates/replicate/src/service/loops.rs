//! Rejects configurations in which two parts write the same thing, or parts form a loop.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;

use super::config::PartLocation;
use super::part::Job;
use super::place;
use crate::ship::nats::Options;

/// An error and its position in the file.
type Complaint = (Range<usize>, String);

/// Something that one part writes and another reads.
#[derive(Debug, PartialEq)]
enum Thing {
    Log(PathBuf),
    /// A directory and everything below it.
    Tree(PathBuf),
    Address(SocketAddr),
    /// The address of a connection.
    Peer(String, u16),
    Stream(Vec<String>, String),
}

impl Thing {
    /// What a part reads, and what it writes.
    fn of(job: &Job) -> (Option<Self>, Option<Self>) {
        let log = Some(Self::Log(place(job.log())));
        match job {
            Job::Capture(settings) => (Some(Self::Tree(place(&settings.tree))), log),
            Job::Serve(settings) => (log, Some(Self::Address(settings.listen))),
            Job::Publish(settings) => (log, Self::stream(&settings.to)),
            Job::Receive(settings) => (Self::source(&settings.from), log),
            Job::Apply(settings) => (log, Some(Self::Tree(place(&settings.to)))),
        }
    }

    fn stream(url: &str) -> Option<Self> {
        let options = Options::new(url).ok()?;
        Some(Self::Stream(options.connect.servers, options.stream))
    }

    fn source(url: &str) -> Option<Self> {
        match url.strip_prefix("tcp://") {
            Some(peer) => {
                let (host, port) = peer.rsplit_once(':')?;
                let host = host.trim_matches(['[', ']']).to_owned();
                Some(Self::Peer(host, port.parse().ok()?))
            }
            None => Self::stream(url),
        }
    }

    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stream(servers, name), Self::Stream(others, other)) => {
                name == other && servers.iter().any(|server| others.contains(server))
            }
            // Port 0 is another port each time.
            (Self::Address(at), _) if at.port() == 0 => false,
            _ => self == other,
        }
    }

    /// Whether writing this changes what a reader of the other sees.
    fn feeds(&self, read: &Self) -> bool {
        match (self, read) {
            // A log consists of files, too.
            (Self::Log(written) | Self::Tree(written), Self::Tree(read)) => {
                written.starts_with(read)
                    || matches!(self, Self::Tree(_)) && read.starts_with(written)
            }
            (Self::Address(at), Self::Peer(host, port)) => {
                at.port() == *port && at.port() != 0 && is_here(host, at.ip())
            }
            _ => self.same(read),
        }
    }
}

/// Whether a connection to this host may reach this local address.
fn is_here(host: &str, at: IpAddr) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address == at || address.is_loopback() && at.is_unspecified(),
        Err(_) => host == "localhost" && (at.is_loopback() || at.is_unspecified()),
    }
}

/// Rejects the first two parts that write the same thing, and the first loop.
pub(super) fn check(parts: &[PartLocation]) -> Result<(), Complaint> {
    let things: Vec<_> = parts
        .iter()
        .map(|placed| Thing::of(&placed.part.job))
        .collect();
    for (at, (_, written)) in things.iter().enumerate() {
        let same = things[..at].iter().position(|(_, other)| {
            let (Some(written), Some(other)) = (written, other) else {
                return false;
            };
            written.same(other)
        });
        if let Some(other) = same {
            let (_, what) = words(&parts[at].part.job);
            let other = &parts[other].part.name;
            let message = format!("{what}: \"{other}\" writes it already; give each its own");
            return Err((parts[at].writes.clone(), message));
        }
    }
    (0..parts.len()).try_for_each(|at| match way_back(at, &things) {
        Some(way) => Err(complaint(&way, parts)),
        None => Ok(()),
    })
}

/// The shortest path from what a part writes, through other parts, to what it reads. Begins with
/// the part itself.
fn way_back(start: usize, things: &[(Option<Thing>, Option<Thing>)]) -> Option<Vec<usize>> {
    let feeds = |from: usize, to: usize| match (&things[from].1, &things[to].0) {
        (Some(written), Some(read)) => written.feeds(read),
        _ => false,
    };
    let mut ways = vec![vec![start]];
    let mut seen = vec![false; things.len()];
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let last = way[way.len() - 1];
            if feeds(last, start) {
                return Some(way);
            }
            for next in (0..things.len()).filter(|next| feeds(last, *next)) {
                if !std::mem::replace(&mut seen[next], true) {
                    longer.push([&way[..], &[next]].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

/// The error for the last part of a loop, which closes it.
fn complaint(way: &[usize], parts: &[PartLocation]) -> Complaint {
    let (first, last) = (way[0], way[way.len() - 1]);
    let ((_, written), (read, _)) = (words(&parts[last].part.job), words(&parts[first].part.job));
    let message = match way.len() {
        1 => format!("{written} is in {read}: writing it would be a change of the tree (loop)"),
        _ => {
            let names = way
                .iter()
                .map(|part| format!("\"{}\"", parts[*part].part.name));
            let names: Vec<_> = names.collect();
            let first = &parts[first].part.name;
            format!(
                "{written} changes {read}, which \"{first}\" reads: {} would go round for ever (loop)",
                names.join(", ")
            )
        }
    };
    (parts[last].writes.clone(), message)
}

/// What a part reads and what it writes, as the file has it.
fn words(job: &Job) -> (String, String) {
    let log = format!("log {}", job.log().display());
    match job {
        Job::Capture(settings) => (format!("tree {}", settings.tree.display()), log),
        Job::Serve(settings) => (log, format!("listen {}", settings.listen)),
        Job::Publish(settings) => (log, settings.to.clone()),
        Job::Receive(settings) => (settings.from.clone(), log),
        Job::Apply(settings) => (log, format!("tree {}", settings.to.display())),
    }
}
