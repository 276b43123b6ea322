//! Models in the kernel against the same models in userspace, packet by packet.

mod live;
mod shapes;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use features::flow::{End, Flow, Table};
use features::kernel::{Answers, Clock, FlowPlane, Image, Settings};
use features::model::{Action, Model};
use features::{Key, Options, PacketReader};
use packet::build::{self, Builder};
use packet::pcap::OwnedFrame;
use shapes::{Inputs, LARGE, ONE, WIDE, always, batch, compiled, model, model_of};

use crate::kernel;
use crate::kernel::frames::{at, conversation};
use crate::kernel::{Hook, captured, captures, frames, run, run_at_tc_for_mark, run_for_frame};

const PASS: u32 = 2;

/// What a program at this hook returns for a frame that it drops.
fn dropped(hook: Hook) -> u32 {
    match hook {
        Hook::Xdp => 1,
        Hook::Tc => 2,
    }
}

fn classes(model: &Model, flows: &[Flow]) -> Vec<usize> {
    let rows = batch(&model.schema, flows);
    let places = model.bind(&rows.schema()).unwrap();
    model.score(&places, &rows).classes
}

/// The flows of these frames after their packet of this number: which packet it was, and the flow.
fn at_packet(number: u32, frames: &[OwnedFrame]) -> Vec<(usize, Flow)> {
    let mut options = Options::default();
    options.limits.early_packets = Some(number.into());
    let mut reader = PacketReader::new(&options);
    let mut table = Table::new(options.timers, options.limits);
    let mut found = Vec::new();
    for (at, captured) in frames.iter().enumerate() {
        if let Some(packet) = reader.read(&captured.as_frame()) {
            table.add(&packet, &mut |flow| {
                if flow.end == End::Early {
                    found.push((at, *flow));
                }
            });
        }
    }
    found
}

/// Which frames userspace would drop, and what it would count.
fn expected(model: &Model, frames: &[OwnedFrame]) -> (Vec<bool>, Answers) {
    let mut answers = Answers::default();
    let mut asked: HashMap<(usize, u32), usize> = HashMap::new();
    for number in model.packets.first..=model.packets.last {
        let (places, flows): (Vec<usize>, Vec<Flow>) =
            at_packet(number, frames).into_iter().unzip();
        if flows.is_empty() {
            continue;
        }
        let found = classes(model, &flows);
        asked.extend(
            places
                .iter()
                .zip(found)
                .map(|(at, class)| ((*at, number), class)),
        );
    }
    let options = Options::default();
    let mut reader = PacketReader::new(&options);
    let mut table = Table::new(options.timers, options.limits);
    let mut counts: HashMap<Key, (u32, Option<usize>)> = HashMap::new();
    let verdicts = frames.iter().enumerate().map(|(at, captured)| {
        let Some(packet) = reader.read(&captured.as_frame()) else {
            return false;
        };
        table.add(&packet, &mut |flow| {
            counts.remove(&flow.key);
        });
        let (count, class) = counts.entry(packet.key).or_default();
        *count += 1;
        let action = |class: usize| model.classes[class].action;
        if class.is_none_or(|class| action(class) == Action::Pass)
            && let Some(answer) = asked.get(&(at, *count))
        {
            answers.asked += 1;
            if let Some(before) = class.replace(*answer) {
                answers.flows[before] -= 1;
            }
            answers.flows[*answer] += 1;
        }
        let Some(class) = *class else { return false };
        answers.packets[action(class).number()] += 1;
        match action(class) {
            Action::Drop => true,
            Action::Sample { one_in } => *count % u32::from(one_in) != 0,
            Action::Pass | Action::Mark { .. } => false,
        }
    });
    (verdicts.collect(), answers)
}

fn plane(hook: Hook) -> FlowPlane {
    hook.load(&Settings {
        clock: Clock::Metadata,
        flows_per_cpu: 8192,
        ring_bytes: 1 << 24,
        models: true,
        ..Settings::default()
    })
}

/// The kernel does the same with every frame, in XDP and at tc; what it counts.
fn assert_same(what: &str, model: &Model, frames: &[OwnedFrame]) -> Answers {
    let image = Image::of(model).unwrap();
    let mut counted = Answers::default();
    for hook in [Hook::Xdp, Hook::Tc] {
        let mut frames = frames.to_vec();
        hook.fit(&mut frames);
        let (drops, answers) = expected(model, &frames);
        let mut plane = plane(hook);
        plane.set_model(Some((&image, false))).unwrap();
        for (at, (captured, expected)) in frames.iter().zip(drops).enumerate() {
            let found = hook.run(plane.program(), captured) == dropped(hook);
            assert_eq!(found, expected, "{what}, {hook:?}: frame {at}");
            plane.collect(&mut |_| ()).unwrap();
        }
        assert_eq!(plane.answers().unwrap(), answers, "{what}, {hook:?}");
        counted = answers;
    }
    counted
}

#[test]
fn every_outside_capture_meets_the_same_fate() {
    if !sys::require::root() {
        return;
    }
    let Some(captures) = captures() else { return };
    let mut acted = 0;
    for (seed, path) in (1..).zip(captures) {
        let frames = frames(&path);
        for shape in [ONE, LARGE, WIDE] {
            let at = at_packet(shape.packets.0, &frames);
            let flows: Vec<Flow> = at.into_iter().map(|(_, flow)| flow).collect();
            if flows.is_empty() {
                continue;
            }
            let model = model(seed, shape, &flows);
            let answers = assert_same(&path.display().to_string(), &model, &frames);
            acted += answers.packets[1..].iter().sum::<u64>();
        }
    }
    assert!(acted > 1000, "{acted} packets met with an action");
}

#[test]
fn made_up_conversations_meet_the_same_fate() {
    if !sys::require::root() {
        return;
    }
    for seed in 1..=3 {
        let frames = conversation(seed, 2000);
        for shape in [ONE, LARGE, WIDE] {
            let flows = at_packet(shape.packets.0, &frames);
            let flows: Vec<Flow> = flows.into_iter().map(|(_, flow)| flow).collect();
            let model = model(seed, shape, &flows);
            let answers = assert_same("made up", &model, &frames);
            assert!(answers.asked > 20, "{answers:?}");
        }
    }
}

#[test]
fn columns_of_other_schemas_meet_the_same_fate() {
    if !sys::require::root() {
        return;
    }
    for (schema, columns) in [("flow.v1", 82), ("cic.v1", 38), ("nfstream.v1", 14)] {
        for (seed, shape) in [(1, ONE), (2, LARGE), (3, WIDE)] {
            let frames = conversation(seed, 1000);
            let flows = at_packet(shape.packets.0, &frames);
            let flows: Vec<Flow> = flows.into_iter().map(|(_, flow)| flow).collect();
            let inputs = Inputs::of(schema, &flows);
            assert_eq!(
                inputs.columns.len(),
                columns,
                "{schema}: {:?}",
                inputs.columns
            );
            let model = model_of(seed, shape, &inputs);
            let answers = assert_same(schema, &model, &frames);
            assert!(answers.asked > 10, "{answers:?}");
        }
    }
}

#[test]
fn what_rows_have_and_the_kernel_has_not_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.json");
    let asking = |schema: &str, column: &str, null: &str| {
        let text = format!(
            r#"{{"format":"lowroad-model-1","name":"made","schema":"{schema}","columns":[{{"id":"{schema}/{column}",{null}}}],
                "classes":[{{"name":"a"}},{{"name":"b"}}],"link":{{"sigmoid":1.0}},"forest":{{"scale":0,"base":[0],"bound":0,"trees":[
                {{"output":0,"width":1,"nodes":[{{"split":{{"input":0,"threshold":1,"missing_left":false,"left":1,"right":2}}}},{{"leaf":0}},{{"leaf":1}}]}}],
                "values":[-1,1]}}}}"#
        );
        std::fs::write(&path, text).unwrap();
        Image::of(&Model::load(&path).unwrap()).map_err(|error| error.to_string())
    };
    let (integer, double) = (r#""quantity":"integer""#, r#""quantity":"double""#);
    for (schema, column, quantity) in [
        ("flow.v1", "frame_mean", double),
        ("flow.v1", "iat_mean_ns", double),
        ("cic.v1", "Flow Bytes/s", double),
        ("nfstream.v1", "src2dst_packets", integer),
        ("tree.v1", "flow_id", integer),
    ] {
        let refused = asking(schema, column, quantity).unwrap_err();
        let what = format!("asks for {schema}/{column}, which the kernel does not have");
        assert!(refused.contains(&what), "{refused}");
    }
    let refused = asking("cic.v1", "Flow IAT Max", double).unwrap_err();
    assert!(
        refused.contains("{ id = \"cic.v1/Flow IAT Max\", null = 0 }"),
        "{refused}"
    );
    asking("cic.v1", "Flow IAT Max", r#""quantity":"double","null":0"#).unwrap();
    asking("cic.v1", "Flow Duration", double).unwrap();
}

/// Thresholds at the ends of what a column can be, of 8, 32 and 64 bits and of sums.
#[test]
fn questions_with_one_answer_meet_the_same_fate() {
    if !sys::require::root() {
        return;
    }
    let names = ["fwd_ttl_min", "fwd_frame_max", "fwd_bytes", "syn_packets"].map(str::to_owned);
    let thresholds = [
        -1,
        0,
        63,
        254,
        255,
        256,
        i64::from(u32::MAX),
        i64::MAX - 1,
        i64::MAX,
    ];
    let mut nodes = Vec::new();
    for (number, threshold) in thresholds.into_iter().enumerate() {
        let (at, input) = (nodes.len(), number % names.len());
        nodes.push(format!(
            r#"{{"split":{{"input":{input},"threshold":{threshold},"missing_left":false,"left":{},"right":{}}}}}"#,
            at + 1,
            at + 2
        ));
        nodes.push(format!(r#"{{"leaf":{}}}"#, at / 2));
    }
    nodes.push(format!(r#"{{"leaf":{}}}"#, thresholds.len()));
    let frames = conversation(4, 1000);
    for order in 0..names.len() {
        let mut names = names.clone();
        names.rotate_left(order);
        let tree = format!(r#"{{"output":0,"width":1,"nodes":[{}]}}"#, nodes.join(","));
        let leaves: Vec<i64> = [-1, 1]
            .into_iter()
            .cycle()
            .take(thresholds.len() + 1)
            .collect();
        let actions = [r#""action":"pass""#, r#""action":"drop""#];
        for trees in [tree.clone(), format!("{tree},{tree}")] {
            let model = compiled(&names, &actions, (1, 4), &[0], &trees, &leaves);
            assert_same("ends", &model, &frames);
        }
    }
}

#[test]
fn a_shadow_counts_and_does_nothing() {
    if !sys::require::root() {
        return;
    }
    let frames = conversation(7, 2000);
    let flows: Vec<Flow> = at_packet(2, &frames)
        .into_iter()
        .map(|(_, flow)| flow)
        .collect();
    let model = model(7, LARGE, &flows);
    let (_, answers) = expected(&model, &frames);
    let mut plane = plane(Hook::Xdp);
    let image = Image::of(&model).unwrap();
    plane.set_model(Some((&image, true))).unwrap();
    for captured in &frames {
        assert_eq!(run(plane.program(), captured), PASS);
    }
    assert_eq!(plane.answers().unwrap(), answers);
    assert!(answers.packets[1] > 0, "{answers:?}");
}

/// The Internet checksum of a sound header is zero.
fn checksum(header: &[u8]) -> u16 {
    let words = header
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()
}

#[test]
fn a_mark_changes_the_dscp_and_nothing_else() {
    if !sys::require::root() {
        return;
    }
    let mut plane = plane(Hook::Xdp);
    let image = always(r#""action":"mark","dscp":46"#);
    plane.set_model(Some((&image, false))).unwrap();
    let hosts = [
        ("192.0.2.1:9", "192.0.2.2:53"),
        ("[fd00::1]:9", "[fd00::2]:53"),
    ];
    for ((from, to), tags) in hosts
        .into_iter()
        .flat_map(|host| [0_u16, 1, 2].map(|tags| (host, tags)))
    {
        for tos in [0, 0xff, 0x29] {
            let frame = |tos| {
                let frame = build::udp(at(from), at(to)).tos(tos).payload([1; 20]);
                (0..tags).fold(frame, Builder::vlan).frame()
            };
            let length = u32::try_from(frame(tos).len()).unwrap();
            let (verdict, marked) =
                run_for_frame(plane.program(), &captured(1, frame(tos), length));
            let expected = frame(46 << 2 | tos & 3);
            assert_eq!((verdict, &marked), (PASS, &expected), "{from} {tags} {tos}");
            let ip = 14 + 4 * usize::from(tags);
            if marked[ip - 2..ip] == [8, 0] {
                assert_eq!(checksum(&marked[ip..ip + 20]), 0);
            }
        }
    }
}

#[test]
fn a_full_table_and_a_full_ring_let_no_packet_pass_the_model() {
    if !sys::require::root() {
        return;
    }
    let image = always(r#""action":"drop""#);
    for hook in [Hook::Xdp, Hook::Tc] {
        let mut plane = hook.load(&Settings {
            clock: Clock::Metadata,
            flows_per_cpu: 4,
            // Three flows.
            ring_bytes: 4096,
            models: true,
            ..Settings::default()
        });
        plane.set_model(Some((&image, false))).unwrap();
        // The later ones find their flows ended, and no room for these either.
        for time_ns in [1, 1_000_000_000_000] {
            for port in 1..=50 {
                let frame =
                    build::udp(at(&format!("192.0.2.1:{port}")), at("192.0.2.2:53")).frame();
                let length = u32::try_from(frame.len()).unwrap();
                let verdict = hook.run(plane.program(), &captured(time_ns, frame, length));
                assert_eq!(verdict, dropped(hook), "{hook:?}: {port}");
            }
        }
        let (account, open) = (plane.account().unwrap(), plane.open_packets().unwrap());
        assert_eq!(
            account.packets,
            account.exported + open + account.lost(),
            "{account:?}"
        );
        assert!(account.lost_ring_full > 0, "{account:?}");
    }
}

#[test]
fn a_mark_at_tc_is_the_socket_buffers() {
    if !sys::require::root() {
        return;
    }
    let mut plane = plane(Hook::Tc);
    let first_of = |client: &str| {
        let frame = build::udp(at(client), at("192.0.2.2:53")).frame();
        let length = u32::try_from(frame.len()).unwrap();
        captured(1, frame, length)
    };
    let (passed, mark) = run_at_tc_for_mark(plane.program(), &first_of("192.0.2.1:9"), 0);
    assert_eq!(mark, 0);
    let image = always(r#""action":"mark","dscp":46"#);
    plane.set_model(Some((&image, false))).unwrap();
    let marked = run_at_tc_for_mark(plane.program(), &first_of("192.0.2.1:10"), 0);
    assert_eq!(marked, (passed, 46));
}

#[test]
fn packets_meet_one_model_or_the_next() {
    if !sys::require::root() {
        return;
    }
    const SWAPS: usize = 8;
    const CLIENTS: u64 = 5000;
    let images = [
        always(r#""action":"pass""#),
        always(r#""action":"mark","dscp":1"#),
    ];
    let mut plane = plane(Hook::Xdp);
    plane.set_model(Some((&images[0], false))).unwrap();
    let program = plane.program().try_clone_to_owned().unwrap();
    // However long the kernel takes to let go of a model, packets go on until the last is swapped.
    let (sent, swapped) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut answered, mut asked) = (0, 0);
    let mut count = |answers: Answers| {
        answered += answers.packets.iter().sum::<u64>();
        asked += answers.asked;
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            kernel::pin();
            for number in 0.. {
                if number >= CLIENTS && swapped.load(Ordering::Relaxed) {
                    break;
                }
                let from = format!("192.0.2.1:{}", 1000 + number % CLIENTS);
                let frame = build::udp(at(&from), at("192.0.2.2:53")).frame();
                let length = u32::try_from(frame.len()).unwrap();
                let time = i64::try_from(number).unwrap();
                assert_eq!(run(program.as_fd(), &captured(time, frame, length)), PASS);
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
        let told: Result<Vec<Answers>, _> = (1..=SWAPS)
            .map(|swap| plane.set_model(Some((&images[swap % 2], false))))
            .collect();
        swapped.store(true, Ordering::Relaxed);
        told.unwrap().into_iter().for_each(&mut count);
    });
    count(plane.set_model(None).unwrap());
    let sent = sent.into_inner();
    assert_eq!(plane.account().unwrap().packets, sent);
    assert_eq!(
        (answered, asked),
        (sent, CLIENTS),
        "each packet once, each flow once"
    );
    assert_eq!(plane.answers().unwrap(), Answers::default());
}

#[test]
fn what_is_beyond_the_kernel_is_refused() {
    let refused = |names: &[String], trees: &str, classes: usize| {
        let actions = vec![r#""action":"pass""#; classes];
        let base = vec![0; if classes == 2 { 1 } else { classes }];
        let model = compiled(names, &actions, (1, 1), &base, trees, &[1]);
        Image::of(&model).unwrap_err().to_string()
    };
    let leaf = r#"{"output":0,"width":1,"nodes":[{"leaf":0}]}"#;
    let error = refused(&[], &[leaf; 33].join(","), 2);
    assert!(
        error.contains("33 trees, and the kernel evaluates at most 32"),
        "{error}"
    );
    let error = refused(&[], leaf, 9);
    assert!(error.contains("9 classes"), "{error}");
    let mut nodes: Vec<String> = (0..17)
        .map(|at| {
            format!(
                r#"{{"split":{{"input":0,"threshold":1,"missing_left":false,"left":{},"right":{}}}}}"#,
                at + 1,
                at + 1
            )
        })
        .collect();
    nodes.push(r#"{"leaf":0}"#.to_owned());
    let deep = format!(r#"{{"output":0,"width":1,"nodes":[{}]}}"#, nodes.join(","));
    let error = refused(&["packets".to_owned()], &deep, 2);
    assert!(error.contains("17 splits in a row"), "{error}");
}
