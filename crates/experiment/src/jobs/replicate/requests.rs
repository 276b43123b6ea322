//! A trial of requests: how long an application takes to answer, and what that costs the machine.

use std::time::Duration;

use anyhow::{Context, Result};
use units::Size;

use super::arm::Follower;
use super::client::{Client, by_curl};
use super::load::Application;
use super::load::{self, Load};
use super::server::Server;
use super::{ReplicateBench, cost};
use crate::noise::Watch;
use crate::outcome::Outcome;

/// Requests before the measured ones: the interpreter has seen its code then.
const WARM_UP: usize = 50;

pub(super) fn trial(
    bench: &ReplicateBench,
    follower: Follower<'_>,
    load: &Load,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let application = Application::of(load).context("requests to an application")?;
    let requests = load::count(load, load::REQUESTS);
    let row = load.payload.map_or(0, Size::length);
    let idle = cost::before()?;
    let folders = bench.disk.folders()?;
    let mut running = follower.start(&folders)?;
    let server = Server::start(follower.arm, application, running.work(), folders.out())?;
    let mut client = Client::connect(server.port, application, row)?;
    client.send(WARM_UP)?;
    let pids: Vec<u32> = server.pids().into_iter().chain(running.pids()).collect();

    if load::by_curl(load) {
        let took = by_curl(server.port, requests)?;
        outcome
            .values
            .insert("origin_ms".to_owned(), mean_ms(&took));
    } else {
        let watch = Watch::start(&bench.foreign, &pids)?;
        let took = client.send(requests)?;
        watch.end(&pids, &mut outcome)?;
        note(&took, &mut outcome);
        let work = || client.send(requests).map(drop);
        let spent = cost::of(work, folders.out(), &idle, &mut outcome)?;
        #[expect(clippy::cast_precision_loss, reason = "a mean")]
        let each = spent / 1e3 / requests.max(1) as f64;
        outcome.values.insert("cpu_us_per_request".to_owned(), each);
    }
    drop((client, server));
    outcome
        .counts
        .insert("requests".to_owned(), requests as u64);
    let bytes = (requests * row) as u64;
    running.note(&mut outcome)?;
    cost::end(follower.arm, running, &folders, bytes, &mut outcome)?;
    Ok(outcome)
}

fn note(took: &[Duration], outcome: &mut Outcome) {
    let at = |share: usize| {
        let found = took.get(took.len() * share / 100);
        found.map_or(0.0, |took| took.as_secs_f64() * 1e3)
    };
    let mean = mean_ms(took);
    for (name, value) in [
        ("request_ms_mean", mean),
        ("added_ms", mean),
        ("request_ms_median", at(50)),
        ("request_ms_p95", at(95)),
    ] {
        outcome.values.insert(name.to_owned(), value);
    }
}

fn mean_ms(took: &[Duration]) -> f64 {
    let sum: Duration = took.iter().sum();
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    let count = took.len().max(1) as f64;
    sum.as_secs_f64() * 1e3 / count
}
