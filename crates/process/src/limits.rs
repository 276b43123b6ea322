//! Resource limits of the process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files to the hard limit: most systems set it to 1024 by default.
pub fn raise_descriptors() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // What there is may do.
        let _left = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}
