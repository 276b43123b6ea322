//! Virtual services of IPVS, which takes packets between its hooks and sends them elsewhere.

use std::fs;

/// The first service of the calling thread's namespace, as the kernel lists it.
pub(super) fn first_service() -> Option<String> {
    // Title, and two lines of column heads.
    const HEAD: usize = 3;
    // A kernel without the module has no file.
    let listed = fs::read_to_string("/proc/thread-self/net/ip_vs").ok()?;
    let line = listed.lines().nth(HEAD)?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}
