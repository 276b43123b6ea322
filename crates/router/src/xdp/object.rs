//! Loads the program with its maps, sized and told what to do.

use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramMut};
use sys::netns::Namespace;

use super::{Error, Settings, layout};
use crate::shape::Shape;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/router.bpf.o"));

/// A loaded object. Its programs and maps live as long as a handle to them does.
#[derive(Debug)]
pub(super) struct Loaded(Object);

impl Loaded {
    pub(super) fn load(settings: &Settings, shape: &Shape) -> Result<Self, Error> {
        let refused = || Error::kernel("loading the router's program");
        let netns = Namespace::current().and_then(|here| here.inode());
        // The kernel's are of 32 bits.
        let netns = u32::try_from(netns.map_err(Error::Namespace)?).unwrap_or_default();
        let mut open = ObjectBuilder::default()
            .name("router")
            .map_err(refused())?
            .open_memory(OBJECT)
            .map_err(refused())?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let entries = match name.as_str() {
                "meanings" => Some(layout::MEANING_CHUNKS),
                "adjacencies" => Some(settings.neighbours),
                "groups" => Some(settings.groups),
                _ => shape.chunks(&name),
            };
            if let Some(entries) = entries {
                map.set_max_entries(entries).map_err(refused())?;
            }
            if name.ends_with(".rodata") {
                map.set_initial_value(&layout::settings(settings, netns))
                    .map_err(refused())?;
            }
        }
        open.load().map(Self).map_err(refused())
    }

    /// A handle to the map called `name`.
    pub(super) fn map(&self, name: &str) -> Result<MapHandle, Error> {
        let found = self.0.maps().find(|found| found.name() == name);
        MapHandle::try_from(&found.ok_or_else(|| Error::Absent(name.to_owned()))?)
            .map_err(Error::kernel(format!("keeping map {name}")))
    }

    /// A descriptor of the program called `name`.
    pub(super) fn program(&self, name: &str) -> Result<OwnedFd, Error> {
        let found = self.0.progs().find(|found| found.name() == name);
        let found = found.ok_or_else(|| Error::Absent(name.to_owned()))?;
        found
            .as_fd()
            .try_clone_to_owned()
            .map_err(Error::Descriptor)
    }
}

impl Loaded {
    /// Has the programs follow their tracepoints, until their links are dropped.
    pub(super) fn trace<const N: usize>(
        &mut self,
        programs: [&str; N],
    ) -> Result<Vec<Link>, Error> {
        let wanted = |program: &ProgramMut<'_>| programs.iter().any(|name| program.name() == *name);
        let found = self.0.progs_mut().filter(wanted);
        let links = found.map(|program| {
            let what = format!("following tracepoints by {}", program.name().display());
            program.attach().map_err(Error::kernel(what))
        });
        links.collect()
    }
}

pub(super) fn write(map: &MapHandle, key: &[u8], value: &[u8]) -> Result<(), Error> {
    map.update(key, value, MapFlags::ANY)
        .map_err(Error::kernel(format!(
            "writing map {}",
            map.name().display()
        )))
}

pub(super) fn erase(map: &MapHandle, key: &[u8]) -> Result<(), Error> {
    map.delete(key).map_err(Error::kernel(format!(
        "erasing from map {}",
        map.name().display()
    )))
}
