//! The chains, rules and sets of a network namespace, asked from the kernel in its own netlink protocol.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::attribute::{attributes, data, find, number, string, text};
use super::expression::{Decision, Expression};
use crate::Error;
use crate::policy::dump::{Client, is_absent};

/// `NFNL_SUBSYS_NFTABLES`
const SUBSYSTEM: u16 = 10;
const GET_CHAINS: u16 = 4;
const GET_RULES: u16 = 7;
const GET_SETS: u16 = 10;
const GET_ELEMENTS: u16 = 13;
const GET_GENERATION: u16 = 16;
/// `nfgenmsg`: family, version and resource.
const GENERAL: usize = 4;
/// How often a dump that a change interrupts is begun again.
const ATTEMPTS: usize = 8;

/// A kernel without nftables looks for the module each time it is asked, so it is asked once.
static ABSENT: AtomicBool = AtomicBool::new(false);

/// A table's family and name.
pub(crate) type TableKey = (u8, String);

/// All of nftables in a network namespace, iptables-nft included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ruleset {
    pub(crate) chains: BTreeMap<TableKey, BTreeMap<String, Chain>>,
    pub(crate) sets: BTreeMap<TableKey, BTreeMap<String, Set>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) base: Option<BaseChain>,
    pub(crate) rules: Vec<Rule>,
}

/// How a chain is attached to a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseChain {
    /// `filter`, `nat` or `route`.
    pub(crate) kind: String,
    pub(crate) hook: u32,
    pub(crate) priority: i32,
    /// Those of families `netdev` and `inet` with hook `ingress`.
    devices: Vec<DeviceName>,
    pub(crate) drops: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DeviceName {
    Exact(String),
    /// `eth*`
    Prefix(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) handle: u64,
    pub(crate) expressions: Vec<Expression>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) flags: u32,
    pub(crate) key_length: usize,
    /// The lengths of a concatenation's parts, each of which takes whole words of the key.
    pub(crate) parts: Vec<usize>,
    pub(crate) elements: Vec<Element>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) key: Vec<u8>,
    /// The last key of a concatenation's interval.
    pub(crate) last: Option<Vec<u8>>,
    pub(crate) flags: u32,
    pub(crate) value: Option<Mapped>,
    /// Whether it has an expression, such as `limit`, that decides too.
    is_stateful: bool,
}

/// What a map has for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    Data(Vec<u8>),
    Verdict(Decision),
}

impl Set {
    const INTERVAL: u32 = 4;
    const TIMEOUT: u32 = 16;
    const EVAL: u32 = 32;

    /// From the attributes of a set, without its elements.
    fn read(bytes: &[u8]) -> Self {
        const FLAGS: u16 = 3;
        const KEY_LENGTH: u16 = 5;
        const DESCRIPTION: u16 = 9;
        const CONCATENATION: u16 = 2;
        const PART_LENGTH: u16 = 1;
        let description = find(bytes, DESCRIPTION).unwrap_or_default();
        let parts = find(description, CONCATENATION).unwrap_or_default();
        Self {
            flags: number(bytes, FLAGS).unwrap_or(0),
            key_length: number(bytes, KEY_LENGTH).unwrap_or(0) as usize,
            parts: attributes(parts)
                .filter_map(|(_, part)| Some(number(part, PART_LENGTH)? as usize))
                .collect(),
            elements: Vec::new(),
        }
    }

    pub(crate) fn is_interval(&self) -> bool {
        self.flags & Self::INTERVAL != 0
    }

    /// Whether what it matches changes without a notification: elements come and go, or depend on state.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.flags & (Self::TIMEOUT | Self::EVAL) != 0
            || self.elements.iter().any(|element| element.is_stateful)
    }
}

impl Element {
    const INTERVAL_END: u32 = 1;
    const CATCH_ALL: u32 = 2;

    pub(crate) fn is_interval_end(&self) -> bool {
        self.flags & Self::INTERVAL_END != 0
    }

    pub(crate) fn is_catch_all(&self) -> bool {
        self.flags & Self::CATCH_ALL != 0
    }

    /// From the attributes of `NFTA_LIST_ELEM`.
    fn read(bytes: &[u8]) -> Self {
        const KEY: u16 = 1;
        const DATA: u16 = 2;
        const FLAGS: u16 = 3;
        const EXPRESSION: u16 = 7;
        const KEY_END: u16 = 10;
        const EXPRESSIONS: u16 = 11;
        let several = attributes(find(bytes, EXPRESSIONS).unwrap_or_default());
        let mut expressions = find(bytes, EXPRESSION)
            .into_iter()
            .chain(several.map(|(_, expression)| expression));
        let is_stateful = expressions.any(|bytes| Expression::read(bytes) != Expression::Neutral);
        let value = find(bytes, DATA).and_then(|value| match Decision::within(value) {
            Some(jump) => Some(Mapped::Verdict(jump)),
            None => data(bytes, DATA).map(|value| Mapped::Data(value.to_vec())),
        });
        Self {
            key: data(bytes, KEY).unwrap_or_default().to_vec(),
            last: data(bytes, KEY_END).map(<[u8]>::to_vec),
            flags: number(bytes, FLAGS).unwrap_or(0),
            value,
            is_stateful,
        }
    }
}

impl BaseChain {
    /// Whether the chain sees the packets of a device, at a hook of devices.
    pub(crate) fn is_attached_to(&self, device: &str) -> bool {
        self.devices.iter().any(|name| match name {
            DeviceName::Exact(name) => name == device,
            DeviceName::Prefix(prefix) => device.starts_with(prefix),
        })
    }

    /// From the attributes of a chain; none for a chain that only jumps reach.
    fn read(bytes: &[u8]) -> Option<Self> {
        const HOOK: u16 = 4;
        const POLICY: u16 = 5;
        const KIND: u16 = 7;
        const NUMBER: u16 = 1;
        const PRIORITY: u16 = 2;
        const DEVICE: u16 = 3;
        const DEVICES: u16 = 4;
        const DEVICE_PREFIX: u16 = 2;
        let hook = find(bytes, HOOK)?;
        let several = find(hook, DEVICES).unwrap_or_default();
        let one = find(hook, DEVICE).map(|name| DeviceName::Exact(text(name)));
        Some(Self {
            kind: string(bytes, KIND).unwrap_or_default(),
            hook: number(hook, NUMBER)?,
            priority: number(hook, PRIORITY)?.cast_signed(),
            devices: one
                .into_iter()
                .chain(attributes(several).map(|(kind, name)| match kind {
                    DEVICE_PREFIX => DeviceName::Prefix(text(name)),
                    _ => DeviceName::Exact(text(name)),
                }))
                .collect(),
            drops: number(bytes, POLICY) == Some(0),
        })
    }
}

/// Whether the calling thread's namespace has chains of family `netdev`, the only ones that see what a device sends.
pub(crate) fn has_device_chains() -> Result<bool, Error> {
    const NETDEV: u8 = 5;
    let chains = Rules::open()?.dump(GET_CHAINS, NETDEV, &[]);
    match chains {
        Ok(chains) => Ok(!chains.is_empty()),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(Error::refused("listing nftables chains", error)),
    }
}

impl Ruleset {
    /// Whether no chain is attached to a hook.
    pub(crate) fn is_empty(&self) -> bool {
        let mut chains = self.chains.values().flat_map(BTreeMap::values);
        chains.all(|chain| chain.base.is_none())
    }
}

/// Where the rules are asked for.
#[derive(Debug)]
pub(crate) struct Rules {
    /// None where the kernel has no netfilter.
    client: Option<Client>,
    /// A table that is left out.
    omitted: Option<TableKey>,
}

impl Rules {
    /// Opens a socket in the calling thread's namespace, which it goes on asking whichever thread uses it.
    pub(crate) fn open() -> Result<Self, Error> {
        match Client::new(NETLINK_NETFILTER) {
            Ok(client) => Ok(Self::of(Some(client))),
            Err(error) if is_absent(&error) => Ok(Self::of(None)),
            Err(error) => Err(Error::Socket(error)),
        }
    }

    fn of(client: Option<Client>) -> Self {
        Self {
            client,
            omitted: None,
        }
    }

    /// Leaves a table out of what is read.
    pub(crate) fn omit(&mut self, table: TableKey) {
        self.omitted = Some(table);
    }

    /// A number that every change of the namespace's rules and sets raises, but for elements that packets add; none
    /// where the kernel has no nftables.
    pub(crate) fn generation(&mut self) -> Option<u32> {
        const ID: u16 = 1;
        let client = self.client().ok()?;
        let body = client.get(SUBSYSTEM << 8 | GET_GENERATION, &[0; GENERAL]);
        number(body.ok()?.get(GENERAL..)?, ID)
    }

    /// All rules; none where the kernel has no nftables.
    pub(crate) fn read(&mut self) -> Result<Ruleset, Error> {
        let refused = |source| Error::refused("reading the nftables ruleset", source);
        for _ in 0..ATTEMPTS {
            match self.ruleset() {
                Ok(ruleset) => return Ok(ruleset),
                // A generation ended between two dumps, or within one.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) if is_absent(&error) => return Ok(Ruleset::default()),
                Err(error) => return Err(refused(error)),
            }
        }
        let cause = io::Error::other("it changes faster than it can be read");
        Err(refused(cause))
    }

    fn client(&mut self) -> io::Result<&mut Client> {
        let is_loaded = || Path::new("/sys/module/nf_tables").exists();
        match &mut self.client {
            Some(client) if !ABSENT.load(Ordering::Relaxed) || is_loaded() => Ok(client),
            _ => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
    }

    fn ruleset(&mut self) -> io::Result<Ruleset> {
        const TABLE: u16 = 1;
        let mut ruleset = Ruleset::default();
        for (family, body) in self.dump(GET_CHAINS, 0, &[])? {
            let (Some(table), Some(name)) = (string(&body, TABLE), string(&body, 3)) else {
                continue;
            };
            let key = (family, table);
            if self.omitted.as_ref() == Some(&key) {
                continue;
            }
            let chain = Chain {
                base: BaseChain::read(&body),
                rules: Vec::new(),
            };
            let table = ruleset.chains.entry(key).or_default();
            table.insert(name, chain);
        }
        if ruleset.chains.is_empty() {
            return Ok(ruleset);
        }
        for (family, body) in self.dump(GET_RULES, 0, &[])? {
            let (Some(table), Some(chain)) = (string(&body, TABLE), string(&body, 2)) else {
                continue;
            };
            let rule = Rule {
                handle: find(&body, 3)
                    .and_then(|value| value.first_chunk())
                    .map_or(0, |bytes| u64::from_be_bytes(*bytes)),
                expressions: Expression::list(find(&body, 4).unwrap_or_default()),
            };
            let tables = ruleset.chains.get_mut(&(family, table));
            if let Some(chain) = tables.and_then(|chains| chains.get_mut(&chain)) {
                chain.rules.push(rule);
            }
        }
        for (family, body) in self.dump(GET_SETS, 0, &[])? {
            let (Some(table), Some(name)) = (string(&body, TABLE), string(&body, 2)) else {
                continue;
            };
            if self.omitted.as_ref() == Some(&(family, table.clone())) {
                continue;
            }
            let mut set = Set::read(&body);
            if !set.is_dynamic() {
                set.elements = self.elements(family, &table, &name)?;
            }
            let sets = ruleset.sets.entry((family, table)).or_default();
            sets.insert(name, set);
        }
        Ok(ruleset)
    }

    fn elements(&mut self, family: u8, table: &str, set: &str) -> io::Result<Vec<Element>> {
        const ELEMENTS: u16 = 3;
        let mut request = Vec::new();
        append(&mut request, 1, table);
        append(&mut request, 2, set);
        let messages = self.dump(GET_ELEMENTS, family, &request)?;
        let elements = messages
            .iter()
            .filter_map(|(_, body)| find(body, ELEMENTS))
            .flat_map(attributes);
        Ok(elements
            .map(|(_, element)| Element::read(element))
            .collect())
    }

    /// The family and attributes of every object of a kind.
    fn dump(&mut self, kind: u16, family: u8, attributes: &[u8]) -> io::Result<Vec<(u8, Vec<u8>)>> {
        let mut body = vec![family, 0, 0, 0];
        body.extend(attributes);
        let dumped = self.client()?.dump(SUBSYSTEM << 8 | kind, &body);
        if dumped.as_ref().is_err_and(is_absent) {
            ABSENT.store(true, Ordering::Relaxed);
        }
        let objects = dumped?;
        let parts = objects.iter().filter_map(|object| {
            let (general, attributes) = object.split_at_checked(GENERAL)?;
            Some((general[0], attributes.to_vec()))
        });
        Ok(parts.collect())
    }
}

/// Adds an attribute that is a string.
fn append(bytes: &mut Vec<u8>, kind: u16, text: &str) {
    const HEADER: usize = 4;
    let length = HEADER + text.len() + 1;
    bytes.extend(u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(text.as_bytes());
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}
