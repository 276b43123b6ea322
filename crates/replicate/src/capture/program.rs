//! Loads the programs for one tree, and reads what they count.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use libbpf_rs::skel::Skel;
use libbpf_rs::{Iter, Link, MapHandle};
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{major, minor};
use sys::bpf_ring::{Gauge, Ring};

use super::calls;
use super::event::Event;
use super::events;
use super::format::Format;
use super::functions::Functions;
use super::maps::{self, Counters, Maps};
use super::skel::{CaptureSkelBuilder, OpenCaptureSkel};
use super::{Error, Options, pin};
use crate::record::File;

/// Of the ring, in bytes: as much as stays in a CPU's cache until it is written to a log.
const PORTION: u64 = 256 << 10;

/// The section of programs that see that a system call ends.
const CALL_ENDS: &str = "tp_btf/sys_exit";
/// The program that is asked who waits.
const WAITING: &str = "waiting";

/// Room in the ring for so many bytes of each event until who reads it is woken: in half of it those fit that are
/// as large as can be.
const OF_AN_EVENT: u32 = 64 << 10;
/// Room for calls to read the ring, in bytes, as its map was made.
const BELL: u32 = 64 << 10;

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
    bell: Ring,
    /// What is asked whether the bell rang.
    bell_map: MapHandle,
    maps: Maps,
    periods: u64,
    found: u64,
    /// Run when it is read.
    waiting: Link,
    /// With the names of their programs.
    links: Vec<(String, Link)>,
    functions: Functions,
}

impl Programs {
    pub(super) fn attach(scope: &Scope, options: &Options) -> Result<Self, Error> {
        let functions = match events::functions(scope.format)? {
            // Pinned links of them have not been tried.
            Ok(_) if options.pin.is_some() => Functions::default(),
            // Its writes are told by their places alone.
            Ok(functions) if options.journal => functions.without_writes(),
            Ok(functions) => functions,
            Err(why) => {
                tracing::debug!("no programs at functions: {why}");
                Functions::default()
            }
        };
        match Self::attach_at(scope, options, functions.clone()) {
            Err(error @ Error::Bpf { .. }) if functions != Functions::default() => {
                tracing::warn!("no programs at functions, all is read instead: {error}");
                Self::attach_at(scope, options, Functions::default())
            }
            attached => attached,
        }
    }

    fn attach_at(scope: &Scope, options: &Options, functions: Functions) -> Result<Self, Error> {
        let mut storage = MaybeUninit::uninit();
        let builder = CaptureSkelBuilder::default();
        let skel = bpf::load(builder, &mut storage, "the programs", |open| {
            configure(open, scope, options, &functions)
        })?;
        let handle = |map: &libbpf_rs::MapMut<'_>| {
            MapHandle::try_from(map).map_err(Error::bpf("duplicating a map's descriptor"))
        };
        let ring = Ring::new(handle(&skel.maps.ring)?, options.ring_bytes)
            .map_err(Error::io("mapping the ring"))?;
        let bell =
            Ring::new(handle(&skel.maps.bell)?, BELL).map_err(Error::io("mapping the bell"))?;
        let programs = skel.object().progs_mut();
        let mut programs: Vec<_> = programs.filter(|program| program.autoload()).collect();
        // What begins before ends can be seen would never end.
        programs.sort_by_key(|program| program.section() != CALL_ENDS);
        let mut links = Vec::new();
        let mut waiting = None;
        for program in programs {
            let name = program.name().to_string_lossy().into_owned();
            let link = program.attach();
            let link = link.map_err(Error::bpf(&format!("attaching {name}")))?;
            match name == WAITING {
                true => waiting = Some(link),
                false => links.push((name, link)),
            }
        }
        let waiting = waiting.ok_or(Error::Unknown)?;
        Ok(Self {
            ring,
            bell,
            bell_map: handle(&skel.maps.bell)?,
            maps: Maps::new(&skel.maps).map_err(Error::bpf("duplicating a map's descriptor"))?,
            periods: 1,
            found: 0,
            waiting,
            links,
            functions,
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

    /// Where programs are run that are at no event.
    pub(super) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Returns when the ring is to be read, `also` is readable, or this long has passed; whether it is to be
    /// read.
    pub(super) fn wait(
        &mut self,
        at_most: Duration,
        also: Option<BorrowedFd<'_>>,
    ) -> Result<bool, Error> {
        let asked = [Some(self.bell_map.as_fd()), also].into_iter().flatten();
        wait(asked, at_most)?;
        let before = self.bell.position();
        self.bell.consume(|_| {});
        Ok(self.bell.position() != before)
    }

    pub(super) fn counters(&self) -> Result<Counters, Error> {
        self.maps.counters.read()
    }

    pub(super) fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Has the programs stay attached when this process ends, until their links in this folder of a BPF file
    /// system are removed.
    pub(super) fn pin(&mut self, folder: &Path) -> Result<(), Error> {
        for (name, link) in &mut self.links {
            link.pin(folder.join(&*name))
                .map_err(Error::bpf(&format!("pinning {name}")))?;
        }
        Ok(())
    }

    /// Files of which an event was dropped since the last call.
    pub(super) fn take_lost(&self) -> Result<Vec<File>, Error> {
        let files = self.maps.lost.files();
        for file in &files {
            let removed = self.maps.lost.remove(*file);
            removed.map_err(Error::bpf("taking what was lost"))?;
        }
        Ok(files)
    }

    /// From now on writes are told again that were told before.
    pub(super) fn next_period(&mut self) -> Result<(), Error> {
        self.periods += 1;
        maps::set(&self.maps.period, self.periods).map_err(Error::bpf("beginning a period"))
    }

    /// From now on the programs ask again of each file whether it is in the tree.
    pub(super) fn reveal_files(&mut self) -> Result<(), Error> {
        self.found += 1;
        maps::set(&self.maps.found, self.found).map_err(Error::bpf("telling that files were found"))
    }

    /// Has operations told, as far as they are, whose calls are waiting for something: nobody waits for them any more.
    pub(super) fn pass_waiting(&self) -> Result<(), Error> {
        let mut asked = Iter::new(&self.waiting).map_err(Error::bpf("asking who waits"))?;
        io::copy(&mut asked, &mut io::sink())
            .map(drop)
            .map_err(Error::io("asking who waits"))
    }

    /// Bytes that wait in the ring.
    pub(super) fn waiting(&self) -> u64 {
        self.ring.waiting()
    }

    pub(super) fn gauge(&self) -> Gauge {
        self.ring.gauge()
    }
}

/// Until one of them is readable, or this long.
pub(super) fn wait<'fd>(
    descriptors: impl Iterator<Item = BorrowedFd<'fd>>,
    at_most: Duration,
) -> Result<(), Error> {
    // Whole milliseconds, not cut off: what is waited for would not be due yet.
    let timeout = PollTimeout::try_from(at_most + Duration::from_micros(999));
    let asked = descriptors.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
    let mut asked: Vec<_> = asked.collect();
    match poll(&mut asked, timeout.unwrap_or(PollTimeout::MAX)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(Error::io("waiting for events")(errno.into())),
    }
}

fn configure(
    open: &mut OpenCaptureSkel<'_>,
    scope: &Scope,
    options: &Options,
    functions: &Functions,
) -> Result<(), Error> {
    let constants = open.maps.rodata_data.as_mut().ok_or(Error::Unknown)?;
    // As the kernel keeps it: twelve bits and twenty.
    let device = (major(scope.device) << 20) | minor(scope.device);
    constants.root_device = u32::try_from(device).map_err(|_| Error::Unknown)?;
    constants.root_inode = scope.root.inode;
    let first = scope.format == Format::Ext4 && scope.format.is_first(scope.root);
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
    constants.call_write = number(libc::SYS_write)?;
    constants.call_writev = number(libc::SYS_writev)?;
    constants.call_pwrite = number(libc::SYS_pwrite64)?;
    constants.call_pwritev = number(libc::SYS_pwritev)?;
    constants.call_ioctl = number(libc::SYS_ioctl)?;
    constants.call_io_submit = number(libc::SYS_io_submit)?;
    constants.call_sync_file_range = number(libc::SYS_sync_file_range)?;
    constants.call_madvise = number(libc::SYS_madvise)?;
    constants.functions = functions.write.is_some();
    constants.at_offset = functions.at_offset;
    [constants.memory_at, constants.pages_at] = functions.maps;
    let [asked, kept] = functions.accesses;
    (constants.access_asked.start, constants.access_asked.end) = asked;
    (constants.access_kept.start, constants.access_kept.end) = kept;
    constants.journal = options.journal;
    constants.bell_mask = u64::from((options.ring_bytes / OF_AN_EVENT).max(1) - 1);
    constants.pinned = options.pin.is_some();
    if options.pin.is_some() {
        for map in [&mut open.maps.even_turns, &mut open.maps.odd_turns] {
            map.set_max_entries(pin::FILES)
                .map_err(Error::bpf("sizing the journal"))?;
        }
    }
    open.maps
        .ring
        .set_max_entries(options.ring_bytes)
        .map_err(Error::bpf("sizing the ring"))?;
    events::choose(open, scope.format, functions)
}
