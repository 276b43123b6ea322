//! Policies by modules that not every kernel has. The Linux 6.1 guest has all of them.

use sys::kernel::Release;
use sys::require::{Class, skip};

use super::{Case, F, K, Policy, R, policy};

/// Each policy alone.
#[must_use]
pub fn optional() -> Vec<Case> {
    POLICIES.iter().map(Policy::alone).collect()
}

/// Says which cases the kernel could not apply.
///
/// # Panics
/// On Linux 6.1, which could have applied all.
pub fn require(cases: &[Case], unavailable: &[Case]) {
    if unavailable.is_empty() {
        return;
    }
    let release = Release::running().unwrap();
    let lines: Vec<&str> = unavailable.iter().map(|case| case.apply.as_str()).collect();
    let lines = lines.join("\n");
    assert_ne!(
        (release.major, release.minor),
        (6, 1),
        "not applied:\n{lines}"
    );
    let (unavailable, all) = (unavailable.len(), cases.len());
    let reason = format!("the kernel lacks the modules of {unavailable} of {all} policies");
    skip(Class::Hardware, &reason);
}

// A queueing discipline for filters: a kernel without tcx has one already where a datapath is attached.
const INGRESS: &str = "tc filter del dev INDEV ingress pref 9";
const EGRESS: &str = "tc filter del dev OUTDEV egress pref 9";
const ROOT: &str = "tc qdisc del dev OUTDEV root";
const XFRM: &str = "ip xfrm policy flush; ip xfrm state flush";

const POLICIES: &[Policy] = &[
    policy(
        "tc qdisc add dev INDEV clsact || true; tc filter add dev INDEV ingress pref 9 matchall action police rate 1gbit burst 1m conform-exceed drop",
        INGRESS,
        [K, K],
        [K, K],
    ),
    policy(
        "tc qdisc add dev INDEV clsact || true; tc filter add dev INDEV ingress pref 9 matchall action drop",
        INGRESS,
        [R, R],
        [R, R],
    ),
    policy(
        "tc qdisc add dev INDEV clsact || true; tc filter add dev INDEV ingress pref 9 protocol ip flower src_ip SENDER4 action drop",
        INGRESS,
        [R, K],
        [R, K],
    ),
    policy(
        "tc qdisc add dev INDEV clsact || true; tc filter add dev INDEV ingress pref 9 protocol ip matchall action skbedit mark 7; ip rule add fwmark 7 prohibit",
        "tc filter del dev INDEV ingress pref 9; ip rule del fwmark 7 prohibit",
        [R, K],
        [K, K],
    ),
    policy(
        "tc qdisc add dev OUTDEV clsact || true; tc filter add dev OUTDEV egress pref 9 matchall action police rate 1gbit burst 1m conform-exceed drop",
        EGRESS,
        [K, K],
        [K, K],
    ),
    policy(
        "tc qdisc add dev OUTDEV clsact || true; tc filter add dev OUTDEV egress pref 9 protocol ip matchall action pedit ex munge ip ttl set 9 pipe action csum ip",
        EGRESS,
        [K, K],
        [K, K],
    ),
    policy(
        "tc qdisc add dev OUTDEV clsact || true; tc filter add dev OUTDEV egress pref 9 protocol ipv6 flower dst_ip RECEIVER6 action drop",
        EGRESS,
        [K, R],
        [K, R],
    ),
    policy(
        "tc qdisc replace dev OUTDEV root fq_codel",
        ROOT,
        [F, F],
        [F, F],
    ),
    policy(
        "tc qdisc replace dev OUTDEV root handle 1: fq_codel; tc filter add dev OUTDEV parent 1: protocol ip pref 9 matchall action drop",
        ROOT,
        // What no filter classifies is dropped as well.
        [R, R],
        [R, R],
    ),
    policy("tc qdisc replace dev OUTDEV root fq", ROOT, [F, F], [F, F]),
    policy(
        "tc qdisc replace dev OUTDEV root fq maxrate 1gbit",
        ROOT,
        [K, K],
        [K, K],
    ),
    policy(
        "tc qdisc replace dev OUTDEV root cake bandwidth 1gbit",
        ROOT,
        [K, K],
        [K, K],
    ),
    policy(
        "tc qdisc replace dev OUTDEV root netem loss 100%",
        ROOT,
        [R, R],
        [R, R],
    ),
    // IPVS sends what comes for its service elsewhere, here back to the sender.
    policy(
        "ipvsadm -A -u DEST4:PORT_IN -s rr; ipvsadm -a -u DEST4:PORT_IN -r SENDER4:PORT_OUT -m",
        "ipvsadm -C",
        [K, K],
        [R, K],
    ),
    // Encapsulation: a receiver without MPLS or keys gets nothing.
    policy(
        "ip route add RECEIVER4/32 encap mpls 100 via RECEIVER4 dev OUTDEV onlink",
        "ip route del RECEIVER4/32 dev OUTDEV",
        [K, F],
        [R, F],
    ),
    policy(
        "ip -6 route add RECEIVER6/128 encap mpls 200 via RECEIVER6 dev OUTDEV onlink",
        "ip -6 route del RECEIVER6/128 dev OUTDEV",
        [F, K],
        [F, R],
    ),
    policy(
        "ip xfrm state add src OWN4 dst RECEIVER4 proto esp spi 0x100 mode tunnel enc 'cbc(aes)' 0x000102030405060708090a0b0c0d0e0f auth 'hmac(sha256)' 0x000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f; ip xfrm policy add src 0.0.0.0/0 dst RECEIVER4/32 dir out tmpl src OWN4 dst RECEIVER4 proto esp mode tunnel",
        XFRM,
        [R, F],
        [R, F],
    ),
    policy(
        "ip xfrm state add src OWN6 dst RECEIVER6 proto esp spi 0x100 mode tunnel enc 'cbc(aes)' 0x000102030405060708090a0b0c0d0e0f auth 'hmac(sha256)' 0x000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f; ip xfrm policy add src ::/0 dst RECEIVER6/128 dir out tmpl src OWN6 dst RECEIVER6 proto esp mode tunnel",
        XFRM,
        [F, R],
        [F, R],
    ),
    policy(
        "ip xfrm policy add src 0.0.0.0/0 dst DEST4/32 dir in tmpl src SENDER4 dst DEST4 proto esp mode transport",
        XFRM,
        [F, F],
        [R, F],
    ),
    policy(
        "ip xfrm policy add src ::/0 dst ::/0 dir fwd tmpl proto esp mode tunnel",
        XFRM,
        [F, R],
        [F, F],
    ),
    policy(
        "ip xfrm policy add src 0.0.0.0/0 dst 0.0.0.0/0 dir fwd tmpl proto esp mode tunnel level use",
        XFRM,
        [K, F],
        [F, F],
    ),
    // A device in a VRF. Addresses that a device keeps are looked for by their owners again for a second. What leaves by
    // a device of a VRF is found by no program outside it; its neighbours are forgotten, so this comes last.
    policy(
        "sysctl -qw net.ipv6.conf.INDEV.keep_addr_on_down=1; ip link add vrf9 type vrf table 50; ip link set vrf9 up; ip link set INDEV master vrf9; sleep 3",
        "ip link set INDEV nomaster; ip link del vrf9; sleep 3",
        [K, K],
        [R, R],
    ),
    policy(
        "sysctl -qw net.ipv6.conf.OUTDEV.keep_addr_on_down=1; ip link add vrf9 type vrf table 50; ip link set vrf9 up; ip link set OUTDEV master vrf9; sleep 3",
        "ip link set OUTDEV nomaster; ip link del vrf9; sleep 3",
        [R, R],
        [R, R],
    ),
];
