//! Loads the BPF programs for one tree, and reads their counters.

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

/// How many bytes of the ring are taken at once. They stay in a CPU's cache until they are written
/// to a log.
const PORTION: u64 = 256 << 10;

/// The section of the programs that see the end of a system call.
const CALL_ENDS: &str = "tp_btf/sys_exit";
/// The program that lists waiting calls.
const WAITING: &str = "waiting";

/// The ring space in bytes per event before the reader is woken. Half of it holds the largest
/// events.
const OF_AN_EVENT: u32 = 64 << 10;
/// The size in bytes of the ring that wakes the reader, as its map was created.
const BELL: u32 = 64 << 10;

/// The tree whose events are reported.
#[derive(Debug)]
pub(super) struct Scope {
    /// The kernel's device number of the file system.
    pub(super) device: u64,
    pub(super) root: File,
    pub(super) format: Format,
}

/// The attached programs. Dropping them detaches them.
#[derive(Debug)]
pub(super) struct Programs {
    ring: Ring,
    bell: Ring,
    /// A handle to check whether the reader was woken.
    bell_map: MapHandle,
    maps: Maps,
    periods: u64,
    found: u64,
    /// A program that runs when the link is read.
    waiting: Link,
    /// The links with the names of their programs.
    links: Vec<(String, Link)>,
    functions: Functions,
}

impl Programs {
    pub(super) fn attach(scope: &Scope, options: &Options) -> Result<Self, Error> {
        let functions = match events::functions(scope.format)? {
            // Pinned links of function programs have not been tested.
            Ok(_) if options.pin.is_some() => Functions::default(),
            // The journal option reports only the positions of writes.
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
        // An operation whose end cannot be seen would stay open, so the programs for ends are
        // attached first.
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

    /// Passes on queued events, [`PORTION`] bytes of them at once. Returns whether there are more.
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

    /// The functions that programs are attached to.
    pub(super) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Returns when the ring has to be read, `also` is readable, or this long has passed. Returns
    /// whether the ring has to be read.
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

    /// Keeps the programs attached after this process has ended, until their links in this folder
    /// of a BPF file system are removed.
    pub(super) fn pin(&mut self, folder: &Path) -> Result<(), Error> {
        for (name, link) in &mut self.links {
            link.pin(folder.join(&*name))
                .map_err(Error::bpf(&format!("pinning {name}")))?;
        }
        Ok(())
    }

    /// Files for which an event was dropped since the last call.
    pub(super) fn take_lost(&self) -> Result<Vec<File>, Error> {
        let files = self.maps.lost.files();
        for file in &files {
            let removed = self.maps.lost.remove(*file);
            removed.map_err(Error::bpf("taking what was lost"))?;
        }
        Ok(files)
    }

    /// Makes the programs report writes again that they have already reported.
    pub(super) fn next_period(&mut self) -> Result<(), Error> {
        self.periods += 1;
        maps::set(&self.maps.period, self.periods).map_err(Error::bpf("beginning a period"))
    }

    /// Makes the programs check again for each file whether it is in the tree.
    pub(super) fn reveal_files(&mut self) -> Result<(), Error> {
        self.found += 1;
        maps::set(&self.maps.found, self.found).map_err(Error::bpf("telling that files were found"))
    }

    /// Makes the programs report the operations of calls that are waiting for something, as far as
    /// they are. The capture no longer waits for their ends.
    pub(super) fn pass_waiting(&self) -> Result<(), Error> {
        let mut asked = Iter::new(&self.waiting).map_err(Error::bpf("asking who waits"))?;
        io::copy(&mut asked, &mut io::sink())
            .map(drop)
            .map_err(Error::io("asking who waits"))
    }

    /// The number of bytes that wait in the ring.
    pub(super) fn waiting(&self) -> u64 {
        self.ring.waiting()
    }

    pub(super) fn gauge(&self) -> Gauge {
        self.ring.gauge()
    }
}

/// Waits until one of them is readable, or this long.
pub(super) fn wait<'fd>(
    descriptors: impl Iterator<Item = BorrowedFd<'fd>>,
    at_most: Duration,
) -> Result<(), Error> {
    // Rounded up to whole milliseconds, because the awaited moment would otherwise not be reached.
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
    // In the kernel's encoding: 12 bits for the major and 20 for the minor number.
    let device = (major(scope.device) << 20) | minor(scope.device);
    constants.root_device = u32::try_from(device).map_err(|_| Error::Unknown)?;
    constants.root_inode = scope.root.inode;
    let first = scope.format == Format::Ext4 && scope.format.is_first(scope.root);
    // The kernel's identifier of an overlay's root is not known yet.
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
