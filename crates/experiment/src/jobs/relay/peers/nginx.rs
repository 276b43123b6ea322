//! nginx's stream module: a UDP proxy, one session a source address.

use anyhow::Result;
use datapath::Missing;

use super::{Peer, PeerProcess, Route, logged, wait_bound};
use crate::program::program;

pub(super) struct Nginx;

/// Where Debian's package puts the module.
const MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

impl Peer for Nginx {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn check(&self) -> Result<(), Missing> {
        let remedy = "apt-get install nginx-light libnginx-mod-stream";
        program("nginx", remedy)?;
        if std::path::Path::new(MODULE).exists() {
            Ok(())
        } else {
            Err(Missing::new("nginx has no stream module", remedy))
        }
    }

    fn start(&self, route: &Route<'_>) -> Result<PeerProcess> {
        let folder = route.folder.display();
        // proxy_responses 0 would close the session after each datagram, so it stays unset: the
        // stream is one long session.
        let config = format!(
            "load_module {MODULE};\nworker_processes 1;\ndaemon off;\nmaster_process off;\n\
             pid {folder}/nginx.pid;\nerror_log {folder}/nginx-error.log;\n\
             events {{ worker_connections 1024; }}\n\
             stream {{ server {{ listen {} udp rcvbuf=8m; proxy_pass {}; proxy_timeout 1h; }} }}\n",
            route.ingest, route.subscriber
        );
        let path = route.folder.join("nginx.conf");
        std::fs::write(&path, &config)?;
        let mut command = logged("nginx", route.folder)?;
        command.arg("-c").arg(&path).arg("-p").arg(route.folder);
        let child = route.host.spawn(command)?;
        wait_bound(route.host, route.ingest.port())?;
        Ok(PeerProcess {
            ingest: route.ingest,
            settings: config,
            children: vec![child],
        })
    }
}
