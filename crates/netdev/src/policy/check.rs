//! The checks that the kernel makes of a packet, by name.

use std::fmt;

use serde::Serialize;

/// A part of the kernel's policy on the way of a packet.
///
/// Which of them a packet meets depends on whether this machine receives it, sends it or forwards it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// tc programs and filters that others have put on the device.
    TcIngress,
    NftIngress,
    NftPrerouting,
    /// The device is a port of a bridge or a bond, or belongs to a VRF: its packets are not routed as the device's own.
    /// For a socket of this machine, only a VRF counts.
    Controller,
    /// Policy routing rules beyond those that every system has.
    IpRules,
    /// Whether the device's packets are forwarded at all (`net.ipv4.conf.DEVICE.forwarding`).
    Forwarding,
    /// Whether the source is reached by the device (`net.ipv4.conf.DEVICE.rp_filter`).
    #[serde(rename = "rp-filter")]
    ReversePath,
    /// Virtual services of IPVS.
    Ipvs,
    NftInput,
    IpsecIn,
    /// BPF programs on this process's cgroup that see what its sockets receive, such as systemd's `IPAddressDeny`.
    CgroupIngress,
    IpsecForward,
    NftForward,
    /// BPF programs on this process's cgroup that see what its sockets send.
    CgroupEgress,
    NftOutput,
    IpsecOut,
    NftPostrouting,
    NftEgress,
    /// tc programs and filters that others have put on the device, and queueing disciplines that shape, police or
    /// schedule by class.
    TcEgress,
}

/// No check of those looked for has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCheck {
    name: String,
    known: &'static [Check],
}

impl Check {
    /// What packets to and from sockets of this machine meet, in this order.
    pub const LOCAL: &[Self] = &[
        Self::TcIngress,
        Self::NftIngress,
        Self::NftPrerouting,
        Self::Controller,
        Self::ReversePath,
        Self::Ipvs,
        Self::NftInput,
        Self::IpsecIn,
        Self::CgroupIngress,
        // From here on: what is sent.
        Self::IpRules,
        Self::CgroupEgress,
        Self::NftOutput,
        Self::IpsecOut,
        Self::NftPostrouting,
        Self::NftEgress,
        Self::TcEgress,
    ];
    const RECEIVE_CHECKS: usize = 9;
    /// Those of [`Self::LOCAL`] that packets to a socket meet.
    pub const RECEIVE: &[Self] = Self::LOCAL.split_at(Self::RECEIVE_CHECKS).0;
    /// Those of [`Self::LOCAL`] that packets from a socket meet.
    pub const SEND: &[Self] = Self::LOCAL.split_at(Self::RECEIVE_CHECKS).1;
    /// What packets that this machine forwards meet, in this order.
    pub const FORWARD: &[Self] = &[
        Self::TcIngress,
        Self::NftIngress,
        Self::NftPrerouting,
        Self::Controller,
        Self::IpRules,
        Self::Forwarding,
        Self::ReversePath,
        Self::Ipvs,
        Self::IpsecForward,
        Self::NftForward,
        Self::IpsecOut,
        Self::NftPostrouting,
        Self::NftEgress,
        Self::TcEgress,
    ];
    /// Those of [`Self::FORWARD`] that know only by which device a packet came. `ReversePath` depends on the source and is
    /// in neither list.
    pub const FORWARD_INGRESS: &[Self] = &[
        Self::TcIngress,
        Self::NftIngress,
        Self::NftPrerouting,
        Self::Controller,
        Self::IpRules,
        Self::Forwarding,
        Self::Ipvs,
    ];
    /// Those of [`Self::FORWARD`] that know by which device it leaves as well.
    pub const FORWARD_PAIRS: &[Self] = &[
        Self::IpsecForward,
        Self::NftForward,
        Self::IpsecOut,
        Self::NftPostrouting,
        Self::NftEgress,
        Self::TcEgress,
    ];

    /// The name of the check in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Self::TcIngress => "tc-ingress",
            Self::NftIngress => "nft-ingress",
            Self::NftPrerouting => "nft-prerouting",
            Self::Controller => "controller",
            Self::IpRules => "ip-rules",
            Self::Forwarding => "forwarding",
            Self::ReversePath => "rp-filter",
            Self::Ipvs => "ipvs",
            Self::NftInput => "nft-input",
            Self::IpsecIn => "ipsec-in",
            Self::CgroupIngress => "cgroup-ingress",
            Self::IpsecForward => "ipsec-forward",
            Self::NftForward => "nft-forward",
            Self::CgroupEgress => "cgroup-egress",
            Self::NftOutput => "nft-output",
            Self::IpsecOut => "ipsec-out",
            Self::NftPostrouting => "nft-postrouting",
            Self::NftEgress => "nft-egress",
            Self::TcEgress => "tc-egress",
        }
    }

    /// The one of `known` that has this name.
    pub fn named(name: &str, known: &'static [Self]) -> Result<Self, UnknownCheck> {
        let found = known.iter().find(|check| check.name() == name);
        found.copied().ok_or_else(|| UnknownCheck {
            name: name.to_owned(),
            known,
        })
    }
}

impl fmt::Display for UnknownCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.known.iter().map(|check| check.name()).collect();
        write!(
            f,
            "`{}` is unknown; the checks are {}",
            self.name,
            names.join(", ")
        )
    }
}

impl std::error::Error for UnknownCheck {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_name_and_one_place() {
        for known in [Check::LOCAL, Check::FORWARD] {
            for check in known {
                assert_eq!(Check::named(check.name(), known), Ok(*check));
            }
        }
        let unknown = Check::named("nft-input", Check::FORWARD).unwrap_err();
        assert!(
            unknown
                .to_string()
                .starts_with("`nft-input` is unknown; the checks are tc-ingress, ")
        );
        assert_eq!(Check::RECEIVE.last(), Some(&Check::CgroupIngress));
        let mut of_both = [Check::FORWARD_INGRESS, Check::FORWARD_PAIRS].concat();
        of_both.push(Check::ReversePath);
        of_both.sort();
        assert_eq!(of_both, Check::FORWARD);
    }
}
