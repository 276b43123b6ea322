//! `lowroad router run`: a router until SIGINT or SIGTERM.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use control::ready;
use netdev::XdpMode;
use process::shutdown::{Reload, Shutdown};
use router::config::{self, CONTROL, Config, Datapath, KERNEL_TABLE, Rules};
use router::service::{self, Service};
use serde_json::json;

use super::batching::Batching;
use super::client;
use crate::control_endpoint::ControlEndpoint;
use crate::exit::{self, Failure, OrFail as _};

/// Interfaces that appear again are found within this time.
const TICK: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo lowroad router run --datapath xdp --interface eth1,eth2
  sudo lowroad router run --datapath xdp --interface eth1,eth2 --table table.lrt
  sudo lowroad router run --datapath xdp --interface eth1,eth2 --xdp-mode generic
  sudo lowroad router run --datapath af-xdp --interface eth1,eth2 --device opencl:0 --fallback cpu
  sudo lowroad router run --config router.toml")]
pub(super) struct Run {
    /// Read the configuration from this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["datapath", "interface", "xdp_mode", "threads", "table", "rules", "batches"])]
    config: Option<PathBuf>,
    /// Handle packets here
    #[arg(long, value_enum, required_unless_present = "config")]
    datapath: Option<DatapathName>,
    /// Route the packets of these interfaces
    #[arg(long, value_name = "INTERFACE", value_delimiter = ',')]
    interface: Vec<String>,
    /// With xdp: run the program in the driver, or in the network stack, which works on any device [default: native]
    #[arg(long, value_enum, value_name = "MODE")]
    xdp_mode: Option<ModeName>,
    /// With af-xdp: use N threads, each with a queue of every interface [default: 1]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Use the routes and rules of this table image, in place of the kernel's routes
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Filter by these rules; refuse those that cannot be expressed
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Control socket [default: /run/lowroad-router/router.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Validate configuration, table image and rules, and exit
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    batching: Batching,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DatapathName {
    /// In the driver, before the network stack
    Xdp,
    /// In threads that bypass the network stack
    AfXdp,
    /// In the network stack
    Kernel,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeName {
    Native,
    Generic,
}

impl Run {
    pub(super) fn run(self, json: bool) -> Result<(), Failure> {
        let check = self.check;
        let config = self.configuration()?;
        if check {
            service::check_files(&config)?;
            return exit::print("configuration and files: correct\n");
        }
        service::check(config.datapath)
            .map_err(|missing| Failure::from(missing).needed_by(config.datapath.name()))?;
        serve(config, json)
    }

    fn configuration(self) -> Result<Config, Failure> {
        if let Some(file) = &self.config {
            let mut config = config::load(file)?;
            config.control = self.control.unwrap_or(config.control);
            return Ok(config);
        }
        let datapath = match self.datapath {
            Some(DatapathName::Xdp) => Datapath::Xdp,
            Some(DatapathName::AfXdp) => Datapath::AfXdp,
            Some(DatapathName::Kernel) | None => Datapath::Kernel,
        };
        if datapath != Datapath::Kernel && self.interface.is_empty() {
            let what = "--interface: name the devices whose packets are routed";
            return Err(Failure::Input(what.to_owned()));
        }
        if datapath == Datapath::Kernel && self.table.is_some() {
            return Err(Failure::Input(format!("--table: {KERNEL_TABLE}")));
        }
        if datapath != Datapath::Xdp && self.xdp_mode.is_some() {
            let what = "--xdp-mode: only the datapath xdp has it";
            return Err(Failure::Input(what.to_owned()));
        }
        let complaint = |threads| config::threads_complaint(datapath, threads);
        if let Some(complaint) = self.threads.and_then(complaint) {
            return Err(Failure::Input(format!("--threads: {complaint}")));
        }
        let batches = self.batching.batches(datapath)?;
        Ok(Config {
            datapath,
            batches,
            interfaces: self.interface,
            xdp_mode: match self.xdp_mode {
                Some(ModeName::Generic) => XdpMode::Generic,
                Some(ModeName::Native) | None => XdpMode::Native,
            },
            threads: self.threads.unwrap_or(1),
            control: self.control.unwrap_or_else(|| CONTROL.into()),
            ecmp_seed: None,
            bypass: Vec::new(),
            http: None,
            table: self.table,
            rules: self.rules.map(|file| Rules {
                file,
                options: router::rules::Options::default(),
                punt_unsupported: false,
            }),
        })
    }
}

fn serve(config: Config, json: bool) -> Result<(), Failure> {
    // Before the first thread: those that come later leave the signals to these.
    let shutdown = Shutdown::install().or_fail()?;
    let reload = Reload::install().or_fail()?;
    let (control, http) = (config.control.clone(), config.http.clone());
    let service = Arc::new(Service::start(config)?);
    let handle = service::handle;
    let endpoint =
        ControlEndpoint::start(&service, &control, http.as_ref(), handle, Service::metrics)?;
    announce(&service, &control, endpoint.address(), json)?;
    while !shutdown.wait(TICK) {
        if reload.requested() {
            match service.reload() {
                Ok(now) => {
                    let routes = now.table.map_or(0, |table| table.ipv4 + table.ipv6);
                    let rules = now.rules.ipv4 + now.rules.ipv6;
                    tracing::info!(routes, rules, "reloaded");
                }
                Err(error) => tracing::error!("{error}; what was before still holds"),
            }
        }
        service.look_after();
        if let Some(why) = service.failed() {
            return Err(Failure::Failed(anyhow::anyhow!(why)));
        }
    }
    if let Err(error) = ready::stopping() {
        tracing::warn!(%error, "the service manager does not hear that the router stops");
    }
    drop(endpoint);
    let status = serde_json::to_value(service.status()).or_fail()?;
    if json {
        return client::print_json(&status);
    }
    exit::print(&client::status(&status))
}

/// One line, once packets are routed and the control socket answers.
fn announce(
    service: &Service,
    control: &std::path::Path,
    http: Option<SocketAddr>,
    json: bool,
) -> Result<(), Failure> {
    let status = service.status();
    let (v4, v6) = (status.routes.ipv4.installed, status.routes.ipv6.installed);
    let control = control.display();
    if json {
        let line = json!({ "ready": {
            "datapath": status.datapath, "ipv4": v4, "ipv6": v6,
            "control": control.to_string(), "http": http,
        }});
        exit::print(&format!("{line}\n"))?;
    } else {
        let http = http.map_or_else(String::new, |address| format!("  http {address}"));
        exit::print(&format!(
            "ready  datapath {}  routes {v4} + {v6}  control {control}{http}\n",
            status.datapath
        ))?;
    }
    ready::notify().or_fail()
}
