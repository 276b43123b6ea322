//! Containers of a docker engine of this machine, asked through its client.

use super::Kind;
use super::engine::cli::Engine;
use super::engine::environment;

pub(crate) const KIND: Kind = Kind {
    name: "docker",
    guest: false,
    probe: || ENGINE.probe(),
    look: || ENGINE.probe(),
    up: |spec| environment::up(&ENGINE, spec),
};

pub(super) static ENGINE: Engine = Engine {
    name: "docker",
    container: "a docker container",
    version: "{{.Server.Version}}",
    bridge: "bridge",
    run: &[],
    remedy: "apt-get install docker.io && systemctl start docker",
};
