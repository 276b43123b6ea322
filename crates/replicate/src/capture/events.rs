//! Selects the programs for a kernel and a file system. If the kernel lacks a tracepoint, a kernel
//! function replaces it.

use std::fs;
use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Typedef};
use libbpf_rs::skel::OpenSkel;

use super::Error;
use super::format::Format;
use super::functions::{self, Functions};
use super::skel::OpenCaptureSkel;

/// Functions, and the tracepoints that report the same on kernels that have them.
const STAND_INS: &[(&str, &str)] = &[
    ("__iomap_dio_rw", "iomap_dio_rw_begin"),
    ("iomap_dio_complete", "iomap_dio_complete"),
    ("ext4_xattr_set_handle", "ext4_journal_start_inode"),
];
/// Tracepoints that report that a file has changed, for file systems that do not report how.
const CHANGES: &[&str] = &["inode_set_ctime_to_ts", "ctime_ns_xchg", "ctime_xchg_skip"];
/// Reports where a file was written. Without it, the whole file is read.
const EXTENTS: &str = "btrfs_set_extent_bit";
/// Reports the completion of an `io_uring` request.
const RING: &str = "io_uring_complete";

/// The kernel functions to attach to if the tracepoints do not report everything on such a file
/// system. Empty for other file systems. The inner error is the reason why there are none.
pub(super) fn functions(format: Format) -> Result<Result<Functions, &'static str>, Error> {
    if format.exact() || matches!(format, Format::Overlay { .. }) {
        return Ok(Ok(Functions::default()));
    }
    let kernel = Kernel::read(format)?;
    let told = CHANGES.iter().all(|event| kernel.has(Place::Event(event)));
    Ok(Functions::of(format, !told))
}

/// Selects the programs that are useful for such a file system on this kernel.
pub(super) fn choose(
    open: &mut OpenCaptureSkel<'_>,
    format: Format,
    functions: &Functions,
) -> Result<(), Error> {
    let kernel = Kernel::read(format)?;
    for mut program in open.open_object_mut().progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        let has = |place: Place<'_>| kernel.has(place);
        program.set_autoload(loads(&section, format, functions, &has)?);
    }
    let missing = STAND_INS.iter().map(|(_, event)| *event);
    let mut missing =
        missing.filter(|event| wanted(event, format) && !kernel.has(Place::Event(event)));
    match (missing.next(), functions::unpreempted()) {
        (Some(event), Err(why)) => Err(Error::Preempted {
            format: format.name(),
            event,
            why,
        }),
        _ => Ok(()),
    }
}

/// The section of a program that userspace runs on demand.
const ITERATES: &str = "iter";

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place<'a> {
    Event(&'a str),
    Function(&'a str),
}

/// The kernel's type information.
#[derive(Debug)]
struct Kernel {
    types: Btf<'static>,
    /// The types of the file system's module, if it is one.
    module: Vec<u8>,
}

impl Kernel {
    fn read(format: Format) -> Result<Self, Error> {
        let types = Btf::from_vmlinux().map_err(Error::bpf("reading the kernel's types"))?;
        let module = fs::read(Path::new("/sys/kernel/btf").join(format.name()));
        let module = module.unwrap_or_default();
        Ok(Self { types, module })
    }

    fn has(&self, place: Place<'_>) -> bool {
        match place {
            Place::Event(event) => {
                let name = format!("btf_trace_{event}");
                self.types.type_by_name::<Typedef<'_>>(&name).is_some() || self.adds(&name)
            }
            Place::Function(name) => {
                self.types.type_by_name::<Func<'_>>(name).is_some() || self.adds(name)
            }
        }
    }

    /// A module's types are numbered after the kernel's, but their names are only in the module.
    fn adds(&self, name: &str) -> bool {
        let name = [b"\0", name.as_bytes(), b"\0"].concat();
        self.module.windows(name.len()).any(|bytes| bytes == name)
    }
}

/// Whether to load a program, by its section.
fn loads(
    section: &str,
    format: Format,
    functions: &Functions,
    has: &dyn Fn(Place<'_>) -> bool,
) -> Result<bool, Error> {
    let Some((kind, name)) = section.split_once('/') else {
        return Err(Error::Unknown);
    };
    if kind == ITERATES {
        return Ok(true);
    }
    if kind != "tp_btf" {
        if functions.run_at.contains(&name) {
            return Ok(true);
        }
        let mut told = STAND_INS.iter().filter(|(function, _)| *function == name);
        return Ok(
            told.any(|(_, event)| wanted(event, format) && !has(Place::Event(event)))
                && has(Place::Function(name)),
        );
    }
    if !wanted(name, format) || has(Place::Event(name)) {
        return Ok(wanted(name, format));
    }
    if name == EXTENTS || functions.changes() && CHANGES.contains(&name) {
        return Ok(false);
    }
    let mut told = STAND_INS.iter().filter(|(_, event)| *event == name);
    if told.any(|(function, _)| has(Place::Function(function))) {
        return Ok(false);
    }
    Err(Error::Kernel {
        format: format.name(),
        event: name.to_owned(),
        since: if format.exact() { "6.1" } else { "6.13" },
    })
}

/// Whether the event is useful for such a file system.
fn wanted(event: &str, format: Format) -> bool {
    if event == RING || CHANGES.contains(&event) {
        return !format.exact();
    }
    match event.split_once('_') {
        Some(("ext4", _)) => format == Format::Ext4,
        Some(("xfs", _)) => format == Format::Xfs,
        Some(("btrfs", _)) => matches!(format, Format::Btrfs { .. }),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(section: &str, format: Format, kernel: &[Place<'_>]) -> Option<bool> {
        let functions = Functions::default();
        loads(section, format, &functions, &|place| {
            kernel.contains(&place)
        })
        .ok()
    }

    #[test]
    fn a_function_stands_in_for_an_event_that_is_not_there() {
        let event = Place::Event("ext4_journal_start_inode");
        let function = Place::Function("ext4_xattr_set_handle");
        let of_event = "tp_btf/ext4_journal_start_inode";
        let of_function = "kprobe/ext4_xattr_set_handle";
        for (kernel, by_event, by_function) in [
            (vec![event, function], Some(true), Some(false)),
            (vec![function], Some(false), Some(true)),
            (vec![], None, Some(false)),
        ] {
            assert_eq!(chosen(of_event, Format::Ext4, &kernel), by_event);
            assert_eq!(chosen(of_function, Format::Ext4, &kernel), by_function);
            assert_eq!(chosen(of_event, Format::Tmpfs, &kernel), Some(false));
            assert_eq!(chosen(of_function, Format::Tmpfs, &kernel), Some(false));
        }
    }

    #[test]
    fn functions_tell_of_changes_where_there_is_no_event() {
        let functions = Functions {
            run_at: vec!["current_time", "shmem_write_end"],
            write: Some("shmem_write_end"),
            accesses: [(1, 2), (3, 4)],
            ..Functions::default()
        };
        let none = Functions::default();
        for (section, with, without) in [
            ("tp_btf/ctime_xchg_skip", Some(false), None),
            ("kprobe/current_time", Some(true), Some(false)),
            ("kprobe/shmem_write_end", Some(true), Some(false)),
            ("kprobe/iomap_write_end", Some(false), Some(false)),
        ] {
            for (functions, wanted) in [(&functions, with), (&none, without)] {
                let chosen = loads(section, Format::Tmpfs, functions, &|_| false).ok();
                assert_eq!(chosen, wanted, "{section}");
            }
        }
    }
}
