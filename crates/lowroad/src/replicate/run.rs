//! `lowroad replicate run`: runs all parts of a configuration until SIGINT or SIGTERM.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use control::ready;
use process::shutdown::Shutdown;
use replicate::service::{self, Config, PartStatus, Service, State, config};
use serde_json::{Map, json};

use super::status;
use crate::control_endpoint::ControlEndpoint;
use crate::exit::{self, Failure, OrFail as _};

/// Interval between checks of the parts.
const TICK: Duration = Duration::from_millis(100);

/// Waiting is reported after this time.
const NOTICE_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Read the configuration from this file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Control socket [default: the configuration file's]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Validate the file and the files that it names, and exit
    #[arg(long)]
    check: bool,
}

impl Run {
    pub(super) fn run(self, json: bool) -> Result<(), Failure> {
        let mut config = config::load(&self.config)?;
        if self.check {
            return exit::print(&format!("{}: correct\n", self.config.display()));
        }
        config.control = self.control.unwrap_or(config.control);
        service::check(&config)?;
        serve(config, json)
    }
}

fn serve(config: Config, json: bool) -> Result<(), Failure> {
    // Before any thread is started, because threads inherit the signal mask.
    let shutdown = Shutdown::install().context("signals")?;
    let (control, http) = (config.control.clone(), config.http.clone());
    let service = Arc::new(Service::start(config)?);
    let handle = service::handle;
    let endpoint =
        ControlEndpoint::start(&service, &control, http.as_ref(), handle, Service::metrics)?;
    let mut ready = false;
    let mut reporter = ReadinessReporter::new();
    while !shutdown.wait(TICK) && !service.over() {
        if ready {
            continue;
        }
        ready = service.begun();
        match ready {
            true => announce(&service, &control, &endpoint, json)?,
            false => reporter.show(service.awaited()),
        }
    }
    if let Err(error) = ready::stopping() {
        tracing::warn!(%error, "the service manager does not hear that this ends");
    }
    // Meanwhile the control socket reports the progress of the shutdown.
    service.stop();
    drop(endpoint);
    let status = service.status();
    let object = serde_json::to_value(&status).context("the status")?;
    match json {
        true => exit::print(&format!("{}\n", json!({ "ended": object })))?,
        false => exit::print(&status::text(&object))?,
    }
    verdict(&status.parts)
}

/// Reports why the service is not ready yet.
struct ReadinessReporter {
    since: Instant,
    said: Vec<(String, String)>,
}

impl ReadinessReporter {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            said: Vec::new(),
        }
    }

    /// Prints one line for each waiting part, if the reason is new and has lasted for some time.
    fn show(&mut self, awaited: Vec<(String, String)>) {
        if self.since.elapsed() < NOTICE_DELAY || awaited == self.said {
            return;
        }
        for (part, what) in awaited.iter().filter(|one| !self.said.contains(one)) {
            tracing::warn!("not ready: {part} waits: {what}");
        }
        self.said = awaited;
    }
}

/// Prints one line once all parts have started, except those that cannot, and one for each
/// continued log.
fn announce(
    service: &Service,
    control: &Path,
    endpoint: &ControlEndpoint,
    json: bool,
) -> Result<(), Failure> {
    let status = service.status();
    let count = |state| {
        status
            .parts
            .iter()
            .filter(|part| part.state == state)
            .count()
    };
    let (parts, running) = (status.parts.len(), count(State::Running));
    let (control, http) = (control.display(), endpoint.address());
    // The results of comparing trees with continued logs.
    let compared: Vec<_> = status
        .parts
        .iter()
        .filter(|part| !part.counts["rescan"].is_null())
        .map(|part| (part.name.clone(), part.counts["rescan"].clone()))
        .collect();
    if json {
        let compared: Map<_, _> = compared.into_iter().collect();
        let ready = json!({
            "parts": parts, "running": running, "control": control.to_string(), "http": http,
            "rescans": compared,
        });
        exit::print(&format!("{}\n", json!({ "ready": ready })))?;
    } else {
        let http = http.map_or_else(String::new, |address| format!("  http {address}"));
        exit::print(&format!(
            "ready  parts {parts}  running {running}  control {control}{http}\n"
        ))?;
        for (name, rescan) in &compared {
            exit::print(&status::rescanned(rescan, &format!("{name}  ")))?;
        }
    }
    ready::notify().context("notifying the service manager")?;
    Ok(())
}

/// A part that was not working when it was told to end has not handled everything.
fn verdict(parts: &[PartStatus]) -> Result<(), Failure> {
    let broken: Vec<&str> = parts
        .iter()
        .filter(|part| part.state != State::Ended)
        .map(|part| part.name.as_str())
        .collect();
    if broken.is_empty() {
        return Ok(());
    }
    let (count, names) = (parts.len(), broken.join(", "));
    Err(Failure::Failed(anyhow!(
        "{} of {count} parts did not work to the end: {names}",
        broken.len()
    )))
}
