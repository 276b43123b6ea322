//! A synthetic record with the shape of a real one: seeded, so that every run makes the same.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "delays of microseconds in whole nanoseconds"
)]

use std::collections::BTreeMap;

use report::Record;
use report::presentation::{Colour, DelaySplit, Energy, Presentation};
use report::record::{Better, Effect, Header, Metric, Question, Skip, Stacks, Trial};
use serde_json::json;
use splitmix::SplitMix64;
use stats::Histogram;

/// (arm, delay in us, spread, CPU ns per delivery)
const ARMS: [(&str, f64, f64, f64); 7] = [
    ("recv", 27.1, 0.05, 4700.0),
    ("mmsg", 27.4, 0.05, 4300.0),
    ("gso", 26.8, 0.06, 3900.0),
    ("busy", 3.8, 0.03, 9800.0),
    ("tc", 3.6, 0.03, 1290.0),
    ("xdp", 3.4, 0.03, 1210.0),
    ("floor", 1.1, 0.02, 300.0),
];

const COLOURS: [(&str, Colour); 6] = [
    ("recv", Colour::Orange),
    ("mmsg", Colour::Amber),
    ("gso", Colour::Pink),
    ("busy", Colour::Brown),
    ("tc", Colour::Teal),
    ("xdp", Colour::Blue),
];

/// `blocks` blocks of every arm and the threefold baseline under `loads` loads.
pub(crate) fn record(blocks: usize, loads: usize) -> Record {
    let header = header(blocks, loads);
    let mut random = SplitMix64::new(4711);
    let mut trials = Vec::new();
    for block in 0..blocks {
        for (at, load) in header.loads.iter().enumerate() {
            for (order, (arm, repeat)) in block_of(&header).into_iter().enumerate() {
                let seen = random.next_u64();
                let mut trial = trial(&mut SplitMix64::new(seen), arm, repeat, load);
                trial.block = block;
                trial.order = order;
                trial.at_s = (block * 40 + at * 20 + order) as f64;
                if block == 3 && arm == "mmsg" && at == 0 {
                    trial.flags.push("foreign cpu 4.1 %".to_owned());
                }
                trials.push(trial);
            }
        }
    }
    Record {
        folder: "out".into(),
        header,
        trials,
        notices: Vec::new(),
    }
}

fn block_of(header: &Header) -> Vec<(&'static str, u8)> {
    let mut block: Vec<(&str, u8)> = ARMS
        .iter()
        .filter(|(arm, ..)| header.arms.iter().any(|known| known == arm))
        .map(|&(arm, ..)| (arm, 0))
        .collect();
    block.extend([("recv", 1), ("recv", 2)]);
    block
}

fn header(blocks: usize, loads: usize) -> Header {
    let loads = ["200B 10kpps N=1", "1200B 2kpps N=16"][..loads].to_vec();
    Header {
        schema: report::journal::SCHEMA,
        experiment: "relay-delay".to_owned(),
        job: "relay".to_owned(),
        environment: "native".to_owned(),
        questions: questions(),
        seed: 4711,
        quick: blocks <= 10,
        blocks,
        baseline: "recv".to_owned(),
        arms: ARMS.iter().map(|(arm, ..)| (*arm).to_owned()).collect(),
        loads: loads.into_iter().map(str::to_owned).collect(),
        methods: BTreeMap::new(),
        idle: None,
        attempts: None,
        metrics: metrics(),
        machine: BTreeMap::from([
            ("cpu".to_owned(), json!("Example 9000, 2 CPUs")),
            ("kernel".to_owned(), json!("6.18.0")),
            ("clocksource".to_owned(), json!("tsc")),
            (
                "config".to_owned(),
                json!({"HZ": 250, "IRQ_TIME_ACCOUNTING": false}),
            ),
        ]),
        skipped: vec![Skip {
            arm: "af-xdp".to_owned(),
            load: None,
            reason: "kernel lacks CONFIG_XDP_SOCKETS".to_owned(),
            remedy: "no remedy on this kernel; --arms recv,tc,xdp leaves it out".to_owned(),
        }],
        command: "lowroad compare relay-delay --seed 4711".to_owned(),
        started: "2026-11-20T14:12:00.000000000Z".to_owned(),
        origin: vec!["kernel forwarding cut packet delay by about 100 us".to_owned()],
        hosts: BTreeMap::new(),
        builds: BTreeMap::new(),
        programs: BTreeMap::new(),
        presentation: Presentation {
            colours: COLOURS.map(|(arm, colour)| (arm.to_owned(), colour)).into(),
            floor: Some("floor".to_owned()),
            delay_split: Some(DelaySplit {
                metric: "delay_p50".to_owned(),
                arm: "busy".to_owned(),
                first: "{amount} of {baseline}'s delay is waking up ({baseline} minus {arm})"
                    .to_owned(),
                second: "{amount} is work ({arm} minus {floor})".to_owned(),
            }),
            softirq: vec!["xdp".to_owned(), "tc".to_owned()],
            energy: Some(Energy {
                beside: "cpu_ns_per_delivery".to_owned(),
                metric: "energy_uj_per_delivery".to_owned(),
                each: "delivery".to_owned(),
            }),
        },
    }
}

fn questions() -> Vec<Question> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    vec![
        Question {
            text: "Does forwarding in the kernel reduce delay?".to_owned(),
            metrics: names(&["delay_p50", "added_delay_p50", "delay_p99"]),
            against: names(&["busy"]),
            arms: names(&["tc", "xdp", "busy"]),
            ..Question::default()
        },
        Question {
            text: "What does it cost the machine?".to_owned(),
            metrics: names(&["cpu_ns_per_delivery"]),
            ..Question::default()
        },
        Question {
            text: "Does anything reach a subscriber that should not?".to_owned(),
            metrics: names(&["foreign_packets"]),
            arms: names(&["xdp"]),
            ..Question::default()
        },
    ]
}

fn metrics() -> Vec<Metric> {
    let metric = |name: &str, unit: &str, primary, effect| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        better: Better::Lower,
        primary,
        effect,
        resolution: 0.0,
    };
    vec![
        metric("delay_p50", "us", true, Effect::Ratio),
        metric("added_delay_p50", "us", false, Effect::Difference),
        metric("delay_p99", "us", false, Effect::Ratio),
        metric("cpu_ns_per_delivery", "ns", true, Effect::Ratio),
        metric("foreign_packets", "packets", false, Effect::Difference),
    ]
}

fn trial(random: &mut SplitMix64, arm: &str, repeat: u8, load: &str) -> Trial {
    let &(_, delay, spread, cost) = ARMS
        .iter()
        .find(|(name, ..)| *name == arm)
        .expect("an arm of ARMS");
    let p50 = delay * (spread * random.normal()).exp();
    let mut histogram = Histogram::new();
    for _ in 0..2000 {
        let tail = if random.open_unit() < 0.01 { 0.6 } else { 0.08 };
        histogram.record((1000.0 * p50 * (tail * random.normal()).exp()) as u64);
    }
    let cost = cost * (0.02 * random.normal()).exp();
    let busy = if arm == "busy" { 9.0e8 } else { 0.0 };
    let values = BTreeMap::from([
        ("delay_p50".to_owned(), p50),
        (
            "delay_p99".to_owned(),
            p50 * 1.4 * (0.1 * random.normal()).exp(),
        ),
        ("cpu_ns_per_delivery".to_owned(), cost),
        ("foreign_packets".to_owned(), 0.0),
        (
            "ps_cpu_pct".to_owned(),
            if matches!(arm, "tc" | "xdp" | "floor") {
                0.0
            } else {
                5.2
            },
        ),
    ]);
    let kernel = if matches!(arm, "tc" | "xdp" | "floor") {
        0.1
    } else {
        1.0
    };
    Trial {
        arm: arm.to_owned(),
        repeat,
        attempt: 0,
        load: load.to_owned(),
        block: 0,
        order: 0,
        seed: random.next_u64(),
        flags: Vec::new(),
        violations: Vec::new(),
        environment: BTreeMap::from([("xdp_mode".to_owned(), json!("native"))]),
        values,
        counts: BTreeMap::from([
            ("sent".to_owned(), 20_000),
            ("due".to_owned(), 20_000),
            ("received".to_owned(), 19_999),
            ("unique".to_owned(), 19_999),
            ("duplicates".to_owned(), 0),
            ("foreign".to_owned(), 0),
            ("missing".to_owned(), 1),
            ("drops.no_neighbour".to_owned(), 1),
        ]),
        histograms: BTreeMap::from([("delay".to_owned(), histogram)]),
        spans: Vec::new(),
        cpu: BTreeMap::from([
            ("user".to_owned(), 6.0e7 * kernel + busy),
            ("syscall".to_owned(), 2.6e8 * kernel),
            ("softirq.net_rx".to_owned(), 1.3e8),
            ("softirq.other".to_owned(), 6.0e6),
            ("hardirq".to_owned(), 9.0e6),
            ("kthread".to_owned(), 4.0e6),
            ("idle".to_owned(), 4.0e9 - 3.2e8 * kernel - 1.5e8 - busy),
        ]),
        stacks: Some(stacks(random, arm)),
        noise: BTreeMap::from([
            ("tsc_lost_pct".to_owned(), 0.3 + 0.1 * random.open_unit()),
            ("foreign_cpu_pct".to_owned(), 0.4 * random.open_unit()),
        ]),
        at_s: 0.0,
    }
}

fn stacks(random: &mut SplitMix64, arm: &str) -> Stacks {
    let user = !matches!(arm, "tc" | "xdp" | "floor");
    let roots: &[&str] = if user {
        &[
            "lowroad;relay::recv::run;entry_SYSCALL_64;do_syscall_64",
            "lowroad;relay::recv::run;plan::forward",
        ]
    } else {
        &[
            "swapper;do_softirq;net_rx_action;veth_poll",
            "swapper;do_softirq;net_rx_action;bpf_prog_4f1c_relay_xdp",
        ]
    };
    let mut folded = BTreeMap::new();
    for i in 0..60 {
        let root = roots[i % roots.len()];
        let leaf = random.next_u64() % 40;
        let stack = format!("{root};function_{};helper_{leaf}<T>", leaf / 7);
        *folded.entry(stack).or_insert(0) += 1 + random.next_u64() % 9;
    }
    let obtained = folded.values().sum();
    Stacks {
        obtained,
        expected: obtained + 31,
        folded,
    }
}
