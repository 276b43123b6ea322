//! Rules by their addresses, ports and protocol, and within these by time.

use super::{Rule, Subject, protocols};

/// Finds the first rule that matches.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Rules with the same set of conditions. There are at most 32 such sets, and few in one file.
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    conditions: u8,
    /// By their key, then by their first time.
    rules: Vec<Entry>,
}

/// Addresses, ports and protocol; 0 where a rule has no condition.
type Key = ([u128; 2], [u16; 2], u8);

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    first_ns: i64,
    last_ns: i64,
    /// The latest time of this rule and those before it with the same key.
    reach_ns: i64,
    line: u32,
    label: u32,
}

const SOURCE: u8 = 1;
const DESTINATION: u8 = 2;
const SOURCE_PORT: u8 = 4;
const DESTINATION_PORT: u8 = 8;
const PROTOCOL: u8 = 16;

impl Index {
    pub(super) fn add(&mut self, rule: &Rule, line: u32, label: u32) {
        let conditions = [
            (SOURCE, rule.addresses[0].is_some()),
            (DESTINATION, rule.addresses[1].is_some()),
            (SOURCE_PORT, rule.ports[0].is_some()),
            (DESTINATION_PORT, rule.ports[1].is_some()),
            (PROTOCOL, rule.protocol.is_some()),
        ];
        let set = conditions.iter().filter(|(_, is_set)| *is_set);
        let conditions = set.fold(0, |all, (condition, _)| all | condition);
        let entry = Entry {
            key: (
                rule.addresses.map(Option::unwrap_or_default),
                rule.ports.map(Option::unwrap_or_default),
                rule.protocol.unwrap_or_default(),
            ),
            first_ns: rule.first_ns,
            last_ns: rule.last_ns,
            reach_ns: rule.last_ns,
            line,
            label,
        };
        match self
            .groups
            .iter_mut()
            .find(|group| group.conditions == conditions)
        {
            Some(group) => group.rules.push(entry),
            None => self.groups.push(Group {
                conditions,
                rules: vec![entry],
            }),
        }
    }

    /// Makes rules ready to be found, once all were added.
    pub(super) fn sort(&mut self) {
        for Group { rules, .. } in &mut self.groups {
            rules.sort_unstable_by_key(|rule| (rule.key, rule.first_ns, rule.line));
            let mut before: Option<Entry> = None;
            for rule in rules {
                if let Some(before) = before.filter(|before| before.key == rule.key) {
                    rule.reach_ns = rule.reach_ns.max(before.reach_ns);
                }
                before = Some(*rule);
            }
        }
    }

    /// The label of the first line that matches.
    pub(super) fn find(&self, subject: &Subject) -> Option<u32> {
        let [from, to] = [0, 1].map(|at| (subject.addresses[at], subject.ports[at]));
        // Echoes have an identifier in the place of a port.
        let has_ports = protocols::has_ports(subject.protocol);
        let may_match =
            |group: &&Group| has_ports || group.conditions & (SOURCE_PORT | DESTINATION_PORT) == 0;
        let found = self.groups.iter().filter(may_match).flat_map(|group| {
            [(from, to), (to, from)].map(|(source, destination)| {
                let key = group.key(source, destination, subject.protocol);
                group.find(&key, subject)
            })
        });
        let first = found.flatten().min_by_key(|rule| rule.line);
        first.map(|rule| rule.label)
    }
}

impl Group {
    /// The key that a rule of this group has if it matches such a packet.
    fn key(&self, source: (u128, u16), destination: (u128, u16), protocol: u8) -> Key {
        let has = |condition| self.conditions & condition != 0;
        let address = |condition, address| if has(condition) { address } else { 0 };
        let port = |condition, port| if has(condition) { port } else { 0 };
        (
            [
                address(SOURCE, source.0),
                address(DESTINATION, destination.0),
            ],
            [
                port(SOURCE_PORT, source.1),
                port(DESTINATION_PORT, destination.1),
            ],
            if has(PROTOCOL) { protocol } else { 0 },
        )
    }

    /// The first line among the rules with this key whose time overlaps the subject's.
    fn find(&self, key: &Key, subject: &Subject) -> Option<&Entry> {
        let begin = self.rules.partition_point(|rule| rule.key < *key);
        let end = self
            .rules
            .partition_point(|rule| (rule.key, rule.first_ns) <= (*key, subject.last_ns));
        let begun = self.rules[begin..end.max(begin)].iter().rev();
        begun
            .take_while(|rule| rule.reach_ns >= subject.first_ns)
            .filter(|rule| rule.last_ns >= subject.first_ns)
            .min_by_key(|rule| rule.line)
    }
}
