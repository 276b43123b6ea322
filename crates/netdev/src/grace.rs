//! Waiting until no CPU runs a BPF program that may look at what was unpublished.
//!
//! The kernel promises that to whoever changes a map of maps by a system call (commit 1ae80cf31938, "bpf:
//! wait for running BPF programs when updating map-in-map"): the call returns after an RCU grace
//! period, and a program that may not sleep runs within one read-side section. `membarrier(2)` promises no
//! such thing to programs: it waits for one by way of its implementation, not at all while one CPU is
//! online, and is refused where CPUs are `nohz_full`.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

/// A map of one map, and that map; no program reads either.
static MAPS: OnceLock<(MapHandle, MapHandle)> = OnceLock::new();

/// Returns after every program that runs now has ended, of those that may not sleep. Takes milliseconds.
///
/// # Errors
/// The kernel makes or changes no map: for want of memory, or of the capability that loading programs
/// takes.
pub fn wait() -> libbpf_rs::Result<()> {
    let (outer, inner) = match MAPS.get() {
        Some(maps) => maps,
        None => {
            let maps = maps()?;
            MAPS.get_or_init(|| maps)
        }
    };
    let inner = inner.as_fd().as_raw_fd();
    outer.update(&0_u32.to_ne_bytes(), &inner.to_ne_bytes(), MapFlags::ANY)
}

fn maps() -> libbpf_rs::Result<(MapHandle, MapHandle)> {
    let map = |kind, name, inner_map_fd| {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as u64,
            inner_map_fd,
            ..Default::default()
        };
        MapHandle::create(kind, Some(name), 4, 4, 1, &options)
    };
    let inner = map(MapType::Array, "grace_inner", 0)?;
    let of = inner.as_fd().as_raw_fd().unsigned_abs();
    Ok((map(MapType::ArrayOfMaps, "grace", of)?, inner))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_grace_period_passes() {
        if !sys::require::root() {
            return;
        }
        super::wait().unwrap();
        super::wait().unwrap();
    }
}
