//! quilkin: a UDP proxy for game servers, its io path in userspace.

use anyhow::Result;
use datapath::Missing;

use super::{Peer, PeerProcess, Route, logged, wait_bound};
use crate::program::program;

pub(super) struct Quilkin;

impl Peer for Quilkin {
    fn name(&self) -> &'static str {
        "quilkin"
    }

    fn check(&self) -> Result<(), Missing> {
        program(
            "quilkin",
            "cargo install quilkin --locked --no-default-features",
        )
    }

    fn start(&self, route: &Route<'_>) -> Result<PeerProcess> {
        let port = route.ingest.port().to_string();
        let to = route.subscriber.to_string();
        let arguments = [
            "--service.udp",
            "--service.udp.port",
            &port,
            "--provider.static.endpoints",
            &to,
        ];
        let mut command = logged("quilkin", route.folder)?;
        command.args(arguments);
        let child = route.host.spawn(command)?;
        wait_bound(route.host, route.ingest.port())?;
        Ok(PeerProcess {
            ingest: route.ingest,
            settings: format!("quilkin {}", arguments.join(" ")),
            children: vec![child],
        })
    }
}
