//! nftables DNAT: the kernel's own way to send a stream elsewhere.

use anyhow::{Result, bail};
use datapath::Missing;

use super::{Peer, PeerProcess, Route};
use crate::program::program;

pub(super) struct Dnat;

impl Peer for Dnat {
    fn name(&self) -> &'static str {
        "dnat"
    }

    fn check(&self) -> Result<(), Missing> {
        program("nft", "apt-get install nftables")
    }

    fn start(&self, route: &Route<'_>) -> Result<PeerProcess> {
        let rules = format!(
            "table ip relay {{\n\
             chain prerouting {{ type nat hook prerouting priority -100; ip daddr {} udp dport {} dnat to {}; }}\n\
             chain postrouting {{ type nat hook postrouting priority 100; ip daddr {} masquerade; }}\n}}\n",
            route.ingest.ip(),
            route.ingest.port(),
            route.subscriber,
            route.subscriber.ip(),
        );
        let path = route.folder.join("relay.nft");
        std::fs::write(&path, &rules)?;
        let output = route.host.run(move || {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            std::process::Command::new("nft")
                .arg("-f")
                .arg(&path)
                .output()
        })??;
        if !output.status.success() {
            bail!("nft: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(PeerProcess {
            ingest: route.ingest,
            settings: rules,
            children: Vec::new(),
        })
    }
}
