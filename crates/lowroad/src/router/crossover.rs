//! `lowroad router crossover`: a CPU thread and a device with the same packets, tables and answers, in turns,
//! by the size of their batches: from which on the device is faster, if at all.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use control::shutdown::Shutdown;
use gpu::Kind;
use router::cpu::Lookup;
use router::engine::{Contents, Decision, Engine as _, Function, Processor, Worker};
use router::frames::Frames;
use router::gpu::{OnDevice, Options};
use router::image::Stored;
use serde_json::{Value, json};

use super::bench::group::{Group, Subject};
use super::bench::{measure, told};
use super::engine::{Choice, Made};
use super::inputs::Inputs;
use super::process::subject::{self, Device};
use super::process::{Packets, function};
use crate::exit::{self, Failure};

/// Packets of a batch.
const BATCHES: [(usize, &str); 7] = [
    (32, "batch 32"),
    (128, "batch 128"),
    (512, "batch 512"),
    (2048, "batch 2048"),
    (8192, "batch 8192"),
    (32_768, "batch 32768"),
    (65_536, "batch 65536"),
];
/// Arms.
const CPU: usize = 0;
const DEVICE: usize = 1;

#[derive(Debug, Args)]
#[command(
    after_help = "Both decide about the same frames in memory in every round, in random order; decisions are compared."
)]
pub(super) struct Crossover {
    /// A table image, in place of --rib and --rules
    image: Option<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    device: Device,
    /// What is decided about each packet [default: both, or what routes or rules alone allow]
    #[arg(long, value_name = "lpm|acl|both")]
    function: Option<Function>,
    /// Each decides about all packets so often, in turns
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(6..=1000))]
    rounds: u16,
    /// Also with no more than the first N rules of each family, for each N
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    first_rules: Vec<u32>,
    #[command(flatten)]
    packets: Packets,
}

/// Both, with so many rules of IPv4 and IPv6.
struct Measured {
    rules: [usize; 2],
    group: Group,
}

/// What it is, the bytes of its structures, and the seconds that they took.
type Engine = (String, usize, f64);

/// A thread of a CPU, and one that has a device decide.
struct Both {
    frames: Frames,
    cpu: Worker<Lookup>,
    device: Worker<OnDevice>,
    /// Why the device failed.
    failed: Arc<OnceLock<router::gpu::Error>>,
}

impl Crossover {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let shutdown = Shutdown::install().map_err(|error| anyhow!("signals: {error}"))?;
        let Some(name) = &self.device.device else {
            let what = "--device: name the device, as lowroad router devices does";
            return Err(Failure::Input(what.to_owned()));
        };
        let options = self.device.options(name, self.choice.layout4())?;
        let made = Made::of(self.image.as_deref(), &self.inputs)?;
        let function = function(self.function, (made.routes, made.rules))?;
        if !self.first_rules.is_empty() && !function.filters() {
            let what = format!("--first-rules: {function} has no rules");
            return Err(Failure::Input(what));
        }
        let (frames, from) = self.packets.frames(&made.contents, function)?;
        let rules = |contents: &Contents| [contents.rules.v4.len(), contents.rules.v6.len()];
        let all = rules(&made.contents);
        let mut counts: Vec<usize> = self.first_rules.iter().map(|n| *n as usize).collect();
        counts.sort_unstable();
        counts.dedup();
        // As many as there are is what is measured anyway.
        counts.retain(|count| all.iter().any(|all| count < all));
        let mut measured = Vec::new();
        for count in counts.into_iter().map(Some).chain([None]) {
            let mut contents = made.contents.clone();
            if let Some(count) = count {
                contents.rules.v4.truncate(count);
                contents.rules.v6.truncate(count);
            }
            let rules = rules(&contents);
            let image = made.image.as_ref().filter(|_| made.routes);
            let given = (contents, image);
            let group = self.measure(
                &options,
                function,
                given,
                (frames.clone(), &from),
                &shutdown,
            )?;
            measured.push(Measured { rules, group });
            if shutdown.requested() {
                break;
            }
        }
        self.tell(&measured, &options, json)
    }

    /// Both of them, in turns.
    fn measure(
        &self,
        options: &Options,
        function: Function,
        (contents, image): (Contents, Option<&Stored>),
        (frames, from): (Frames, &str),
        shutdown: &Shutdown,
    ) -> Result<Group, Failure> {
        let about = format!(
            "{function} of {} + {} prefixes, {} + {} rules; {from}",
            contents.v4.len(),
            contents.v6.len(),
            contents.rules.v4.len(),
            contents.rules.v6.len(),
        );
        let packets = frames.len();
        let (both, engines) = self.prepare(options, function, (contents, image), frames)?;
        let failed = Arc::clone(&both.failed);
        // A figure of one thread that moves between CPUs is nobody's. The device's own threads are there by now.
        let cpus = sys::sched::allowed_cpus().map_err(|error| anyhow!("CPUs: {error}"))?;
        let cpu = cpus.last().copied().unwrap_or(0);
        let names = BATCHES.map(|(_, name)| name);
        let measured = sys::sched::on_cpu(cpu, || {
            let group = Group::new(
                "decisions",
                about,
                names.into(),
                (packets, packets),
                engines,
                Box::new(both),
            );
            let mut groups = [group];
            if failed.get().is_none() {
                measure(&mut groups, self.rounds, 1, shutdown);
            }
            groups
        });
        let [group] = measured.map_err(|error| anyhow!("staying on CPU {cpu}: {error}"))?;
        if let Some(error) = failed.get() {
            return Err(Failure::Failed(anyhow!("{error}")));
        }
        Ok(group)
    }

    fn tell(&self, measured: &[Measured], options: &Options, json: bool) -> Result<(), Failure> {
        let measured: Vec<_> = measured
            .iter()
            .filter(|one| !one.group.is_unmeasured())
            .collect();
        let Some(all) = measured.last() else {
            let what = anyhow!("stopped before anything was measured");
            return Err(Failure::Failed(what));
        };
        let (device, name) = (&options.device, options.device.name());
        exit::print(&if json {
            let mut told = all.json();
            told["device"] =
                json!({"name": name, "model": device.model, "kind": device.kind.name()});
            told["caution"] = subject::caution(device).into();
            if !self.first_rules.is_empty() {
                told["faster_from_rules"] = faster_from_rules(&measured).into();
                told["by_rules"] = measured.iter().map(|one| one.json()).collect();
            }
            format!("{told:#}\n")
        } else {
            text(&measured, &name, device.kind)
        })?;
        match measured.iter().map(|one| one.group.wrong()).sum() {
            0 => Ok(()),
            wrong => Err(Failure::Failed(anyhow!(
                "{wrong} decisions differ: please report this"
            ))),
        }
    }

    /// Both of them, and what they are.
    fn prepare(
        &self,
        options: &Options,
        function: Function,
        (contents, image): (Contents, Option<&Stored>),
        frames: Frames,
    ) -> Result<(Both, Vec<Engine>), Failure> {
        let started = Instant::now();
        let tables = self.choice.tables(contents.clone(), image)?;
        let tables_s = started.elapsed().as_secs_f64();
        let started = Instant::now();
        let gpu = subject::on_device(contents, image, options)?;
        let gpu_s = started.elapsed().as_secs_f64();
        let bytes = |(routes, rules): (usize, usize)| routes + rules;
        let thread = format!("CPU thread {}", self.choice.name());
        let engines = vec![
            (thread, bytes(tables.bytes()), tables_s),
            (subject::name(options), bytes(gpu.bytes()), gpu_s),
        ];
        let (cpu, device) = (tables.processor(function), gpu.processor(function));
        let largest = BATCHES[BATCHES.len() - 1].0;
        let both = Both {
            cpu: Worker::new(cpu.map_err(|error| anyhow!(error))?, largest),
            device: Worker::new(device.map_err(|error| anyhow!(error))?, largest),
            failed: Arc::default(),
            frames,
        };
        Ok((both, engines))
    }
}

impl Both {
    /// All packets, by batches of so many; gives each batch's decisions to `each`.
    fn decide<P: Processor>(
        worker: &mut Worker<P>,
        frames: &Frames,
        batch: usize,
        mut each: impl FnMut(&[Decision]),
    ) -> Result<(), P::Error> {
        for start in (0..frames.len()).step_by(batch) {
            let end = frames.len().min(start + batch);
            worker.decide((start..end).map(|at| frames.get(at)))?;
            each(worker.decisions());
        }
        Ok(())
    }

    /// As `decide`, of one of the arms. What is left of a device that failed is nothing.
    fn by(&mut self, arm: usize, batch: usize, each: impl FnMut(&[Decision])) {
        if arm == CPU {
            let Ok(()) = Self::decide(&mut self.cpu, &self.frames, batch, each);
        } else if self.failed.get().is_none()
            && let Err(error) = Self::decide(&mut self.device, &self.frames, batch, each)
        {
            self.failed.get_or_init(|| error);
        }
    }
}

impl Subject for Both {
    fn pass(&mut self, arm: usize, pattern: usize) -> Duration {
        let started = Instant::now();
        self.by(arm, BATCHES[pattern].0, |_| ());
        started.elapsed()
    }

    fn wrong(&mut self, arm: usize, pattern: usize) -> u64 {
        let [mut wanted, mut got] = [Vec::new(), Vec::new()];
        self.by(CPU, 256, |decisions| wanted.extend_from_slice(decisions));
        self.by(arm, BATCHES[pattern].0, |decisions| {
            got.extend_from_slice(decisions);
        });
        let differ = wanted
            .iter()
            .zip(&got)
            .filter(|(wanted, got)| wanted != got);
        differ.count() as u64 + (wanted.len() - got.len()) as u64
    }
}

impl Measured {
    fn json(&self) -> Value {
        json!({
            "rules": {"v4": self.rules[0], "v6": self.rules[1]},
            "faster_from_batch": crossover(&self.group),
            "decisions": told::of_group(&self.group),
        })
    }
}

/// The least batch from which on the device is the faster one, without a doubt.
fn crossover(group: &Group) -> Option<usize> {
    let faster = |at: &usize| {
        let best = group.best(*at);
        best.is_some_and(|best| best.arm == DEVICE && best.ties.is_empty())
    };
    let last = (0..group.patterns.len()).rev().take_while(faster).last();
    last.map(|at| BATCHES[at].0)
}

/// The fewest rules from which on there is a batch that is large enough, of those that were measured.
fn faster_from_rules(measured: &[&Measured]) -> Option<usize> {
    let faster = measured.iter().rev();
    let mut faster = faster.take_while(|one| crossover(&one.group).is_some());
    let least = faster.by_ref().last()?;
    Some(least.rules.iter().sum())
}

fn text(measured: &[&Measured], name: &str, kind: Kind) -> String {
    let mut text =
        "ns per packet, from its frame to its decision, median and interval\n".to_owned();
    if cfg!(debug_assertions) {
        text += "this is a debug build: a release build takes less\n";
    }
    if kind != Kind::Gpu {
        let kind = kind.name();
        text += &format!("{name} is a {kind}: nothing here is a GPU's figure\n");
    }
    let several = measured.len() > 1;
    for Measured { rules, group } in measured {
        text += &told::of_group_text(group);
        if several {
            text += &format!("with {} + {} rules ", rules[0], rules[1]);
        }
        text += &match crossover(group) {
            Some(batch) => {
                format!("{name} is faster than one CPU thread from batches of {batch} on\n")
            }
            None => {
                format!("{name} is not certainly faster than one CPU thread at the largest batch\n")
            }
        };
    }
    if several {
        text += &match faster_from_rules(measured) {
            Some(rules) => format!("{name} is faster from {rules} rules on, in batches as above\n"),
            None => format!("{name} is faster from no number of these rules on\n"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a CPU a hundred nanoseconds for a packet, of the device as many and what a batch costs.
    struct Fed {
        device_ns: u64,
        batch_ns: u64,
    }

    impl Subject for Fed {
        fn pass(&mut self, arm: usize, pattern: usize) -> Duration {
            let batches = 65_536 / BATCHES[pattern].0 as u64;
            let device = 65_536 * self.device_ns + batches * self.batch_ns;
            Duration::from_nanos(if arm == CPU { 6_553_600 } else { device })
        }

        fn wrong(&mut self, _: usize, _: usize) -> u64 {
            0
        }
    }

    fn group(device_ns: u64, batch_ns: u64) -> Group {
        let engines = ["CPU", "device"].map(|name| (name.to_owned(), 1, 0.1));
        let fed = Fed {
            device_ns,
            batch_ns,
        };
        let mut group = Group::new(
            "decisions",
            String::new(),
            BATCHES.map(|(_, name)| name).into(),
            (65_536, 1),
            engines.into(),
            Box::new(fed),
        );
        for _ in 0..20 {
            for (arm, pattern) in group.passes() {
                group.pass(arm, pattern);
            }
        }
        group
    }

    #[test]
    fn a_device_is_faster_from_so_many_rules_on() {
        let from = |devices: [u64; 3]| {
            let counts = [10, 100, 1000].into_iter().zip(devices);
            let measured: Vec<_> = counts
                .map(|(rules, device_ns)| Measured {
                    rules: [rules, 1],
                    group: group(device_ns, 20_000),
                })
                .collect();
            let measured: Vec<_> = measured.iter().collect();
            let text = text(&measured, "opencl:0", Kind::Gpu);
            (faster_from_rules(&measured), text)
        };
        let (rules, said) = from([200, 50, 10]);
        assert_eq!(rules, Some(101));
        assert!(said.contains("with 10 + 1 rules opencl:0 is not certainly"));
        assert!(said.ends_with("opencl:0 is faster from 101 rules on, in batches as above\n"));
        assert_eq!(from([10, 10, 10]).0, Some(11));
        let (rules, said) = from([10, 10, 200]);
        assert_eq!(rules, None, "with the most it is not");
        assert!(said.ends_with("from no number of these rules on\n"));
    }

    #[test]
    fn a_device_is_faster_once_a_batch_pays_for_itself() {
        let from = |device_ns, batch_ns| crossover(&group(device_ns, batch_ns));
        // 20 us for a batch are 90 ns for each of 222 packets.
        assert_eq!(from(10, 20_000), Some(512));
        assert_eq!(from(10, 0), Some(32));
        assert_eq!(from(200, 20_000), None);
        assert_eq!(from(100, 0), None, "as fast is not faster");
    }
}
