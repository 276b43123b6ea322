//! What running programs write is read: iproute2, BIRD and, recorded, FRR.

use router::routes::{Format, Options, read};

use crate::common::programs::{Net, installed};
use crate::common::{import, refusal, written};

const ROUTES: &str = "route add default via 192.0.2.1
route add 10.0.0.0/8 via 192.0.2.2 metric 20
route add 10.0.0.0/8 via 192.0.2.3 metric 10
route add 10.1.0.0/16 nexthop via 192.0.2.4 weight 2 nexthop via 192.0.2.5
route add 10.2.0.0/16 dev dummy0 src 192.0.2.254 mtu 1400
route add 10.3.3.3 via inet6 2001:db8:f::9 dev dummy0
route add blackhole 10.4.0.0/16
route add unreachable 10.5.0.0/16
route add prohibit 10.6.0.0/16
route add throw 10.7.0.0/16
route add 10.8.0.0/16 via 192.0.2.1 table 100
route add ::/0 via 2001:db8:f::2
route add 2001:db8:1::/48 nexthop via 2001:db8:f::3 nexthop via 2001:db8:f::4
route add unreachable 2001:db8:2::/48
";

#[test]
fn what_ip_route_writes_is_read_alike_as_text_and_json() {
    let Some(net) = Net::new("ip") else { return };
    net.feed("ip -batch -", ROUTES);
    let v4 = [
        "0.0.0.0/0 via 192.0.2.1 dev dummy0",
        "10.0.0.0/8 via 192.0.2.3 dev dummy0",
        "10.1.0.0/16 via 192.0.2.4 dev dummy0 weight 2, via 192.0.2.5 dev dummy0",
        "10.2.0.0/16 dev dummy0",
        "10.3.3.3/32 via 2001:db8:f::9 dev dummy0",
        "10.4.0.0/16 blackhole",
        "10.5.0.0/16 unreachable",
        "10.6.0.0/16 prohibit",
        // The kernel goes on in other tables.
        "10.7.0.0/16 kernel",
        "192.0.2.0/24 dev dummy0",
    ];
    for (command, format) in [
        ("ip route", Format::IpRoute),
        ("ip -j route", Format::IpRouteJson),
    ] {
        let imported = import(net.run(command));
        assert_eq!(imported.report.format, format);
        assert_eq!(written(&imported), v4);
        assert_eq!(imported.report.duplicates.worse, 1);
        assert_eq!(imported.report.left_out, []);
    }
    for command in ["ip -6 route", "ip -j -6 route"] {
        let lines = written(&import(net.run(command)));
        for line in [
            "::/0 via 2001:db8:f::2 dev dummy0",
            "2001:db8:1::/48 via 2001:db8:f::3 dev dummy0, via 2001:db8:f::4 dev dummy0",
            "2001:db8:2::/48 unreachable",
        ] {
            assert!(
                lines.iter().any(|found| found == line),
                "{line} in {lines:?}"
            );
        }
    }
    for command in ["ip route show table all", "ip -j route show table all"] {
        let all = import(net.run(command));
        let lines = written(&all);
        assert!(
            lines.contains(&"192.0.2.254/32 kernel".to_owned()),
            "{lines:?}"
        );
        assert!(!lines.iter().any(|line| line.starts_with("10.8.")));
        let options = Options {
            table: Some("100".into()),
            ..Options::default()
        };
        let one = read("test", net.run(command).as_bytes(), &options).unwrap();
        assert_eq!(written(&one), ["10.8.0.0/16 via 192.0.2.1 dev dummy0"]);
    }
}

#[test]
fn the_first_of_equal_routes_is_the_one_that_the_kernel_uses() {
    let Some(net) = Net::new("ip-equal") else {
        return;
    };
    net.feed(
        "ip -batch -",
        "route add 10.0.0.0/8 via 192.0.2.1\nroute append 10.0.0.0/8 via 192.0.2.2\n\
         route prepend 10.0.0.0/8 via 192.0.2.3\nroute append 10.1.0.0/16 via 192.0.2.4 metric 5\n\
         route append 10.1.0.0/16 via 192.0.2.5 metric 5\nroute append 10.1.0.0/16 via 192.0.2.6\n\
         route add 192.0.2.254/32 via 192.0.2.9\n",
    );
    let used = |to: &str| net.run(&format!("ip route get {to}"));
    assert!(used("10.0.0.1").contains("via 192.0.2.3"));
    assert!(used("10.1.0.1").contains("via 192.0.2.6"));
    assert!(used("192.0.2.254").starts_with("local 192.0.2.254"));
    for command in [
        "ip -4 route show table all",
        "ip -j -4 route show table all",
    ] {
        let imported = import(net.run(command));
        let lines = written(&imported);
        for line in [
            "10.0.0.0/8 via 192.0.2.3 dev dummy0",
            "10.1.0.0/16 via 192.0.2.6 dev dummy0",
            "192.0.2.254/32 kernel",
        ] {
            let found = lines.iter().any(|found| found == line);
            assert!(found, "{line} in {lines:?}");
        }
        let duplicates = imported.report.duplicates;
        assert_eq!((duplicates.behind, duplicates.replaced), (2, 0));
    }
}

#[test]
fn default_routes_of_devices_are_told_apart() {
    let Some(net) = Net::new("ip-default") else {
        return;
    };
    net.feed(
        "ip -batch -",
        "route add default dev dummy0\nroute add 198.51.100.0/24 via 192.0.2.1 mtu lock 1300 advmss 1200\n",
    );
    let defaults = |lines: &[String]| {
        let defaults = lines.iter().filter(|line| line.contains("/0 "));
        defaults.cloned().collect::<Vec<_>>()
    };
    let v4 = "0.0.0.0/0 dev dummy0".to_owned();
    let all = ["ip route show table all", "ip -j route show table all"];
    for command in all {
        let lines = written(&import(net.run(command)));
        assert_eq!(defaults(&lines).join(" "), v4, "{command}");
        let locked = "198.51.100.0/24 via 192.0.2.1 dev dummy0".to_owned();
        assert!(lines.contains(&locked), "{lines:?}");
    }
    net.run("ip -6 route add default dev dummy0");
    for command in all {
        let lines = written(&import(net.run(command)));
        assert_eq!(
            defaults(&lines),
            [v4.clone(), "::/0 dev dummy0".to_owned()],
            "{command}"
        );
    }
    let kernel = net.inside(|| router::listing::routes(&Options::default()).unwrap());
    assert_eq!(
        defaults(&written(&kernel)),
        [v4, "::/0 dev dummy0".to_owned()]
    );
}

#[test]
fn words_of_routes_that_do_not_matter_are_passed_over() {
    let imported = import(
        "default dev ppp0 scope link\n\
         10.0.0.0/8 via 192.0.2.1 dev eth0 mtu lock 1300 rto_min lock 40ms features ecn tcp_usec_ts 0x9 window 9\n\
         10.1.0.0/16 dev eth0 proto kernel scope link src 10.1.0.1 ttl-propagate enabled fastopen_no_cookie 1\n\
         default via inet6 fe80::1 dev eth0 metric 9\n\
         2001:db8::/32 dev eth0 metric 1024 pref medium\n\
         default dev eth0 metric 1024 pref medium\n",
    );
    assert_eq!(
        written(&imported),
        [
            "0.0.0.0/0 dev ppp0",
            "10.0.0.0/8 via 192.0.2.1 dev eth0",
            "10.1.0.0/16 dev eth0",
            "::/0 dev eth0",
            "2001:db8::/32 dev eth0",
        ]
    );
    assert_eq!(imported.report.duplicates.worse, 1);
    // Between routes of one family stands a default route of it.
    let between =
        import("10.0.0.0/8 dev a proto 3\n::/1 dev a\ndefault dev b metric 1\n8000::/1 dev a\n");
    assert!(written(&between).contains(&"::/0 dev b".to_owned()));
}

const BIRD: &str = r#"
router id 192.0.2.254;
protocol device { }
protocol static one {
    ipv4;
    route 0.0.0.0/0 via 192.0.2.1;
    route 10.1.0.0/16 via 192.0.2.2 weight 2 via 192.0.2.3;
    route 10.2.0.0/16 blackhole;
    route 10.3.0.0/16 unreachable;
    route 10.4.0.0/16 prohibit;
    route 10.5.5.5/32 via "dummy0";
}
protocol static two {
    ipv4 { preference 100; };
    route 10.1.0.0/16 via 192.0.2.9;
}
protocol static three {
    ipv6;
    route 2001:db8:1::/48 via 2001:db8:f::2;
    route ::/0 via fe80::1%dummy0;
}
ipv4 table second;
protocol static four {
    ipv4 { table second; };
    route 10.9.0.0/16 via 192.0.2.1;
}
"#;

#[test]
fn what_bird_writes_is_read() {
    if !installed("bird") {
        return;
    }
    let Some(net) = Net::new("bird") else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    std::fs::write(folder.path().join("bird.conf"), BIRD).unwrap();
    net.run(&format!(
        "bird -c {at}/bird.conf -s {at}/socket -P {at}/pid"
    ));
    let birdc = |command: &str| net.run(&format!("birdc -s {at}/socket '{command}'"));
    // Routes become reachable when BIRD has seen the devices.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !birdc("show route").contains("via fe80::1") {
        assert!(std::time::Instant::now() < deadline, "BIRD has no routes");
    }
    let expected = [
        "0.0.0.0/0 via 192.0.2.1 dev dummy0",
        "10.1.0.0/16 via 192.0.2.2 dev dummy0 weight 2, via 192.0.2.3 dev dummy0",
        "10.2.0.0/16 blackhole",
        "10.3.0.0/16 unreachable",
        "10.4.0.0/16 prohibit",
        "10.5.5.5/32 dev dummy0",
        "::/0 via fe80::1 dev dummy0",
        "2001:db8:1::/48 via 2001:db8:f::2 dev dummy0",
    ];
    let outputs = ["show route", "show route all", "show route table all"].map(birdc);
    let other = Options {
        table: Some("second".into()),
        ..Options::default()
    };
    let other = read("test", outputs[2].as_bytes(), &other);
    birdc("down");
    for output in outputs {
        let imported = import(&output);
        assert_eq!(imported.report.format, Format::Bird);
        assert_eq!(written(&imported), expected, "{output}");
        let why = "a route that is not the best of its prefix";
        assert!(
            imported
                .report
                .left_out
                .iter()
                .any(|left| left.why == why && left.count == 1)
        );
    }
    assert_eq!(
        written(&other.unwrap()),
        ["10.9.0.0/16 via 192.0.2.1 dev dummy0"]
    );
}

#[test]
fn what_frr_wrote_is_read() {
    let imported = import(include_str!("../data/frr.json"));
    assert_eq!(imported.report.format, Format::FrrJson);
    assert_eq!(
        written(&imported),
        [
            "10.0.0.0/8 via 192.0.2.1 dev dummy0",
            "10.1.0.0/16 via 192.0.2.2 dev dummy0, via 192.0.2.3 dev dummy0",
            "10.2.0.0/16 blackhole",
            "10.3.0.0/16 unreachable",
            "10.4.0.0/16 via 192.0.2.1 dev dummy0",
            "192.0.2.0/24 dev dummy0",
        ]
    );
    let v6 = import(include_str!("../data/frr6.json"));
    let lines = written(&v6);
    assert!(
        lines.contains(&"2001:db8:1::/48 via 2001:db8:f::2 dev dummy0".to_owned()),
        "{lines:?}"
    );
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, what) in [
        (
            "default via 192.0.2.1 dev eth0\n10.0.0.0/8 via 192.0.2 dev eth0",
            "test:2: \"192.0.2\" is no address of a next hop",
        ),
        (
            "10.0.0.0/8 via 192.0.2.1 dev",
            "test:1: nothing behind \"dev\"",
        ),
        ("default dev eth0", "test at line 1"),
        (
            "10.0.0.0/8 dev a proto 3\ndefault dev a metric 1\n2001::/32 dev a\n",
            "test:2: a default route of which nothing says the family",
        ),
        (
            "10.0.0.0/8 dev eth0 frobnicate",
            "test:1: \"frobnicate\" is no word of a route",
        ),
        (
            "default proto static\n\tnexthop via 1.1.1 dev eth0",
            "test:2: ",
        ),
        (
            "[{\"dst\":\"10.0.0.0/8\",\n\"dev\":\"eth0\"},\n{\"dst\":\"10.0.0.0/40\"}]",
            "test:3: a prefix of 40 bits",
        ),
        ("[{\"dst\":\"10.0.0.0/8\"", "test:1: EOF while parsing"),
        (
            "{\"10.0.0.0/8\":\n[{\"selected\":1}]}",
            "test:2: invalid type",
        ),
        (
            "{\"default\":{}}",
            "test:1: \"default\" is not a prefix: give the routes of one VRF",
        ),
        (
            "Table master4:\n10.0.0.0/8 unicast [a 1] * (200)\n\tvia x on eth0\n",
            "test:3: \"x\" is no address",
        ),
        (
            "Table master4:\n10.0.0.0/8 unicast [a 1] * (200)\n",
            "test:2: a unicast route without a next hop",
        ),
        (
            "Table master4:\n   unicast [a 1] * (200)\n",
            "test:2: a route without a prefix before it",
        ),
    ] {
        let said = refusal(text);
        let what = what.replace(
            "test at line 1",
            "test:1: a default route of which nothing says the family",
        );
        assert!(said.starts_with(&what), "{said}\n{what}");
    }
}
