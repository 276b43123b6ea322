//! Loads a BPF program with its maps, and owns what was loaded.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use datapath::Error;
use libbpf_rs::{Link, MapCore, MapHandle, Object, ObjectBuilder};

/// A loaded object. Its programs and maps live as long as it does.
#[derive(Debug)]
pub(crate) struct Loaded {
    name: &'static str,
    object: Object,
}

impl Loaded {
    /// Loads an object file's bytes, after the verifier has agreed.
    pub(crate) fn load(name: &'static str, bytes: &[u8]) -> Result<Self, Error> {
        let refused = |error| Error::failed(format!("loading the {name} program"), error);
        let open = ObjectBuilder::default()
            .name(name)
            .map_err(refused)?
            .open_memory(bytes)
            .map_err(refused)?;
        let object = open.load().map_err(refused)?;
        Ok(Self { name, object })
    }

    /// A handle to the map called `map`.
    pub(crate) fn map(&self, map: &str) -> Result<MapHandle, Error> {
        let found = self.object.maps().find(|found| found.name() == map);
        let found = found
            .ok_or_else(|| Error::Plan(format!("the {} program has no map {map}", self.name)))?;
        MapHandle::try_from(&found)
            .map_err(|error| Error::failed(format!("map {map} of {}", self.name), error))
    }

    /// Has the program called `program` follow the tracepoint it names, until the link is dropped.
    pub(crate) fn trace(&mut self, program: &str) -> Result<Link, Error> {
        let found = self
            .object
            .progs_mut()
            .find(|found| found.name() == program);
        let found = found.ok_or_else(|| {
            Error::Plan(format!("the {} object has no program {program}", self.name))
        })?;
        found
            .attach()
            .map_err(|error| Error::failed(format!("attaching program {program}"), error))
    }

    /// A descriptor of the program called `program`.
    pub(crate) fn program(&self, program: &str) -> Result<OwnedFd, Error> {
        let found = self.object.progs().find(|found| found.name() == program);
        let found = found.ok_or_else(|| {
            Error::Plan(format!("the {} object has no program {program}", self.name))
        })?;
        let fd: BorrowedFd<'_> = found.as_fd();
        fd.try_clone_to_owned()
            .map_err(|error| Error::failed(format!("program {program}"), error))
    }
}
