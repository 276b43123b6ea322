//! Which sockets the steering program hands datagrams to, and which devices they can be sent by.

use std::sync::Arc;

use bpf::Map;
use datapath::Error;
use netdev::Netlink;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use xsk::Port;

use crate::kernel::EgressDevice;
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

    /// From now on datagrams may come by this port. No other port that is open has this place.
    pub(super) fn open<T>(&self, place: u32, port: &Port<T>) -> Result<(), Error> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::from(place));
        self.sleep
            .add(port, event)
            .map_err(|error| Error::failed("waiting for an AF_XDP socket", error))?;
        let queue = types::queue {
            ifindex: port.ifindex(),
            number: port.queue(),
        };
        // The queue after the socket that it leads to.
        self.sockets
            .set_descriptor(&place, port)
            .and_then(|()| self.queues.set(&queue, &place))
            .map_err(|error| Error::failed("steering to an AF_XDP socket", error.source))
    }

    /// No more datagrams come by this queue of an interface. The kernel forgets the socket when it is closed.
    pub(super) fn close(&self, (ifindex, number): (u32, u32)) {
        // The program steers nothing to a place without a socket.
        if let Err(error) = self.queues.remove(&types::queue { ifindex, number }) {
            tracing::warn!(%error, "an interface that is gone keeps its entry");
        }
    }
}

pub(super) fn look(ifindex: u32) -> EgressDevice {
    EgressDevice {
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
