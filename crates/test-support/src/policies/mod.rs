//! Settings of the kernel that decide about packets, and how the packets of a relay and of a router fare under them.
//!
//! The commands name what they are about by words in capitals, which [`Names::fill`] replaces.

mod modules;

pub use modules::{optional, require};

/// What a namespace with a relay or a router calls things.
#[derive(Clone, Debug)]
pub struct Names {
    /// The devices that packets come by and leave by.
    pub ingress: String,
    pub egress: String,
    /// The addresses of the sender, of where its packets go, and of where they end, as IPv4 and IPv6.
    pub sender: [String; 2],
    pub destination: [String; 2],
    pub receiver: [String; 2],
    /// The machine's own addresses on the device that packets leave by.
    pub own: [String; 2],
    /// The UDP ports of packets that come in, and of those that leave.
    pub port: u16,
    pub receiver_port: u16,
}

impl Names {
    /// The command with the names in place.
    #[must_use]
    pub fn fill(&self, command: &str) -> String {
        let mut filled = command.to_owned();
        for (word, value) in [
            ("INDEV", &self.ingress),
            ("OUTDEV", &self.egress),
            ("SENDER4", &self.sender[0]),
            ("SENDER6", &self.sender[1]),
            ("DEST4", &self.destination[0]),
            ("DEST6", &self.destination[1]),
            ("RECEIVER4", &self.receiver[0]),
            ("RECEIVER6", &self.receiver[1]),
            ("OWN4", &self.own[0]),
            ("OWN6", &self.own[1]),
            ("PORT_OUT", &self.receiver_port.to_string()),
            ("PORT_IN", &self.port.to_string()),
        ] {
            filled = filled.replace(word, value);
        }
        filled
    }
}

/// How packets fare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They arrive, by the fast path.
    Fast,
    /// They arrive, by the kernel.
    Kernel,
    /// They do not arrive.
    Refused,
}
use Outcome::{Fast as F, Kernel as K, Refused as R};

/// Settings that hold at once.
#[derive(Clone, Debug)]
pub struct Case {
    pub apply: String,
    pub undo: String,
    /// As of a [`Policy`]; none where it is only known what the kernel does.
    pub router: Option<[Outcome; 2]>,
    pub relay: Option<[Outcome; 2]>,
}

/// Each policy alone.
#[must_use]
pub fn singles() -> Vec<Case> {
    POLICIES.iter().map(Policy::alone).collect()
}

/// Each policy once with another one, as far as both can hold at once.
#[must_use]
pub fn pairs() -> Vec<Case> {
    let (_legacy, others) = POLICIES.split_last().unwrap();
    let second = |at: usize| (1..others.len()).map(move |step| (at + 37 * step) % others.len());
    let pair = |at: usize| {
        let first = &others[at];
        let second = second(at)
            .map(|at| &others[at])
            .find(|second| goes_with(first, second))?;
        Some(Case {
            // Tables of two names.
            apply: format!("{}; {}", first.apply, second.apply.replace(" f {", " g {")),
            undo: format!("{}; {}", second.undo, first.undo),
            router: None,
            relay: None,
        })
    };
    (1..others.len()).filter_map(pair).collect()
}

/// Whether neither sets what the other one sets.
fn goes_with(first: &Policy, second: &Policy) -> bool {
    const KINDS: [&str; 6] = [
        "iptables",
        "xfrm",
        "rule add",
        "route add",
        "sysctl",
        "tc qdisc",
    ];
    let both = |kind: &str| first.apply.contains(kind) && second.apply.contains(kind);
    first.apply != second.apply && second.apply != "true" && !KINDS.iter().any(|kind| both(kind))
}

/// A setting, with what its packets come to.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// What a shell carries out.
    pub apply: &'static str,
    /// What takes it back.
    pub undo: &'static str,
    /// Ordinary datagrams through a router, by IPv4 and by IPv6.
    pub router: [Outcome; 2],
    /// Ordinary datagrams of a relay's stream.
    pub relay: [Outcome; 2],
}

impl Policy {
    fn alone(&self) -> Case {
        Case {
            apply: self.apply.to_owned(),
            undo: self.undo.to_owned(),
            router: Some(self.router),
            relay: Some(self.relay),
        }
    }
}

const fn rules(apply: &'static str, router: [Outcome; 2], relay: [Outcome; 2]) -> Policy {
    policy(apply, "nft flush ruleset", router, relay)
}

const fn policy(
    apply: &'static str,
    undo: &'static str,
    router: [Outcome; 2],
    relay: [Outcome; 2],
) -> Policy {
    Policy {
        apply,
        undo,
        router,
        relay,
    }
}

/// Every part of the kernel's policy, alone.
pub const POLICIES: &[Policy] = &[
    policy("true", "true", [F, F], [F, F]),
    // Packets to this machine.
    rules(
        "nft 'table inet f { chain i { type filter hook input priority 0; policy drop; ct state established,related accept; }; }'",
        [F, F],
        [R, R],
    ),
    rules(
        "nft 'table inet f { chain i { type filter hook input priority 0; policy drop; ct state established,related accept; ct state invalid drop; udp dport PORT_IN accept; }; }'",
        [F, F],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain i { type filter hook input priority 0; policy drop; ct state established,related accept; udp dport PORT_IN accept; }; }'",
        [F, F],
        [F, F],
    ),
    rules(
        "nft 'table ip f { chain i { type filter hook input priority 0; ip saddr SENDER4 reject; }; }'",
        [F, F],
        [R, F],
    ),
    rules(
        "nft 'table ip6 f { chain i { type filter hook input priority 0; ip6 saddr SENDER6 drop; }; }'",
        [F, F],
        [F, R],
    ),
    rules(
        "nft 'table inet f { chain i { type filter hook input priority 0; udp dport PORT_IN limit rate over 100000/second burst 1000 packets drop; }; }'",
        [F, F],
        [K, K],
    ),
    rules(
        "nft 'table inet f { set blocked { type ipv4_addr; elements = { 192.0.2.77, SENDER4 }; }; chain i { type filter hook input priority 0; ip saddr @blocked drop; }; }'",
        [F, F],
        [R, F],
    ),
    rules(
        "nft 'table inet f { chain i { type filter hook input priority 0; iifname vmap { \"INDEV\" : drop }; }; }'",
        [F, F],
        [R, R],
    ),
    rules(
        "nft 'table inet f { chain c { udp dport PORT_IN return; drop; }; chain i { type filter hook input priority 0; policy drop; jump c; accept; }; }'",
        [F, F],
        [F, F],
    ),
    // Packets of this machine.
    rules(
        "nft 'table inet f { chain o { type filter hook output priority 0; policy drop; }; }'",
        [F, F],
        [R, R],
    ),
    rules(
        "nft 'table inet f { chain o { type filter hook output priority 0; policy drop; meta l4proto { icmp, ipv6-icmp } accept; udp dport PORT_OUT accept; }; }'",
        [F, F],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain o { type filter hook output priority 0; meta skuid 0 meta l4proto udp drop; }; }'",
        [F, F],
        [R, R],
    ),
    // Packets through this machine.
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; policy drop; }; }'",
        [R, R],
        [F, F],
    ),
    rules(
        "nft 'table ip6 f { chain f { type filter hook forward priority 0; policy drop; }; }'",
        [F, R],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; policy drop; ct state established,related accept; iifname \"INDEV\" oifname \"OUTDEV\" accept; }; }'",
        [F, F],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; policy drop; udp dport PORT_IN accept; }; }'",
        [K, K],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; ct state invalid drop; }; }'",
        [K, K],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; ip saddr SENDER4 drop; }; }'",
        [R, F],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; ip6 daddr DEST6 drop; }; }'",
        [F, R],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; meta l4proto udp reject; }; }'",
        [R, R],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; limit rate over 100000/second burst 1000 packets drop; }; }'",
        [K, K],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; quota over 100 mbytes drop; }; }'",
        [K, K],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; counter accept; }; }'",
        [F, F],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain c { return; }; chain f { type filter hook forward priority 0; policy drop; goto c; }; }'",
        [R, R],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; ip ttl < 60 drop; ip6 hoplimit < 60 drop; }; }'",
        [K, K],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; ip6 hoplimit set 9; }; }'",
        [F, K],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; oifname vmap { \"OUTDEV\" : drop }; }; }'",
        [R, R],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; ip saddr . udp dport { SENDER4 . PORT_IN } drop; }; }'",
        [R, F],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain f { type filter hook forward priority 0; ip frag-off & 0x1fff != 0 drop; exthdr frag exists drop; }; }'",
        [K, K],
        [F, F],
    ),
    // Before routing.
    rules(
        "nft 'table inet f { chain p { type filter hook prerouting priority raw; policy drop; }; }'",
        [R, R],
        [R, R],
    ),
    rules(
        "nft 'table ip f { chain p { type filter hook prerouting priority raw; ip daddr DEST4 drop; }; }'",
        [R, F],
        [R, F],
    ),
    rules(
        "nft 'table ip6 f { chain p { type filter hook prerouting priority raw; udp dport PORT_IN drop; }; }'",
        [F, R],
        [F, R],
    ),
    rules(
        "nft 'table ip f { chain p { type nat hook prerouting priority -100; udp dport 4444 dnat to 192.0.2.1; }; }'",
        [K, F],
        [F, F],
    ),
    rules(
        "nft 'table ip f { chain p { type nat hook prerouting priority -100; udp dport PORT_IN dnat to 192.0.2.1; }; }'",
        [R, F],
        [R, F],
    ),
    rules(
        "nft 'table inet f { chain p { type filter hook prerouting priority -150; fib saddr . iif oif missing drop; }; }'",
        [K, K],
        [K, K],
    ),
    rules(
        "nft 'table inet f { chain p { type filter hook prerouting priority raw; udp dport PORT_IN notrack; }; }'",
        [K, K],
        [K, K],
    ),
    policy(
        "nft 'table inet f { chain p { type filter hook prerouting priority -150; meta mark set 7; }; }'; ip rule add fwmark 7 prohibit",
        "nft flush ruleset; ip rule del fwmark 7 prohibit",
        [R, K],
        [K, K],
    ),
    rules(
        "nft 'table ip f { chain p { type filter hook prerouting priority -150; meta l4proto udp tproxy to :9999; }; }'",
        [K, F],
        [K, F],
    ),
    // After routing.
    rules(
        "nft 'table ip f { chain p { type nat hook postrouting priority 100; ip saddr SENDER4 oifname \"OUTDEV\" masquerade; }; }'",
        [K, F],
        [F, F],
    ),
    rules(
        "nft 'table ip f { chain p { type nat hook postrouting priority 100; oifname \"wan*\" masquerade; }; }'",
        [F, F],
        [F, F],
    ),
    rules(
        "nft 'table inet f { chain p { type filter hook postrouting priority 0; udp dport PORT_OUT drop; }; }'",
        [R, R],
        [R, R],
    ),
    rules(
        "nft 'table ip6 f { chain p { type filter hook postrouting priority 0; oifname \"OUTDEV\" meta l4proto udp drop; }; }'",
        [F, R],
        [F, R],
    ),
    rules(
        "nft 'table ip f { chain p { type filter hook postrouting priority -150; ip dscp set cs3; }; }'",
        [K, F],
        [K, F],
    ),
    // Of devices.
    rules(
        "nft 'table netdev f { chain i { type filter hook ingress device \"INDEV\" priority 0; meta l4proto udp drop; }; }'",
        [R, R],
        [R, R],
    ),
    rules(
        "nft 'table netdev f { chain i { type filter hook ingress device \"INDEV\" priority 0; ip6 saddr SENDER6 drop; }; }'",
        [F, R],
        [F, R],
    ),
    rules(
        "nft 'table netdev f { chain i { type filter hook ingress device \"OUTDEV\" priority 0; meta l4proto udp drop; }; }'",
        [F, F],
        [F, F],
    ),
    rules(
        "nft 'table netdev f { chain e { type filter hook egress device \"OUTDEV\" priority 0; ip daddr RECEIVER4 drop; }; }'",
        [R, F],
        [R, F],
    ),
    rules(
        "nft 'table netdev f { chain e { type filter hook egress device \"INDEV\" priority 0; meta l4proto udp drop; }; }'",
        [F, F],
        [F, F],
    ),
    rules(
        // Of which family the table's rules see a packet before the network layer is not known.
        "nft 'table inet f { chain i { type filter hook ingress device \"INDEV\" priority 0; ip saddr SENDER4 drop; }; }'",
        [R, K],
        [R, K],
    ),
    // iptables.
    policy(
        "iptables-nft -A FORWARD -m conntrack --ctstate INVALID -j DROP",
        "nft flush ruleset",
        [K, F],
        [F, F],
    ),
    policy(
        "ip6tables-nft -P FORWARD DROP; ip6tables-nft -A FORWARD -i INDEV -o OUTDEV -j ACCEPT; iptables-nft -P FORWARD DROP",
        "nft flush ruleset",
        [R, F],
        [F, F],
    ),
    policy(
        "iptables-nft -P INPUT DROP; iptables-nft -A INPUT -p udp --dport PORT_IN -j ACCEPT",
        "nft flush ruleset",
        [F, F],
        [F, F],
    ),
    // IPsec.
    policy(
        "ip xfrm policy add src 0.0.0.0/0 dst 0.0.0.0/0 dir fwd action block",
        "ip xfrm policy flush",
        [R, F],
        [F, F],
    ),
    policy(
        "ip xfrm policy add src ::/0 dst ::/0 dir fwd action block",
        "ip xfrm policy flush",
        [F, R],
        [F, F],
    ),
    policy(
        "ip xfrm policy add src 0.0.0.0/0 dst DEST4/32 dir in action block",
        "ip xfrm policy flush",
        [F, F],
        [R, F],
    ),
    policy(
        "ip xfrm policy add src ::/0 dst ::/0 proto udp dir in action block",
        "ip xfrm policy flush",
        [F, F],
        [F, R],
    ),
    policy(
        "ip xfrm policy add src 0.0.0.0/0 dst RECEIVER4/32 dir out action block",
        "ip xfrm policy flush",
        [R, F],
        [R, F],
    ),
    policy(
        "ip xfrm policy add src ::/0 dst RECEIVER6/128 dir out action block",
        "ip xfrm policy flush",
        [F, R],
        [F, R],
    ),
    policy(
        "ip xfrm policy add src 203.0.113.0/24 dst 0.0.0.0/0 dir fwd action block; ip xfrm policy add src 203.0.113.0/24 dst 0.0.0.0/0 dir in action block",
        "ip xfrm policy flush",
        [K, F],
        [F, F],
    ),
    policy(
        "ip xfrm policy add src 0.0.0.0/0 dst 0.0.0.0/0 dir out action block; sysctl -qw net.ipv4.conf.OUTDEV.disable_xfrm=1",
        "ip xfrm policy flush; sysctl -qw net.ipv4.conf.OUTDEV.disable_xfrm=0",
        [K, F],
        [K, F],
    ),
    // Policy routing.
    policy(
        "ip rule add from SENDER4 lookup 100",
        "ip rule del from SENDER4 lookup 100",
        [K, F],
        [F, F],
    ),
    policy(
        "ip rule add from SENDER4 prohibit",
        "ip rule del from SENDER4 prohibit",
        [R, F],
        [F, F],
    ),
    policy(
        "ip -6 rule add iif INDEV blackhole",
        "ip -6 rule del iif INDEV blackhole",
        [F, R],
        [F, F],
    ),
    policy(
        "ip rule add to RECEIVER4 unreachable; ip -6 rule add to RECEIVER6 unreachable",
        "ip rule del to RECEIVER4 unreachable; ip -6 rule del to RECEIVER6 unreachable",
        [R, R],
        [R, R],
    ),
    policy(
        "ip rule add fwmark 7 prohibit",
        "ip rule del fwmark 7 prohibit",
        [K, F],
        [F, F],
    ),
    policy(
        "ip rule add ipproto udp dport PORT_OUT prohibit; ip -6 rule add ipproto udp dport PORT_OUT prohibit",
        "ip rule del ipproto udp dport PORT_OUT prohibit; ip -6 rule del ipproto udp dport PORT_OUT prohibit",
        [R, R],
        [R, R],
    ),
    policy(
        "ip rule add tos 0x10 prohibit",
        "ip rule del tos 0x10 prohibit",
        [K, F],
        [K, F],
    ),
    policy(
        "ip rule add oif OUTDEV prohibit",
        "ip rule del oif OUTDEV prohibit",
        [F, F],
        [F, F],
    ),
    policy(
        "ip rule add uidrange 0-0 to RECEIVER4 prohibit",
        "ip rule del uidrange 0-0 to RECEIVER4 prohibit",
        [R, F],
        [R, F],
    ),
    policy(
        "ip rule add pref 100 lookup main suppress_prefixlength 0",
        "ip rule del pref 100",
        [K, F],
        [F, F],
    ),
    policy(
        "ip rule add pref 100 lookup local; ip rule del pref 0",
        "ip rule add pref 0 lookup local; ip rule del pref 100",
        [K, F],
        [F, F],
    ),
    // Routes.
    policy(
        "ip route add blackhole RECEIVER4/32; ip -6 route add blackhole RECEIVER6/128",
        "ip route del blackhole RECEIVER4/32; ip -6 route del blackhole RECEIVER6/128",
        [R, R],
        [R, R],
    ),
    policy(
        "ip route add unreachable RECEIVER4/32; ip -6 route add prohibit RECEIVER6/128",
        "ip route del unreachable RECEIVER4/32; ip -6 route del prohibit RECEIVER6/128",
        [R, R],
        [R, R],
    ),
    policy(
        "ip route add throw RECEIVER4/32",
        "ip route del throw RECEIVER4/32",
        [R, F],
        [R, F],
    ),
    policy(
        "ip route add blackhole RECEIVER4/32 tos 0x10",
        "ip route del blackhole RECEIVER4/32 tos 0x10",
        [K, F],
        [K, F],
    ),
    policy(
        "ip -6 route add RECEIVER6/128 encap seg6 mode encap segs fd00::1 dev OUTDEV",
        "ip -6 route del RECEIVER6/128 dev OUTDEV",
        [F, R],
        [F, R],
    ),
    policy(
        "ip route add RECEIVER4/32 dev OUTDEV mtu lock 1300",
        "ip route del RECEIVER4/32 dev OUTDEV",
        [F, F],
        [F, F],
    ),
    // Settings.
    policy(
        "sysctl -qw net.ipv4.ip_forward=0",
        "sysctl -qw net.ipv4.ip_forward=1",
        [R, F],
        [F, F],
    ),
    policy(
        "sysctl -qw net.ipv4.conf.INDEV.forwarding=0",
        "sysctl -qw net.ipv4.conf.INDEV.forwarding=1",
        [R, F],
        [F, F],
    ),
    policy(
        "sysctl -qw net.ipv4.conf.OUTDEV.forwarding=0",
        "sysctl -qw net.ipv4.conf.OUTDEV.forwarding=1",
        [F, F],
        [F, F],
    ),
    policy(
        "sysctl -qw net.ipv6.conf.all.forwarding=0",
        "sysctl -qw net.ipv6.conf.all.forwarding=1",
        [F, R],
        [F, F],
    ),
    policy(
        "sysctl -qw net.ipv4.conf.INDEV.rp_filter=1",
        "sysctl -qw net.ipv4.conf.INDEV.rp_filter=0",
        [F, F],
        [K, F],
    ),
    policy(
        "sysctl -qw net.ipv4.conf.all.rp_filter=2",
        "sysctl -qw net.ipv4.conf.all.rp_filter=0",
        [F, F],
        [K, F],
    ),
    policy(
        "sysctl -qw net.ipv4.conf.INDEV.accept_local=1",
        "sysctl -qw net.ipv4.conf.INDEV.accept_local=0",
        [F, F],
        [F, F],
    ),
    policy(
        "sysctl -qw net.ipv4.conf.INDEV.route_localnet=1",
        "sysctl -qw net.ipv4.conf.INDEV.route_localnet=0",
        [F, F],
        [F, F],
    ),
    policy(
        "sysctl -qw net.ipv4.conf.INDEV.drop_unicast_in_l2_multicast=1 net.ipv6.conf.INDEV.drop_unicast_in_l2_multicast=1",
        "sysctl -qw net.ipv4.conf.INDEV.drop_unicast_in_l2_multicast=0 net.ipv6.conf.INDEV.drop_unicast_in_l2_multicast=0",
        [F, F],
        [F, F],
    ),
    policy(
        "sysctl -qw net.ipv4.conf.INDEV.bc_forwarding=1 net.ipv4.conf.all.bc_forwarding=1",
        "sysctl -qw net.ipv4.conf.INDEV.bc_forwarding=0 net.ipv4.conf.all.bc_forwarding=0",
        [F, F],
        [F, F],
    ),
    policy(
        "sysctl -qw net.ipv4.ip_default_ttl=33 net.ipv4.ip_forward_update_priority=0",
        "sysctl -qw net.ipv4.ip_default_ttl=64 net.ipv4.ip_forward_update_priority=1",
        [F, F],
        [F, F],
    ),
    // Traffic control.
    policy(
        "tc qdisc add dev INDEV ingress",
        "tc qdisc del dev INDEV ingress",
        [F, F],
        [F, F],
    ),
    policy(
        "tc qdisc add dev INDEV clsact; tc filter add dev INDEV ingress protocol ip pref 9 u32 match u32 0 0 action mirred egress redirect dev lo",
        "tc qdisc del dev INDEV clsact",
        [R, K],
        [R, K],
    ),
    policy(
        "tc qdisc add dev OUTDEV clsact; tc filter add dev OUTDEV egress protocol ipv6 pref 9 u32 match u8 17 0xff at 6 action mirred egress redirect dev lo",
        "tc qdisc del dev OUTDEV clsact",
        [K, R],
        [K, R],
    ),
    policy(
        "tc qdisc replace dev OUTDEV root pfifo limit 1000",
        "tc qdisc del dev OUTDEV root",
        [F, F],
        [F, F],
    ),
    policy(
        "tc qdisc replace dev OUTDEV root tbf rate 1gbit burst 100k latency 50ms",
        "tc qdisc del dev OUTDEV root",
        [K, K],
        [K, K],
    ),
    policy(
        "tc qdisc replace dev OUTDEV root handle 1: htb default 5; tc class add dev OUTDEV parent 1: classid 1:5 htb rate 1gbit",
        "tc qdisc del dev OUTDEV root",
        [K, K],
        [K, K],
    ),
    // The last: its table stays, and what its rules are the kernel does not tell.
    policy(
        "iptables-legacy -P FORWARD DROP",
        "iptables-legacy -P FORWARD ACCEPT",
        [R, F],
        [K, F],
    ),
];
