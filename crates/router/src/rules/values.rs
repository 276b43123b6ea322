//! Addresses, ports and protocols as people write them in rules.

use std::net::IpAddr;

use acl::Action;

use super::region::Ranges;
use crate::protocols;

/// A prefix, an address, ADDRESS-ADDRESS or ADDRESS/MASK; whether it is IPv6.
pub(super) fn addresses(text: &str) -> Result<(bool, Ranges), String> {
    if let Some((low, high)) = text.split_once('-') {
        let ((low_v6, low), (high_v6, high)) = (number(low)?, number(high)?);
        if low_v6 != high_v6 {
            return Err(format!("{text}: addresses of two families"));
        }
        if low > high {
            return Err(format!("{text}: the first address is above the last"));
        }
        return Ok((low_v6, Ranges::one(low, high)));
    }
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let (v6, first) = number(address)?;
    let bits: u32 = if v6 { 128 } else { 32 };
    let length = match length {
        "" if !text.contains('/') => bits,
        length => match (length.parse::<u32>(), number(length)) {
            (Ok(length), _) => length,
            (_, Ok((mask_v6, mask))) if mask_v6 == v6 => {
                mask_length(mask, bits).ok_or_else(|| format!("{text}: a mask with holes"))?
            }
            _ => return Err(format!("{text}: no length of a prefix")),
        },
    };
    if length > bits {
        return Err(format!(
            "{text}: a prefix of {length} bits, where addresses have {bits}"
        ));
    }
    let host = u128::MAX.checked_shr(128 - (bits - length)).unwrap_or(0);
    if first & host != 0 {
        return Err(format!("{text} has bits set beyond its length"));
    }
    Ok((v6, Ranges::one(first, first | host)))
}

fn mask_length(mask: u128, bits: u32) -> Option<u32> {
    let host = mask.trailing_zeros().min(bits);
    let length = bits - host;
    let whole = u128::MAX.checked_shr(128 - bits)? >> host << host;
    (mask == whole).then_some(length)
}

fn number(text: &str) -> Result<(bool, u128), String> {
    match text.parse() {
        Ok(IpAddr::V4(address)) => Ok((false, u128::from(address.to_bits()))),
        Ok(IpAddr::V6(address)) => Ok((true, address.to_bits())),
        Err(_) => Err(format!("{text:?} is no address")),
    }
}

/// Ports and ranges of them, separated by commas.
pub(super) fn ports(text: &str, between: char) -> Result<Ranges, String> {
    let port = |text: &str| {
        let number = text.parse::<u16>();
        number.map_err(|_| format!("{text:?} is no port: 0 to 65535"))
    };
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let (low, high) = part.split_once(between).unwrap_or((part, part));
        let low = if low.is_empty() { 0 } else { port(low)? };
        let high = if high.is_empty() {
            u16::MAX
        } else {
            port(high)?
        };
        if low > high {
            return Err(format!("{part}: {low} is above {high}"));
        }
        ranges.push((u128::from(low), u128::from(high)));
    }
    Ok(Ranges::new(ranges))
}

/// A number or a name of /etc/protocols, of those in use.
pub(super) fn protocol(text: &str) -> Result<Ranges, String> {
    let number = protocols::number(text);
    let number = number.ok_or_else(|| format!("{text:?} is no protocol: write its number"))?;
    Ok(Ranges::one(u128::from(number), u128::from(number)))
}

pub(super) fn action(text: &str) -> Result<Action, String> {
    match text {
        "accept" => Ok(Action::Accept),
        "drop" => Ok(Action::Drop),
        "punt" => Ok(Action::Punt),
        other => Err(format!("{other:?} is no action: accept, drop or punt")),
    }
}
