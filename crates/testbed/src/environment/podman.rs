//! Containers of podman, which has no daemon.

use std::sync::{Mutex, Weak};

use super::Kind;
use super::engine::Engine;

pub(super) const KIND: Kind = Kind {
    name: "podman",
    guest: false,
    probe: || ENGINE.probe(),
    look: || ENGINE.probe(),
    up: |wanted| ENGINE.up(wanted),
};

pub(super) static ENGINE: Engine = Engine {
    name: "podman",
    container: "a podman container",
    version: "{{.Client.Version}}",
    bridge: "podman",
    // It raises limits to what it takes for the highest, which needs CAP_SYS_RESOURCE; these are below.
    run: &[
        "--ulimit",
        "nofile=1024:1024",
        "--ulimit",
        "nproc=4096:4096",
    ],
    remedy: "apt-get install podman",
    image: Mutex::new(Weak::new()),
};
