//! The kernels: one source for every device, which tests compile for this machine too.

/// What devices compile.
pub const SOURCE: &str = concat!(
    include_str!("../../gpu/prelude.h"),
    include_str!("../../gpu/lpm.h"),
    include_str!("../../gpu/acl.h"),
    include_str!("../../gpu/kernels.h"),
);

/// Its kernels: of each function that of IPv4, then that of IPv6.
pub const KERNELS: [&str; 6] = ["lpm_v4", "lpm_v6", "acl_v4", "acl_v6", "both_v4", "both_v6"];
