//! A CPU thread and a device with the same packets and tables, in turns: the batch size from which the
//! device is faster, if there is one.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use process::shutdown::Shutdown;
use router::cpu::{self, Lookup};
use router::engine::{Contents, Decision, Engine as _, Function, Processor, Worker};
use router::frames::Frames;
use router::gpu::{self as device, DeviceProcessor};
use router::image::ImageFile;

use super::Dataset;
use super::engine::{cpu_name, device_name, on_cpus, on_device};
use super::group::{self, Engine, Group, Progress, Runner, Workload};
use super::traffic::Generator;
use crate::Error;

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

/// What is compared.
#[derive(Clone, Debug)]
pub struct Options {
    pub cpu: cpu::Options,
    pub device: device::Options,
    pub function: Function,
    pub rounds: u16,
    /// More comparisons. Each uses at most this many of the first rules of each family.
    pub first_rules: Vec<u32>,
    pub packets: Generator,
}

/// A CPU thread and a device, with the same rules.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Rules of IPv4 and of IPv6.
    pub rules: [usize; 2],
    /// A pattern for each batch size.
    pub group: Group,
}

/// A CPU thread, and a thread that has the device decide.
struct Both {
    frames: Frames,
    cpu: Worker<Lookup>,
    device: Worker<DeviceProcessor>,
    /// Why the device failed.
    failed: Arc<OnceLock<device::Error>>,
}

/// Compares both, by increasing numbers of rules; the last comparison is with all rules, unless shutdown was
/// requested.
///
/// # Errors
/// Tables that an engine does not hold, a device that fails, or nothing was measured before shutdown was
/// requested.
pub fn run(
    dataset: &Dataset,
    options: &Options,
    shutdown: &Shutdown,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Comparison>, Error> {
    let (frames, description) = options
        .packets
        .frames(&dataset.contents, options.function)?;
    let rules = |contents: &Contents| [contents.rules.v4.len(), contents.rules.v6.len()];
    let all = rules(&dataset.contents);
    let mut counts: Vec<usize> = options.first_rules.iter().map(|n| *n as usize).collect();
    counts.sort_unstable();
    counts.dedup();
    // All rules are measured anyway.
    counts.retain(|count| all.iter().any(|all| count < all));
    let mut comparisons = Vec::new();
    for count in counts.into_iter().map(Some).chain([None]) {
        let mut contents = dataset.contents.clone();
        if let Some(count) = count {
            contents.rules.v4.truncate(count);
            contents.rules.v6.truncate(count);
        }
        let rules = rules(&contents);
        let tables = (contents, dataset.image.as_ref());
        let frames = (frames.clone(), description.as_str());
        let group = compare(tables, frames, options, shutdown, progress)?;
        comparisons.push(Comparison { rules, group });
        if shutdown.requested() {
            break;
        }
    }
    comparisons.retain(|one| !one.group.is_unmeasured());
    if comparisons.is_empty() {
        return Err(Error::failed("stopped before anything was measured"));
    }
    Ok(comparisons)
}

/// Measures both in turns.
fn compare(
    (contents, image): (Contents, Option<&ImageFile>),
    (frames, description): (Frames, &str),
    options: &Options,
    shutdown: &Shutdown,
    progress: &mut dyn FnMut(Progress),
) -> Result<Group, Error> {
    let about = format!(
        "{} of {} + {} prefixes, {} + {} rules; {description}",
        options.function,
        contents.v4.len(),
        contents.v6.len(),
        contents.rules.v4.len(),
        contents.rules.v6.len(),
    );
    let packets = frames.len();
    let (both, engines) = prepare((contents, image), frames, options)?;
    let failed = Arc::clone(&both.failed);
    // Times of a thread that moves between CPUs cannot be compared. The device's own threads have been started
    // before, and may use every CPU.
    let cpus = sys::sched::allowed_cpus().map_err(|error| Error::attempt("CPUs", error))?;
    let cpu = cpus.last().copied().unwrap_or(0);
    let measured = sys::sched::on_cpu(cpu, || {
        let mut runner = Runner::new(
            ("decisions", about),
            BATCHES.map(|(_, name)| name).into(),
            (packets, packets),
            engines,
            Box::new(both),
        );
        if failed.get().is_none() {
            let runners = std::slice::from_mut(&mut runner);
            group::measure(runners, options.rounds, 1, shutdown, progress);
        }
        runner.group
    });
    let pinned = |error| Error::attempt(format!("staying on CPU {cpu}"), error);
    let group = measured.map_err(pinned)?;
    if let Some(error) = failed.get() {
        return Err(Error::failed(error.to_string()));
    }
    Ok(group)
}

/// Builds the tables of both.
fn prepare(
    (contents, image): (Contents, Option<&ImageFile>),
    frames: Frames,
    options: &Options,
) -> Result<(Both, Vec<Engine>), Error> {
    let started = Instant::now();
    let tables = on_cpus(contents.clone(), image, &options.cpu)?;
    let tables_s = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let gpu = on_device(contents, image, &options.device)?;
    let gpu_s = started.elapsed().as_secs_f64();
    let engine = |name: String, (routes, rules): (usize, usize), build_s| Engine {
        name,
        bytes: routes + rules,
        build_s,
    };
    let thread = format!("CPU thread {}", cpu_name(&options.cpu));
    let engines = vec![
        engine(thread, tables.bytes(), tables_s),
        engine(device_name(&options.device), gpu.bytes(), gpu_s),
    ];
    let cpu = tables.processor(options.function).map_err(Error::failed)?;
    let device = gpu.processor(options.function).map_err(Error::failed)?;
    let largest = BATCHES[BATCHES.len() - 1].0;
    let both = Both {
        cpu: Worker::new(cpu, largest),
        device: Worker::new(device, largest),
        failed: Arc::default(),
        frames,
    };
    Ok((both, engines))
}

impl Comparison {
    /// The least batch size from which on the device is detectably faster.
    pub fn faster_from_batch(&self) -> Option<usize> {
        let faster = |at: &usize| {
            let best = self.group.best(*at);
            best.is_some_and(|best| best.arm == DEVICE && best.ties.is_empty())
        };
        let patterns = 0..self.group.patterns.len();
        let last = patterns.rev().take_while(faster).last();
        last.map(|at| BATCHES[at].0)
    }
}

/// The least number of rules, of both families, from which on the device is faster in large enough batches.
/// Comparisons are in the order of their rules.
pub fn faster_from_rules(comparisons: &[Comparison]) -> Option<usize> {
    let faster = comparisons.iter().rev();
    let mut faster = faster.take_while(|one| one.faster_from_batch().is_some());
    let least = faster.by_ref().last()?;
    Some(least.rules.iter().sum())
}

impl Both {
    /// Decides about all packets, and passes each batch's decisions to `each`.
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

    /// As `decide`, with one of the arms. A device that has failed decides nothing.
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

impl Workload for Both {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A CPU that takes 100 ns for a packet, and a device that takes a time for each packet and each batch.
    struct Constant {
        device_ns: u64,
        batch_ns: u64,
    }

    impl Workload for Constant {
        fn pass(&mut self, arm: usize, pattern: usize) -> Duration {
            let batches = 65_536 / BATCHES[pattern].0 as u64;
            let device = 65_536 * self.device_ns + batches * self.batch_ns;
            Duration::from_nanos(if arm == CPU { 6_553_600 } else { device })
        }

        fn wrong(&mut self, _: usize, _: usize) -> u64 {
            0
        }
    }

    fn comparison(rules: usize, device_ns: u64, batch_ns: u64) -> Comparison {
        let engines = ["CPU", "device"].map(|name| Engine {
            name: name.to_owned(),
            bytes: 1,
            build_s: 0.1,
        });
        let workload = Constant {
            device_ns,
            batch_ns,
        };
        let mut runner = Runner::new(
            ("decisions", String::new()),
            BATCHES.map(|(_, name)| name).into(),
            (65_536, 1),
            engines.into(),
            Box::new(workload),
        );
        for _ in 0..20 {
            for (arm, pattern) in runner.passes() {
                runner.pass(arm, pattern);
            }
        }
        Comparison {
            rules: [rules, 1],
            group: runner.group,
        }
    }

    #[test]
    fn rules_from_which_device_is_faster_are_found() {
        let from = |devices: [u64; 3]| {
            let counts = [10, 100, 1000].into_iter().zip(devices);
            let all = counts.map(|(rules, device_ns)| comparison(rules, device_ns, 20_000));
            faster_from_rules(&all.collect::<Vec<_>>())
        };
        assert_eq!(from([200, 50, 10]), Some(101));
        assert_eq!(from([10, 10, 10]), Some(11));
        assert_eq!(from([10, 10, 200]), None, "with the most it is not");
    }

    #[test]
    fn batch_from_which_device_is_faster_is_found() {
        let from = |device_ns, batch_ns| comparison(1, device_ns, batch_ns).faster_from_batch();
        // 20 us for a batch are 90 ns for each of 222 packets.
        assert_eq!(from(10, 20_000), Some(512));
        assert_eq!(from(10, 0), Some(32));
        assert_eq!(from(200, 20_000), None);
        assert_eq!(from(100, 0), None, "as fast is not faster");
    }
}
