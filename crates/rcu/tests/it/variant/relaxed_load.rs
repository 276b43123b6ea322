//! The crate over `sync::relaxed_load`.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "modules of a library, of which the models use a part"
)]

use crate::sync::relaxed_load as sync;

#[path = "../../../src/domain.rs"]
pub mod domain;
#[path = "../../../src/limbo.rs"]
pub mod limbo;
#[path = "models.rs"]
pub(crate) mod models;
#[path = "../../../src/publisher.rs"]
pub mod publisher;
#[path = "../../../src/reclaimer.rs"]
pub mod reclaimer;
