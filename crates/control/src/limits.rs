//! What the system lets a process have.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// As many open files as there may be: most systems let a program have 1024 unless it asks for more.
pub fn raise_descriptors() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // What there is may do.
        let _left = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}
