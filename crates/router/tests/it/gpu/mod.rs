//! Decisions of a device against those of the CPU tables and of the definitions. The device is PoCL's, this
//! machine's own processor, by the same calls as any other, or the one that `LOWROAD_DEVICE` names. GPUs decide
//! as well, where there are any.

mod batch_times;
mod corpus;
mod cuda;
mod data;
mod graphics;
mod options;
mod refusals;
mod updates;

use std::num::NonZeroUsize;

use acl::generate::Kind;
use acl::{Action, Rule};
use data::{routes, rules};
use gpu::{Backend, DeviceInfo, Memory};
use lpm::Layout4;
use router::cpu::{self, Tables};
use router::engine::{Contents, Counters, Decision, Engine, Function, Processor, Worker};
use router::frames::{Frames, Mix};
use router::gpu::{CopyMode, Error, Gpu, Options};
use router::rules::RuleSet;

/// The device that `LOWROAD_DEVICE` names, or else PoCL's.
fn device() -> Option<DeviceInfo> {
    match std::env::var("LOWROAD_DEVICE") {
        Ok(name) => Some(gpu::find(&name).unwrap()),
        Err(_) => emulated(),
    }
}

/// PoCL's device; reports the skip where there is none.
fn emulated() -> Option<DeviceInfo> {
    match Backend::OpenCl.devices() {
        Ok(devices) => {
            let device = devices
                .into_iter()
                .find(|device| device.kind == gpu::Kind::Cpu);
            if device.is_none() {
                let reason = "OpenCL knows no CPU: apt-get install pocl-opencl-icd";
                sys::require::skip(sys::require::Class::Core, reason);
            }
            device
        }
        Err(missing) => {
            let reason = format!("{missing}: {}", missing.remedy);
            sys::require::skip(sys::require::Class::Core, &reason);
            None
        }
    }
}

/// Whether the device has what the options need; reports the skip where it has not. PoCL has all of it.
fn able(options: &Options) -> bool {
    match Gpu::setup(Contents::default(), options) {
        Err(Error::Device(gpu::Error::Missing(missing))) => {
            let class = match options.device.kind {
                gpu::Kind::Cpu => sys::require::Class::Core,
                gpu::Kind::Gpu | gpu::Kind::Other => sys::require::Class::Hardware,
            };
            sys::require::skip(class, &missing.what);
            false
        }
        set_up => {
            set_up.unwrap();
            true
        }
    }
}

/// Small enough to be built many times: the full tables and the long lists have tests of their own.
fn contents() -> Contents {
    Contents {
        v4: routes(1000),
        v6: routes(1000),
        rules: RuleSet {
            v4: rules(Kind::NestedAndRanges, 250),
            v6: rules(Kind::NestedAndRanges, 250),
            ..RuleSet::default()
        },
    }
}

/// Packets that routes and rules are about, of both families, and some that have no key.
fn frames(contents: &Contents, packets: usize) -> Frames {
    let mix = |pattern, packets, ipv6, seed| Mix {
        pattern,
        packets,
        ipv6,
        length: 70,
        seed,
    };
    let mut all = Frames::default();
    for (at, pattern) in [Some(router::traffic::Pattern::PerPrefix), None]
        .into_iter()
        .enumerate()
    {
        let seed = at as u64;
        let made = Frames::generate(contents, &mix(pattern, packets / 2, 40, seed));
        for at in 0..made.len() {
            all.push(made.get(at));
            if at % 100 == 0 {
                all.push(&made.get(at)[..20]);
            }
        }
    }
    for protocol in [1, 33, 47, 132, 136] {
        for (from, to) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")] {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            let other = packet::build::other(from, to, protocol).payload([0, 80, 0, 53]);
            all.push(&other.frame());
            all.push(&other.vlan(7).frame());
        }
    }
    all
}

/// Decisions about all of the frames, batch by batch.
fn decide<P: Processor>(processor: P, frames: &Frames, batch: usize) -> (Vec<Decision>, Counters) {
    let mut worker = Worker::new(processor, batch);
    let mut all = Vec::new();
    for start in (0..frames.len()).step_by(batch) {
        let end = frames.len().min(start + batch);
        worker
            .decide((start..end).map(|at| frames.get(at)))
            .unwrap();
        all.extend_from_slice(worker.decisions());
    }
    (all, *worker.counters())
}

/// What CPU tables decide, and how often each rule matched, is what the device decides and counts.
fn agree(contents: &Contents, frames: &Frames, options: &Options, batches: &[usize]) {
    let ours = cpu::Options {
        layout4: options.layout4,
        ..cpu::Options::default()
    };
    // Building the tables takes longer than using them: all functions share them.
    let tables = Tables::setup(contents.clone(), &ours).unwrap();
    let gpu = Gpu::setup(contents.clone(), options).unwrap();
    for function in Function::ALL {
        let wanted = decide(tables.processor(function).unwrap(), frames, 256);
        for batch in batches {
            let got = decide(gpu.processor(function).unwrap(), frames, *batch);
            let same = got == wanted;
            assert!(same, "{function} by {batch}: {options:?}");
        }
        let times = batches.len() as u64;
        for (hits, wanted) in gpu.hits().iter().zip(tables.hits()) {
            let all = wanted.rules.iter().map(|hits| hits * times);
            assert!(hits.rules.iter().copied().eq(all), "{function}");
            assert_eq!(hits.none, wanted.none * times, "{function}");
        }
    }
}

#[test]
fn a_device_decides_as_cpus_do() {
    let Some(device) = device() else { return };
    let contents = contents();
    let frames = frames(&contents, 6000);
    let tables = Tables::setup(contents.clone(), &cpu::Options::default()).unwrap();
    let (_, counters) = decide(tables.processor(Function::Both).unwrap(), &frames, 256);
    let [.., malformed] = counters.unkeyed;
    for (verdict, packets) in counters
        .verdicts()
        .take(3)
        .chain([("malformed", malformed)])
    {
        assert!(packets > 0, "no packet is {verdict}");
    }
    for layout4 in [Layout4::Mixed, Layout4::Words] {
        let options = Options {
            layout4,
            ..Options::of(device.clone())
        };
        agree(&contents, &frames, &options, &[33, 4096]);
    }
}

#[test]
fn every_way_to_the_device_gives_the_same() {
    let Some(device) = device() else { return };
    let contents = contents();
    let frames = frames(&contents, 3000);
    for (at, memory) in Memory::ALL.into_iter().enumerate() {
        for streams in [1, 16] {
            let options = Options {
                copy: CopyMode::ALL[(at + streams) % 2],
                memory,
                streams: NonZeroUsize::new(streams).unwrap(),
                ..Options::of(device.clone())
            };
            agree(&contents, &frames, &options, &[1000]);
        }
    }
}

#[test]
fn whole_frames_give_the_same() {
    let Some(device) = device() else { return };
    let mut contents = contents();
    // By ports and protocol alone.
    for (at, port) in [53, 80, 0].into_iter().enumerate() {
        let (ports, action) = (port..=port, [Action::Drop, Action::Punt, Action::Drop][at]);
        contents.rules.v4.insert(
            0,
            Rule {
                destination_ports: ports.clone(),
                action,
                ..Rule::default()
            },
        );
        contents.rules.v6.insert(
            0,
            Rule {
                source_ports: ports,
                action,
                ..Rule::default()
            },
        );
    }
    let options = Options {
        copy: CopyMode::Full,
        ..Options::of(device)
    };
    agree(&contents, &frames(&contents, 3000), &options, &[1, 700]);
}

#[test]
fn one_packet_alone_and_no_key_at_all_are_batches() {
    let Some(device) = device() else { return };
    let contents = contents();
    let all = frames(&contents, 200);
    agree(&contents, &all, &Options::of(device.clone()), &[1]);
    let mut none = Frames::default();
    none.push(&[0; 60]);
    agree(&contents, &none, &Options::of(device), &[1, 32]);
}

#[test]
fn no_routes_and_no_rules_are_tables() {
    let Some(device) = device() else { return };
    let frames = frames(&contents(), 500);
    for layout4 in Layout4::ALL {
        let options = Options {
            layout4,
            ..Options::of(device.clone())
        };
        agree(&Contents::default(), &frames, &options, &[128]);
    }
}
