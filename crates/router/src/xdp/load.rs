//! Loads the program with its maps, sized, and its settings.

use std::mem::MaybeUninit;

use libbpf_rs::skel::OpenSkel as _;
use libbpf_rs::{Link, OpenObject, ProgramMut};
use sys::netns::Namespace;

use super::{Error, Settings, entries};
use crate::shape::Shape;
use crate::skel::router::{OpenRouterSkel, RouterSkel, RouterSkelBuilder};

/// Attached nowhere yet.
pub(super) fn load<'obj>(
    storage: &'obj mut MaybeUninit<OpenObject>,
    settings: &Settings,
    shape: &Shape,
) -> Result<RouterSkel<'obj>, Error> {
    let netns = Namespace::current().and_then(|here| here.inode());
    // The kernel's are of 32 bits.
    let netns = u32::try_from(netns.map_err(Error::Namespace)?).unwrap_or_default();
    let builder = RouterSkelBuilder::default();
    bpf::load(builder, storage, "the router's program", |open| {
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.settings = entries::settings(settings, netns);
        }
        size(open, settings, shape).map_err(Error::kernel("loading the router's program"))
    })
}

fn size(
    open: &mut OpenRouterSkel<'_>,
    settings: &Settings,
    shape: &Shape,
) -> libbpf_rs::Result<()> {
    let maps = &mut open.maps;
    maps.meanings.set_max_entries(entries::MEANING_CHUNKS)?;
    maps.adjacencies.set_max_entries(settings.neighbours)?;
    maps.groups.set_max_entries(settings.groups)?;
    for mut map in open.open_object_mut().maps_mut() {
        let entries = super::tables::map_entries(shape, &map.name().to_string_lossy());
        if let Some(entries) = entries {
            map.set_max_entries(entries)?;
        }
    }
    Ok(())
}

/// Has a program follow its tracepoint, until the link is dropped.
pub(super) fn trace(program: &ProgramMut<'_>) -> Result<Link, Error> {
    let what = format!("following tracepoints by {}", program.name().display());
    program.attach().map_err(Error::kernel(what))
}
