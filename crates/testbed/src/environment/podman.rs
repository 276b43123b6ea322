//! Containers of podman, which has no daemon.

use super::Kind;
use super::engine::cli::Engine;
use super::engine::environment;

pub(crate) const KIND: Kind = Kind {
    name: "podman",
    guest: false,
    probe: || ENGINE.probe(),
    look: || ENGINE.probe(),
    up: |spec| environment::up(&ENGINE, spec),
};

pub(super) static ENGINE: Engine = Engine {
    name: "podman",
    container: "a podman container",
    version: "{{.Client.Version}}",
    bridge: "podman",
    // By default podman raises these limits to the highest, which needs CAP_SYS_RESOURCE.
    run: &[
        "--ulimit",
        "nofile=1024:1024",
        "--ulimit",
        "nproc=4096:4096",
    ],
    remedy: "apt-get install podman",
};
