//! Routing daemons drive it unchanged: BGP sessions of BIRD and FRR between namespaces.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use super::lab::{Running, Space, TIMEOUT, TestFollower, await_agreement, follow, ip, until};
use crate::common::programs::installed;

/// What each of two neighbours announces.
const ROUTES: usize = 500;

/// Soon, where a session ends before it stood, as two that open one to each other at once may.
/// By itself BIRD waits a minute then.
const BIRD_RETRY_TIMES: &str = "connect retry time 1; connect delay time 1; error wait time 1,1;";

/// A router with two neighbours, on eth1 (10.1.0.0/24) and eth2 (10.2.0.0/24).
pub(crate) struct Network {
    pub(crate) router: Space,
    pub(crate) neighbours: [Space; 2],
    folder: tempfile::TempDir,
}

impl Network {
    pub(crate) fn new(name: &str) -> Option<Self> {
        let router = Space::new(&format!("{name}-r"))?;
        let neighbours = [1, 2].map(|n| Space::new(&format!("{name}-{n}")).unwrap());
        for (n, neighbour) in (1..).zip(&neighbours) {
            router.cable(&format!("eth{n}"), neighbour, "eth0");
            router.run(&format!("ip addr add 10.{n}.0.1/24 dev eth{n}"));
            router.run(&format!("ip addr add fd0{n}::1/64 dev eth{n} nodad"));
            neighbour.run(&format!("ip addr add 10.{n}.0.2/24 dev eth0"));
            neighbour.run(&format!("ip addr add fd0{n}::2/64 dev eth0 nodad"));
        }
        Some(Self {
            router,
            neighbours,
            folder: tempfile::tempdir().unwrap(),
        })
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// A BIRD of a namespace; `name` is for its files.
    fn bird(&self, space: &Space, name: &str, config: &str) -> Running {
        let path = |end: &str| self.file(&format!("{name}.{end}"));
        std::fs::write(path("conf"), config).unwrap();
        let (config, socket, pid) = (path("conf"), path("ctl"), path("pid"));
        space.start("bird", &["-f", "-c", &config, "-s", &socket, "-P", &pid])
    }

    /// A neighbour that announces the same prefixes as the other one, and some of its own.
    pub(crate) fn announcer(&self, n: usize) -> Running {
        let mut config = format!(
            "router id 10.{n}.0.2;\nprotocol device {{}}\n\
             protocol bgp to4 {{ local 10.{n}.0.2 as 6500{n}; neighbor 10.{n}.0.1 as 65000;\n\
             {BIRD_RETRY_TIMES}\n\
             ipv4 {{ import none; export all; next hop self; }}; }}\n\
             protocol bgp to6 {{ local fd0{n}::2 as 6500{n}; neighbor fd0{n}::1 as 65000;\n\
             {BIRD_RETRY_TIMES}\n\
             ipv6 {{ import none; export all; next hop self; }}; }}\n\
             protocol static s4 {{ ipv4;\n"
        );
        for at in 0..ROUTES {
            writeln!(config, "route {} blackhole;", prefix(at)).unwrap();
        }
        writeln!(config, "route 198.51.{n}.0/24 blackhole; }}").unwrap();
        config += "protocol static s6 { ipv6; route 2001:db8::/32 blackhole; }\n";
        self.bird(&self.neighbours[n - 1], &format!("neighbour{n}"), &config)
    }

    /// Both announcers' routes by these neighbours' link-layer addresses.
    fn arrive(&self, followed: &TestFollower, by: &[usize]) {
        let macs: Vec<_> = by
            .iter()
            .map(|n| self.neighbours[n - 1].mac("eth0"))
            .collect();
        let to = |at: usize| ip(&prefix(at).replace(".0/24", ".1"));
        until(&format!("all by {by:?}"), followed, |follow| {
            let arrives = |to| {
                // Each of a group's members has its share of a few flows.
                let flows = (0..4).map(|flow| follow.plane().neighbour(to, flow));
                let flows: Vec<_> = flows.collect();
                let known = |mac| flows.iter().flatten().any(|to| to.destination == mac);
                macs.iter().all(|mac| known(*mac))
                    && flows
                        .iter()
                        .flatten()
                        .all(|to| macs.contains(&to.destination))
            };
            (0..ROUTES).all(|at| arrives(to(at))) && arrives(ip("2001:db8::1"))
        });
        let addresses: Vec<_> = (0..ROUTES).map(to).chain([ip("2001:db8::1")]).collect();
        await_agreement(&self.router, followed, &addresses);
    }

    fn gone(&self, followed: &TestFollower, to: &str) {
        until(&format!("no route to {to}"), followed, |follow| {
            follow.plane().forward(ip(to), 0).is_none()
        });
    }
}

fn prefix(at: usize) -> String {
    format!("100.{}.{}.0/24", 64 + at / 256, at % 256)
}

/// What a session's end and a link's do to what a daemon made of two neighbours.
fn fail_over(network: &Network, mut announcers: [Running; 2], shared: bool) {
    let followed = follow(&network.router);
    if shared {
        network.arrive(&followed, &[1, 2]);
        until("a group", &followed, |follow| {
            let hops = follow.next_hops();
            hops.iter().any(|hop| hop.means.starts_with("group"))
        });
    } else {
        network.arrive(&followed, &[1]);
    }
    announcers[0].kill();
    network.arrive(&followed, &[2]);
    network.gone(&followed, "198.51.1.1");
    announcers[0] = network.announcer(1);
    network.arrive(&followed, if shared { &[1, 2] } else { &[1] });
    // The link is noticed here before the daemon has done anything.
    network.router.run("ip link set eth1 down");
    network.arrive(&followed, &[2]);
    announcers[1].kill();
    network.gone(&followed, "100.64.0.1");
    network.gone(&followed, "2001:db8::1");
    let status = followed.status();
    assert_eq!((status.overruns, status.ipv4.unplaced), (0, 0));
    assert_eq!(status.plane_calls.refusals, 0);
    assert!(status.event_lag_us.count > 0);
}

pub(crate) fn bird_router(network: &Network, paths: &str) -> Running {
    let mut config = format!(
        "router id 10.1.0.1;\nprotocol device {{ scan time 1; }}\n\
         protocol direct {{ ipv4; ipv6; interface \"eth*\"; }}\n\
         protocol kernel {{ {paths} ipv4 {{ import none; export where source = RTS_BGP; }}; }}\n\
         protocol kernel {{ {paths} ipv6 {{ import none; export where source = RTS_BGP; }}; }}\n"
    );
    for n in [1, 2] {
        // The first neighbour is preferred, unless both are taken.
        let preference = if paths.is_empty() { 200 - n } else { 100 };
        for (family, address) in [
            ("ipv4", format!("10.{n}.0.")),
            ("ipv6", format!("fd0{n}::")),
        ] {
            writeln!(
                config,
                "protocol bgp {family}n{n} {{ local {address}1 as 65000; neighbor {address}2 as \
                 6500{n}; {BIRD_RETRY_TIMES}\n\
                 {family} {{ import filter {{ bgp_local_pref = {preference}; accept; }}; export none; }}; }}"
            )
            .unwrap();
        }
    }
    network.bird(&network.router, "router", &config)
}

#[test]
fn bird_chooses_and_chooses_anew() {
    if !installed("bird") {
        return;
    }
    let Some(network) = Network::new("bird") else {
        return;
    };
    let announcers = [1, 2].map(|n| network.announcer(n));
    let _router = bird_router(&network, "");
    fail_over(&network, announcers, false);
}

#[test]
fn bird_shares_over_both() {
    if !installed("bird") {
        return;
    }
    let Some(network) = Network::new("birds") else {
        return;
    };
    let announcers = [1, 2].map(|n| network.announcer(n));
    let _router = bird_router(&network, "merge paths on;");
    fail_over(&network, announcers, true);
}

/// zebra and bgpd of the router.
fn frr_router(network: &Network, paths: usize) -> Option<[Running; 2]> {
    let programs = Path::new("/usr/lib/frr");
    if !programs.join("bgpd").exists() {
        sys::require::skip(sys::require::Class::Core, "no frr here");
        return None;
    }
    let mut config = String::from(
        "router bgp 65000\n bgp router-id 10.1.0.1\n no bgp ebgp-requires-policy\n \
         bgp bestpath as-path multipath-relax\n",
    );
    for n in [1, 2] {
        let weight = if paths == 1 { 200 - n } else { 100 };
        for neighbour in [format!("10.{n}.0.2"), format!("fd0{n}::2")] {
            let family = if neighbour.contains(':') {
                "ipv6"
            } else {
                "ipv4"
            };
            write!(
                config,
                " neighbor {neighbour} remote-as 6500{n}\n neighbor {neighbour} timers connect 1\n \
                 neighbor {neighbour} advertisement-interval 0\n \
                 address-family {family} unicast\n  neighbor {neighbour} activate\n  \
                 neighbor {neighbour} weight {weight}\n  maximum-paths {paths}\n exit-address-family\n"
            )
            .unwrap();
        }
    }
    let folder = network.folder.path();
    std::fs::write(folder.join("bgpd.conf"), config).unwrap();
    std::fs::write(folder.join("zebra.conf"), "").unwrap();
    // The user that they become after their start.
    network
        .router
        .run(&format!("chown -R frr:frr {}", folder.display()));
    let started = ["zebra", "bgpd"].map(|program| {
        let path = |end: &str| folder.join(end).to_str().unwrap().to_owned();
        let (config, pid) = (
            path(&format!("{program}.conf")),
            path(&format!("{program}.pid")),
        );
        let (api, vty) = (path("zserv.api"), path(""));
        let arguments = [
            "-f",
            &config,
            "-i",
            &pid,
            "-z",
            &api,
            "--vty_socket",
            &vty,
            "--log",
            "file:/dev/null",
        ];
        let path = programs.join(program);
        let running = network.router.start(path.to_str().unwrap(), &arguments);
        // bgpd that finds no zebra looks again after ten seconds, and refuses IPv6 updates till then.
        let started = Instant::now();
        while !folder.join("zserv.api").exists() {
            assert!(started.elapsed() < TIMEOUT, "zebra did not start");
            std::thread::sleep(Duration::from_millis(2));
        }
        running
    });
    Some(started)
}

#[test]
fn frr_chooses_and_chooses_anew() {
    let Some(network) = Network::new("frr").filter(|_| installed("bird")) else {
        return;
    };
    let Some(_router) = frr_router(&network, 1) else {
        return;
    };
    fail_over(&network, [1, 2].map(|n| network.announcer(n)), false);
}

#[test]
fn frr_shares_over_both() {
    let Some(network) = Network::new("frrs").filter(|_| installed("bird")) else {
        return;
    };
    let Some(_router) = frr_router(&network, 2) else {
        return;
    };
    fail_over(&network, [1, 2].map(|n| network.announcer(n)), true);
}
