//! The expressions that rules consist of, as the kernel dumps them.

use super::attribute::{attributes, data, find, number, string};

/// Where a register starts among the 64 bytes of all.
pub(crate) type Offset = usize;

/// One step of a rule. Numbers are those of `linux/netfilter/nf_tables.h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    /// Loads bytes of the packet.
    Payload {
        to: Offset,
        base: u32,
        offset: usize,
        length: usize,
    },
    /// Loads a property of the packet.
    Meta {
        to: Offset,
        key: u32,
    },
    /// Sets a property of the packet.
    MetaSet {
        from: Offset,
        key: u32,
    },
    /// Loads a property of the packet's connection.
    Conntrack {
        to: Offset,
        key: u32,
    },
    /// Loads what the routing table says of an address.
    Fib {
        to: Offset,
        result: u32,
        flags: u32,
    },
    /// Ends the rule unless the comparison holds.
    Compare {
        from: Offset,
        operation: u32,
        value: Vec<u8>,
    },
    /// Ends the rule unless the value is within, or outside where `inverted`.
    Range {
        from: Offset,
        inverted: bool,
        first: Vec<u8>,
        last: Vec<u8>,
    },
    Bitwise {
        from: Offset,
        to: Offset,
        length: usize,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    ByteOrder {
        from: Offset,
        to: Offset,
        length: usize,
        size: usize,
    },
    Value {
        to: Offset,
        value: Vec<u8>,
    },
    Verdict(Decision),
    /// Ends the rule unless the set has the key, or has it not where `inverted`; a map's value goes to a register.
    Lookup {
        set: String,
        from: Offset,
        /// None where the set is not a map.
        to: Option<Register>,
        inverted: bool,
    },
    Reject,
    /// Does not change where the packet goes.
    Neutral,
    /// Matches by a module of iptables.
    Match {
        name: String,
        revision: u32,
        info: Vec<u8>,
    },
    /// Ends by a module of iptables.
    Target {
        name: String,
    },
    /// Loads something of which nothing is known here.
    Unknown,
    /// Depends on state, or does something that a packet which passes by would miss.
    Effect(String),
}

/// The register that a map's value goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    Verdict,
    Data(Offset),
}

/// What a rule decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Accept,
    Drop,
    Queue,
    Continue,
    Return,
    Jump(String),
    Goto(String),
}

impl Decision {
    /// From `NFTA_DATA_VERDICT`.
    fn read(bytes: &[u8]) -> Option<Self> {
        const CODE: u16 = 1;
        const CHAIN: u16 = 2;
        let chain = || string(bytes, CHAIN);
        // NF_DROP to NF_QUEUE are not negative; a queue's number is in the upper half.
        match number(bytes, CODE)?.cast_signed() {
            -1 => Some(Self::Continue),
            -3 => Some(Self::Jump(chain()?)),
            -4 => Some(Self::Goto(chain()?)),
            -5 => Some(Self::Return),
            0 => Some(Self::Drop),
            1 => Some(Self::Accept),
            _ => Some(Self::Queue),
        }
    }

    /// From an attribute that holds `NFTA_DATA_VERDICT`.
    pub(crate) fn within(bytes: &[u8]) -> Option<Self> {
        const VERDICT: u16 = 2;
        Self::read(find(bytes, VERDICT)?)
    }
}

/// The byte at which a register of the kernel's numbering starts; none for the verdict.
fn offset(register: u32) -> Option<Offset> {
    /// `NFT_REG_1` to `NFT_REG_4` are 16 bytes, and `NFT_REG32_00` to `NFT_REG32_15` the same memory in words.
    const WORDS: std::ops::RangeInclusive<u32> = 8..=23;
    match register {
        1..=4 => Some(16 * (register as usize - 1)),
        register if WORDS.contains(&register) => Some(4 * (register as usize - 8)),
        _ => None,
    }
}

impl Expression {
    /// From the attributes of `NFTA_LIST_ELEM`. An expression that cannot be read counts as an [`Expression::Effect`].
    pub(crate) fn read(bytes: &[u8]) -> Self {
        const NAME: u16 = 1;
        const DATA: u16 = 2;
        let name = string(bytes, NAME).unwrap_or_default();
        let body = find(bytes, DATA).unwrap_or_default();
        Self::of(&name, body).unwrap_or(Self::Effect(name))
    }

    /// An expression that loads a register, or sets a property from one.
    fn load(name: &str, body: &[u8]) -> Option<Self> {
        let register = |kind| offset(number(body, kind)?);
        let size = |kind| number(body, kind).map(|number| number as usize);
        Some(match name {
            "payload" if find(body, 5).is_none() => Self::Payload {
                to: register(1)?,
                base: number(body, 2)?,
                offset: size(3)?,
                length: size(4)?,
            },
            "meta" => match register(1) {
                Some(to) => Self::Meta {
                    to,
                    key: number(body, 2)?,
                },
                None => Self::MetaSet {
                    key: number(body, 2)?,
                    from: register(3)?,
                },
            },
            "ct" if find(body, 4).is_none() => Self::Conntrack {
                to: register(1)?,
                key: number(body, 2)?,
            },
            "fib" => Self::Fib {
                to: register(1)?,
                result: number(body, 2)?,
                flags: number(body, 3)?,
            },
            _ => return None,
        })
    }

    fn of(name: &str, body: &[u8]) -> Option<Self> {
        let register = |kind| offset(number(body, kind)?);
        let size = |kind| number(body, kind).map(|number| number as usize);
        Some(match name {
            "payload" | "meta" | "ct" | "fib" => Self::load(name, body)?,
            "cmp" => Self::Compare {
                from: register(1)?,
                operation: number(body, 2)?,
                value: data(body, 3)?.to_vec(),
            },
            "range" => Self::Range {
                from: register(1)?,
                inverted: number(body, 2)? != 0,
                first: data(body, 3)?.to_vec(),
                last: data(body, 4)?.to_vec(),
            },
            // Shifts have no mask.
            "bitwise" if number(body, 6).unwrap_or(0) == 0 => Self::Bitwise {
                from: register(1)?,
                to: register(2)?,
                length: size(3)?,
                mask: data(body, 4)?.to_vec(),
                xor: data(body, 5)?.to_vec(),
            },
            "byteorder" => Self::ByteOrder {
                from: register(1)?,
                to: register(2)?,
                length: size(4)?,
                size: size(5)?,
            },
            "immediate" => match register(1) {
                Some(to) => Self::Value {
                    to,
                    value: data(body, 2)?.to_vec(),
                },
                None => Self::Verdict(Decision::within(find(body, 2)?)?),
            },
            "lookup" => Self::Lookup {
                set: string(body, 1)?,
                from: register(2)?,
                to: match number(body, 3) {
                    None => None,
                    Some(0) => Some(Register::Verdict),
                    Some(number) => Some(Register::Data(offset(number)?)),
                },
                inverted: number(body, 5).unwrap_or(0) & 1 != 0,
            },
            "bitwise" | "hash" | "rt" | "socket" | "osf" | "xfrm" | "tunnel" | "inner" => {
                Self::Unknown
            }
            // With a source register it writes to the packet.
            "exthdr" if find(body, 7).is_none() => Self::Unknown,
            "reject" => Self::Reject,
            "counter" | "last" => Self::Neutral,
            "match" => Self::Match {
                name: string(body, 1)?,
                revision: number(body, 2)?,
                info: find(body, 3)?.to_vec(),
            },
            "target" => Self::Target {
                name: string(body, 1)?,
            },
            _ => return None,
        })
    }

    /// From `NFTA_RULE_EXPRESSIONS`.
    pub(crate) fn list(bytes: &[u8]) -> Vec<Self> {
        attributes(bytes)
            .map(|(_, element)| Self::read(element))
            .collect()
    }
}
