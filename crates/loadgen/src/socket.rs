//! The socket back end: one datagram per packet, never a GSO train, so that every packet is one
//! packet on every path.

use std::net::{SocketAddr, UdpSocket};

use packet::payload::Header;
use sys::mmsg::{self, Burst, Outgoing, SendBatch};
use sys::socket::{self, Family};

use crate::engine::{BurstResult, Remainder, Transmit};
use crate::{Error, Load, frame};

/// The requested size of the send buffer. The kernel's default holds a few hundred packets.
const BUFFER: usize = 8 << 20;

pub(crate) struct Sender {
    socket: UdpSocket,
    outgoing: Vec<Outgoing>,
    batch: SendBatch,
    payloads: Vec<u8>,
    payload_len: usize,
}

impl Sender {
    pub(crate) fn new(load: &Load) -> Result<Self, Error> {
        let family = Family::from(load.source.ip());
        let socket = open(family, load.source)?;
        Ok(Self {
            socket,
            outgoing: load
                .destinations
                .iter()
                .copied()
                .map(Outgoing::to)
                .collect(),
            batch: SendBatch::new(load.burst),
            payloads: frame::filler(load.payload_len).repeat(load.burst),
            payload_len: load.payload_len,
        })
    }
}

fn open(family: Family, source: SocketAddr) -> Result<UdpSocket, Error> {
    let failed = || Error::io(format!("sending from {source}"));
    let socket = socket::unbound(family).map_err(failed())?;
    socket::bind(&socket, source).map_err(failed())?;
    socket::send_buffer(&socket, BUFFER).map_err(failed())?;
    socket::never_fragment(&socket, family).map_err(failed())?;
    socket::report_drops(&socket, family).map_err(failed())?;
    Ok(socket)
}

impl Transmit for Sender {
    fn send(&mut self, headers: &[Header]) -> BurstResult {
        let buffers = self.payloads.chunks_exact_mut(self.payload_len);
        for (payload, header) in buffers.zip(headers) {
            header.write(payload);
        }
        let mut burst = self.batch.burst();
        for (payload, header) in self.payloads.chunks_exact(self.payload_len).zip(headers) {
            let fits = burst.push(payload, &self.outgoing[header.flow as usize]);
            debug_assert!(fits, "the batch is as large as a burst");
        }
        let rest = send_all(&mut burst, &self.socket);
        BurstResult {
            packets: headers.len() - burst.len(),
            rest,
        }
    }
}

fn send_all(burst: &mut Burst<'_, '_>, socket: &UdpSocket) -> Remainder {
    let mut failed = None;
    while !burst.is_empty() {
        match burst.send(socket, mmsg::DONT_WAIT) {
            Ok(_) => failed = None,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS) => return Remainder::NoRoom,
                // An ICMP error about an earlier packet fails one send; its own error fails two.
                _ if failed.is_some() => return Remainder::Failed(error),
                _ => failed = Some(error),
            },
        }
    }
    Remainder::Nothing
}
