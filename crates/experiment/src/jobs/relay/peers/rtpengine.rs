//! rtpengine in userspace: what SIP proxies relay media with, controlled by its ng protocol.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use datapath::Missing;

use super::{Peer, PeerProcess, Route, logged, wait_bound};
use crate::program::program;

pub(super) struct RtpEngine;

/// From the interface called `in` to the one called `out`: a bencoded key and its list.
const DIRECTION: &str = concat!("9:direction", "l", "2:in", "3:out", "e");

/// Where its control socket listens, inside the namespace.
const CONTROL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 2223);

impl Peer for RtpEngine {
    fn name(&self) -> &'static str {
        "rtpengine"
    }

    fn check(&self) -> Result<(), Missing> {
        program("rtpengine", "apt-get install rtpengine-daemon")
    }

    fn start(&self, route: &Route<'_>) -> Result<PeerProcess> {
        let (inside, outside) = (route.ingest.ip(), route.egress.ip());
        let arguments = [
            // No kernel module: this arm is the userspace daemon.
            "--table=-1".to_owned(),
            format!("--interface=in/{inside}"),
            format!("--interface=out/{outside}"),
            format!("--listen-ng={}:{}", CONTROL.0, CONTROL.1),
            "--port-min=30000".to_owned(),
            "--port-max=30100".to_owned(),
            "--num-threads=1".to_owned(),
            "--foreground".to_owned(),
            "--log-stderr".to_owned(),
            "--log-level=3".to_owned(),
            format!("--pidfile={}", route.folder.join("rtpengine.pid").display()),
        ];
        let mut command = logged("rtpengine", route.folder)?;
        command.args(&arguments);
        let child = route.host.spawn(command)?;
        wait_bound(route.host, CONTROL.1)?;
        let (sender, subscriber) = (route.sender, route.subscriber);
        let ingest = route.host.run(move || call(sender, subscriber))??;
        Ok(PeerProcess {
            ingest,
            settings: format!("rtpengine {}", arguments.join(" ")),
            children: vec![child],
        })
    }
}

/// Sets up one call from the sender to the subscriber; gives the address to send media to.
fn call(sender: SocketAddr, subscriber: SocketAddr) -> Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(3)))?;
    socket.connect(CONTROL)?;
    let common = "7:call-id8:lowroad18:from-tag1:a";
    let offer = format!(
        "d7:command5:offer{common}{DIRECTION}3:sdp{}e",
        bencoded(&sdp(sender))
    );
    ask(&socket, "offer", &offer)?;
    let answer = format!(
        "d7:command6:answer{common}6:to-tag1:b3:sdp{}e",
        bencoded(&sdp(subscriber))
    );
    let reply = ask(&socket, "answer", &answer)?;
    media_address(&reply).with_context(|| format!("no media address in: {reply}"))
}

/// A session description with one audio stream at `at`: payload type 0 needs no codec options.
fn sdp(at: SocketAddr) -> String {
    let (ip, port) = (at.ip(), at.port());
    format!(
        "v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\n\
         m=audio {port} RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n"
    )
}

fn bencoded(text: &str) -> String {
    format!("{}:{text}", text.len())
}

/// One request of the ng protocol: a cookie, a space, a bencoded dictionary.
fn ask(socket: &UdpSocket, verb: &str, dictionary: &str) -> Result<String> {
    socket.send(format!("{verb} {dictionary}").as_bytes())?;
    let mut buffer = vec![0; 65_536];
    let length = socket
        .recv(&mut buffer)
        .with_context(|| format!("rtpengine did not answer the {verb}"))?;
    let reply = String::from_utf8_lossy(&buffer[..length]).into_owned();
    if !reply.contains("6:result2:ok") {
        bail!("rtpengine refused the {verb}: {reply}");
    }
    Ok(reply)
}

/// The connection address and the audio port of the session description in a reply.
fn media_address(reply: &str) -> Option<SocketAddr> {
    let after = |mark: &str| {
        let start = reply.find(mark)? + mark.len();
        let rest = &reply[start..];
        rest.split([' ', '\r', '\n']).next()
    };
    let ip = after("c=IN IP4 ")?.parse().ok()?;
    let port = after("m=audio ")?.parse().ok()?;
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_media_address_is_read_from_a_reply() {
        let reply =
            "answer d6:result2:ok3:sdp60:v=0\r\nc=IN IP4 10.1.0.2\r\nm=audio 30004 RTP/AVP 0\r\n";
        assert_eq!(media_address(reply), "10.1.0.2:30004".parse().ok());
        assert_eq!(media_address("d6:result5:errore"), None);
    }
}
