//! Sleeps until the kernel's rings should be read, according to `Wakeup`.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::Duration;

use datapath::Error;
use libbpf_rs::MapHandle;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sys::bpf_array::BpfArray;
use sys::bpf_ring::Ring;

use super::wakeup::{Pause, Wakeup};

#[derive(Debug)]
pub(super) struct Bell {
    wakeup: Wakeup,
    epoll: Epoll,
    /// The map `alarms` of wake.h.
    alarms: BpfArray,
}

impl Bell {
    /// Creates a bell for the rings of a program with `count` alarms.
    pub(super) fn new(wakeup: Wakeup, alarms: &MapHandle, count: usize) -> Result<Self, Error> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC);
        let epoll = epoll.map_err(|error| Error::failed("epoll", io::Error::from(error)))?;
        let alarms = BpfArray::new(alarms, count)
            .map_err(|error| Error::failed("mapping the rings' alarms", error))?;
        Ok(Self {
            wakeup,
            epoll,
            alarms,
        })
    }

    /// Lets the writers of a ring wake this bell.
    pub(super) fn watch(&self, ring: impl AsFd) -> Result<(), Error> {
        // Edge-triggered, because a ring that already holds records must not wake the reader.
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
        let added = self.epoll.add(ring, event);
        added.map_err(|error| Error::failed("watching a ring", io::Error::from(error)))
    }

    /// Sleeps until one of the rings should be read. Each ring comes with the number of its alarm. Returns whether a
    /// writer caused the wake-up.
    pub(super) fn wait<'a>(
        &self,
        mut rings: impl Iterator<Item = (usize, &'a Ring)> + Clone,
    ) -> Result<bool, Error> {
        let mut longest = Duration::MAX;
        for (number, ring) in rings.clone() {
            let Some(pause) = self.pause(ring) else {
                return Ok(false);
            };
            longest = longest.min(pause.longest);
            if let (Some(behind), Some(alarm)) = (pause.alarm, self.alarms.get(number)) {
                alarm.store(ring.position() + behind, Ordering::Relaxed);
            }
        }
        if let Wakeup::Timer(time) = self.wakeup {
            thread::sleep(time);
            return Ok(false);
        }
        // A writer that did not see the alarm wrote its record before this second check.
        fence(Ordering::SeqCst);
        if rings.any(|(_, ring)| self.pause(ring).is_none()) {
            return Ok(false);
        }
        let timeout = EpollTimeout::try_from(longest).unwrap_or(EpollTimeout::MAX);
        match self.epoll.wait(&mut [EpollEvent::empty()], timeout) {
            Ok(events) => Ok(events > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(Error::failed("waiting for a ring", io::Error::from(error))),
        }
    }

    fn pause(&self, ring: &Ring) -> Option<Pause> {
        self.wakeup.pause(ring.size(), ring.waiting())
    }
}
