//! Loads the programs for one tree, and reads what they count.

use std::io;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use nix::libc;
use nix::sys::stat::{major, minor};
use sys::bpf_ring::{Gauge, Ring};

use super::calls;
use super::event::Event;
use super::events;
use super::format::Format;
use super::skel::{CaptureSkelBuilder, OpenCaptureSkel, Plain, types};
use super::{Error, Options};
use crate::record::File;

/// The inode number of an ext4 file system's first directory.
const FIRST_INODE: u64 = 2;

/// Of the ring, in bytes: as much as stays in a CPU's cache until it is written to a log.
const PORTION: u64 = 256 << 10;

/// Where it is that events of a tree are told from.
#[derive(Debug)]
pub(super) struct Scope {
    /// As the kernel knows the file system.
    pub(super) device: u64,
    pub(super) root: File,
    pub(super) format: Format,
}

/// The attached programs. Dropping them detaches them.
#[derive(Debug)]
pub(super) struct Programs {
    ring: Ring,
    counters: MapHandle,
    lost: MapHandle,
    period: MapHandle,
    answers: MapHandle,
    periods: u64,
    _links: Vec<Link>,
}

/// What the programs count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counters {
    /// The number of the next event.
    pub(super) next: u64,
    pub(super) dropped: u64,
    /// Dropped events of which not even the file is known.
    pub(super) forgotten: u64,
    /// Operations under way.
    pub(super) operations: u64,
}

impl Programs {
    pub(super) fn attach(scope: &Scope, options: Options) -> Result<Self, Error> {
        let mut storage = MaybeUninit::uninit();
        let mut open = CaptureSkelBuilder::default()
            .open(&mut storage)
            .map_err(Error::bpf("opening the programs"))?;
        settle(&mut open, scope, options)?;
        let skel = open.load().map_err(Error::bpf("loading the programs"))?;
        let handle = |map: &libbpf_rs::MapMut<'_>| {
            MapHandle::try_from(map).map_err(Error::bpf("duplicating a map's descriptor"))
        };
        let ring = Ring::new(handle(&skel.maps.ring)?, options.ring_bytes)
            .map_err(Error::io("mapping the ring"))?;
        let mut links = Vec::new();
        for program in skel.object().progs_mut() {
            if program.autoload() {
                let name = program.name().to_string_lossy().into_owned();
                links.push(
                    program
                        .attach()
                        .map_err(Error::bpf(&format!("attaching {name}")))?,
                );
            }
        }
        Ok(Self {
            ring,
            counters: handle(&skel.maps.bss)?,
            lost: handle(&skel.maps.lost)?,
            period: handle(&skel.maps.data_period)?,
            answers: handle(&skel.maps.answers)?,
            periods: 1,
            _links: links,
        })
    }

    /// Hands on events that are there, [`PORTION`] of them at once; whether there are more.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Event)) -> Result<bool, Error> {
        let end = self.ring.position() + PORTION;
        while let Some(bytes) = self.ring.peek() {
            take(Event::decode(bytes).ok_or(Error::Unknown)?);
            self.ring.pop();
            if self.ring.position() >= end {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn counters(&self) -> Result<Counters, Error> {
        let bytes = self
            .counters
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::bpf("reading the counters"))?;
        let bytes = bytes.unwrap_or_default();
        let Some((counters, _)) = types::bss::split(&bytes) else {
            return Err(Error::Unknown);
        };
        if counters.unwatched != 0 {
            let many = "more than 65536 files of the overlay are mapped to be stored to";
            return Err(Error::io("watching stores")(io::Error::other(many)));
        }
        Ok(Counters {
            next: counters.next_number,
            dropped: counters.dropped,
            forgotten: counters.forgotten,
            operations: counters.operations,
        })
    }

    /// Where the programs answer what the kernel calls a file.
    pub(super) fn answers(&self) -> Result<MapHandle, Error> {
        MapHandle::try_from(&self.answers).map_err(Error::bpf("duplicating a map's descriptor"))
    }

    /// Files of which an event was dropped since the last call.
    pub(super) fn take_lost(&self) -> Result<Vec<File>, Error> {
        let mut files = Vec::new();
        for key in self.lost.keys() {
            self.lost
                .delete(&key)
                .map_err(Error::bpf("taking what was lost"))?;
            let (file, _) = types::file_key::split(&key).ok_or(Error::Unknown)?;
            files.push(File {
                inode: file.inode,
                generation: file.generation,
            });
        }
        Ok(files)
    }

    /// From now on writes are told again that were told before.
    pub(super) fn next_period(&mut self) -> Result<(), Error> {
        self.periods += 1;
        self.period
            .update(
                &0u32.to_ne_bytes(),
                &self.periods.to_ne_bytes(),
                MapFlags::ANY,
            )
            .map_err(Error::bpf("beginning a period"))
    }

    /// Bytes that wait in the ring.
    pub(super) fn waiting(&self) -> u64 {
        self.ring.waiting()
    }

    pub(super) fn gauge(&self) -> Gauge {
        self.ring.gauge()
    }
}

fn settle(open: &mut OpenCaptureSkel<'_>, scope: &Scope, options: Options) -> Result<(), Error> {
    let constants = open.maps.rodata_data.as_mut().ok_or(Error::Unknown)?;
    // As the kernel keeps it: twelve bits and twenty.
    let device = (major(scope.device) << 20) | minor(scope.device);
    constants.root_device = u32::try_from(device).map_err(|_| Error::Unknown)?;
    constants.root_inode = scope.root.inode;
    let first = scope.format == Format::Ext4 && scope.root.inode == FIRST_INODE;
    // What the kernel calls the root of a tree on an overlay, nobody knows yet.
    let overlay = matches!(scope.format, Format::Overlay { .. });
    constants.whole = first || overlay;
    constants.overlay = overlay;
    constants.vague = !scope.format.exact();
    constants.calls = calls::table();
    constants.silent = scope.format.silent();
    if let Format::Btrfs { subvolume } = scope.format {
        constants.subvolume = subvolume;
    }
    let number = |call| u32::try_from(call).map_err(|_| Error::Unknown);
    constants.call_mmap = number(libc::SYS_mmap)?;
    constants.call_ioctl = number(libc::SYS_ioctl)?;
    constants.call_io_submit = number(libc::SYS_io_submit)?;
    constants.call_sync_file_range = number(libc::SYS_sync_file_range)?;
    constants.journal = options.journal;
    open.maps
        .ring
        .set_max_entries(options.ring_bytes)
        .map_err(Error::bpf("sizing the ring"))?;
    events::choose(open, scope.format)
}
