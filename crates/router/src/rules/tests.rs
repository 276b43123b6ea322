//! Rule sets that cost more than they may, with budgets that are small, so that small sets do.

use std::io::Read as _;

use acl::{Action, Key4, linear};

use super::*;

fn within(text: &str, divisor: u64) -> Result<RuleSet, String> {
    let budget = Budget::with_divisor(divisor);
    let set = import(text.as_bytes(), &Options::default(), &budget);
    set.map_err(|fault| fault.of("test").to_string())
}

/// Why a set is refused that costs more than so small a budget.
fn refusal(text: &str, divisor: u64) -> String {
    within(text, divisor).unwrap_err()
}

/// A listing whose chains jump twice to the next one; the last drops.
fn listed_jumps(depth: usize) -> String {
    let chain = |at: usize, more: &str| {
        format!(
            r#",{{"chain":{{"family":"inet","table":"f","name":"c{at}","handle":{at}{more}}}}}"#
        )
    };
    let rule = |at: usize, what: &str| {
        format!(
            r#",{{"rule":{{"family":"inet","table":"f","chain":"c{at}","handle":9,"expr":[{what}]}}}}"#
        )
    };
    let mut text = r#"{"nftables":[{"table":{"family":"inet","name":"f"}}"#.to_owned();
    text += &chain(
        0,
        r#","type":"filter","hook":"forward","prio":0,"policy":"accept""#,
    );
    for at in 1..=depth {
        text += &chain(at, "");
    }
    for at in 0..depth {
        let jump = format!(r#"{{"jump":{{"target":"c{}"}}}}"#, at + 1);
        text += &rule(at, &jump).repeat(2);
    }
    text + &rule(depth, r#"{"drop":null}"#) + "]}"
}

fn saved_jumps(depth: usize, way: &str) -> String {
    let mut text = "*filter\n:FORWARD ACCEPT [0:0]\n".to_owned();
    for at in 1..=depth {
        text += &format!(":c{at} - [0:0]\n");
    }
    text += &format!("-A FORWARD {way} c1\n").repeat(2);
    for at in 1..depth {
        text += &format!("-A c{at} {way} c{}\n", at + 1).repeat(2);
    }
    text + &format!("-A c{depth} -p tcp -j DROP\nCOMMIT\n")
}

#[test]
fn chains_that_jump_twice_to_the_next_are_compiled_once() {
    for text in [
        listed_jumps(40),
        saved_jumps(40, "-j"),
        saved_jumps(40, "-g"),
    ] {
        let set = within(&text, 1 << 8).unwrap();
        assert!(set.v4.len() < 200, "{}", set.v4.len());
        let key = Key4::new(1, 2, (3, 4), 6);
        let rule = &set.v4[linear(&set.v4, &key).unwrap()];
        assert_eq!(rule.action, Action::Drop);
    }
}

#[test]
fn base_chains_that_accept_much_are_compiled_once() {
    let mut text = String::new();
    for (table, chain) in [
        ("raw", "PREROUTING"),
        ("mangle", "PREROUTING"),
        ("nat", "PREROUTING"),
        ("filter", "FORWARD"),
        ("security", "FORWARD"),
    ] {
        text += &format!("*{table}\n:{chain} ACCEPT [0:0]\n");
        text += &format!("-A {chain} -j ACCEPT\n").repeat(50);
        text += "COMMIT\n";
    }
    let set = within(&text, 1 << 8).unwrap();
    assert!(set.v4.len() < 300, "{}", set.v4.len());
}

#[test]
fn products_are_refused_with_their_line() {
    let mut ranges = "action,source,destination\n".to_owned();
    for at in 1..=300 {
        let range = |from: u32| format!("::{from:x}-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe");
        ranges += &format!("drop,{},{}\n", range(at), range(1));
    }
    let said = refusal(&ranges, 1);
    let (line, what) = said.strip_prefix("test:").unwrap().split_once(':').unwrap();
    assert!((2..=300).contains(&line.parse::<u32>().unwrap()), "{said}");
    assert!(what.contains(" MiB of memory") && what.contains("split the file"));
    let objects = ranges.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let (source, destination) = (cells[1], cells[2]);
        format!(r#"{{"action":"drop","source":"{source}","destination":"{destination}"}}"#)
    });
    let objects = objects.collect::<Vec<_>>().join(",");
    assert!(refusal(&format!("[{objects}]"), 1).starts_with("test at entry "));
    let either = "-m multiport --ports 1,3,5 ".repeat(40);
    let ports = format!("*filter\n:FORWARD DROP [0:0]\n-A FORWARD {either}-j DROP\nCOMMIT\n");
    assert!(refusal(&ports, 1 << 8).starts_with("test:3: up to here the file needs more than"));
}

#[test]
fn chains_that_cut_packets_are_refused_with_their_rule() {
    let mut text = "*filter\n:FORWARD DROP [0:0]\n:a - [0:0]\n".to_owned();
    for at in 0..200 {
        text += &format!("-A a -s 10.0.{at}.1/32 -d 10.{at}.0.1/32 -j RETURN\n");
    }
    let mut nested = String::new();
    for at in 0..200 {
        nested += &format!("-A FORWARD -p tcp -m tcp --dport {at} -g a\n");
    }
    let said = refusal(&format!("{text}{nested}COMMIT\n"), 1 << 8);
    assert!(said.starts_with("test:"), "{said}");
    assert!(
        said.contains("up to here the file needs more than"),
        "{said}"
    );
}

#[test]
fn sets_that_many_rules_name_are_refused_at_one_of_them() {
    let elements: Vec<String> = (0..2000_u32)
        .map(|at| format!("\"10.{}.{}.1\"", at >> 8, at & 255))
        .collect();
    let mut text = format!(
        r#"{{"nftables":[{{"table":{{"family":"ip","name":"f"}}}},{{"chain":{{"family":"ip","table":"f","name":"c","type":"filter","hook":"forward","prio":0,"policy":"accept"}}}},{{"set":{{"family":"ip","name":"s","table":"f","type":"ipv4_addr","elem":[{}]}}}}"#,
        elements.join(",")
    );
    for handle in 0..500 {
        text += &format!(
            r#",{{"rule":{{"family":"ip","table":"f","chain":"c","handle":{handle},"expr":[{{"match":{{"op":"==","left":{{"payload":{{"protocol":"ip","field":"saddr"}}}},"right":"@s"}}}},{{"match":{{"op":"!=","left":{{"payload":{{"protocol":"ip","field":"daddr"}}}},"right":"@s"}}}},{{"drop":null}}]}}}}"#
        );
    }
    text += "]}";
    let said = refusal(&text, 1 << 4);
    assert!(said.starts_with("test at entry "), "{said}");
    assert!(
        said.contains("up to here the file needs more than"),
        "{said}"
    );
}

#[test]
fn listings_are_taken_entry_by_entry() {
    let packed = |text: &str| {
        let mut packed = Vec::new();
        flate2::read::GzEncoder::new(text.as_bytes(), flate2::Compression::best())
            .read_to_end(&mut packed)
            .unwrap();
        packed
    };
    let refused = |text: &str, divisor| {
        let budget = Budget::with_divisor(divisor);
        let set = import(&*packed(text), &Options::default(), &budget);
        set.unwrap_err().of("test").to_string()
    };
    let filters = "@1.0.0.0/8 2.0.0.0/8 0 : 1 0 : 1 0x06/0xFF\n".repeat(9000);
    let said = refused(&filters, 1 << 8);
    assert!(
        said.starts_with("test:") && said.contains(" MiB of memory"),
        "{said}"
    );
    let empty = "{\"metainfo\":{}},".repeat(20_000);
    // What is not kept takes no memory, however often it comes.
    let said = refused(
        &format!("{{\"nftables\":[{empty}{{\"metainfo\":{{}}}}]}}"),
        1 << 6,
    );
    assert_eq!(said, "test: no chain that packets of this hook pass");
    let elements = "0,".repeat(200_000);
    let set = format!(
        r#"{{"nftables":[{{"table":{{"family":"ip","name":"f"}}}},{{"set":{{"family":"ip","name":"s","table":"f","type":"ipv4_addr","elem":[{elements}0]}}}}]}}"#
    );
    let said = refused(&set, 1 << 6);
    assert!(said.starts_with("test at entry 2: up to here"), "{said}");
    let other = refusal(r#"{"nftables":[],"more":[]}"#, 1);
    assert!(other.contains("\"more\" beside \"nftables\""), "{other}");
    let twice = refusal(
        r#"{"nftables":[{"table":{"family":"ip","family":"ip6"}}]}"#,
        1,
    );
    assert!(twice.contains("\"family\" is there twice"), "{twice}");
}
