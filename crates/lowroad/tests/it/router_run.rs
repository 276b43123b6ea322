//! The real binary routes between two hosts by what the kernel's tables say, filters, reads its
//! rules anew, answers questions, and stops.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::{Bed, Child};

use crate::router_topology::{TIMEOUT, answer, ask, serve_between, topology};

struct Rig {
    bed: Bed,
    folder: tempfile::TempDir,
    served: Child,
}

impl Rig {
    fn new(name: &str, datapath: &str, more: &str) -> Self {
        let bed = Bed::up(&topology(&["client", "server"]), name).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let router = bed.host("router").unwrap();
        let served = serve_between(router, &["client", "server"], folder.path(), datapath, more);
        Self {
            bed,
            folder,
            served,
        }
    }

    fn ask(&self, question: &[&str]) -> Output {
        ask(&self.folder.path().join("r.sock"), question)
    }

    fn answer(&self, question: &[&str]) -> Value {
        answer(&self.folder.path().join("r.sock"), question)
    }

    /// Packets that came to an end.
    fn packets(&self, end: &str) -> u64 {
        let status = self.answer(&["status"]);
        let packets = status["packets"].as_array().unwrap();
        let found = packets.iter().find(|packets| packets["end"] == end);
        found.map_or(0, |found| found["packets"].as_u64().unwrap())
    }

    /// Sends datagrams from the client until one arrives at the server.
    fn gets_through(&self, port: u16) {
        let server = self.bed.host("server").unwrap();
        let to = SocketAddr::new(server.interface("router").unwrap().v4, port);
        let receiver = server.run(|| UdpSocket::bind(to).unwrap()).unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let client = self.bed.host("client").unwrap();
        let sender = client
            .run(|| UdpSocket::bind("0.0.0.0:0").unwrap())
            .unwrap();
        let started = Instant::now();
        loop {
            sender.send_to(b"through", to).unwrap();
            if receiver.recv(&mut [0; 16]).is_ok() {
                return;
            }
            assert!(started.elapsed() < TIMEOUT, "nothing came to {to}");
        }
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(
                started.elapsed() < TIMEOUT,
                "{what}: {:#}",
                self.answer(&["status"])
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn packets_go_by_the_kernels_routes_and_the_rules() {
    if !sys::require::root() {
        return;
    }
    let rules = "[rules]\nfile = \"rules.csv\"\n";
    // The file stands beside the configuration, which is made with the rig.
    let refused = Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["router", "run", "--datapath", "xdp", "--interface", "lo"])
        .args(["--rules", "/nonexistent/rules.csv"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let mut rig = Rig::new("run-xdp", "xdp", "");
    rig.gets_through(7001);
    rig.until("forwarded in XDP", || {
        rig.gets_through(7001);
        rig.packets("forwarded") > 0
    });
    let status = rig.answer(&["status"]);
    assert_eq!(status["routes"]["sync"], "following");
    assert!(status["interfaces"][0]["attached"] == true, "{status}");
    let server = rig.bed.host("server").unwrap().interface("router").unwrap();
    let route = rig.answer(&["routes", &server.v4.to_string()]);
    assert_eq!(route["routes"][0]["prefix"], format!("{}/32", server.v4));
    let hops = String::from_utf8(rig.ask(&["next-hops"]).stdout).unwrap();
    assert!(hops.contains(&format!("via {} dev", server.v4)), "{hops}");
    let metrics = rig.bed.host("router").unwrap();
    assert!(metrics.interface("client").is_ok());
    // A blackhole of the kernel's is one here.
    let router = rig.bed.host("router").unwrap();
    let add = "ip route add blackhole 192.0.2.0/24";
    let added = router.run(|| Command::new("sh").args(["-c", add]).status().unwrap());
    assert!(added.unwrap().success());
    rig.until("a blackhole", || {
        let answer = rig.answer(&["routes", "192.0.2.1"]);
        answer["routes"][0]["to"] == "blackhole"
    });
    let status = rig.served.stop(TIMEOUT).unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(
        rig.ask(&["status"]).status.code(),
        Some(1),
        "nobody answers"
    );
    let check = rig.folder.path().join("c.toml");
    fs::write(
        &check,
        format!("[router]\ndatapath = \"xdp\"\ninterfaces = [\"a\"]\n{rules}"),
    )
    .unwrap();
    let wrong = Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["router", "run", "--check", "--config"])
        .arg(&check)
        .output()
        .unwrap();
    assert_eq!(
        wrong.status.code(),
        Some(2),
        "there are no rules: {wrong:?}"
    );
}

#[test]
fn threads_forward_and_filter_too() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.csv");
    let rules = "action,protocol,destination_ports\ndrop,udp,7002\n";
    fs::write(&file, rules).unwrap();
    let mut rig = Rig::new(
        "run-af-xdp",
        "af-xdp",
        &format!("threads = 1\n[rules]\nfile = {file:?}\n"),
    );
    rig.until("forwarded by a thread", || {
        rig.gets_through(7001);
        rig.packets("forwarded") > 0
    });
    let client = rig.bed.host("client").unwrap();
    let to = rig.bed.host("server").unwrap();
    let to = SocketAddr::new(to.interface("router").unwrap().v4, 7002);
    let sender = client
        .run(|| UdpSocket::bind("0.0.0.0:0").unwrap())
        .unwrap();
    rig.until("dropped by a rule", || {
        sender.send_to(b"stays", to).unwrap();
        rig.packets("dropped-by-rule") > 0
    });
    // Both are told of whole batches, one after the other.
    rig.until("as many by the rule", || {
        rig.answer(&["rules"])[0]["packets"] == rig.packets("dropped-by-rule")
    });
    let status = rig.answer(&["status"]);
    assert!(status["interfaces"][0]["attached"] == true, "{status}");
    assert!(rig.served.stop(TIMEOUT).unwrap().success());
}

#[test]
fn rules_are_read_anew_and_broken_ones_change_nothing() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.csv");
    let write = |text: &str| fs::write(&file, text).unwrap();
    let header = "action,protocol,destination_ports\n";
    write(&format!("{header}drop,udp,7002\n"));
    let rig = Rig::new("run-rules", "xdp", &format!("[rules]\nfile = {file:?}\n"));
    rig.gets_through(7001);
    assert_eq!(rig.answer(&["status"])["rules"]["ipv4"], 1);
    let rules = rig.answer(&["rules"]);
    assert!(
        rules[0]["text"].as_str().unwrap().contains("7002"),
        "{rules}"
    );
    write("action,protocol\nexplode,udp\n");
    let refused = rig.ask(&["reload"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("rules.csv:2"), "{said}");
    let status = rig.answer(&["status"]);
    assert_eq!(
        (&status["rules"]["ipv4"], &status["rules"]["failed_reloads"]),
        (&1.into(), &1.into())
    );
    rig.gets_through(7001);
    write(&format!("{header}drop,udp,7003\ndrop,udp,7004\n"));
    let reloaded = rig.ask(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    rig.gets_through(7002);
    assert!(rig.answer(&["status"])["rules"]["ipv4"] == 2);
    write(&format!("{header}drop,udp,7003\n"));
    let hangup = nix::unistd::Pid::from_raw(i32::try_from(rig.served.id()).unwrap());
    nix::sys::signal::kill(hangup, nix::sys::signal::Signal::SIGHUP).unwrap();
    rig.until("rules by SIGHUP", || {
        rig.answer(&["status"])["rules"]["ipv4"] == 1
    });
}

#[test]
fn the_kernel_can_be_the_datapath() {
    if !sys::require::root() {
        return;
    }
    let mut rig = Rig::new("run-kernel", "kernel", "");
    rig.gets_through(7001);
    let status = rig.answer(&["status"]);
    assert_eq!(status["datapath"], "kernel");
    assert!(
        status["routes"]["ipv4"]["prefixes"].as_u64().unwrap() > 4,
        "{status}"
    );
    assert!(rig.served.stop(TIMEOUT).unwrap().success());
}

#[test]
fn the_kernel_filters_by_the_same_rules() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.csv");
    let header = "action,protocol,destination_ports\n";
    let write = |rules: &str| fs::write(&file, format!("{header}{rules}")).unwrap();
    write("accept,udp,7001\ndrop,udp,7002\n");
    let rules = format!("[rules]\nfile = {file:?}\n");
    let mut rig = Rig::new("run-kernel-rules", "kernel", &rules);
    rig.gets_through(7001);
    let counted = |at: usize| rig.answer(&["rules"])[at]["packets"].as_u64().unwrap();
    assert!(counted(0) >= 1, "accepted");
    let client = rig.bed.host("client").unwrap();
    let server = rig.bed.host("server").unwrap();
    let to = SocketAddr::new(server.interface("router").unwrap().v4, 7002);
    let receiver = server.run(|| UdpSocket::bind(to).unwrap()).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let sender = client
        .run(|| UdpSocket::bind("0.0.0.0:0").unwrap())
        .unwrap();
    let dropped = |packets: u64| {
        sender.send_to(b"stays", to).unwrap();
        rig.until("dropped by a rule", || counted(1) >= packets);
        assert!(receiver.recv(&mut [0; 16]).is_err(), "it was dropped");
    };
    dropped(1);
    write("drop,udp,port\n");
    let refused = rig.ask(&["reload"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    dropped(2);
    drop(receiver);
    write("drop,udp,7003\n");
    assert!(rig.ask(&["reload"]).status.success());
    rig.gets_through(7002);
    assert_eq!(counted(0), 0);
    assert!(counted(1) >= 1, "no rule: accepted");
    let listed = || {
        let list = || Command::new("nft").args(["list", "tables"]).output();
        let listed = rig.bed.host("router").unwrap().run(list).unwrap().unwrap();
        String::from_utf8(listed.stdout).unwrap()
    };
    assert!(listed().contains("lowroad_router"), "{}", listed());
    assert!(rig.served.stop(TIMEOUT).unwrap().success());
    assert!(!listed().contains("lowroad_router"), "{}", listed());
}
