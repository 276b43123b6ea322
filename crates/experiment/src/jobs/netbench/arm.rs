//! The arms: one environment, one link, one placement and one tool each.

use datapath::Missing;
use netbench::Test;
use testbed::{Kind, LinkKind};

use super::tool::{DATA_PORTS, Tool};
use crate::cpus;
use crate::idle::IdlePolicy;
use crate::jobs::netbench::load::Load;

/// Names the devices that hosts of a link of cards have meanwhile.
const NICS: &str = "LOWROAD_NICS";

/// Where the two ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The client on the first CPU and the server on the last.
    Apart,
    /// Both on the first.
    Together,
    /// Wherever the scheduler puts them.
    Anywhere,
}

/// An arm of netbench.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arm {
    /// ENVIRONMENT/LINK, of those that differ in these; else what it differs in, or whose tool it is.
    pub(super) name: &'static str,
    /// The server's environment; the client is native.
    pub(super) env: &'static str,
    pub(super) link: LinkKind,
    pub(super) place: Place,
    /// Whatever the experiment's policy is.
    pub(super) idle: Option<IdlePolicy>,
    /// Whether a process without a part in the trial keeps the server's CPU busy.
    pub(super) neighbour: bool,
    pub(super) tool: Tool,
}

impl Arm {
    const DEFAULT: Self = Self {
        name: "native/direct",
        env: "native",
        link: LinkKind::Direct,
        place: Place::Apart,
        idle: None,
        neighbour: false,
        tool: Tool::Lowroad,
    };

    /// The links of namespaces, of containers and of virtual machines; then placements, and ours and other people's
    /// tools, on the direct link between namespaces.
    pub(super) const ALL: &[Self] = &[
        Self::DEFAULT,
        Self {
            name: "native/bridge",
            link: LinkKind::Bridge,
            ..Self::DEFAULT
        },
        Self {
            name: "native/macvlan",
            link: LinkKind::Macvlan,
            ..Self::DEFAULT
        },
        Self {
            name: "oci/direct",
            env: "oci",
            ..Self::DEFAULT
        },
        Self {
            name: "oci/bridge",
            env: "oci",
            link: LinkKind::Bridge,
            ..Self::DEFAULT
        },
        Self {
            name: "docker/direct",
            env: "docker",
            ..Self::DEFAULT
        },
        Self {
            name: "docker/bridge",
            env: "docker",
            link: LinkKind::Published,
            ..Self::DEFAULT
        },
        Self {
            name: "podman/direct",
            env: "podman",
            ..Self::DEFAULT
        },
        Self {
            name: "podman/bridge",
            env: "podman",
            link: LinkKind::Published,
            ..Self::DEFAULT
        },
        Self {
            name: "vm/direct",
            env: "vm",
            ..Self::DEFAULT
        },
        Self {
            name: "vm/bridge",
            env: "vm",
            link: LinkKind::Bridge,
            ..Self::DEFAULT
        },
        Self {
            name: "vm-rt/direct",
            env: "vm-rt",
            ..Self::DEFAULT
        },
        Self {
            name: "vm-rt/bridge",
            env: "vm-rt",
            link: LinkKind::Bridge,
            ..Self::DEFAULT
        },
        Self {
            name: "vm-oci/direct",
            env: "vm-oci",
            ..Self::DEFAULT
        },
        Self {
            name: "native/nic",
            link: LinkKind::Nic,
            ..Self::DEFAULT
        },
        Self {
            name: "oci/nic",
            env: "oci",
            link: LinkKind::Nic,
            ..Self::DEFAULT
        },
        Self {
            name: "docker/nic",
            env: "docker",
            link: LinkKind::Nic,
            ..Self::DEFAULT
        },
        Self {
            name: "same-cpu",
            place: Place::Together,
            ..Self::DEFAULT
        },
        Self {
            name: "other-cpu",
            idle: Some(IdlePolicy::None),
            ..Self::DEFAULT
        },
        Self {
            name: "other-cpu-awake",
            idle: Some(IdlePolicy::Burner),
            ..Self::DEFAULT
        },
        Self {
            name: "unpinned",
            place: Place::Anywhere,
            ..Self::DEFAULT
        },
        Self {
            name: "neighbour",
            neighbour: true,
            ..Self::DEFAULT
        },
        Self {
            name: "lowroad",
            ..Self::DEFAULT
        },
        Self {
            name: "iperf3",
            tool: Tool::Iperf3,
            ..Self::DEFAULT
        },
        Self {
            name: "sockperf",
            tool: Tool::Sockperf,
            ..Self::DEFAULT
        },
        Self {
            name: "netperf",
            tool: Tool::Netperf,
            ..Self::DEFAULT
        },
    ];

    pub(super) fn find(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|arm| arm.name == name)
    }

    /// Why this machine cannot run it.
    pub(super) fn check(&self) -> Result<(), Missing> {
        let cpus = cpus::ordinary().unwrap_or_default();
        if self.place == Place::Apart && cpus.len() < 2 {
            let what = format!("{} needs two CPUs", self.name);
            return Err(Missing::new(what, "run it where there are two"));
        }
        if self.link == LinkKind::Nic {
            nics()?;
        }
        for env in ["native", self.env] {
            Kind::find(env).map_or(Ok(()), |kind| (kind.probe)())?;
        }
        self.tool.check()
    }

    /// Why it cannot carry a test under a load.
    pub(super) fn lacks(&self, test: Test, load: &Load) -> Option<String> {
        let [first, last] = DATA_PORTS;
        let ports = u64::from(last - first) + 1;
        if load.path.is_some() && (self.link, self.env) != (LinkKind::Direct, "native") {
            let what = "has a link of its own: only a direct link between namespaces has a path";
            return Some(what.to_owned());
        }
        match self.link {
            LinkKind::Published if !test.needs_server() => {
                Some("publishes ports, and an echo request has none".to_owned())
            }
            LinkKind::Published if test.datagrams() && load.flows() > ports => Some(format!(
                "publishes {ports} ports for tests, and each flow of datagrams takes one"
            )),
            _ => None,
        }
    }

    /// The CPUs of the client and of the server; none where they may run on any.
    pub(super) fn cpus(&self) -> [Vec<usize>; 2] {
        let [first, last] = cpus::ends().unwrap_or_default();
        match self.place {
            Place::Apart => [vec![first], vec![last]],
            Place::Together => [vec![first], vec![first]],
            Place::Anywhere => [Vec::new(), Vec::new()],
        }
    }

    /// The CPUs that any part of it runs on, whose ends are on `cpus`: a virtual machine runs on those of the end
    /// that is in it.
    pub(super) fn used(&self, cpus: [Vec<usize>; 2]) -> Vec<usize> {
        let [mut used, server] = cpus;
        if used.is_empty() {
            return cpus::ordinary().unwrap_or_default();
        }
        used.extend(server);
        used.sort_unstable();
        used.dedup();
        used
    }
}

/// Devices of this machine with a cable between them: the client's, and the server's.
pub(super) fn nics() -> Result<[String; 2], Missing> {
    let named = std::env::var(NICS).unwrap_or_default();
    let names: Vec<String> = named
        .split(',')
        .map(|name| name.trim().to_owned())
        .collect();
    match <[String; 2]>::try_from(names) {
        Ok(two) if two.iter().all(|name| !name.is_empty()) => Ok(two),
        _ => Err(Missing::new(
            format!("{NICS} does not name two network cards with a cable between them"),
            format!("{NICS}=eth1,eth2 lowroad compare netbench-nic"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::loads_of;

    #[test]
    fn an_environment_and_a_link_are_what_an_arm_is_called_by() {
        for arm in Arm::ALL {
            let Some((env, link)) = arm.name.split_once('/') else {
                continue;
            };
            let named = match arm.link {
                LinkKind::Direct => "direct",
                LinkKind::Macvlan => "macvlan",
                LinkKind::Nic => "nic",
                // An engine's own bridge is behind the ports that it publishes.
                LinkKind::Bridge | LinkKind::Published => "bridge",
                LinkKind::Impaired => "impaired",
            };
            assert_eq!((env, link), (arm.env, named));
        }
        for (at, arm) in Arm::ALL.iter().enumerate() {
            let same = Arm::ALL.iter().position(|other| other.name == arm.name);
            assert_eq!(same, Some(at), "{}", arm.name);
        }
    }

    #[test]
    fn paths_are_of_direct_links_between_namespaces() {
        let mut load = loads_of::<Load>("netbench-matrix").remove(0);
        load.path = Some(toml::from_str("delay = '20ms'").unwrap());
        let lacks = |arm: &str| Arm::find(arm).unwrap().lacks(Test::TcpRr, &load);
        for arm in ["native/direct", "iperf3", "unpinned"] {
            assert_eq!(lacks(arm), None, "{arm}");
        }
        for arm in ["native/bridge", "oci/direct", "vm/direct", "docker/bridge"] {
            assert!(lacks(arm).unwrap().contains("direct link"), "{arm}");
        }
    }

    #[test]
    fn published_ports_carry_as_many_flows_of_datagrams_as_there_are() {
        let mut load = loads_of::<Load>("netbench-matrix").remove(0);
        let mut lacks = |arm: &str, options: &str| {
            load.options = toml::from_str(options).unwrap();
            let test = load.test().unwrap();
            Arm::find(arm)
                .unwrap()
                .lacks(test, &load)
                .unwrap_or_default()
        };
        assert_eq!(lacks("docker/bridge", "test = 'udp_rr'\nflows = 2"), "");
        let why = lacks("docker/bridge", "test = 'udp_rr'\nflows = 3");
        assert!(why.contains("2 ports"), "{why}");
        assert_eq!(lacks("docker/bridge", "test = 'tcp_rr'\nflows = 3"), "");
        assert_eq!(lacks("docker/direct", "test = 'udp_rr'\nflows = 3"), "");
        assert!(lacks("podman/bridge", "test = 'icmp'").contains("echo request"));
    }
}
