//! The jobs that experiments can be of: each has a bench. This list is the only place that names them all.

mod features;
pub(crate) mod netbench;
pub(crate) mod relay;
pub mod replicate;
pub mod router;

use crate::bench::Job;

/// In the order in which experiments are listed.
pub(crate) static JOBS: [Job; 5] = [
    Job::of::<relay::RelayBench>(),
    Job::of::<features::FeaturesBench>(),
    Job::of::<router::RouterBench>(),
    Job::of::<replicate::ReplicateBench>(),
    Job::of::<netbench::NetbenchBench>(),
];
