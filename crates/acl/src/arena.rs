//! A whole classifier in one piece of memory, for programs that know neither vectors nor the machine's
//! instruction that gathers bits: BPF. The structure is [`Table`]'s, with the same hashes; what a cut
//! chooses is spelled out in runs of bits, and leaves have masks in place of ranges where a rule has
//! prefixes. bpf/acl.h of the router is the twin.
//!
//! Sections begin at multiples of [`CHUNK`], and no element lies in two chunks. Numbers are the
//! machine's.
//!
//! ```text
//! header    64 bytes, then roots of 16
//! entries   8 bytes: see `table`; among them the bounds of splits
//! nodes     64 bytes
//! rules     32 bytes, of IPv6 128: a leaf names the first, and how many (in lines, see `line`)
//! counters  8 bytes: of each CPU, as many as rules and one more, for packets that match none
//! ```

#![expect(
    clippy::cast_possible_truncation,
    reason = "indices into arrays shorter than 2^32, bits of a word"
)]

use crate::address::Address;
use crate::build::{BuildReport, Options, build};
use crate::error::Error;
use crate::line::Line;
use crate::rule::{ANY_PORT, Action, NONE, Rule};
use crate::table::{Node, Root, Table, kind};

/// Bytes of a chunk.
pub const CHUNK: usize = 4096;
const HEADER: usize = 64;
const ROOT: usize = 16;
const NODE: usize = 64;
/// Runs of bits that a node has room for: one for each bit that a cut may choose.
const RUNS: usize = 10;

/// The classifier of one list of rules, as bytes.
#[derive(Debug)]
pub struct Arena {
    bytes: Vec<u8>,
    counters: usize,
    stride: usize,
    rules: usize,
    report: BuildReport,
}

impl Arena {
    /// Builds an arena of a list in which earlier rules come first, with counters for this many CPUs.
    ///
    /// # Errors
    /// A list too long, or no memory.
    pub fn build<A: Address>(
        rules: &[Rule<A>],
        options: Options,
        cpus: usize,
    ) -> Result<Self, Error> {
        let (table, report) = build(rules, 0.., options, true)?;
        let mut writer = Writer {
            bytes: vec![0; CHUNK],
        };
        let entries = writer.section(table.entries.as_slice(), |entry| entry.to_ne_bytes());
        let nodes = writer.section(table.nodes.as_slice(), node);
        let slots = table.lines.as_slice().iter().flat_map(|line| {
            (0..A::Line::RULES).map(|slot| {
                rules
                    .get(line.order(slot) as usize)
                    .map_or(NONE, |_| line.order(slot))
            })
        });
        let slots: Vec<u32> = slots.collect();
        let records = if A::BITS == 32 {
            writer.section(&slots, |&order| record::<A, 32>(rules, order))
        } else {
            writer.section(&slots, |&order| record::<A, 128>(rules, order))
        };
        let counters = writer.bytes.len();
        let stride = ((rules.len() + 1) * size_of::<u64>()).next_multiple_of(CHUNK);
        writer.bytes.resize(counters + cpus * stride, 0);
        let header = [
            table.roots.len() as u32,
            u32::from(table.shift),
            u32::from(rules.iter().any(looks_at_ports)),
            rules.len() as u32,
            chunk(entries),
            chunk(nodes),
            chunk(records),
            chunk(counters),
            chunk(stride),
        ];
        writer.head(&header, &table);
        Ok(Self {
            bytes: writer.bytes,
            counters,
            stride,
            rules: rules.len(),
            report,
        })
    }

    /// All of it, a multiple of [`CHUNK`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The start of a CPU's counters: one of 8 bytes for each rule, and the last for no rule.
    pub fn counters(&self, cpu: usize) -> usize {
        self.counters + cpu * self.stride
    }

    /// Rules in the list.
    pub fn rules(&self) -> usize {
        self.rules
    }

    /// The report of the build.
    pub fn report(&self) -> &BuildReport {
        &self.report
    }
}

struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Appends elements; returns where they begin.
    fn section<T, const N: usize>(&mut self, all: &[T], bytes: impl Fn(&T) -> [u8; N]) -> usize {
        let start = self.bytes.len();
        self.bytes.reserve(all.len() * N + CHUNK);
        all.iter().for_each(|one| self.bytes.extend(bytes(one)));
        self.bytes
            .resize(self.bytes.len().next_multiple_of(CHUNK), 0);
        start
    }

    fn head<A: Address>(&mut self, header: &[u32], table: &Table<A>) {
        for (at, number) in header.iter().enumerate() {
            self.bytes[4 * at..][..4].copy_from_slice(&number.to_ne_bytes());
        }
        for (at, it) in table.roots.iter().enumerate() {
            self.bytes[HEADER + ROOT * at..][..ROOT].copy_from_slice(&root(it));
        }
    }
}

fn chunk(bytes: usize) -> u32 {
    (bytes / CHUNK) as u32
}

fn looks_at_ports<A: Address>(rule: &Rule<A>) -> bool {
    rule.source_ports != ANY_PORT || rule.destination_ports != ANY_PORT
}

fn root(root: &Root) -> [u8; ROOT] {
    let mut bytes = [0; ROOT];
    (bytes[0], bytes[1], bytes[2]) = (root.lengths.0, root.lengths.1, root.bits);
    bytes[4..8].copy_from_slice(&root.base.to_ne_bytes());
    bytes[8..12].copy_from_slice(&root.best.to_ne_bytes());
    bytes
}

/// Base, lines of a long leaf, kind, lane of a split, number of runs; the runs: word, first bit, bits,
/// place among the gathered bits.
fn node(node: &Node) -> [u8; NODE] {
    let mut bytes = [0; NODE];
    bytes[..4].copy_from_slice(&node.base.to_ne_bytes());
    if node.kind == kind::LONG {
        bytes[4..8].copy_from_slice(&(node.masks[0] as u32).to_ne_bytes());
    }
    (bytes[8], bytes[9]) = (node.kind, node.words[0]);
    if node.kind == kind::CUT {
        let mut gathered = 0;
        let mut count = 0;
        for (word, mask) in node.words.into_iter().zip(node.masks) {
            for (start, bits) in runs(mask) {
                bytes[16 + 4 * count..][..4].copy_from_slice(&[word, start, bits, gathered]);
                gathered += bits;
                count += 1;
            }
        }
        debug_assert!(count <= RUNS);
        bytes[10] = count as u8;
    }
    bytes
}

/// First bit and length of each run of ones, from the lowest.
fn runs(mut mask: u64) -> impl Iterator<Item = (u8, u8)> {
    std::iter::from_fn(move || {
        let start = (mask != 0).then(|| mask.trailing_zeros())?;
        let bits = (mask >> start).trailing_ones();
        mask &= !(u64::MAX >> (64 - bits) << start);
        Some((start as u8, bits as u8))
    })
}

/// Addresses as words and masks, lowest first as in a key; bounds of both ports; protocol and mask; the
/// order above two bits of action. A record without a rule matches nothing.
fn record<A: Address, const N: usize>(rules: &[Rule<A>], order: u32) -> [u8; N] {
    let mut bytes = [0; N];
    let words = A::BITS as usize / 32 * 8;
    let ports = 2 * words;
    let Some(rule) = rules.get(order as usize) else {
        bytes[ports..ports + 2].copy_from_slice(&u16::MAX.to_ne_bytes());
        bytes[ports + 12..ports + 16].copy_from_slice(&NONE.to_ne_bytes());
        return bytes;
    };
    let (source, destination) = (rule.source, rule.destination);
    let value = A::words(source.first(), destination.first());
    let mask = A::words(A::mask(source.len()), A::mask(destination.len()));
    for (at, word) in value.as_ref().iter().take(words / 8).enumerate() {
        bytes[8 * at..][..8].copy_from_slice(&word.to_ne_bytes());
    }
    for (at, word) in mask.as_ref().iter().take(words / 8).enumerate() {
        bytes[words + 8 * at..][..8].copy_from_slice(&word.to_ne_bytes());
    }
    let bounds = [
        rule.source_ports.start(),
        rule.source_ports.end(),
        rule.destination_ports.start(),
        rule.destination_ports.end(),
    ];
    for (at, bound) in bounds.into_iter().enumerate() {
        bytes[ports + 2 * at..][..2].copy_from_slice(&bound.to_ne_bytes());
    }
    bytes[ports + 8] = rule.protocol.value;
    bytes[ports + 9] = rule.protocol.mask;
    let action = match rule.action {
        Action::Accept => 0,
        Action::Drop => 1,
        Action::Punt => 2,
    };
    bytes[ports + 12..ports + 16].copy_from_slice(&(order << 2 | action).to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_mask() {
        for mask in [
            0,
            1,
            u64::MAX,
            0xf0f0,
            1 << 63 | 0b1011,
            0x0000_ffff_0000_0000,
        ] {
            let mut again = 0;
            for (start, bits) in runs(mask) {
                again |= u64::MAX >> (64 - bits) << start;
            }
            assert_eq!(again, mask);
        }
    }

    #[test]
    fn sections_are_whole_chunks() {
        let rule = Rule::<u32> {
            destination_ports: 80..=80,
            ..Rule::default()
        };
        let arena = Arena::build(&[rule, Rule::default()], Options::default(), 3).unwrap();
        assert_eq!(arena.bytes().len() % CHUNK, 0);
        assert_eq!(arena.counters(2) + CHUNK, arena.bytes().len());
        assert_eq!(arena.rules(), 2);
    }
}
