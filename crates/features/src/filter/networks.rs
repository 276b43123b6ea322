//! Sets of networks, listed in an expression or in a file with one network per line.

use std::fs::File;
use std::io::{BufRead, BufReader};

use super::expression::Network;
use super::operand;

/// The maximum number of networks in a file.
const MAX_NETWORKS: usize = 1 << 20;
/// A longer line is rejected.
const MAX_LINE_BYTES: u64 = 4096;

/// Networks of which none contains another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkSet(Vec<Network>);

impl NetworkSet {
    pub(super) fn new(mut networks: Vec<Network>) -> Self {
        networks.sort_unstable();
        // A network sorts before all that it contains, and these are next to it.
        networks.dedup_by(|next, kept| next.version == kept.version && next.address <= kept.last());
        Self(networks)
    }

    pub(crate) fn all(&self) -> &[Network] {
        &self.0
    }

    #[inline]
    pub(super) fn contains(&self, version: u8, address: u128) -> bool {
        let after = self
            .0
            .partition_point(|network| (network.version, network.address) <= (version, address));
        let before = after.checked_sub(1).map(|index| &self.0[index]);
        before.is_some_and(|network| network.version == version && address <= network.last())
    }
}

/// The networks in a file: one a line, `#` begins a comment.
pub(super) fn read(path: &str) -> Result<Vec<Network>, String> {
    let wrong = |error| format!("{path}: {error}");
    let file = File::open(path).map_err(wrong)?;
    if file.metadata().map_err(wrong)?.is_dir() {
        return Err(format!("{path}: is a folder"));
    }
    let mut lines = BufReader::new(file);
    let mut networks = Vec::new();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let mut limited = std::io::Read::take(&mut lines, MAX_LINE_BYTES);
        if limited.read_until(b'\n', &mut line).map_err(wrong)? == 0 {
            break;
        }
        let at = |what: &str| format!("{path}, line {number}: {what}");
        let text = std::str::from_utf8(&line).map_err(|_| at("is no text"))?;
        let text = text.split('#').next().unwrap_or("").trim();
        if text.is_empty() {
            continue;
        }
        if networks.len() == MAX_NETWORKS {
            return Err(at(&format!("more than {MAX_NETWORKS} networks")));
        }
        networks.push(operand::network(text).map_err(|what| at(&what))?);
    }
    Ok(networks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(networks: &[&str]) -> NetworkSet {
        let network = |text: &&str| operand::network(text).expect("a network");
        NetworkSet::new(networks.iter().map(network).collect())
    }

    fn has(set: &NetworkSet, address: &str) -> bool {
        let host = operand::host(address).expect("an address");
        set.contains(host.version, host.address)
    }

    #[test]
    fn what_another_contains_is_left_out() {
        let set = set(&["10.1/16", "10/8", "10/8", "10.255.255.255", "11/8", "::/0"]);
        assert_eq!(set.all().len(), 3);
        assert!(has(&set, "10.255.255.255") && has(&set, "11.0.0.0") && has(&set, "::"));
        assert!(!has(&set, "9.255.255.255") && !has(&set, "12.0.0.0"));
    }

    #[test]
    fn versions_are_apart_even_where_addresses_are_not() {
        let set = set(&["::ffff:0:0/96"]);
        assert!(has(&set, "::ffff:1.2.3.4") && !has(&set, "1.2.3.4"));
        assert!(!NetworkSet::default().contains(4, 0));
    }
}
