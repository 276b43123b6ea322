//! Containers of a docker engine, which is asked through its client: wherever that finds it, it is this machine's.

use std::sync::{Mutex, Weak};

use super::Kind;
use super::engine::Engine;

pub(super) const KIND: Kind = Kind {
    name: "docker",
    guest: false,
    probe: || ENGINE.probe(),
    look: || ENGINE.probe(),
    up: |wanted| ENGINE.up(wanted),
};

pub(super) static ENGINE: Engine = Engine {
    name: "docker",
    container: "a docker container",
    version: "{{.Server.Version}}",
    bridge: "bridge",
    run: &[],
    remedy: "apt-get install docker.io && systemctl start docker",
    image: Mutex::new(Weak::new()),
};
