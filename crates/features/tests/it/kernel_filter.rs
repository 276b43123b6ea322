//! Filters and sampling in the kernel against userspace: of every packet the same is made.

use std::fs;
use std::num::NonZeroU32;

use features::filter::{Rate, Rules, Selection, Tier, Unit};
use features::flow::{Flow, Table};
use features::kernel::{Clock, PacketPlane, Settings};
use features::{Options, PacketReader};
use packet::pcap::OwnedFrame;

use crate::expressions::{Grammar, Random, ends, network};
use crate::kernel::frames::{conversation, kinds};
use crate::kernel::{MIN_FRAME, assert_same_rows, captured, captures, frames, load, pin, run};

fn settings(rules: Rules) -> Settings {
    Settings {
        options: Options {
            selection: Selection::new(rules).unwrap(),
            ..Options::default()
        },
        clock: Clock::Metadata,
        ring_bytes: 1 << 20,
        flows_per_cpu: 1024,
        ..Settings::default()
    }
}

/// Runs these frames under rules in both, first to last: every packet has the same fate. How many were
/// kept.
fn compare(rules: &Rules, frames: &[OwnedFrame]) -> u64 {
    let settings = settings(rules.clone());
    let mut reader = PacketReader::new(&settings.options);
    let (plane, mut rings) = PacketPlane::load(&settings).unwrap();
    for captured in frames {
        let expected = reader.read(&captured.as_frame()).is_some();
        run(plane.program(), captured);
        let mut recorded = 0;
        rings[0].collect(i64::MAX, |_| recorded += 1);
        assert_eq!(recorded, u32::from(expected), "{rules:?}: {captured:02x?}");
    }
    let (account, seen) = (plane.account().unwrap(), reader.seen());
    assert_eq!(account.packets, seen.packets);
    assert_eq!(account.filtered, seen.filtered, "{rules:?}");
    assert_eq!(account.sampled_out, seen.sampled_out, "{rules:?}");
    assert_eq!(account.rate_limited, seen.rate_limited, "{rules:?}");
    let left_out = account.refused() + seen.filtered + seen.sampled_out + seen.rate_limited;
    assert_eq!(account.packets, account.exported + left_out);
    account.exported
}

/// One of every kind, conversations, and fragments.
fn samples() -> Vec<OwnedFrame> {
    let kinds = (1..).zip(kinds()).map(|(time, frame)| {
        let length = u32::try_from(frame.len()).unwrap();
        captured(time * 1000, frame, length)
    });
    kinds.chain(conversation(5, 60)).collect()
}

#[test]
fn random_expressions_keep_the_same_packets() {
    if !sys::require::root() {
        return;
    }
    pin();
    let frames = samples();
    let mut random = Random::new(1);
    let folder = tempfile::tempdir().unwrap();
    let ends = ends(&frames);
    let list = folder.path().join("list");
    let networks: Vec<String> = (0..20)
        .map(|_| network(*random.of(&ends), &mut random))
        .filter(|network| !network.ends_with("/0"))
        .collect();
    fs::write(&list, networks.join("\n")).unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "# none\n").unwrap();
    let files = [list, empty].map(|path| path.display().to_string());
    let grammar = Grammar {
        ends,
        files: Some(files.into()),
    };
    let rates = ["1/1", "1/2", "3/4", "1/10"];
    let mut some = 0;
    for case in 0..60 * sys::require::fuzz() {
        let tiers = [0, 1, 2, 3, 15][random.below(5)];
        let tiers = (0..tiers).map(|_| Tier {
            expression: grammar.expression(&mut random, 2),
            rate: random.of(&rates).parse().unwrap(),
        });
        let tiers = tiers.collect();
        let rules = Rules {
            filter: Some(grammar.expression(&mut random, 3)).filter(|_| case % 5 > 0),
            tiers,
            rate: random.of(&rates).parse().unwrap(),
            unit: *random.of(&[Unit::Flows, Unit::Packets]),
            seed: case.into(),
            most_per_second: NonZeroU32::new(20_000).filter(|_| case % 4 == 0),
        };
        let kept = compare(&rules, &frames);
        some += u32::from(kept > 0 && kept < frames.len() as u64 * 3 / 4);
    }
    assert!(some > 20, "only {some} expressions tell packets apart");
}

#[test]
fn the_longest_program_runs_to_its_end() {
    if !sys::require::root() {
        return;
    }
    pin();
    let tests = vec!["port 9999"; 511].join(" or ");
    let rules = Rules {
        filter: Some(format!("{tests} or tcp")),
        ..Rules::default()
    };
    let frames = conversation(2, 40);
    let tcp = frames.iter().filter(|captured| captured.frame[27] == 6);
    assert_eq!(compare(&rules, &frames), tcp.count() as u64);
}

#[test]
fn flows_that_are_kept_have_the_rows_that_they_would_have_had() {
    if !sys::require::root() {
        return;
    }
    let frames = conversation(11, 2000);
    let all = Options::default();
    let rules = Rules {
        filter: Some("tcp or port 443".to_owned()),
        rate: "1/2".parse::<Rate>().unwrap(),
        seed: 3,
        ..Rules::default()
    };
    let settings = settings(rules);
    let mut plane = load(&settings);
    let mut reader = PacketReader::new(&settings.options);
    let mut table = Table::new(all.timers, all.limits);
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    for captured in &frames {
        run(plane.program(), captured);
        plane.collect(&mut |flow| found.push(*flow)).unwrap();
        if let Some(packet) = reader.read(&captured.as_frame()) {
            table.add(&packet, &mut |flow| expected.push(*flow));
        }
    }
    table.drain(&mut |flow| expected.push(*flow));
    plane.finish(&mut |flow| found.push(*flow)).unwrap();
    let kept: u64 = found.iter().map(Flow::packets).sum();
    assert!(kept > 0 && kept < 2000, "{kept}");
    assert_eq!(plane.account().unwrap().sampled_out, 2000 - kept);
    assert_same_rows("sampled", expected, found);
}

#[test]
fn outside_captures_are_chosen_from_alike() {
    if !sys::require::root() {
        return;
    }
    let Some(captures) = captures() else { return };
    pin();
    let rules = Rules {
        filter: Some("not port 53 and (tcp or udp or net 224.0.0.0/4)".to_owned()),
        tiers: vec![Tier {
            expression: "tcp port 80,443 and greater 200".to_owned(),
            rate: "1/3".parse().unwrap(),
        }],
        rate: "1/2".parse().unwrap(),
        unit: Unit::Packets,
        seed: 7,
        most_per_second: NonZeroU32::new(100),
    };
    for path in captures {
        let mut frames = frames(&path);
        frames.retain(|captured| captured.frame.len() >= MIN_FRAME);
        compare(&rules, &frames);
    }
}
