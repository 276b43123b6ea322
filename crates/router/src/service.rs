//! A router while it runs: a data plane that follows the kernel's tables, its rules, and what is
//! said about both. Arguments, signals and sockets are the program's.

mod api;
mod kernel_rules;
mod machine;
mod metrics;
mod plane;
mod policy;
mod tables;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use control::metrics::MetricSet;
use datapath::{Classify, Detachment, ErrorClass, Missing};
use netdev::policy::PolicyChanges;
use netdev::requirement;
use serde::Serialize;

use crate::config::{Config, Datapath};
use crate::error::Error as InputError;
use crate::follow::{Follower, Options, RunError, Status as FollowStatus};
use crate::gpu::cpu_fallback::FallbackStatus;
use crate::image;
use crate::rules::{Hits, RuleSet};
use crate::xdp;
use kernel_rules::KernelRules;
use plane::{Dataplane, PlaneError};
use policy::{Guard, Watch};
use tables::{Files, ImageTable};

pub use api::handle;
pub use machine::machine;
pub use plane::Traffic;
pub use policy::{Finding, Findings, findings};

/// How long tables may lack room for routes before larger ones replace them. The time doubles with each
/// attempt that does not help.
const ENLARGE_DELAY: Duration = Duration::from_secs(2);

/// How long the gateways of a table image may take to resolve, and how often that is checked.
const GATEWAY_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Why a router could not start or change.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Rules(#[from] InputError),
    #[error(transparent)]
    Image(#[from] image::Error),
    /// The rules or the routes hold something that no data plane here can do.
    #[error("{0}")]
    Unsupported(String),
    #[error("no interface {0} in this network namespace: name one that `ip link` lists")]
    NoInterface(String),
    /// A device cannot do what the datapath needs.
    #[error("{what}; {remedy}", what = .0.what, remedy = .0.remedy)]
    Missing(#[from] Missing),
    #[error("following the kernel's policy: {0}")]
    Thread(std::io::Error),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Plane(#[from] PlaneError),
    #[error(transparent)]
    Kernel(#[from] netdev::Error),
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Rules(error) => error.class(),
            Self::Image(error) => error.class(),
            Self::Unsupported(_) | Self::NoInterface(_) => ErrorClass::Input,
            Self::Missing(_) => ErrorClass::Missing,
            Self::Thread(_) | Self::Run(_) | Self::Plane(_) | Self::Kernel(_) => ErrorClass::Failed,
        }
    }
}

/// A running router. Dropping it detaches it.
#[derive(Debug)]
pub struct Service {
    /// First, so that it ends first: it looks after the planes. None where the kernel forwards everything.
    guard: Option<Guard>,
    config: Config,
    /// Another one after each new table image.
    follower: Arc<RwLock<Follower<Dataplane>>>,
    /// After the planes: what they leave to the kernel meets the rules to the end. Not used where the kernel is the plane.
    kernel_rules: KernelRules,
    room_shortage: Mutex<RoomShortage>,
    loaded: Mutex<LoadState>,
    /// Held by who reloads: one after the other.
    reloading: Mutex<()>,
    published: xdp::MonotonicCounters,
}

/// The rules and the table in force, without their lookups.
#[derive(Debug, Default)]
struct LoadState {
    set: RuleSet,
    table: Option<TableStatus>,
    reloads: u64,
    failed_reloads: u64,
}

/// Tables that have no room for all routes.
#[derive(Debug, Default)]
struct RoomShortage {
    since: Option<Instant>,
    /// How often larger ones were made.
    attempts: u32,
}

/// How it goes, at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub datapath: &'static str,
    pub interfaces: Vec<Interface>,
    /// What other programs have detached.
    pub detachments: Vec<Detachment>,
    /// What the kernel's policy comes to.
    pub policy: Findings,
    /// IP versions whose rules the kernel has not: packets that one may drop, and that the datapath cannot ask the rules
    /// about, are dropped.
    pub kernel_lacks_rules: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecmp_seed: Option<u64>,
    pub routes: FollowStatus,
    /// What became of packets, by name; of none where the datapath keeps no count.
    pub packets: Vec<Traffic>,
    /// What CPUs did in the place of a device that was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackStatus>,
    /// None where the kernel's routes are followed.
    pub table: Option<TableStatus>,
    pub rules: RulesStatus,
}

/// The table image whose routes are routed by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableStatus {
    pub file: String,
    /// Its routes.
    pub ipv4: usize,
    pub ipv6: usize,
}

/// The result of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReloadReport {
    #[serde(flatten)]
    pub rules: RulesStatus,
    pub table: Option<TableStatus>,
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
        Datapath::Xdp => requirement::check(xdp::REQUIREMENTS),
        Datapath::AfXdp => requirement::check(crate::cpu::af_xdp::REQUIREMENTS),
        Datapath::Kernel => plane::forwarding(),
    }
}

impl Service {
    /// Routes by the tables of the calling thread's namespace, or by a table image and the neighbours
    /// and devices of that namespace. When it returns, packets are.
    ///
    /// # Errors
    /// An image or rules that cannot be taken; devices that are not there; what this machine lacks.
    pub fn start(mut config: Config) -> Result<Self, Error> {
        let files = Files::read(&config)?;
        plane::all_there(&config.interfaces)?;
        plane::all_fit(&config)?;
        let by_kernel = config.datapath == Datapath::Kernel;
        if !by_kernel && config.ecmp_seed.is_none() {
            config.ecmp_seed = Some(RandomState::new().build_hasher().finish());
        }
        let loaded = LoadState::of(&files);
        let follower = detached(&config, files.table, &loaded.set)?;
        let kernel_rules = KernelRules::default();
        let mut watched = None;
        if !by_kernel {
            // Followed first: what changes while it is looked at is looked at again.
            let changes = PolicyChanges::follow()?;
            let mut watch = Watch::new(&config.interfaces, &config.bypass)?;
            let (policy, found) = watch.look(|| ()).unwrap_or_default();
            let sole_filter = kernel_rules.enforce(&loaded.set, &config.interfaces);
            follower.with(|follow| {
                let plane = follow.plane_mut();
                plane.set_policy(policy)?;
                plane.set_sole_filter(sole_filter)
            })?;
            watched = Some((watch, found, changes));
        }
        follower.with(|follow| {
            let ports = follow.ports(&config.interfaces);
            let plane = follow.plane_mut();
            plane.open(&config)?;
            plane.listen(ports)
        })?;
        let follower = Arc::new(RwLock::new(follower));
        let guard = watched.map(|(watch, found, changes)| {
            Guard::start(watch, found, changes, Arc::clone(&follower))
        });
        Ok(Self {
            guard: guard.transpose().map_err(Error::Thread)?,
            config,
            follower,
            kernel_rules,
            room_shortage: Mutex::default(),
            loaded: Mutex::new(loaded),
            reloading: Mutex::new(()),
            published: xdp::MonotonicCounters::default(),
        })
    }

    /// Looks after devices that came back or changed, and after room for routes; to be called about every second.
    pub fn look_after(&self) {
        self.look_after_names();
        self.make_room();
        let listened = self.follower().with(|follow| {
            let ports = follow.ports(&self.config.interfaces);
            follow.plane_mut().listen(ports)
        });
        if let Err(error) = listened {
            tracing::warn!("{error}");
        }
    }

    /// Devices whose packets the kernel knows by another name now meet the rules there by that name.
    fn look_after_names(&self) {
        if self.config.datapath == Datapath::Kernel {
            return;
        }
        let _guard = self.reloading.lock();
        if let Some(sole_filter) = self.kernel_rules.follow(&self.config.interfaces)
            && let Err(error) = self.set_sole_filter(sole_filter)
        {
            tracing::warn!("{error}");
        }
    }

    fn set_sole_filter(&self, sole_filter: [bool; 2]) -> Result<(), PlaneError> {
        let follower = self.follower();
        follower.with(|follow| follow.plane_mut().set_sole_filter(sole_filter))
    }

    /// Has larger tables take the place of those that have no room for all of the kernel's routes. Until then what has no
    /// room is left to the kernel.
    fn make_room(&self) {
        if self.config.datapath != Datapath::Xdp || self.config.table.is_some() {
            return;
        }
        let missing = || {
            let routes = self.follower().status();
            routes.ipv4.without_room + routes.ipv6.without_room
        };
        let mut room_shortage = lock(&self.room_shortage);
        if missing() == 0 {
            *room_shortage = RoomShortage::default();
            return;
        }
        let since = *room_shortage.since.get_or_insert_with(Instant::now);
        // Doubled each time: what no table holds is not tried all the time.
        if since.elapsed() < ENLARGE_DELAY * 2_u32.saturating_pow(room_shortage.attempts.min(10)) {
            return;
        }
        room_shortage.attempts += 1;
        room_shortage.since = None;
        let _guard = self.reloading.lock();
        let set = self.loaded().set.clone();
        let enlarged = detached(&self.config, None, &set).and_then(|next| self.replace(next));
        match enlarged {
            Ok(()) => tracing::info!(
                left = missing(),
                "larger tables have taken the place of full ones"
            ),
            Err(error) => tracing::warn!("no larger tables for routes: {error}"),
        }
    }

    /// Filters by what the rules file holds now, and routes by what the table image holds now. No packet
    /// is lost, and each meets all of what was before or all of what is new. What cannot be taken changes
    /// nothing.
    ///
    /// # Errors
    /// The first complaint about a file; no room for a second plane beside the first.
    pub fn reload(&self) -> Result<ReloadReport, Error> {
        let _guard = self.reloading.lock();
        let taken = Files::read(&self.config).and_then(|files| self.take(files));
        let mut loaded = self.loaded();
        match taken {
            Ok(LoadState { set, table, .. }) => {
                (loaded.set, loaded.table) = (set, table);
                loaded.reloads += 1;
            }
            Err(error) => {
                loaded.failed_reloads += 1;
                return Err(error);
            }
        }
        Ok(ReloadReport {
            rules: self.rules_status(&loaded),
            table: loaded.table.clone(),
        })
    }

    /// Why packets are no longer routed by the kernel's tables, if so.
    pub fn failed(&self) -> Option<String> {
        let follower = self.follower();
        let followed = follower.failed();
        let followed = followed.map(|why| format!("routes are no longer followed: {why}"));
        followed.or_else(|| follower.with(|follow| follow.plane().failed()))
    }

    pub fn status(&self) -> Status {
        let earlier = self.follower().with(|follow| follow.plane().earlier());
        if earlier.is_some() {
            // Nothing waits for it meanwhile.
            xdp::settle();
        }
        let follower = self.follower();
        let (packets, attached, detachments, fallback) = follower.with(|follow| {
            let plane = follow.plane();
            let packets = plane.packets(&self.published, earlier.as_ref());
            (
                packets,
                plane.attached(),
                plane.detachments(),
                plane.fallback_status(),
            )
        });
        let loaded = self.loaded();
        let by_kernel = self.config.datapath == Datapath::Kernel;
        let interfaces = self.config.interfaces.iter().map(|name| Interface {
            name: name.clone(),
            attached: by_kernel || attached.contains(name),
        });
        Status {
            datapath: self.config.datapath.name(),
            interfaces: interfaces.collect(),
            detachments,
            policy: self.guard.as_ref().map(Guard::findings).unwrap_or_default(),
            kernel_lacks_rules: self.kernel_lacks_rules(),
            ecmp_seed: self.config.ecmp_seed,
            routes: follower.status(),
            packets,
            fallback,
            table: loaded.table.clone(),
            rules: self.rules_status(&loaded),
        }
    }

    /// Has the data plane do what was read.
    fn take(&self, files: Files) -> Result<LoadState, Error> {
        let loaded = LoadState::of(&files);
        let next = match files.table {
            None => None,
            table => Some(detached(&self.config, table, &loaded.set)?),
        };
        let before = self.filter_in_kernel(&loaded.set)?;
        let taken = match next {
            Some(next) => self.replace(next),
            None => self.follower().rules(&loaded.set).map_err(Error::from),
        };
        if taken.is_err()
            && let Some(before) = before
        {
            self.filter_in_kernel(&before)?;
        }
        taken.map(|()| loaded)
    }

    /// Has the kernel filter by these rules what the data plane leaves to it. Returns those before.
    fn filter_in_kernel(&self, set: &RuleSet) -> Result<Option<RuleSet>, Error> {
        if self.config.datapath == Datapath::Kernel {
            return Ok(None);
        }
        let before = self.loaded().set.clone();
        let sole_filter = self.kernel_rules.enforce(set, &self.config.interfaces);
        self.set_sole_filter(sole_filter)?;
        Ok(Some(before))
    }

    /// Has another plane take the place of the one that handles packets.
    fn replace(&self, next: Follower<Dataplane>) -> Result<(), Error> {
        let mut current = self
            .follower
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        next.with(|next| current.with(|current| next.plane_mut().take_over(current.plane_mut())))?;
        let before = std::mem::replace(&mut *current, next);
        drop(current);
        // Its tables are large: nobody waits until they are gone.
        drop(before);
        Ok(())
    }

    fn follower(&self) -> RwLockReadGuard<'_, Follower<Dataplane>> {
        self.follower.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn loaded(&self) -> MutexGuard<'_, LoadState> {
        lock(&self.loaded)
    }

    fn kernel_lacks_rules(&self) -> Vec<&'static str> {
        let sole_filter = self.kernel_rules.sole_filter().into_iter();
        let named = sole_filter.zip(["ipv4", "ipv6"]);
        named
            .filter_map(|(sole_filter, name)| sole_filter.then_some(name))
            .collect()
    }

    /// How often each rule matched, in the data plane and in the kernel.
    fn hits(&self) -> Option<[Hits; 2]> {
        let mut hits = self.follower().with(|follow| follow.plane().hits())?;
        if self.config.datapath != Datapath::Kernel {
            self.kernel_rules.add_to(&mut hits);
        }
        Some(hits)
    }

    fn rules_status(&self, loaded: &LoadState) -> RulesStatus {
        RulesStatus {
            file: Files::of_rules(&self.config),
            ipv4: loaded.set.v4.len(),
            ipv6: loaded.set.v6.len(),
            notes: loaded.set.notes.len(),
            reloads: loaded.reloads,
            failed_reloads: loaded.failed_reloads,
        }
    }

    /// One scrape.
    pub fn metrics(&self) -> MetricSet {
        metrics::collect(&self.status())
    }
}

impl LoadState {
    fn of(files: &Files) -> Self {
        let table = |table: &ImageTable| TableStatus {
            file: table.image.name().to_owned(),
            ipv4: table.routes.v4.len(),
            ipv6: table.routes.v6.len(),
        };
        Self {
            set: files.rules.clone(),
            table: files.table.as_ref().map(table),
            ..Self::default()
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads and checks all files without using them.
///
/// # Errors
/// As [`Service::start`], of the files.
pub fn check_files(config: &Config) -> Result<(), Error> {
    Files::read(config).map(drop)
}

/// A plane that is ready to handle packets and attached nowhere.
fn detached(
    config: &Config,
    table: Option<ImageTable>,
    rules: &RuleSet,
) -> Result<Follower<Dataplane>, Error> {
    let options = Options {
        next_hops: lpm::NextHop::MAX,
        ..Options::default()
    };
    let follower = match table {
        Some(table) => {
            let routes = table.routes.clone();
            let follower = Follower::start_with(options, &routes, |v4, v6| {
                Dataplane::detached(config, Some(table), v4, v6)
            })?;
            await_gateways(&follower);
            follower
        }
        None => Follower::start(options, |v4, v6| Dataplane::detached(config, None, v4, v6))?,
    };
    follower.rules(rules)?;
    Ok(follower)
}

/// The kernel has no route for packets to a gateway that is not known yet: they would be lost.
fn await_gateways(follower: &Follower<Dataplane>) {
    let deadline = Instant::now() + GATEWAY_TIMEOUT;
    while Instant::now() < deadline && follower.with(|follow| follow.is_resolving()) {
        std::thread::sleep(POLL_INTERVAL);
    }
}
