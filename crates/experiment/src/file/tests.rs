//! Refusals with their lines, and the keys that a file may leave out.

use super::*;

const MINIMAL_FILE: &str = r#"name = "mine"
job = "relay"
about = "The least there is to say"
measure = "delay"
baseline = "recv"
arms = ["recv", "xdp"]
blocks = 12
primary = ["delay_p50"]

[[load]]
payload = "200B"
rate = "10kpps"
subscribers = 1
duration = "600ms"
"#;

/// The page that shows a whole file.
const PAGE: &str = include_str!("../../../../docs/src/experiment-file.md");

fn parse(text: &str) -> Result<Plan, Error> {
    crate::catalog::parse(&Document::new("mine.toml", text))
}

/// The error for the minimal file with `from` replaced.
fn complaint(from: &str, to: &str) -> String {
    assert!(MINIMAL_FILE.contains(from), "{from}");
    parse(&MINIMAL_FILE.replacen(from, to, 1))
        .unwrap_err()
        .to_string()
}

#[test]
fn questions_and_quick_may_be_left_out() {
    let plan = parse(MINIMAL_FILE).unwrap();
    assert_eq!(plan.questions.len(), 1);
    assert_eq!(plan.questions[0].metrics, ["delay_p50"]);
    assert_eq!(plan.quick.blocks, 10);
    let quick = plan.narrowed(true, &[], None).unwrap();
    assert_eq!((quick.arms.len(), quick.loads.len()), (2, 1));
}

#[test]
fn the_file_in_the_documentation_is_correct() {
    let text = PAGE.split("```toml\n").nth(1).unwrap();
    let plan = parse(text.split("```").next().unwrap()).unwrap();
    assert!(!plan.questions.is_empty() && plan.loads.len() > 1);
}

#[test]
fn the_least_number_of_blocks_is_that_of_an_interval() {
    assert!(stats::median_ranks(MIN_BLOCKS).is_some());
    assert!(stats::median_ranks(MIN_BLOCKS - 1).is_none());
}

#[test]
fn every_complaint_is_one_line_with_its_place() {
    for (from, to, line, what) in [
        ("blocks = 12", "blocks = ", 7, ""),
        ("blocks = 12", "blocks = 12\nblock = 3", 8, "block"),
        ("blocks = 12", "blocks = 0", 7, "an interval needs 6"),
        ("blocks = 12", "blocks = 5", 7, "an interval needs 6"),
        ("blocks = 12", "blocks = 1001", 7, "1000"),
        ("\"mine\"", "\"a/b\"", 1, "names a folder"),
        (
            "\"relay\"",
            "\"bridge\"",
            2,
            "no job is called \"bridge\"; there is relay",
        ),
        ("\"delay\"", "\"delays\"", 4, "did you mean \"delay\"?"),
        (
            "baseline = \"recv\"",
            "baseline = \"mmsg\"",
            5,
            "not among the arms",
        ),
        (
            "\"xdp\"]",
            "\"xdpp\"]",
            6,
            "relay has no arm \"xdpp\"; did you mean \"xdp\"?",
        ),
        ("\"xdp\"]", "\"recv\"]", 6, "twice"),
        ("delay_p50", "delay_p05", 8, "did you mean \"delay_p50\"?"),
        (
            "delay_p50",
            "beauty",
            8,
            "unknown metric \"beauty\"; there are: delay_p50",
        ),
    ] {
        says(&complaint(from, to), line, what);
    }
}

#[test]
fn a_load_that_cannot_be_offered_is_refused_by_its_name() {
    for (from, to, what) in [
        ("subscribers = 1", "subscribers = 0", "1 to 256"),
        ("subscribers = 1", "subscribers = 257", "1 to 256"),
        ("\"200B\"", "\"39B\"", "40B (the generated header) to 1472B"),
        ("\"200B\"", "\"1473B\"", "1472B"),
        ("\"600ms\"", "\"0ms\"", "the duration is 0"),
        ("\"600ms\"", "\"50us\"", "no packet is sent"),
        ("rate = \"10kpps\"\n", "", "a rate is missing"),
    ] {
        says(&complaint(from, to), 10, what);
    }
    says(&complaint("\"10kpps\"", "\"0kpps\""), 12, "50kpps");
    let load = &MINIMAL_FILE[MINIMAL_FILE.find("[[load]]").unwrap()..];
    let twice = parse(&format!("{MINIMAL_FILE}{load}")).unwrap_err();
    says(
        &twice.to_string(),
        15,
        "load \"200B 10kpps N=1\": an earlier load",
    );
}

#[test]
fn keys_of_a_load_that_contradict_each_other_are_refused() {
    let fec = "options = { fec = { group = 4 } }";
    let large = complaint("\"200B\"", &format!("\"1472B\"\n{fec}"));
    says(&large, 10, "to 1456B");
    let many = complaint("subscribers = 1", "subscribers = 256\nmeasure = \"change\"");
    says(&many, 10, "1 to 255");
    let replayed = "measure = \"cpu\"\nfrom = { pcap = \"x.pcap\" }";
    let replayed = complaint("payload = \"200B\"", replayed);
    says(&replayed, 10, "a capture is measured for delay");
    for (more, what) in [
        ("measure = \"throughput\"", "leave it out"),
        ("measure = \"video\"", "mpeg-ts"),
        ("from = \"rtp\"", "its own payload and rate"),
        ("from = { pcap = \"x.pcap\" }", "its own payloads"),
        (
            "link = \"bridge\"\njitter = \"1ms\"",
            "jitter is for direct links",
        ),
        (
            "scope = \"application\"\nmeasure = \"cpu\"",
            "the scope application",
        ),
        ("options = { works = \"1us\" }", "works"),
        ("options = { work = \"1h\" }", "options"),
        ("options = { work = \"1s\" }", "10ms"),
        ("options = { name = \"x\" }", "for the experiment"),
    ] {
        let said = complaint("subscribers = 1", &format!("subscribers = 1\n{more}"));
        says(&said, 10, what);
    }
}

#[test]
fn what_quick_and_questions_name_must_exist() {
    for (more, line, what) in [
        (
            "[quick]\narms = [\"recv\", \"tc\"]",
            16,
            "\"tc\" is not among the arms",
        ),
        ("[quick]\narms = [\"xdp\"]", 16, "the baseline \"recv\""),
        ("[quick]\nloads = [0, 1]", 16, "load 1 does not exist"),
        ("[quick]\nblocks = 2", 16, "an interval needs"),
        ("[quick]\nduration = \"0s\"", 16, "the duration is 0"),
        ("[quick]\nloads = []", 1, "nothing to run"),
        (
            "[[question]]\ntext = \"?\"\nmetrics = [\"x\"]",
            17,
            "unknown metric \"x\"",
        ),
        (
            "[[question]]\ntext = \"?\"\nmetrics = []\nagainst = [\"busy\"]",
            18,
            "\"busy\"",
        ),
        (
            "[[question]]\ntext = \"?\"\nmetrics = [\"delay_p50\"]\nwithin_pct = 0",
            18,
            "more than 0",
        ),
        (
            "[[question]]\ntext = \"?\"\nmetrics = [\"loss_pct\"]\nwithin_pct = 5",
            17,
            "no distance in per cent",
        ),
    ] {
        says(
            &parse(&format!("{MINIMAL_FILE}{more}\n"))
                .unwrap_err()
                .to_string(),
            line,
            what,
        );
    }
}

fn says(said: &str, line: usize, what: &str) {
    assert!(
        said.starts_with(&format!("mine.toml:{line}: ")) && said.contains(what),
        "{line}: {what}: {said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Another machine as an arm of netbench.
const REMOTE_FILE: &str = r#"name = "mine"
job = "netbench"
about = "Two hosts"
measure = "exchange"
baseline = "native/direct"
arms = ["native/direct", "metal"]
blocks = 12
primary = ["tcp_rr_us_p50"]

[[load]]
options = { test = "tcp_rr" }
duration = "600ms"

[host.metal]
agent = "tcp://192.0.2.2:7411"
token-file = "token"
"#;

#[test]
fn another_machine_is_an_arm_by_its_name() {
    let plan = parse(REMOTE_FILE).unwrap();
    assert_eq!(plan.arms, ["native/direct", "metal"]);
    assert_eq!(plan.hosts["metal"].agent, "tcp://192.0.2.2:7411");
    let narrowed = plan.narrowed(false, &["metal".to_owned()], None).unwrap();
    assert_eq!(narrowed.baseline, "metal");
}

#[test]
fn a_machine_that_makes_no_sense_is_refused_with_its_line() {
    for (from, to, line, what) in [
        ("tcp://192", "udp://192", 14, "tcp://HOST:PORT"),
        ("token-file", "token", 16, "token"),
        ("[host.metal]", "[host.\"me/tal\"]", 14, "letters, digits"),
        (
            "\"metal\"]",
            "\"metal+busy-poll\"]",
            14,
            "not among the arms",
        ),
        (
            "\"metal\"]",
            "\"metal\", \"metal+unpinned\"]",
            6,
            "is tuned there",
        ),
        (
            "[host.metal]",
            "[host.\"native/direct\"]",
            14,
            "letters, digits",
        ),
        (
            "[host.metal]",
            "[host.neighbour]",
            14,
            "an arm \"neighbour\" of its own",
        ),
        (
            "baseline = \"native/direct\"",
            "baseline = \"box\"",
            5,
            "not among the arms",
        ),
        (
            "\"native/direct\", \"metal\"",
            "\"oci-bridge\", \"metal\"",
            6,
            "did you mean \"oci/bridge\"?",
        ),
    ] {
        assert!(REMOTE_FILE.contains(from), "{from}");
        let said = parse(&REMOTE_FILE.replacen(from, to, 1))
            .unwrap_err()
            .to_string();
        says(&said, line, what);
    }
    let cpu = REMOTE_FILE
        .replacen("baseline = \"native/direct\"", "baseline = \"metal\"", 1)
        .replacen("[[load]]", "[[load]]\nmeasure = \"cpu\"", 1);
    says(
        &parse(&cpu).unwrap_err().to_string(),
        10,
        "whose CPU is not seen",
    );
    let relay = format!("{MINIMAL_FILE}\n[host.metal]\nagent = \"tcp://box\"\n");
    says(&parse(&relay).unwrap_err().to_string(), 16, "only netbench");
}
