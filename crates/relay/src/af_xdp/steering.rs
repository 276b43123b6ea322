//! Which sockets the steering program hands datagrams to, and which devices they can be sent by.

use std::sync::Arc;

use bpf::Map;
use datapath::Error;
use netdev::Netlink;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use xsk::Port;

use crate::kernel::Exit;
use crate::kernel::skel::steer::{SteerSkel, types};

/// Tells the program, and the thread that sleeps, of sockets that receive.
#[derive(Debug)]
pub(super) struct Steering {
    queues: Map<types::queue, u32>,
    sockets: Map<u32, i32>,
    sleep: Arc<Epoll>,
}

impl Steering {
    pub(super) fn new(skel: &SteerSkel<'_>, sleep: Arc<Epoll>) -> Result<Self, Error> {
        Ok(Self {
            queues: Map::new(&skel.maps.queues)?,
            sockets: Map::new(&skel.maps.sockets)?,
            sleep,
        })
    }

    /// From now on datagrams may come by this port, which is at `index` among them.
    pub(super) fn open<T>(&self, index: u32, port: &Port<T>) -> Result<(), Error> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::from(index));
        self.sleep
            .add(port, event)
            .map_err(|error| Error::failed("waiting for an AF_XDP socket", error))?;
        let queue = types::queue {
            ifindex: port.ifindex(),
            number: port.queue(),
        };
        // The queue after the socket that it leads to.
        self.sockets
            .set_descriptor(&index, port)
            .and_then(|()| self.queues.set(&queue, &index))
            .map_err(|error| Error::failed("steering to an AF_XDP socket", error.source))
    }
}

pub(super) fn look(ifindex: u32) -> Exit {
    Exit {
        slow: slow(ifindex),
        peer: None,
    }
}

/// Why a device is not sent by past the network stack.
pub(super) fn slow(ifindex: u32) -> Option<String> {
    let link = Netlink::new().ok()?.link_by_index(ifindex).ok()?;
    (link.loopback || !link.ethernet)
        .then(|| format!("{} does not send Ethernet frames", link.name))
}
