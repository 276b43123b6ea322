//! Virtual machines. A guest takes seconds to boot, emulated ones ten: it stays from one bed to the next while
//! somebody holds an [`crate::InstancePool`].

pub(crate) mod accelerator;
pub(crate) mod container;
pub(crate) mod environment;
pub(crate) mod guest;
pub(crate) mod kvm;
pub(crate) mod machine;
pub(crate) mod machines;
pub(crate) mod requirements;

use std::thread;

use boot::Flavour;

use self::environment::{KIND, RT_KIND};
use self::machine::Shape;
use crate::topology::HostSpec;

/// Boots the virtual machines that these hosts will want, each with `links` links, all at once and each kind once:
/// they wait for the beds to come while somebody holds an [`crate::InstancePool`]. A machine that does not boot is
/// reported by the bed that needs it.
pub fn boot_ahead<'a>(hosts: impl IntoIterator<Item = &'a HostSpec>, links: usize) {
    let mut shapes: Vec<Shape> = Vec::new();
    for host in hosts {
        let Some(flavour) = flavour(&host.env) else {
            continue;
        };
        let shape = Shape {
            flavour,
            cpus: host.cpus.clone(),
            links,
            huge_pages: host.huge_pages,
        };
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    thread::scope(|scope| {
        for shape in shapes {
            scope.spawn(|| {
                if let Err(error) = machines::boot_into_pool(shape) {
                    tracing::debug!("{error}");
                }
            });
        }
    });
}

/// The kernel of the kind of environment `env`; none if it is not a virtual machine.
fn flavour(env: &str) -> Option<Flavour> {
    let kinds = [
        (KIND.name, Flavour::Cloud),
        (container::KIND.name, Flavour::Cloud),
        (RT_KIND.name, Flavour::Rt),
    ];
    let found = kinds.into_iter().find(|(name, _)| *name == env);
    found.map(|(_, flavour)| flavour)
}
