//! Which sockets the steering program hands datagrams to, and which devices they can be sent by.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use datapath::Error;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use netdev::Netlink;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use super::port::Port;
use crate::kernel::{Exit, Loaded};

/// Tells the program, and the thread that sleeps, of sockets that receive.
#[derive(Debug)]
pub(super) struct Steering {
    queues: MapHandle,
    sockets: MapHandle,
    sleep: Arc<Epoll>,
}

impl Steering {
    pub(super) fn new(object: &Loaded, sleep: Arc<Epoll>) -> Result<Self, Error> {
        Ok(Self {
            queues: object.map("queues")?,
            sockets: object.map("sockets")?,
            sleep,
        })
    }

    /// From now on datagrams may come by this port, which is at `index` among them.
    pub(super) fn open(&self, index: u32, port: &Port) -> Result<(), Error> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::from(index));
        self.sleep
            .add(port, event)
            .map_err(|error| Error::failed("waiting for an AF_XDP socket", error))?;
        // `struct queue`, after the socket it leads to is there.
        let queue = [port.ifindex.to_ne_bytes(), port.queue.to_ne_bytes()].concat();
        let socket = port.as_fd().as_raw_fd();
        for (map, key, value) in [
            (
                &self.sockets,
                &index.to_ne_bytes()[..],
                socket.to_ne_bytes(),
            ),
            (&self.queues, &queue, index.to_ne_bytes()),
        ] {
            map.update(key, &value, MapFlags::ANY)
                .map_err(|error| Error::failed("steering to an AF_XDP socket", error))?;
        }
        Ok(())
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
