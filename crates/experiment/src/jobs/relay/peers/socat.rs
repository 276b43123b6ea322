//! socat: a datagram loop in one process.

use anyhow::Result;
use datapath::Missing;

use super::{Peer, PeerProcess, Route, logged, wait_bound};
use crate::program::program;

pub(super) struct Socat;

impl Peer for Socat {
    fn name(&self) -> &'static str {
        "socat"
    }

    fn check(&self) -> Result<(), Missing> {
        program("socat", "apt-get install socat")
    }

    fn start(&self, route: &Route<'_>) -> Result<PeerProcess> {
        // -b: one datagram a read; rcvbuf: our own userspace datapaths ask for as much.
        let listen = format!(
            "UDP4-RECV:{},bind={},rcvbuf=8388608",
            route.ingest.port(),
            route.ingest.ip()
        );
        let send = format!("UDP4-SENDTO:{}", route.subscriber);
        let mut command = logged("socat", route.folder)?;
        command.args(["-u", "-b", "65536", &listen, &send]);
        let settings = format!("socat -u -b 65536 {listen} {send}");
        let child = route.host.spawn(command)?;
        wait_bound(route.host, route.ingest.port())?;
        Ok(PeerProcess {
            ingest: route.ingest,
            settings,
            children: vec![child],
        })
    }
}
