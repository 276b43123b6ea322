//! Rule sets of nftables become lists whose first match is what the kernel decides.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use acl::{Action, Key4, Key6, linear};
use router::config::{Batches, Config, Datapath, Rules};
use router::rules::{Hook, Options, RuleSet, read};
use router::service::Service;

use crate::common::programs::{Net, installed};

fn import(text: &str, hook: Hook) -> RuleSet {
    let options = Options {
        hook,
        ..Options::default()
    };
    read("test", text.as_bytes(), &options).unwrap()
}

/// What becomes of a packet, and of which rule or policy it is the doing.
fn decision(rules: &RuleSet, from: SocketAddr, to: SocketAddr, protocol: u8) -> (Action, &str) {
    let ports = (from.port(), to.port());
    let (action, id) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let key = Key4::new(from.to_bits(), to.to_bits(), ports, protocol);
            let rule = &rules.v4[linear(&rules.v4, &key).unwrap()];
            (rule.action, rule.id)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let key = Key6::new(from.to_bits(), to.to_bits(), ports, protocol);
            let rule = &rules.v6[linear(&rules.v6, &key).unwrap()];
            (rule.action, rule.id)
        }
        _ => unreachable!("of two families"),
    };
    (action, &rules.origins[id as usize].text)
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const V4: [&str; 5] = ["10.0.0.1", "10.0.0.5", "10.0.0.9", "10.0.1.1", "10.9.0.1"];
const V6: [&str; 4] = ["2001:db8::1", "2001:db8::9", "2001:db8:1::1", "2001:db9::1"];
const PORTS: [u16; 9] = [1022, 1023, 1024, 1080, 1085, 1090, 1091, 2000, 60_000];

const SETS: &str = "
    set plain { type ipv4_addr; elements = { 10.0.0.1, 10.9.0.1 comment \"one\" }
    }
    set nets { type ipv4_addr; flags interval; elements = { 10.0.0.0/29, 10.0.0.9-10.0.0.200 }
    }
    set nets6 { type ipv6_addr; flags interval; elements = { 2001:db8::/48, 2001:db9::1-2001:db9::5 }
    }
    set ports { type inet_service; flags interval; elements = { 1023, 1080-1090 }
    }
    set pairs { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/24 . 1024-1085, 10.0.1.1 . 2000 }
    }
    set three { type ipv4_addr . inet_proto . inet_service; elements = { 10.0.0.5 . udp . 1080, 10.0.0.5 . tcp . 1090 }
    }
    map verdicts { type inet_service : verdict; flags interval; elements = { 1022 : drop, 1080-1089 : jump b, 2000 : goto c }
    }
";

const MATCHES: [&str; 30] = [
    "",
    "counter",
    "ip saddr 10.0.0.0/24",
    "ip saddr != 10.0.0.5",
    "ip daddr 10.0.0.2-10.0.0.9",
    "ip saddr @plain",
    "ip daddr @nets",
    "ip saddr != @nets",
    "ip saddr { 10.0.0.1, 10.0.1.0/24 }",
    "ip saddr > 10.0.0.5",
    "ip protocol udp",
    "ip6 saddr 2001:db8::/32",
    "ip6 daddr @nets6",
    "ip6 saddr != @nets6",
    "ip6 nexthdr { tcp, udp }",
    "udp dport 1080",
    "udp dport != 1080-1090",
    "udp sport < 1024",
    "udp dport >= 1085",
    "udp dport @ports",
    "udp sport != { 1023, 2000-65535 }",
    "tcp dport 1080",
    "th dport { 1080, 1091 }",
    "th sport != 1023",
    "meta l4proto { 6-17 }",
    "meta l4proto != udp",
    "meta nfproto ipv6",
    "ip saddr . udp dport @pairs",
    "ip saddr . udp dport != @pairs",
    "ip daddr . meta l4proto . th dport @three",
];

/// Only the kernel knows them.
const KERNEL_MATCHES: [&str; 4] = [
    "udp length > 8",
    "meta length 0-1000",
    "ip ttl 64",
    "meta iifname \"lo\"",
];

/// Chains jump to later ones only.
fn rule(dice: &mut Dice, chain: usize) -> String {
    const MAPS: [&str; 5] = [
        "udp dport vmap @verdicts",
        "udp sport vmap { 1022 : accept, 1080-1085 : drop, 1090 : return, * : jump c }",
        "ip saddr vmap { 10.0.0.0/29 : jump b, 10.0.1.1 : drop }",
        "ip saddr . udp dport vmap { 10.0.0.1 . 1080 : accept, 10.0.0.5 . 1080 : goto c }",
        "meta nfproto vmap { ipv4 : jump c, ipv6 : continue }",
    ];
    let mut words = vec![dice.of(&MATCHES)];
    if dice.below(3) == 0 {
        words.push(dice.of(&MATCHES[..10]));
    }
    if dice.below(12) == 0 {
        words.push(dice.of(&KERNEL_MATCHES));
    }
    let verdicts = [
        "accept", "drop", "return", "jump b", "goto c", "jump c", "continue",
    ];
    words.push(match (chain, dice.below(4)) {
        (0, 0) => dice.of(&MAPS),
        (0, _) => dice.of(&verdicts),
        (1, _) => dice.of(&["accept", "drop", "return", "goto c"]),
        _ => dice.of(&["accept", "drop", "return"]),
    });
    words.join(" ")
}

/// One that nft loads: it refuses matches that exclude each other.
fn load(net: &Net, dice: &mut Dice) {
    let policy = dice.of(&["accept", "drop"]);
    let mut script = format!("table inet t {{ {SETS} chain c {{\n }}\n chain b {{\n }}\n");
    script += "chain a { type filter hook input priority 5; policy accept;\n }\n }\n";
    script += "table ip only { chain d { type filter hook input priority 0; policy ";
    script += &format!("{policy}; ip saddr 10.0.0.0/16 udp dport != 1091 accept\n }}\n }}\n");
    net.feed("nft flush ruleset; nft -f -", &script);
    for (chain, name, count) in [(2, "c", 3), (1, "b", 4), (0, "a", 9)] {
        for _ in 0..count {
            let rule = rule(dice, chain);
            net.feed(
                "while read -r rule; do nft \"$rule\" 2>&1 || true; done",
                &format!("add rule inet t {name} {rule}\n"),
            );
        }
    }
}

/// Whether a datagram comes to where it is sent; waits longer for one that should.
fn arrives(from: SocketAddr, to: SocketAddr, expected: bool) -> bool {
    let (sender, receiver) = (UdpSocket::bind(from).unwrap(), UdpSocket::bind(to).unwrap());
    let wait = Duration::from_millis(if expected { 30_000 } else { 10 });
    receiver.set_read_timeout(Some(wait)).unwrap();
    match sender.send_to(b"x", to) {
        Ok(_) => {}
        Err(refused) if refused.kind() == ErrorKind::PermissionDenied => return false,
        Err(error) => panic!("{from} to {to}: {error}"),
    }
    receiver.recv(&mut [0; 4]).is_ok()
}

#[test]
fn imported_rules_decide_as_the_kernel_does() {
    if !installed("nft") {
        return;
    }
    let Some(net) = Net::new("nft") else {
        return;
    };
    for address in V4.iter().chain(&V6) {
        let length = if address.contains(':') {
            "128 nodad"
        } else {
            "32"
        };
        let (length, option) = length.split_once(' ').unwrap_or((length, ""));
        net.run(&format!("ip addr add {address}/{length} dev lo {option}"));
    }
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut decided, mut dropped) = (0, 0);
    for _ in 0..12 {
        load(&net, &mut dice);
        let listing = net.run("nft -j list ruleset");
        let loaded = listing.matches("{\"rule\": ").count();
        assert!(loaded > 8, "nft took {loaded} rules of 17");
        let rules = import(&listing, Hook::Input);
        for _ in 0..40 {
            let pool = if dice.below(3) == 0 { &V6[..] } else { &V4[..] };
            let [from, to] = [(); 2].map(|()| {
                let address: IpAddr = dice.of(pool).parse().unwrap();
                SocketAddr::new(address, dice.of(&PORTS))
            });
            if from == to {
                continue;
            }
            let (action, origin) = decision(&rules, from, to, 17);
            if action == Action::Punt {
                continue;
            }
            let accepted = action == Action::Accept;
            let came = net.inside(|| arrives(from, to, accepted));
            assert_eq!(came, accepted, "{from} to {to} by {origin}\n{listing}");
            decided += 1;
            dropped += u32::from(!accepted);
        }
    }
    assert!(
        decided > 240 && dropped > 40 && decided - dropped > 40,
        "{decided} {dropped}"
    );
}

const IPTABLES_SAVE: &str = "*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:web - [0:0]
-A FORWARD ! -s 10.0.0.0/8 -d 192.0.2.9/32 -j ACCEPT
-A FORWARD -p tcp -m multiport --dports 80,443,8000:8010 -j web
-A FORWARD -m iprange --src-range 10.0.0.5-10.0.0.9 -p udp -j ACCEPT
-A FORWARD -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -j ACCEPT
-A FORWARD -p icmp -j REJECT --reject-with icmp-port-unreachable
-A web -s 10.9.0.0/16 -j RETURN
-A web -d 192.0.2.0/24 -j ACCEPT
COMMIT
";

/// The same.
const TWIN: &str = "table ip filter {
    chain web {
        ip saddr 10.9.0.0/16 return
        ip daddr 192.0.2.0/24 accept
    }
    chain FORWARD {
        type filter hook forward priority filter; policy drop;
        ip saddr != 10.0.0.0/8 ip daddr 192.0.2.9 accept
        tcp dport { 80, 443, 8000-8010 } jump web
        ip saddr 10.0.0.5-10.0.0.9 meta l4proto udp accept
        tcp dport 22 meta mark 7 accept
        meta l4proto icmp reject
    }
}
";

#[test]
fn a_rule_set_decides_as_its_twin_of_iptables() {
    if !installed("nft") {
        return;
    }
    let Some(net) = Net::new("nft-twin") else {
        return;
    };
    net.feed("nft -f -", TWIN);
    let rules = import(&net.run("nft -j list ruleset"), Hook::Forward);
    let twin = import(IPTABLES_SAVE, Hook::Forward);
    let mut dice = Dice(7);
    for _ in 0..20_000 {
        let source = dice.of(&["11.0.0.1", "10.0.0.4", "10.0.0.5", "10.0.0.9", "10.9.0.1"]);
        let destination = dice.of(&["192.0.2.8", "192.0.2.9", "192.0.3.0"]);
        let port = dice.of(&[22, 79, 80, 443, 7999, 8000, 8010, 8011]);
        let protocol = dice.of(&[1, 6, 17, 132]);
        let from = SocketAddr::new(source.parse().unwrap(), 40_000);
        let to = SocketAddr::new(destination.parse().unwrap(), port);
        let found = decision(&rules, from, to, protocol);
        assert_eq!(
            found.0,
            decision(&twin, from, to, protocol).0,
            "{from} {to} {protocol}: {found:?}"
        );
    }
    let notes: Vec<_> = rules.notes.iter().map(|note| note.what.as_str()).collect();
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes[0].starts_with("left to the kernel for meta mark: ip filter FORWARD handle "));
    assert!(notes[1].starts_with("left to the kernel for reject: ip filter FORWARD handle "));
    assert!(notes[2].ends_with("is for IPv6: no rules"));
}

/// Rules of both families, of which the last accepts: what a listing says of no rule is a policy.
fn random_table(dice: &mut Dice) -> String {
    let mut text = "action,source,destination,source_ports,destination_ports,protocol\n".to_owned();
    for _ in 0..200 {
        let nets: &[&str] = if dice.below(3) == 0 {
            &["", "2001:db8::/48", "2001:db8::1", "2001:db8:1::/64"]
        } else {
            &["", "10.0.0.0/29", "10.0.0.9", "10.0.0.0/16", "10.9.0.0/24"]
        };
        let ports = ["", "", "0-1023", "1080", "1085-1090", "2000-65535"];
        let cells = [
            dice.of(&["accept", "drop"]),
            dice.of(nets),
            dice.of(nets),
            dice.of(&ports),
            dice.of(&ports),
            dice.of(&["", "tcp", "udp", "icmp", "132", "47"]),
        ];
        text.push_str(&(cells.join(",") + "\n"));
    }
    text + "accept,,,,,\n"
}

#[test]
fn the_kernels_data_plane_decides_as_the_rules_do() {
    if !installed("nft") {
        return;
    }
    let Some(net) = Net::new("nft-plane") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.csv");
    let config = Config {
        datapath: Datapath::Kernel,
        interfaces: Vec::new(),
        xdp_mode: netdev::XdpMode::Native,
        threads: 1,
        batches: Batches::default(),
        ecmp_seed: None,
        bypass: Vec::new(),
        control: folder.path().join("r.sock"),
        http: None,
        table: None,
        rules: Some(Rules {
            file: file.clone(),
            options: Options::default(),
            punt_unsupported: false,
        }),
    };
    let mut service: Option<Service> = None;
    let mut dice = Dice(9);
    let (mut decided, mut dropped) = (0, 0);
    for _ in 0..4 {
        std::fs::write(&file, random_table(&mut dice)).unwrap();
        match &service {
            Some(service) => drop(net.inside(|| service.reload()).unwrap()),
            None => service = Some(net.inside(|| Service::start(config.clone())).unwrap()),
        }
        let asked = router::rules::open(&file, &Options::default()).unwrap();
        let mut listing: serde_json::Value =
            serde_json::from_str(&net.run("nft -j list ruleset")).unwrap();
        // Later fragments are told apart by what rules do not have.
        let items = listing["nftables"].as_array_mut().unwrap();
        items.retain(|item| !item["rule"].to_string().contains("frag-off"));
        let loaded = import(&listing.to_string(), Hook::Forward);
        for _ in 0..5000 {
            let pool = if dice.below(3) == 0 { &V6[..] } else { &V4[..] };
            let protocol = dice.of(&[1, 6, 17, 33, 47, 132, 136]);
            let with_ports = ![1, 47].contains(&protocol);
            let [from, to] = [(); 2].map(|()| {
                let port = if with_ports { dice.of(&PORTS) } else { 0 };
                SocketAddr::new(dice.of(pool).parse().unwrap(), port)
            });
            let wanted = decision(&asked, from, to, protocol);
            let found = decision(&loaded, from, to, protocol);
            if found.0 == Action::Punt {
                // Listings leave out whether IPv4's ICMP is meant in IPv4 only.
                continue;
            }
            assert_eq!(
                found.0, wanted.0,
                "{from} {to} {protocol}: {found:?} {wanted:?}"
            );
            decided += 1;
            dropped += u32::from(wanted.0 == Action::Drop);
        }
    }
    assert!(
        decided > 15_000 && dropped > 2000 && decided - dropped > 2000,
        "{decided} {dropped}"
    );
    net.inside(|| drop(service));
    let listed = || net.run("nft list ruleset");
    assert!(!listed().contains("lowroad"), "{}", listed());
    // What a router that was killed has left does not filter for one without rules.
    net.feed("nft -f -", "table inet lowroad_router {\n}\n");
    let bare = Config {
        rules: None,
        ..config
    };
    let service = net.inside(|| Service::start(bare)).unwrap();
    assert!(!listed().contains("lowroad"), "{}", listed());
    net.inside(|| drop(service));
}
