//! A router while it runs: a data plane that follows the kernel's tables, its rules, and what is
//! said about both. Arguments, signals and sockets are the program's.

mod api;
mod metrics;
mod plane;

use std::sync::{Mutex, PoisonError};

use datapath::Missing;
use serde::Serialize;

use crate::config::{Config, Datapath, Rules};
use crate::error::Error as InputError;
use crate::follow::{Follower, Options, RunError, Status as FollowStatus};
use crate::forward::Plane;
use crate::rules::{self, NoteKind, RuleSet};
use plane::{Dataplane, PlaneError};

pub use api::handle;
pub use plane::Traffic;

/// Why a router could not start or change.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Rules(#[from] InputError),
    /// The rules hold something that no data plane here can express.
    #[error("{0}")]
    Unsupported(String),
    #[error("no interface {0} in this network namespace: name one that `ip link` lists")]
    NoInterface(String),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Plane(#[from] PlaneError),
    #[error(transparent)]
    Kernel(#[from] netdev::Error),
}

/// A running router. Dropping it detaches it.
#[derive(Debug)]
pub struct Service {
    config: Config,
    follower: Follower<Dataplane>,
    rules: Mutex<Loaded>,
}

/// Rules in force, without their lookup.
#[derive(Debug, Default)]
struct Loaded {
    set: RuleSet,
    reloads: u64,
    failed_reloads: u64,
}

/// How it goes, at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub datapath: &'static str,
    pub interfaces: Vec<Interface>,
    pub routes: FollowStatus,
    /// What became of packets, by name; of none where the datapath keeps no count.
    pub packets: Vec<Traffic>,
    pub rules: RulesStatus,
}

/// A device of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interface {
    pub name: String,
    /// Whether its packets are routed now; a device can be gone for a while.
    pub attached: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RulesStatus {
    pub file: Option<String>,
    pub ipv4: usize,
    pub ipv6: usize,
    /// What is left to the kernel or not done.
    pub notes: usize,
    pub reloads: u64,
    pub failed_reloads: u64,
}

/// What this machine lacks for a datapath. Changes nothing.
///
/// # Errors
/// What is missing, and the remedy.
pub fn check(datapath: Datapath) -> Result<(), Missing> {
    match datapath {
        Datapath::Xdp => crate::xdp::check(),
        Datapath::AfXdp => crate::cpu::af_xdp::check(),
        Datapath::Kernel => plane::forwarding(),
    }
}

impl Service {
    /// Routes by the tables of the calling thread's namespace. When it returns, packets are.
    ///
    /// # Errors
    /// Rules that cannot be taken; devices that are not there; what this machine lacks.
    pub fn start(config: Config) -> Result<Self, Error> {
        let set = config.rules.as_ref().map(read).transpose()?;
        let set = set.unwrap_or_default();
        plane::all_there(&config.interfaces)?;
        let options = Options {
            next_hops: lpm::NextHop::MAX,
            ..Options::default()
        };
        let follower = Follower::start(options, |v4, v6| Dataplane::start(&config, v4, v6))?;
        follower.with(|follow| {
            let ports = follow.ports(&config.interfaces);
            let plane = follow.plane_mut();
            plane.rules(&set)?;
            plane.listen(ports)
        })?;
        let rules = Loaded {
            set,
            ..Loaded::default()
        };
        Ok(Self {
            config,
            follower,
            rules: Mutex::new(rules),
        })
    }

    /// Looks after devices that came back or changed; to be called about every second.
    pub fn look_after(&self) {
        let listened = self.follower.with(|follow| {
            let ports = follow.ports(&self.config.interfaces);
            follow.plane_mut().listen(ports)
        });
        if let Err(error) = listened {
            tracing::warn!("{error}");
        }
    }

    /// Filters by what the rules file holds now. What cannot be taken changes nothing.
    ///
    /// # Errors
    /// The first complaint about the file.
    pub fn reload(&self) -> Result<RulesStatus, Error> {
        let mut loaded = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.take_rules();
        match taken {
            Ok(set) => {
                loaded.set = set;
                loaded.reloads += 1;
            }
            Err(error) => {
                loaded.failed_reloads += 1;
                return Err(error);
            }
        }
        Ok(self.rules_status(&loaded))
    }

    /// Why packets are no longer routed by the kernel's tables, if so.
    pub fn failed(&self) -> Option<String> {
        let followed = self.follower.failed();
        let followed = followed.map(|why| format!("routes are no longer followed: {why}"));
        followed.or_else(|| self.follower.with(|follow| follow.plane().failed()))
    }

    pub fn status(&self) -> Status {
        let (packets, attached) = self.follower.with(|follow| {
            let plane = follow.plane();
            (plane.packets(), plane.attached())
        });
        let loaded = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let by_kernel = self.config.datapath == Datapath::Kernel;
        let interfaces = self.config.interfaces.iter().map(|name| Interface {
            name: name.clone(),
            attached: by_kernel || attached.contains(name),
        });
        Status {
            datapath: self.config.datapath.name(),
            interfaces: interfaces.collect(),
            routes: self.follower.status(),
            packets,
            rules: self.rules_status(&loaded),
        }
    }

    fn take_rules(&self) -> Result<RuleSet, Error> {
        let set = self.config.rules.as_ref().map(read).transpose()?;
        let set = set.unwrap_or_default();
        self.follower
            .with(|follow| follow.plane_mut().rules(&set))?;
        Ok(set)
    }

    fn rules_status(&self, loaded: &Loaded) -> RulesStatus {
        let file = self.config.rules.as_ref();
        RulesStatus {
            file: file.map(|rules| rules.file.display().to_string()),
            ipv4: loaded.set.v4.len(),
            ipv6: loaded.set.v6.len(),
            notes: loaded.set.notes.len(),
            reloads: loaded.reloads,
            failed_reloads: loaded.failed_reloads,
        }
    }
}

/// Reads and checks a rules file without using it.
///
/// # Errors
/// As [`Service::start`], of the rules.
pub fn read(rules: &Rules) -> Result<RuleSet, Error> {
    let set = rules::open(&rules.file, &rules.options)?;
    let mut punted = set
        .notes
        .iter()
        .filter(|note| note.kind == NoteKind::Punted);
    match punted.next() {
        Some(first) if !rules.punt_unsupported => Err(Error::Unsupported(format!(
            "{}: no datapath can hold this: {}; set punt_unsupported to leave such packets to the kernel, or remove the rule",
            first.place.within(&rules.file.display().to_string()),
            first.what.trim_start_matches("left to the kernel for "),
        ))),
        _ => Ok(set),
    }
}
