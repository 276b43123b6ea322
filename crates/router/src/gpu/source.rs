//! The source of the kernels, which is the same for every device. Tests also compile it for the CPU.

/// The source that devices compile.
pub const SOURCE: &str = concat!(
    include_str!("../../gpu/prelude.h"),
    include_str!("../../gpu/lpm.h"),
    include_str!("../../gpu/acl.h"),
    include_str!("../../gpu/kernels.h"),
    include_str!("../../gpu/results.h"),
    include_str!("../../gpu/batch.h"),
);

/// As `SOURCE`, with the persistent kernel.
pub const PERSISTENT_SOURCE: &str = concat!(
    include_str!("../../gpu/prelude.h"),
    include_str!("../../gpu/lpm.h"),
    include_str!("../../gpu/acl.h"),
    include_str!("../../gpu/kernels.h"),
    include_str!("../../gpu/results.h"),
    include_str!("../../gpu/batch.h"),
    include_str!("../../gpu/persist.h"),
);

/// Kernels: for each function IPv4's, then IPv6's; then those that combine and encode decisions; then those
/// with the same arguments for all batches. The last one is in `PERSISTENT_SOURCE` only.
pub const KERNELS: [&str; 12] = [
    "lpm_v4",
    "lpm_v6",
    "acl_v4",
    "acl_v6",
    "both_v4",
    "both_v6",
    "combine",
    "narrow",
    "batch_decide",
    "batch_combine",
    "batch_narrow",
    "persist",
];
pub(super) const COMBINE: usize = 6;
pub(super) const NARROW: usize = 7;
pub(super) const BATCH_DECIDE: usize = 8;
pub(super) const BATCH_COMBINE: usize = 9;
pub(super) const BATCH_NARROW: usize = 10;
pub(super) const PERSIST: usize = 11;
