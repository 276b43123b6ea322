//! Listings of nftables: what is said, left to the kernel, and refused.

use acl::{Action, Key4, Key6, linear};
use router::rules::{Hook, Options, RuleSet, read};

/// A listing of one table with a chain `c` on the way of forwarded packets.
fn listing(entries: &str, rules: &[&str]) -> String {
    let rule = |(handle, expressions): (usize, &&str)| {
        format!(
            r#",{{"rule":{{"family":"inet","table":"f","chain":"c","handle":{handle},"expr":[{expressions}]}}}}"#
        )
    };
    let rules: String = (5..).zip(rules).map(rule).collect();
    format!(
        r#"{{"nftables":[{{"metainfo":{{"json_schema_version":1}}}},{{"table":{{"family":"inet","name":"f"}}}},{{"chain":{{"family":"inet","table":"f","name":"c","type":"filter","hook":"forward","prio":0,"policy":"accept"}}}}{entries}{rules}]}}"#
    )
}

fn import(text: &str) -> RuleSet {
    read("test", text.as_bytes(), &Options::default()).unwrap()
}

fn refusal(text: &str) -> String {
    let refused = read("test", text.as_bytes(), &Options::default());
    refused.unwrap_err().to_string()
}

/// What becomes of a packet from 10.0.0.1, or from 2001:db8::1.
fn decided(rules: &RuleSet, v6: bool, port: u16, protocol: u8) -> Action {
    let ports = (40_000, port);
    if v6 {
        let key = Key6::new(0x2001_0db8 << 96 | 1, 1, ports, protocol);
        rules.v6[linear(&rules.v6, &key).unwrap()].action
    } else {
        let key = Key4::new(0x0a00_0001, 1, ports, protocol);
        rules.v4[linear(&rules.v4, &key).unwrap()].action
    }
}

const WEB: &str =
    r#"{"match":{"op":"==","left":{"payload":{"protocol":"tcp","field":"dport"}},"right":80}}"#;
const FROM: &str =
    r#"{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"saddr"}},"right":"@s"}}"#;
const DROP: &str = r#"{"drop":null}"#;

#[test]
fn what_has_effects_is_left_to_the_kernel_from_where_it_stands() {
    let effects = [
        r#"{"mangle":{"key":{"meta":{"key":"mark"}},"value":3}}"#,
        r#"{"limit":{"rate":3,"per":"second"}}"#,
        r#"{"reject":null}"#,
        r#"{"xt":{"type":"match","name":"limit"}}"#,
        r#"{"vmap":{"key":{"numgen":{"mode":"inc","mod":2,"offset":0}},"data":{"set":[[0,{"drop":null}]]}}}"#,
        r#"{"what is yet to come":{}}"#,
    ];
    for effect in effects {
        let rules = import(&listing(
            "",
            &[&format!("{WEB},{effect},{FROM},{DROP}"), DROP],
        ));
        assert_eq!(decided(&rules, false, 80, 6), Action::Punt, "{effect}");
        assert_eq!(decided(&rules, true, 80, 6), Action::Punt, "{effect}");
        assert_eq!(decided(&rules, false, 81, 6), Action::Drop, "{effect}");
        let [note] = rules.notes.as_slice() else {
            panic!("{:?}", rules.notes)
        };
        assert_eq!(note.place.to_string(), "entry 4");
        assert!(
            note.what.contains(": inet f c handle 5: ["),
            "{}",
            note.what
        );
    }
}

#[test]
fn what_only_the_kernel_knows_matters_where_a_verdict_follows() {
    let state = r#"{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["new"]}}"#;
    let counted = r#"{"counter":{"packets":0,"bytes":0}}"#;
    let rules = import(&listing(
        "",
        &[
            &format!("{state},{counted}"),
            &format!("{WEB},{state},{{\"accept\":null}}"),
            r#"{"match":{"op":"==","left":{"&":[{"payload":{"protocol":"tcp","field":"flags"}},["syn"]]},"right":"syn"}},{"accept":null}"#,
            r#"{"log":{"prefix":"a"}},{"drop":null}"#,
        ],
    ));
    assert_eq!(decided(&rules, false, 80, 6), Action::Punt);
    assert_eq!(decided(&rules, false, 81, 6), Action::Punt);
    assert_eq!(decided(&rules, false, 80, 17), Action::Drop);
    let notes: Vec<_> = rules.notes.iter().map(|note| note.what.as_str()).collect();
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes[0].starts_with("left to the kernel for ct state: inet f c handle 6: "));
    assert!(notes[1].starts_with("left to the kernel for tcp flags: inet f c handle 7: "));
    assert!(notes[2].starts_with("the log entry is not done: inet f c handle 8: "));
}

#[test]
fn ports_of_any_protocol_are_certain_where_there_are_ports() {
    let any = r#"{"match":{"op":"==","left":{"payload":{"protocol":"th","field":"dport"}},"right":80}},{"drop":null}"#;
    let rules = import(&listing("", &[any]));
    for (port, protocol, action) in [
        (80, 6, Action::Drop),
        (80, 17, Action::Drop),
        (81, 17, Action::Accept),
        (0, 1, Action::Punt),
    ] {
        assert_eq!(
            decided(&rules, false, port, protocol),
            action,
            "{port} {protocol}"
        );
    }
}

#[test]
fn families_that_listings_leave_out_are_not_guessed() {
    let protocol = |name: &str| {
        format!(
            r#"{{"match":{{"op":"==","left":{{"meta":{{"key":"l4proto"}}}},"right":{name}}}}},{DROP}"#
        )
    };
    let rules = import(&listing(
        "",
        &[&protocol(r#""ipv6-icmp""#), &protocol("1"), &protocol("6")],
    ));
    for (number, v4, v6) in [
        (1, Action::Drop, Action::Punt),
        (58, Action::Punt, Action::Drop),
        (6, Action::Drop, Action::Drop),
    ] {
        assert_eq!(decided(&rules, false, 0, number), v4, "{number}");
        assert_eq!(decided(&rules, true, 0, number), v6, "{number}");
    }
    assert_eq!(rules.notes.len(), 2, "{:?}", rules.notes);
}

#[test]
fn what_comes_back_from_a_map_is_not_met_by_its_other_elements() {
    let empty = r#",{"chain":{"family":"inet","table":"f","name":"a"}}"#;
    let map = r#"{"vmap":{"key":{"payload":{"protocol":"tcp","field":"dport"}},"data":{"set":[[22,{"jump":{"target":"a"}}],[23,{"continue":null}],[24,{"return":null}],["*",{"drop":null}]]}}}"#;
    let more = format!("{map},{DROP}");
    let next = r#"{"match":{"op":"==","left":{"payload":{"protocol":"tcp","field":"dport"}},"right":23}},{"reject":null}"#;
    let rules = import(&listing(empty, &[map, next]));
    for (port, protocol, action) in [
        (22, 6, Action::Accept),
        (23, 6, Action::Punt),
        (24, 6, Action::Accept),
        (25, 6, Action::Drop),
        (25, 17, Action::Accept),
    ] {
        assert_eq!(
            decided(&rules, false, port, protocol),
            action,
            "{port} {protocol}"
        );
    }
    let rules = import(&listing(empty, &[&more]));
    assert_eq!(
        decided(&rules, false, 25, 6),
        Action::Punt,
        "more behind a map"
    );
}

#[test]
fn sets_that_change_are_the_kernels() {
    let set = |more: &str| {
        format!(r#",{{"set":{{"family":"inet","name":"s","table":"f","type":"ipv4_addr"{more}}}}}"#)
    };
    let update =
        r#"{"set":{"op":"add","elem":{"payload":{"protocol":"ip","field":"saddr"}},"set":"@s"}}"#;
    for (more, rule, action) in [
        (r#","elem":["10.0.0.1"]"#, "", Action::Drop),
        (
            r#","elem":[{"elem":{"val":"10.0.0.1","comment":"x"}}]"#,
            "",
            Action::Drop,
        ),
        (r#","elem":["10.0.0.2"]"#, "", Action::Accept),
        ("", "", Action::Accept),
        (r#","flags":["timeout"]"#, "", Action::Punt),
        (r#","flags":"dynamic""#, "", Action::Punt),
        (
            r#","elem":[{"elem":{"val":"10.0.0.2","expires":9}}]"#,
            "",
            Action::Punt,
        ),
        (
            r#","elem":["10.0.0.2"],"stmt":[{"limit":{}}]"#,
            "",
            Action::Punt,
        ),
        (
            r#","elem":["10.0.0.1"],"stmt":[{"counter":null}]"#,
            "",
            Action::Drop,
        ),
        ("", update, Action::Punt),
    ] {
        // The rule that changes it is not met by the packet.
        let rule = format!("{WEB}{}{rule}", if rule.is_empty() { "" } else { "," });
        let rules = import(&listing(&set(more), &[&format!("{FROM},{DROP}"), &rule]));
        assert_eq!(decided(&rules, false, 1, 17), action, "{more} {rule}");
        assert_eq!(
            decided(&rules, true, 1, 17),
            Action::Accept,
            "{more} {rule}"
        );
    }
}

#[test]
fn policies_are_for_their_own_family_and_hooks() {
    let chain = |family: &str, name: &str, hook: &str, kind: &str, policy: &str| {
        format!(
            r#",{{"chain":{{"family":"{family}","table":"f","name":"{name}","type":"{kind}","hook":"{hook}","prio":3,"policy":"{policy}"}}}}"#
        )
    };
    for (family, hook, kind, v4, v6) in [
        ("ip", "forward", "filter", Action::Drop, Action::Accept),
        ("ip6", "postrouting", "filter", Action::Accept, Action::Drop),
        ("inet", "prerouting", "filter", Action::Drop, Action::Drop),
        ("inet", "output", "filter", Action::Accept, Action::Accept),
        ("inet", "input", "filter", Action::Accept, Action::Accept),
        ("ip", "prerouting", "nat", Action::Punt, Action::Accept),
    ] {
        let rules = import(&listing(&chain(family, "d", hook, kind, "drop"), &[]));
        assert_eq!(decided(&rules, false, 1, 6), v4, "{family} {hook}");
        assert_eq!(decided(&rules, true, 1, 6), v6, "{family} {hook}");
    }
    let outside = listing(&chain("inet", "d", "ingress", "filter", "drop"), &[]);
    assert!(
        refusal(&outside).starts_with("test at entry 4: chain inet f d: packets meet it before")
    );
    let input = Options {
        hook: Hook::Input,
        ..Options::default()
    };
    let none = read("test", listing("", &[]).as_bytes(), &input).unwrap_err();
    assert_eq!(
        none.to_string(),
        "test: no chain that packets of this hook pass"
    );
}

#[test]
fn rules_of_hooks_that_packets_do_not_pass_are_counted_and_nothing_else() {
    let other = r#",{"chain":{"family":"inet","table":"f","name":"i","type":"filter","hook":"input","prio":0,"policy":"drop"}},{"chain":{"family":"inet","table":"f","name":"j"}},{"rule":{"family":"inet","table":"f","chain":"i","handle":3,"expr":[{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["new"]}},{"jump":{"target":"j"}}]}},{"rule":{"family":"inet","table":"f","chain":"j","handle":4,"expr":[{"dnat":{"addr":"10.0.0.1"}}]}}"#;
    let rules = import(&listing(other, &[DROP]));
    let [note] = rules.notes.as_slice() else {
        panic!("{:?}", rules.notes)
    };
    assert_eq!(
        (note.place.to_string().as_str(), note.what.as_str()),
        (
            "entry 6",
            "2 rules in chains that packets of this hook do not pass: left out: inet f i, inet f j"
        )
    );
    let input = Options {
        hook: Hook::Input,
        ..Options::default()
    };
    let refused = read("test", listing(other, &[DROP]).as_bytes(), &input).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("inet f j handle 4: dnat: replies"), "{said}");
    assert!(said.ends_with(": remove the rule"), "{said}");
}

#[test]
fn tables_are_left_out_with_a_note() {
    let other = r#",{"table":{"family":"ip","name":"nat"}},{"chain":{"family":"ip","table":"nat","name":"p","type":"nat","hook":"postrouting","prio":100,"policy":"accept"}},{"rule":{"family":"ip","table":"nat","chain":"p","handle":2,"expr":[{"masquerade":null}]}}"#;
    let text = listing(other, &[DROP]);
    let said = refusal(&text);
    assert!(
        said.starts_with("test at entry 6: ip nat p handle 2: masquerade: replies"),
        "{said}"
    );
    assert!(
        said.ends_with("import other tables only, as by --rules-table 'inet f'"),
        "{said}"
    );
    for name in ["f", "inet f"] {
        let options = Options {
            tables: vec![name.to_owned()],
            ..Options::default()
        };
        let rules = read("test", text.as_bytes(), &options).unwrap();
        assert_eq!(decided(&rules, false, 1, 6), Action::Drop);
        assert_eq!(rules.notes[0].what, "table ip nat is left out, as asked");
    }
    let dormant = other.replace(r#""name":"nat"}"#, r#""name":"nat","flags":["dormant"]}"#);
    let rules = import(&listing(&dormant, &[DROP]));
    assert_eq!(
        rules.notes[0].what,
        "table ip nat is left out, as it is dormant"
    );
}

#[test]
fn what_is_wrong_is_said_with_its_handle() {
    let matched = |left: &str, right: &str| {
        format!(r#"{{"match":{{"op":"==","left":{left},"right":{right}}}}},{DROP}"#)
    };
    let source = r#"{"payload":{"protocol":"ip","field":"saddr"}}"#;
    let port = r#"{"payload":{"protocol":"tcp","field":"dport"}}"#;
    for (rule, what) in [
        (matched(source, r#""x""#), "\"x\" is no address"),
        (matched(source, r#""::1""#), "::1 is of the other family"),
        (matched(source, r#""@t""#), "no set or map t in the table"),
        (
            matched(source, r#"{"range":["10.0.0.9","10.0.0.1"]}"#),
            "{\"range\":[\"10.0.0.9\",\"10.0.0.1\"]}: the first is above the last",
        ),
        (
            matched(source, r#"{"prefix":{"addr":"10.0.0.0","len":33}}"#),
            "10.0.0.0/33: a prefix of 33 bits",
        ),
        (matched(port, "65536"), "\"65536\" is no port"),
        (
            matched(r#"{"meta":{"key":"l4proto"}}"#, r#""x""#),
            "\"x\" is no protocol: write its number",
        ),
        (
            r#"{"jump":{"target":"t"}}"#.into(),
            "no chain t in the table",
        ),
        (r#"{"jump":{"target":"c"}}"#.into(), ""),
        (
            r#"{"dnat":{"addr":"10.0.0.1"}}"#.into(),
            "dnat: replies of a translated",
        ),
        (
            r#"{"xt":null}"#.into(),
            "an extension of iptables that nft does not name",
        ),
        ("3".into(), "no statement"),
    ] {
        let said = refusal(&listing("", &[&rule]));
        let place = if what.is_empty() {
            "test at entry 4: chains jump in a circle".to_owned()
        } else {
            format!("test at entry 4: inet f c handle 5: {what}")
        };
        assert!(said.starts_with(&place), "{said}");
    }
    assert!(refusal("{\"nftables\":[{\"add\":{}}]}").starts_with("test at entry 1: \"add\" is no"));
    assert!(refusal("{\"nftables\":[").starts_with("test:1: EOF"));
}
