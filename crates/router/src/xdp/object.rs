//! Loads the program with its maps, sized and told what to do.

use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder};

use super::tables::Shape;
use super::{Error, Settings, layout};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/router.bpf.o"));

/// A loaded object. Its programs and maps live as long as a handle to them does.
#[derive(Debug)]
pub(super) struct Loaded(Object);

impl Loaded {
    pub(super) fn load(settings: &Settings, shape: &Shape) -> Result<Self, Error> {
        let refused = || Error::kernel("loading the router's program");
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
                map.set_initial_value(&layout::settings(settings))
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
