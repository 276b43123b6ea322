//! What decisions are compared on: made-up tables, the full ones, and the long lists.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::Command;

use acl::generate::{self, Kind};
use acl::{Action, Rule, Rule4, classbench};
use lpm::{Address, NextHop, Prefix, Rib};
use tempfile::TempDir;

/// Prefixes of all lengths, many within others.
pub(crate) fn routes<A: acl::Address>(count: usize) -> Rib<A> {
    let keys = generate::keys_anywhere::<A>(count, 5);
    let prefixes = keys.chunks(8).flat_map(|keys| {
        let inside = keys[0].source();
        keys.iter().map(move |key| {
            let len = u8::try_from(key.source_port() % (u16::from(A::BITS) + 1)).unwrap();
            let hop = NextHop::new(1 + key.destination_port() % 400).unwrap();
            (Prefix::containing(inside, len).unwrap(), hop)
        })
    });
    prefixes.collect()
}

/// Prefixes of a real table, to so many next hops.
pub(crate) fn real<A: Address>(corpus: &Path, hops: u16) -> Rib<A>
where
    Prefix<A>: std::str::FromStr<Err: std::fmt::Debug>,
{
    let file = File::open(corpus.join("fib/prefixes.txt.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    let ours = text
        .lines()
        .filter(|line| line.contains(':') == (A::BITS == 128));
    let mut number = 0;
    ours.map(|line| {
        number = (number * 7 + 11) % hops;
        let hop = NextHop::new(1 + number).unwrap();
        (line.trim().parse().unwrap(), hop)
    })
    .collect()
}

/// A folder with the lists of `ClassBench`.
pub(crate) fn unpacked(corpus: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tar = Command::new("tar")
        .arg("xf")
        .arg(corpus.join("rules/classbench.tar.xz"))
        .current_dir(&folder)
        .status();
    assert!(tar.unwrap().success(), "tar and xz unpack the lists");
    folder
}

/// One of the lists.
pub(crate) fn list(folder: &TempDir, name: &str) -> Vec<Rule4> {
    let file = File::open(folder.path().join(name)).unwrap();
    acting(classbench::rules(BufReader::new(file)).unwrap())
}

/// A list that is made up.
pub(crate) fn rules<A: acl::Address>(kind: Kind, count: usize) -> Vec<Rule<A>> {
    acting(generate::rules(kind, count, 1))
}

/// With all actions.
fn acting<A: acl::Address>(mut rules: Vec<Rule<A>>) -> Vec<Rule<A>> {
    for (at, rule) in rules.iter_mut().enumerate() {
        rule.action = [Action::Accept, Action::Drop, Action::Punt][at % 3];
    }
    rules
}
