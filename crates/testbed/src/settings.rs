//! Settings of every link and host, applied each time, whatever the kernel's defaults are.

use serde::{Deserialize, Serialize};

/// Set at every device of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkSettings {
    /// Generic receive offload; on a veth it also means NAPI, without which frames that are
    /// redirected to it are lost silently.
    pub gro: bool,
    /// Segmentation in software at the device.
    pub gso: bool,
    /// TCP segmentation left to the device.
    pub tso: bool,
    /// UDP segmentation left to the device.
    pub udp_segmentation: bool,
    /// Checksums left to the device: on a veth they stay partial.
    pub tx_checksum: bool,
    pub rx_udp_gro_forwarding: bool,
    pub rx_gro_list: bool,
    /// NAPI in a kernel thread; needs `gro`.
    pub threaded_napi: bool,
    /// Packets.
    pub tx_queue_len: u32,
    /// Receive queues, and as many transmit queues.
    pub queues: u32,
    /// Bytes of IP packet.
    pub mtu: u32,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            gro: true,
            gso: true,
            tso: true,
            udp_segmentation: true,
            tx_checksum: true,
            rx_udp_gro_forwarding: false,
            rx_gro_list: false,
            threaded_napi: false,
            tx_queue_len: 1000,
            queues: 1,
            mtu: 1500,
        }
    }
}

impl LinkSettings {
    /// Why these cannot all hold.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        if self.tso && !self.tx_checksum {
            Some("tso = true needs tx-checksum = true")
        } else if self.udp_segmentation && !self.tx_checksum {
            Some("udp-segmentation = true needs tx-checksum = true")
        } else if self.threaded_napi && !self.gro {
            Some("threaded-napi = true needs gro = true: without it a veth has no NAPI")
        } else if self.queues == 0 {
            Some("queues must be at least 1")
        } else if self.mtu < 1280 {
            Some("mtu must be at least 1280, IPv6's least")
        } else {
            None
        }
    }

    /// The settings under the kernel's names for them.
    pub(crate) fn features(&self) -> [(&'static str, bool); 8] {
        [
            ("tx-checksum-ip-generic", self.tx_checksum),
            ("tx-tcp-segmentation", self.tso),
            ("tx-tcp6-segmentation", self.tso),
            ("tx-udp-segmentation", self.udp_segmentation),
            ("tx-generic-segmentation", self.gso),
            ("rx-gro", self.gro),
            ("rx-udp-gro-forwarding", self.rx_udp_gro_forwarding),
            ("rx-gro-list", self.rx_gro_list),
        ]
    }
}

/// Where neighbours' link-layer addresses come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbours {
    /// Set once, never resolved.
    #[default]
    Permanent,
    /// By ARP and neighbour discovery.
    Dynamic,
}

/// Set in every host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostSettings {
    /// Forwards packets of both families, and other hosts' routes may lead through it.
    pub forward: bool,
    pub neighbours: Neighbours,
}

impl HostSettings {
    /// Keys under `/proc/sys/net`, in the order they are set.
    pub(crate) fn sysctls(&self) -> Vec<(&'static str, String)> {
        let forward = u8::from(self.forward).to_string();
        let zero = || "0".to_owned();
        vec![
            ("ipv4/ip_forward", forward.clone()),
            ("ipv6/conf/all/forwarding", forward.clone()),
            ("ipv6/conf/default/forwarding", forward),
            // Experiments have asymmetric paths.
            ("ipv4/conf/all/rp_filter", zero()),
            ("ipv4/conf/default/rp_filter", zero()),
            ("ipv4/conf/all/send_redirects", zero()),
            ("ipv4/conf/default/send_redirects", zero()),
            // Engines forbid it to their containers.
            ("ipv6/conf/default/disable_ipv6", zero()),
            // The bed assigns all addresses, so that none can be a duplicate.
            ("ipv6/conf/all/accept_dad", zero()),
            ("ipv6/conf/default/accept_dad", zero()),
            ("ipv6/conf/default/accept_ra", zero()),
            ("ipv6/conf/default/router_solicitations", zero()),
        ]
    }
}
