//! Five-tuple rules to look up in, packets to look up, and which rule is the first to match: as files
//! that every engine reads. Rules are ClassBench text, keys as their fields lie in packets.

use std::fs::File;
use std::io::BufReader;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use acl::{Key4, Rule4, classbench, generate};
use anyhow::{Context, Result, bail};
use splitmix::SplitMix64;

use super::tables::{RuleList, Traffic};
use crate::BadInput;

/// Comparisons of a key and a rule that finding the right answers may take: they are found one by
/// one, and for as many keys as this allows.
const COMPARISONS: usize = 400_000_000;

/// A list, and packets that it was made for where there are some.
pub(super) struct Rules {
    pub(super) rules: Vec<Rule4>,
    trace: Option<Vec<Key4>>,
}

impl Rules {
    /// The list of this name in the corpus, unpacked below `folder`, with its trace.
    pub(super) fn corpus(corpus: &Path, list: &RuleList, folder: &Path) -> Result<Self> {
        let name = format!("{}_{}", list.name, list.size);
        let status = Command::new("tar")
            .arg("-xJf")
            .arg(corpus.join("rules/classbench.tar.xz"))
            .arg("-C")
            .arg(folder)
            .args([&name, &format!("{name}_trace")])
            .status()
            .context("tar")?;
        if !status.success() {
            bail!("tar and xz could not take {name} out of the corpus");
        }
        Self::read(&folder.join(name))
    }

    /// ClassBench text, and the trace beside it where there is one.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let wrong = |error: acl::Error| BadInput(format!("{}: {error}", path.display()));
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let rules = classbench::rules(BufReader::new(file)).map_err(wrong)?;
        let mut beside = path.as_os_str().to_owned();
        beside.push("_trace");
        let trace = File::open(PathBuf::from(beside)).ok();
        let trace = trace.map(|file| classbench::trace(BufReader::new(file)));
        Ok(Self {
            rules,
            trace: trace.transpose().map_err(wrong)?,
        })
    }

    /// A list like those of firewalls.
    pub(super) fn generated(count: usize, seed: u64) -> Self {
        Self {
            rules: generate::rules(generate::Kind::Firewall, count, seed),
            trace: None,
        }
    }

    pub(super) fn keys(&self, traffic: Traffic, count: usize, seed: u64) -> Result<Vec<Key4>> {
        let keys = match traffic {
            Traffic::Uniform => generate::keys_anywhere(count, seed),
            Traffic::Pcap => captured()?,
            _ => match &self.trace {
                // In a random order, so that keys of one rule do not follow each other.
                Some(trace) => {
                    let mut keys = trace.clone();
                    SplitMix64::new(seed).shuffle(&mut keys);
                    keys
                }
                None => generate::keys_within(&self.rules, count, seed),
            },
        };
        Ok(keys.iter().cycle().take(count).copied().collect())
    }

    pub(super) fn rules_file(&self) -> Vec<u8> {
        rules_text(&self.rules).into_bytes()
    }

    /// Keys, and of the first of them the rule that matches first, counted from 1; 0 is none.
    pub(super) fn keys_files(&self, keys: &[Key4]) -> (Vec<u8>, Vec<u8>) {
        let checked = COMPARISONS / self.rules.len().max(1);
        let answers = keys.iter().take(checked).map(|key| {
            let found = acl::linear(&self.rules, key);
            found.map_or(0, |rule| u32::try_from(rule + 1).unwrap_or(u32::MAX))
        });
        let answers = answers.flat_map(u32::to_ne_bytes).collect();
        (keys.iter().flat_map(bytes).collect(), answers)
    }
}

/// As ClassBench writes them.
pub(super) fn rules_text(rules: &[Rule4]) -> String {
    let mut text = String::new();
    for rule in rules {
        text += &format!(
            "@{}\t{}\t{} : {}\t{} : {}\t0x{:02x}/0x{:02x}\n",
            rule.source,
            rule.destination,
            rule.source_ports.start(),
            rule.source_ports.end(),
            rule.destination_ports.start(),
            rule.destination_ports.end(),
            rule.protocol.value,
            rule.protocol.mask,
        );
    }
    text
}

fn bytes(key: &Key4) -> Vec<u8> {
    let mut bytes = vec![key.protocol, 0, 0, 0];
    bytes.extend(key.source);
    bytes.extend(key.destination);
    bytes.extend(key.source_port);
    bytes.extend(key.destination_port);
    bytes
}

/// The IPv4 packets of the corpus's captures; without a corpus, those of a generated mix.
fn captured() -> Result<Vec<Key4>> {
    let mut keys = Vec::new();
    let Some(corpus) = std::env::var_os("LOWROAD_CORPUS").map(PathBuf::from) else {
        let mut mix = Vec::new();
        loadgen::mix::write(&mut mix, 100_000, 1)?;
        read_keys(&mix[..], &mut keys)?;
        return Ok(keys);
    };
    for path in captures(&corpus)? {
        let name = || path.display().to_string();
        read_keys(File::open(&path)?, &mut keys).with_context(name)?;
    }
    (!keys.is_empty())
        .then_some(keys)
        .context("no IPv4 packet in the corpus's captures")
}

/// The captures of a corpus, in the order of their names.
pub(super) fn captures(corpus: &Path) -> Result<Vec<PathBuf>> {
    let folder = corpus.join("pcap");
    let listed = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let listed = listed.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<_> = listed
        .filter(|path| {
            let extension = path.extension();
            extension.is_some_and(|ext| ext == "pcap" || ext == "pcapng")
        })
        .collect();
    paths.sort();
    Ok(paths)
}

fn read_keys(input: impl std::io::Read, keys: &mut Vec<Key4>) -> Result<()> {
    let mut reader = packet::pcap::Reader::new(input)?;
    while let Some(frame) = reader.read()? {
        let Ok(parsed) = packet::parse::parse(frame.bytes) else {
            continue;
        };
        if let (IpAddr::V4(source), IpAddr::V4(destination)) = (parsed.source, parsed.destination) {
            if parsed.family.is_none() {
                continue;
            }
            let ports = (parsed.source_port, parsed.destination_port);
            keys.push(Key4::new(
                source.to_bits(),
                destination.to_bits(),
                ports,
                parsed.protocol,
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_back_as_they_were_written() {
        let list = Rules::generated(500, 1);
        let again = classbench::rules(&list.rules_file()[..]).unwrap();
        let plain = |rule: &Rule4| {
            let protocol = rule.protocol.value & rule.protocol.mask;
            let ports = (rule.source_ports.clone(), rule.destination_ports.clone());
            (
                rule.source,
                rule.destination,
                ports,
                protocol,
                rule.protocol.mask,
            )
        };
        let (was, is): (Vec<_>, Vec<_>) = (
            list.rules.iter().map(plain).collect(),
            again.iter().map(plain).collect(),
        );
        assert_eq!(was, is);
    }

    #[test]
    fn keys_are_as_many_as_asked_for() {
        let list = Rules::generated(100, 1);
        for traffic in [Traffic::Rules, Traffic::Uniform] {
            let keys = list.keys(traffic, 1000, 1).unwrap();
            let (bytes, answers) = list.keys_files(&keys);
            assert_eq!((bytes.len(), answers.len()), (16_000, 4000));
        }
    }
}
