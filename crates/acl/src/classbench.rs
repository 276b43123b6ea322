//! Rule lists and traces in ClassBench's text form.
//!
//! A rule is `@source/len destination/len low : high low : high protocol/mask`, a key is five
//! decimal numbers; what follows on a line (flags, the rule a key was made from) is left alone.

use std::io::BufRead;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use prefix::Prefix;

use crate::error::Error;
use crate::rule::{Action, Key4, Protocol, Rule4};

/// Rules in order; a rule's `id` is its line number. Empty lines are left out.
///
/// # Errors
/// The first line that is not a rule, or reading.
pub fn rules(from: impl BufRead) -> Result<Vec<Rule4>, Error> {
    lines(from, rule)
}

/// Keys in order.
///
/// # Errors
/// The first line that is not a key, or reading.
pub fn trace(from: impl BufRead) -> Result<Vec<Key4>, Error> {
    lines(from, |_, text| key(text))
}

fn lines<T>(
    from: impl BufRead,
    parse: impl Fn(u32, &str) -> Result<T, String>,
) -> Result<Vec<T>, Error> {
    let mut parsed = Vec::new();
    for (line, text) in (1..).zip(from.lines()) {
        let text = text?;
        if text.trim().is_empty() {
            continue;
        }
        let id = u32::try_from(line).unwrap_or(u32::MAX);
        parsed.push(parse(id, &text).map_err(|what| Error::Line { line, what })?);
    }
    Ok(parsed)
}

/// The rule of one line.
///
/// # Errors
/// What is wrong with the line.
pub fn rule(id: u32, text: &str) -> Result<Rule4, String> {
    let rest = text
        .trim()
        .strip_prefix('@')
        .ok_or("a rule begins with @")?;
    let mut words = rest.split_whitespace();
    let mut word = |what: &str| words.next().ok_or_else(|| format!("there is no {what}"));
    let source = prefix(word("source prefix")?)?;
    let destination = prefix(word("destination prefix")?)?;
    let mut ports = |what: &str| -> Result<RangeInclusive<u16>, String> {
        let low = number(word(what)?, what)?;
        if word(what)? != ":" {
            return Err(format!("{what}: low : high"));
        }
        let high = number(word(what)?, what)?;
        if low > high {
            return Err(format!("{what}: {low} is above {high}"));
        }
        Ok(low..=high)
    };
    Ok(Rule4 {
        source,
        destination,
        source_ports: ports("source ports")?,
        destination_ports: ports("destination ports")?,
        protocol: protocol(word("protocol")?)?,
        action: Action::Accept,
        id,
    })
}

fn key(text: &str) -> Result<Key4, String> {
    let mut words = text.split_whitespace();
    let mut word = |what: &str| words.next().ok_or_else(|| format!("there is no {what}"));
    let source = number(word("source")?, "source")?;
    let destination = number(word("destination")?, "destination")?;
    let source_port = number(word("source port")?, "source port")?;
    let destination_port = number(word("destination port")?, "destination port")?;
    let protocol = number(word("protocol")?, "protocol")?;
    let ports = (source_port, destination_port);
    Ok(Key4::new(source, destination, ports, protocol))
}

fn prefix(text: &str) -> Result<Prefix<u32>, String> {
    let (address, length) = text
        .split_once('/')
        .ok_or_else(|| format!("{text}: address/length"))?;
    let address: Ipv4Addr = number(address, "address")?;
    let length = number(length, "prefix length")?;
    Prefix::containing(address.to_bits(), length).map_err(|error| error.to_string())
}

fn protocol(text: &str) -> Result<Protocol, String> {
    let byte = |text: &str| {
        let digits = text.strip_prefix("0x")?;
        u8::from_str_radix(digits, 16).ok()
    };
    let parsed = text.split_once('/').and_then(|(value, mask)| {
        let (value, mask) = (byte(value)?, byte(mask)?);
        let value = value & mask;
        Some(Protocol { value, mask })
    });
    parsed.ok_or_else(|| format!("{text}: a protocol is 0x06/0xFF"))
}

fn number<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is not a {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_and_a_key_are_read() {
        let text = "@155.15.241.148/31\t68.98.117.147/0\t0 : 65535\t5541 : 5542\t0x06/0xFF\t0x0000/0x0200\t\n";
        let rules = rules(text.as_bytes()).unwrap();
        let rule = &rules[0];
        assert_eq!(rule.source.first(), u32::from_be_bytes([155, 15, 241, 148]));
        assert_eq!((rule.source.len(), rule.destination.len()), (31, 0));
        assert_eq!(rule.destination.first(), 0);
        assert_eq!(rule.source_ports, 0..=65535);
        assert_eq!(rule.destination_ports, 5541..=5542);
        assert_eq!(rule.protocol, Protocol::exactly(6));
        let keys = trace("2601513436 120797081 1 2 6 0 689".as_bytes()).unwrap();
        assert_eq!(keys, [Key4::new(2_601_513_436, 120_797_081, (1, 2), 6)]);
    }

    #[test]
    fn errors_name_their_line() {
        let good = "@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1 0x06/0xFF\n\n";
        for (bad, what) in [
            ("1.2.3.4/32", "a rule begins with @"),
            ("@1.2.3.4/33 1.2.3.4/32 0 : 1 0 : 1 0x06/0xFF", "of 33 bits"),
            (
                "@1.2.3.4/32 1.2.3/32 0 : 1 0 : 1 0x06/0xFF",
                "1.2.3 is not a address",
            ),
            (
                "@1.2.3.4/32 1.2.3.4/32 2 : 1 0 : 1 0x06/0xFF",
                "2 is above 1",
            ),
            ("@1.2.3.4/32 1.2.3.4/32 0 : 65536 0 : 1 0x06/0xFF", "65536"),
            ("@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1 6", "a protocol is"),
            (
                "@1.2.3.4/32 1.2.3.4/32 0 : 1",
                "there is no destination ports",
            ),
        ] {
            let error = rules(format!("{good}{bad}").as_bytes())
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("line 3: ") && error.contains(what),
                "{error}"
            );
        }
    }
}
