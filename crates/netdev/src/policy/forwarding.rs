//! The checks that the kernel makes of packets which it forwards.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// A check on the way of a forwarded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardCheck {
    NftIngress,
    NftPrerouting,
    /// The device is a port of a bridge or a bond, or belongs to a VRF: its packets are not routed as the device's own.
    Controller,
    /// Policy routing rules beyond those that every system has.
    IpRules,
    /// Whether the device's packets are forwarded at all (`net.ipv4.conf.DEVICE.forwarding`).
    Forwarding,
    /// Whether the source is reached by the device (`net.ipv4.conf.DEVICE.rp_filter`).
    #[serde(rename = "rp-filter")]
    ReversePath,
    IpsecForward,
    NftForward,
    IpsecOut,
    NftPostrouting,
    NftEgress,
}

/// No check has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCheck(String);

impl ForwardCheck {
    /// In the order in which a packet meets them.
    pub const ALL: [Self; 11] = [
        Self::NftIngress,
        Self::NftPrerouting,
        Self::Controller,
        Self::IpRules,
        Self::Forwarding,
        Self::ReversePath,
        Self::IpsecForward,
        Self::NftForward,
        Self::IpsecOut,
        Self::NftPostrouting,
        Self::NftEgress,
    ];
    /// Those that know only by which device a packet came.
    pub const OF_INGRESS: [Self; 5] = [
        Self::NftIngress,
        Self::NftPrerouting,
        Self::Controller,
        Self::IpRules,
        Self::Forwarding,
    ];
    /// Those that know by which device it leaves as well.
    pub const OF_PAIRS: [Self; 5] = [
        Self::IpsecForward,
        Self::NftForward,
        Self::IpsecOut,
        Self::NftPostrouting,
        Self::NftEgress,
    ];

    /// The name of the check in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Self::NftIngress => "nft-ingress",
            Self::NftPrerouting => "nft-prerouting",
            Self::Controller => "controller",
            Self::IpRules => "ip-rules",
            Self::Forwarding => "forwarding",
            Self::ReversePath => "rp-filter",
            Self::IpsecForward => "ipsec-forward",
            Self::NftForward => "nft-forward",
            Self::IpsecOut => "ipsec-out",
            Self::NftPostrouting => "nft-postrouting",
            Self::NftEgress => "nft-egress",
        }
    }
}

/// Accepts what [`ForwardCheck::name`] returns.
impl FromStr for ForwardCheck {
    type Err = UnknownCheck;

    fn from_str(text: &str) -> Result<Self, UnknownCheck> {
        let mut checks = Self::ALL.into_iter();
        let named = checks.find(|check| check.name() == text);
        named.ok_or_else(|| UnknownCheck(text.to_owned()))
    }
}

impl fmt::Display for UnknownCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ForwardCheck::ALL.map(ForwardCheck::name).join(", ");
        write!(f, "`{}` is unknown; the checks are {names}", self.0)
    }
}

impl std::error::Error for UnknownCheck {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_name_and_one_place() {
        for check in ForwardCheck::ALL {
            assert_eq!(check.name().parse(), Ok(check));
        }
        let unknown = "nft-input".parse::<ForwardCheck>().unwrap_err();
        assert!(unknown.to_string().starts_with("`nft-input` is unknown"));
        let of_both = ForwardCheck::OF_INGRESS
            .iter()
            .chain(&ForwardCheck::OF_PAIRS);
        let mut all: Vec<_> = of_both.copied().collect();
        all.push(ForwardCheck::ReversePath);
        all.sort();
        assert_eq!(all, ForwardCheck::ALL);
    }
}
