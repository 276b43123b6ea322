//! Benchmarks of the router: lookups by themselves, whole packets, and CPUs beside a device.

pub mod crossover;
pub mod engine;
pub mod group;
pub mod lookup;
pub mod process;
pub mod traffic;

use router::engine::Contents;
use router::image::ImageFile;
use router::routes::Target;

/// The routes and rules that a benchmark looks up in.
#[derive(Debug)]
pub struct Dataset {
    pub contents: Contents,
    /// The table image with the same routes, whose arrays are used as they are.
    pub image: Option<ImageFile>,
    pub targets: Targets,
}

/// What next hops 1, 2, ... of each family stand for.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    pub v4: Vec<Target>,
    pub v6: Vec<Target>,
}
