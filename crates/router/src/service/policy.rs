//! What of the kernel's policy keeps packets off a data plane: rules of nftables and IPsec, traffic control, IPVS, policy
//! routing, settings and controllers of devices. It is looked at when the kernel announces a change, and every second for what it does not
//! announce.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use netdev::policy::{
    Check, Device, PolicyChanges, PolicyMonitor, ReversePath, Routing, RoutingPolicy, Transit,
    Verdict,
};
use netdev::{Link, Netlink};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use super::plane::Dataplane;
use crate::follow::Follower;
use crate::follow::fifo_priority::FifoPriority;
use crate::forward::Family;
use crate::kernel::TABLE;
use crate::policy::{Pair, Place, Policy, PortPolicy};

/// What the kernel does not announce is looked at this often.
const TICK: Duration = Duration::from_secs(1);
/// After a look, changes that come within this time are looked at together.
const SETTLE: Duration = Duration::from_millis(5);
/// Pairs of devices that rules are asked about: each can take as long as the rules are many.
const MAX_PAIRS: usize = 4096;

/// Packets that a check of the kernel is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    pub check: Check,
    /// The device that they come by.
    pub from: String,
    /// The device that they leave by; none: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    pub ipv4: bool,
    pub ipv6: bool,
    pub reason: String,
}

/// What the kernel's policy comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// What is left to the kernel.
    pub kernel: Vec<Finding>,
    /// What is forwarded all the same, as it is configured.
    pub bypassed: Vec<Finding>,
}

/// Looks at the policy of the network namespace in which it was made.
#[derive(Debug)]
pub(super) struct Watch {
    interfaces: Vec<String>,
    bypass: Vec<Check>,
    monitor: PolicyMonitor,
    routing: Routing,
    netlink: Netlink,
    basis: Option<Basis>,
}

/// What a judgement rests on.
#[derive(Debug, PartialEq, Eq)]
struct Basis {
    version: u64,
    /// The error is why it cannot be read.
    routing: Result<RoutingPolicy, String>,
    links: Vec<Link>,
}

/// What of the kernel's policy is about packets that this machine forwards between its Ethernet devices. Changes nothing.
///
/// # Errors
/// The kernel does not tell, as it does without `CAP_NET_ADMIN`.
pub fn findings() -> Result<Vec<Finding>, netdev::Error> {
    let links = Netlink::new()?.links()?.into_iter();
    let devices = links.filter(|link| link.ethernet && !link.loopback);
    let names: Vec<String> = devices.map(|link| link.name).collect();
    let look = Watch::new(&names, &[])?.look(|| ());
    Ok(look.map_or_else(Vec::new, |(_, findings)| findings.kernel))
}

impl Watch {
    pub(super) fn new(interfaces: &[String], bypass: &[Check]) -> Result<Self, netdev::Error> {
        Ok(Self {
            interfaces: interfaces.to_vec(),
            bypass: bypass.to_vec(),
            monitor: PolicyMonitor::without_table(TABLE)?,
            routing: Routing::open()?,
            netlink: Netlink::new()?,
            basis: None,
        })
    }

    /// Looks again; none where nothing has changed. Where rules are to be evaluated, which can take long, `before` is called
    /// first.
    pub(super) fn look(&mut self, before: impl FnOnce()) -> Option<(Policy, Findings)> {
        self.monitor.refresh();
        let links = self.netlink.links();
        let routing = match &links {
            Ok(_) => self.routing.read().map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let basis = Basis {
            version: self.monitor.version(),
            routing,
            links: links.unwrap_or_default(),
        };
        if self.basis.as_ref() == Some(&basis) {
            return None;
        }
        if !self.monitor.is_empty_for_forwarding() {
            before();
        }
        let judged = Judgement::of(self, &basis);
        self.basis = Some(basis);
        Some(judged)
    }
}

/// A policy as it is put together.
struct Judgement<'a> {
    watch: &'a Watch,
    basis: &'a Basis,
    policy: Policy,
    /// By what they are about, with the IP versions.
    kernel: BTreeMap<Subject, [bool; 2]>,
    bypassed: BTreeMap<Subject, [bool; 2]>,
}

/// A check, the device that packets come by, the one that they leave by, and the reason.
type Subject = (Check, String, Option<String>, String);

impl<'a> Judgement<'a> {
    fn of(watch: &'a Watch, basis: &'a Basis) -> (Policy, Findings) {
        let mut judgement = Self {
            watch,
            basis,
            policy: Policy::default(),
            kernel: BTreeMap::new(),
            bypassed: BTreeMap::new(),
        };
        let named = |link: &&Link| watch.interfaces.contains(&link.name);
        let ports: Vec<&Link> = basis.links.iter().filter(named).collect();
        let targets = basis
            .links
            .iter()
            .filter(|link| link.ethernet && !link.loopback);
        let targets: Vec<&Link> = targets.collect();
        for port in &ports {
            let judged = judgement.port(port, &targets, ports.len());
            judgement.policy.ports.insert(place(port), judged);
        }
        let findings = Findings {
            kernel: listed(judgement.kernel),
            bypassed: listed(judgement.bypassed),
        };
        (judgement.policy, findings)
    }

    fn port(&mut self, port: &Link, targets: &[&Link], ports: usize) -> PortPolicy {
        let mut judged = PortPolicy {
            fragments: self.watch.monitor.may_defragment(),
            ..PortPolicy::default()
        };
        for family in [Family::V4, Family::V6] {
            for check in Check::FORWARD_INGRESS {
                let found = self.of_ingress(*check, port, family);
                judged.kernel[family as usize] |= self.note(*check, port, None, family, found);
            }
            if judged.kernel[family as usize] || self.watch.monitor.is_empty_for_forwarding() {
                continue;
            }
            if ports * targets.len() > MAX_PAIRS {
                let found = format!("there are more than {MAX_PAIRS} pairs of devices to look at");
                let check = Check::NftForward;
                judged.kernel[family as usize] |= self.note(check, port, None, family, Some(found));
                continue;
            }
            judged.by_pair[family as usize] = !self.pairs(port, targets, family);
        }
        let wanted = match &self.basis.routing {
            Ok(routing) => routing.reverse_path(port.index),
            Err(_) => ReversePath::Off,
        };
        if wanted != ReversePath::Off {
            let name = &port.name;
            let found = format!("net.ipv4.conf.{name}.rp_filter or all.rp_filter is on");
            if self.watch.bypass.contains(&Check::ReversePath) {
                self.note(Check::ReversePath, port, None, Family::V4, Some(found));
            } else {
                judged.reverse_path = wanted;
            }
        }
        judged
    }

    /// Lists the pairs that no check is about; whether these are all.
    fn pairs(&mut self, port: &Link, targets: &[&Link], family: Family) -> bool {
        let mut found: Vec<(&Link, Check, String)> = Vec::new();
        let mut all = true;
        for target in targets {
            let mut fast = true;
            for check in Check::FORWARD_PAIRS {
                let Some(reason) = self.of_pair(*check, port, target, family) else {
                    continue;
                };
                fast &= self.watch.bypass.contains(check);
                found.push((target, *check, reason));
            }
            all &= fast;
            if fast {
                self.policy.pairs.insert(Pair {
                    from: place(port),
                    to: place(target),
                    family,
                });
            }
        }
        // What is the same for all is said once.
        for (target, check, reason) in &found {
            let same = found
                .iter()
                .filter(|(_, of, why)| (of, why) == (check, reason));
            let to = (same.count() < targets.len()).then_some(*target);
            self.note(*check, port, to, family, Some(reason.clone()));
        }
        all
    }

    /// Why packets that come by a device are not all forwarded as if nothing looked at them.
    fn of_ingress(&self, check: Check, port: &Link, family: Family) -> Option<String> {
        let routing = match &self.basis.routing {
            Ok(routing) => routing,
            Err(error) => return Some(error.clone()),
        };
        let packets = Transit {
            v4: family == Family::V4,
            ingress: self.device(port.index),
            egress: None,
            tagged: false,
        };
        match check {
            Check::Controller => {
                let controller = port.controller?;
                let links = &self.basis.links;
                let named = links.iter().find(|link| link.index == controller);
                let name = named.map_or_else(|| controller.to_string(), |link| link.name.clone());
                Some(format!("{} belongs to {name}", port.name))
            }
            Check::NftIngress if port.vlan.is_some() => {
                let below = port.link.map(|below| Transit {
                    ingress: self.device(below),
                    tagged: true,
                    ..packets.clone()
                });
                let mut hooks = [Some(packets), below].into_iter().flatten();
                hooks.find_map(|packets| self.ask(check, &packets))
            }
            Check::TcIngress | Check::NftIngress | Check::NftPrerouting | Check::Ipvs => {
                self.ask(check, &packets)
            }
            _ => routing.obstacle(check, port, packets.v4),
        }
    }

    fn of_pair(&self, check: Check, port: &Link, target: &Link, family: Family) -> Option<String> {
        let packets = |egress: u32, tagged| Transit {
            v4: family == Family::V4,
            ingress: self.device(port.index),
            egress: Some(self.device(egress)),
            tagged,
        };
        let found = self.ask(check, &packets(target.index, false));
        // A VLAN's packets leave by the device below as well.
        let below = target.link.filter(|_| target.vlan.is_some());
        let below = below.filter(|_| check == Check::NftEgress);
        found.or_else(|| self.ask(check, &packets(below?, true)))
    }

    fn ask(&self, check: Check, packets: &Transit) -> Option<String> {
        match self.watch.monitor.at_check(check, packets) {
            Verdict::Accept => None,
            Verdict::Drop(rule) => Some(format!("{rule} drops its packets")),
            Verdict::Kernel(reason) => Some(reason),
        }
    }

    fn device(&self, index: u32) -> Device {
        let mut links = self.basis.links.iter();
        let name = links.find(|link| link.index == index);
        Device {
            index,
            name: name.map_or_else(String::new, |link| link.name.clone()),
        }
    }

    /// Notes what was found, if anything was; whether it leaves packets to the kernel.
    fn note(
        &mut self,
        check: Check,
        from: &Link,
        to: Option<&Link>,
        family: Family,
        found: Option<String>,
    ) -> bool {
        let Some(reason) = found else {
            return false;
        };
        let bypassed = self.watch.bypass.contains(&check);
        let notes = if bypassed {
            &mut self.bypassed
        } else {
            &mut self.kernel
        };
        let to = to.map(|link| link.name.clone());
        let subject = (check, from.name.clone(), to, reason);
        notes.entry(subject).or_default()[family as usize] = true;
        !bypassed
    }
}

fn listed(notes: BTreeMap<Subject, [bool; 2]>) -> Vec<Finding> {
    let finding = |(subject, versions): (Subject, [bool; 2])| {
        let ((check, from, to, reason), [ipv4, ipv6]) = (subject, versions);
        Finding {
            check,
            from,
            to,
            ipv4,
            ipv6,
            reason,
        }
    };
    notes.into_iter().map(finding).collect()
}

/// Where frames of a device come in and leave.
fn place(link: &Link) -> Place {
    match (link.vlan, link.link) {
        (Some(vlan), Some(below)) => Place {
            ifindex: below,
            vlan: Some(vlan),
        },
        _ => Place {
            ifindex: link.index,
            vlan: None,
        },
    }
}

/// A thread that has a data plane keep the policy as it changes.
#[derive(Debug)]
pub(super) struct Guard {
    findings: Arc<Mutex<Findings>>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// Goes on from what was found first.
    pub(super) fn start(
        watch: Watch,
        found: Findings,
        changes: PolicyChanges,
        follower: Arc<RwLock<Follower<Dataplane>>>,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        announce(&Findings::default(), &found);
        let findings = Arc::new(Mutex::new(found));
        let published = Arc::clone(&findings);
        let thread = std::thread::Builder::new()
            .name("policy".to_owned())
            .spawn(move || run(watch, changes, &stopped, &follower, &published))?;
        Ok(Self {
            findings,
            stop,
            thread: Some(thread),
        })
    }

    pub(super) fn findings(&self) -> Findings {
        let findings = self.findings.lock();
        findings.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    mut watch: Watch,
    mut changes: PolicyChanges,
    stopped: &UnixStream,
    follower: &RwLock<Follower<Dataplane>>,
    published: &Mutex<Findings>,
) {
    // Packets go past a policy until this thread has got a CPU.
    let mut priority = FifoPriority::default();
    loop {
        priority.before_wait();
        if !wait(&changes, stopped) {
            return;
        }
        priority.before_work();
        changes.drain();
        if let Some((policy, found)) = watch.look(|| priority.release()) {
            keep(policy, found, follower, published);
        }
        reattach(follower);
        priority.before_work();
        if !pause(stopped) {
            return;
        }
    }
}

/// Puts programs back that others have taken off.
fn reattach(follower: &RwLock<Follower<Dataplane>>) {
    let follower = follower.read().unwrap_or_else(PoisonError::into_inner);
    for change in follower.with(|follow| follow.plane_mut().reattach()) {
        tracing::error!("{change}");
    }
}

/// Has the plane keep a policy, and says what it comes to.
fn keep(
    policy: Policy,
    found: Findings,
    follower: &RwLock<Follower<Dataplane>>,
    published: &Mutex<Findings>,
) {
    {
        let follower = follower.read().unwrap_or_else(PoisonError::into_inner);
        let kept = follower.with(|follow| follow.plane_mut().set_policy(policy));
        if let Err(error) = kept {
            tracing::error!("{error}");
        }
    }
    let mut published = published.lock().unwrap_or_else(PoisonError::into_inner);
    announce(&published, &found);
    *published = found;
}

/// Until something may have changed; false when there is nothing more to do ever.
fn wait(changes: &PolicyChanges, stopped: &UnixStream) -> bool {
    let mut watched = vec![PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
    let sockets = changes.descriptors();
    watched.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::POLLIN)));
    await_any(&mut watched, TICK)
}

/// For what comes with a change; false when there is nothing more to do ever.
fn pause(stopped: &UnixStream) -> bool {
    let mut watched = [PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
    await_any(&mut watched, SETTLE)
}

/// Whether the first has not ended.
fn await_any(watched: &mut [PollFd<'_>], time: Duration) -> bool {
    let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
    // Interrupted, it comes back with nothing to do.
    let _ = poll(watched, time);
    let stopped = watched[0].revents();
    stopped.is_none_or(|events| events.is_empty())
}

/// Says what has come and gone.
fn announce(before: &Findings, now: &Findings) {
    let known: BTreeSet<&Finding> = before.kernel.iter().collect();
    for finding in now.kernel.iter().filter(|finding| !known.contains(finding)) {
        tracing::warn!("the kernel decides on packets {finding}");
    }
    let stays: BTreeSet<&Finding> = now.kernel.iter().collect();
    for finding in before
        .kernel
        .iter()
        .filter(|finding| !stays.contains(finding))
    {
        tracing::info!("no longer: the kernel decides on packets {finding}");
    }
    let known: BTreeSet<&Finding> = before.bypassed.iter().collect();
    for finding in now
        .bypassed
        .iter()
        .filter(|finding| !known.contains(finding))
    {
        tracing::warn!("bypassed as configured: packets {finding}");
    }
}

/// As in `from eth1 to eth2 (ipv4, nft-forward): the policy of chain ip f fw`.
impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "from {}", self.from)?;
        if let Some(to) = &self.to {
            write!(f, " to {to}")?;
        }
        let versions = match (self.ipv4, self.ipv6) {
            (true, true) => "ipv4, ipv6",
            (true, false) => "ipv4",
            _ => "ipv6",
        };
        write!(f, " ({versions}, {}): {}", self.check.name(), self.reason)
    }
}
