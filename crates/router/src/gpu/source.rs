//! The kernels: one source for every device, which tests compile for this machine too.

/// What devices compile.
pub const SOURCE: &str = concat!(
    include_str!("../../gpu/prelude.h"),
    include_str!("../../gpu/lpm.h"),
    include_str!("../../gpu/acl.h"),
    include_str!("../../gpu/kernels.h"),
    include_str!("../../gpu/results.h"),
    include_str!("../../gpu/batch.h"),
);

/// As `SOURCE`, with the kernel that stays.
pub const STAYING: &str = concat!(
    include_str!("../../gpu/prelude.h"),
    include_str!("../../gpu/lpm.h"),
    include_str!("../../gpu/acl.h"),
    include_str!("../../gpu/kernels.h"),
    include_str!("../../gpu/results.h"),
    include_str!("../../gpu/batch.h"),
    include_str!("../../gpu/persist.h"),
);

/// Its kernels: of each function that of IPv4, then that of IPv6; those for what they decided; and those
/// whose arguments stay while batches change. The last one is of `STAYING` alone.
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
