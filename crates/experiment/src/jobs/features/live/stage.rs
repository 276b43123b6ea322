//! The stage of a live trial: a generator and the device that is captured, fresh each time, and the
//! account of every packet on it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use loadgen::{Amount, Backend, FarEnd, Load as Offered, SendReport, Verdict};
use serde_json::Value;
use tempfile::TempDir;
use testbed::{Bed, Host, HostSpec, Kind, LinkKind, LinkSpec, Topology};
use units::Size;

use super::capture::{Capture, Rows};
use super::{FLOOR, tree};
use crate::arms::{Place, ProgramProcess, Values};
use crate::jobs::features::load::{Link, Load, TrialSpec};
use crate::outcome::Outcome;
use crate::program;

/// The port that the generator sends from, and the first port that it sends to.
const SENDER_PORT: u16 = 40_004;
const FIRST_PORT: u16 = 20_000;
/// Bytes of payload where the load does not say: frames of 100 bytes.
const PAYLOAD: usize = 58;
/// The destination of frames over the link. No host here has it, as on a mirror port.
const MIRRORED_DESTINATION: ([u8; 6], IpAddr) = (
    [2, 0x10, 0xad, 0xff, 0, 1],
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
);
/// Frames that come within this time come together, as from a NIC that moderates its interrupts.
const MODERATION: Duration = Duration::from_micros(50);
/// The most frames of a burst, and the frames of each burst without a rate.
const MAX_BURST: usize = 64;
/// The NAPI thread runs before everything else on its CPU.
const NICENESS: i32 = -20;

/// The program that counts the packets.
#[derive(Debug)]
enum Counter {
    Nothing,
    Floor(FarEnd),
    Process(Capture),
    Program(Box<ProgramProcess>),
}

/// A stage that is up, with a capture that runs.
#[derive(Debug)]
pub(in crate::jobs::features) struct Stage {
    // Dropped in this order: a capture ends before its namespace does.
    counter: Counter,
    device: Device,
    bed: Bed,
    folder: TempDir,
    generator_cpu: usize,
    run: u32,
    sent: AtomicU64,
    napi: Option<u32>,
    /// Whether it filters: for the generator's packets.
    filtered: bool,
}

/// The names of the hosts, and what is captured.
#[derive(Clone, Debug)]
struct Device {
    generator: String,
    capture_host: String,
    name: String,
    ifindex: u32,
    /// The device at the generator's end, and the address it sends from.
    sender: (u32, [u8; 6]),
    source: IpAddr,
    /// Its counters just before the capture was started, and once it captured: what came in between
    /// may be in the capture's account.
    before: [DeviceCounts; 2],
}

/// A device's own counters.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceCounts {
    packets: u64,
    dropped: u64,
}

impl Stage {
    /// Brings a stage up on which the generator has a CPU, and the receiving device and the capture
    /// have another.
    pub(super) fn set(
        (generator_cpu, capture_cpu): (usize, usize),
        spec: &TrialSpec<'_>,
        rows: Rows,
    ) -> Result<Self> {
        let folder = testbed::folder()?;
        let names = names();
        let bed = bed(&names, spec, capture_cpu)?;
        let device = Device::find(&bed, names, spec.load.link)?;
        let mut stage = Self {
            counter: Counter::Nothing,
            napi: None,
            filtered: spec.load.options.contains_key("filter"),
            device,
            bed,
            folder,
            generator_cpu,
            run: run_id(spec.seed),
            sent: AtomicU64::new(0),
        };
        if spec.load.link == Link::Direct && stage.host()?.guest().is_none() {
            stage.napi = Some(napi_thread(&stage.device.name)?);
        }
        if let Some(task) = stage.napi {
            sys::sched::pin_task(task, capture_cpu).context("the NAPI thread's CPU")?;
            sys::sched::nice(task, NICENESS).context("the NAPI thread's priority")?;
        }
        let before = stage.device_counts()?;
        stage.counter = stage.capture(spec, rows)?;
        stage.device.before = [before, stage.device_counts()?];
        Ok(stage)
    }

    fn capture(&self, spec: &TrialSpec<'_>, rows: Rows) -> Result<Counter> {
        let host = self.host()?;
        if spec.arm == FLOOR {
            let flows = u32::try_from(spec.load.flows.unwrap_or(1))?;
            let ifindex = self.device.ifindex;
            let attach = || FarEnd::attach(ifindex, self.run, flows, Verdict::Drop);
            return Ok(Counter::Floor(host.run(attach)??));
        }
        let (name, folder) = (&self.device.name, self.folder.path());
        if let Some(program) = spec.program {
            let values = Values::from([("interface", vec![name.clone()])]);
            let place = Place::Host(host);
            let process = ProgramProcess::start(program, place, values, folder)?;
            for task in process.tasks() {
                sys::sched::nice(task, NICENESS).context("a program's priority")?;
            }
            return Ok(Counter::Program(Box::new(process)));
        }
        Ok(Counter::Process(Capture::start(
            host, name, folder, spec, rows,
        )?))
    }

    fn host(&self) -> Result<&Host> {
        Ok(self.bed.host(&self.device.capture_host)?)
    }

    /// The capture's process, in arms that have one.
    pub(super) fn process(&mut self) -> Option<&mut Capture> {
        match &mut self.counter {
            Counter::Process(capture) => Some(capture),
            Counter::Nothing | Counter::Floor(_) | Counter::Program(_) => None,
        }
    }

    /// The threads of the capture.
    pub(super) fn tasks(&self) -> Result<Vec<u32>> {
        match &self.counter {
            Counter::Process(capture) => capture.tasks(),
            Counter::Program(program) => Ok(program.tasks()),
            Counter::Nothing | Counter::Floor(_) => Ok(Vec::new()),
        }
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        match &self.counter {
            Counter::Process(capture) => vec![capture.pid()],
            Counter::Program(program) => program.pids(),
            Counter::Nothing | Counter::Floor(_) => Vec::new(),
        }
    }

    pub(in crate::jobs::features) fn bed(&self) -> &Bed {
        &self.bed
    }

    /// Where the capture's files are.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Has the file of rows here, of a capture that has ended, where it was written in a guest.
    pub(super) fn take_rows(&self) -> Result<()> {
        let host = self.host()?;
        if host.guest().is_some() {
            let rows = self.folder().join(tree::ROWS);
            fs::write(&rows, host.fetch(&rows)?)?;
        }
        Ok(())
    }

    /// The thread that takes frames in, on a link that has one.
    pub(super) fn napi(&self) -> Option<u32> {
        self.napi
    }

    /// Sends some of a load.
    pub(super) fn generate(&self, load: &Load, amount: Amount) -> Result<SendReport> {
        let offered = self.offered(load, amount);
        let generator = self.bed.host(&self.device.generator)?;
        let sent = generator.run(|| {
            // The schedule is the experiment's; what is done with the packets has its own CPU.
            let _ordinary = sys::sched::nice(0, NICENESS);
            loadgen::generate(&offered, &AtomicBool::new(false))
        })??;
        self.sent.fetch_add(sent.sent, Ordering::Relaxed);
        Ok(sent)
    }

    fn offered(&self, load: &Load, amount: Amount) -> Offered {
        let rate = load.rate.map(|rate| f64::from(rate.0));
        let (backend, mac, to) = match load.link {
            Link::Loopback => (Backend::Socket, [0; 6], self.device.source),
            Link::Direct => (
                Backend::Live,
                MIRRORED_DESTINATION.0,
                MIRRORED_DESTINATION.1,
            ),
        };
        let burst = match backend {
            Backend::Live => rate.map_or(MAX_BURST, burst),
            _ => 1,
        };
        let ports = (FIRST_PORT..).take(load.flows.unwrap_or(1));
        Offered {
            backend,
            ifindex: self.device.sender.0,
            source: SocketAddr::new(self.device.source, SENDER_PORT),
            destinations: ports.map(|port| SocketAddr::new(to, port)).collect(),
            source_mac: self.device.sender.1,
            destination_mac: mac,
            payload_len: load.payload.map_or(PAYLOAD, Size::length),
            rate,
            amount,
            burst,
            run: self.run,
            cpu: Some(self.generator_cpu),
            fifo: false,
        }
    }

    /// Does some work where the capture is.
    pub(super) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(self.host()?.run(work)?)
    }

    /// Packets that the captured device has taken in, of whomever.
    pub(super) fn came(&self) -> Result<u64> {
        Ok(self.device_counts()?.packets)
    }

    fn device_counts(&self) -> Result<DeviceCounts> {
        let host = self.host()?;
        let counted = counters(host, &self.device.name)?;
        let mut counted = DeviceCounts {
            packets: counted[RX_PACKETS],
            dropped: counted[RX_DROPPED],
        };
        if host.guest().is_some() {
            // There a driver calls dropped what a program has dropped; what the queue into a guest has no
            // room for is dropped on this side.
            let generator = self.bed.host(&self.device.generator)?;
            let outside = generator.interface(&self.device.capture_host)?;
            counted.dropped = counters(generator, &outside.name)?[TX_DROPPED];
        }
        Ok(counted)
    }

    /// Ends the capture, and notes what became of every packet since it began.
    pub(super) fn finish(&mut self, outcome: &mut Outcome) -> Result<()> {
        let now = self.device_counts()?;
        let [before, started] = self.device.before;
        let sent = self.sent.load(Ordering::Relaxed);
        let names_drops = !matches!(self.counter, Counter::Program(_));
        let link = now.dropped - started.dropped;
        let (unique, mut drops) = match std::mem::replace(&mut self.counter, Counter::Nothing) {
            Counter::Process(capture) => note_account(&capture.stop()?, outcome)?,
            Counter::Program(mut program) => {
                program.note(outcome)?;
                (program.count(Place::Host(self.host()?))?, BTreeMap::new())
            }
            Counter::Floor(far) => {
                let counts = far.counts()?;
                (counts.packets() + counts.foreign, BTreeMap::new())
            }
            Counter::Nothing => (0, BTreeMap::new()),
        };
        drops.insert("link".to_owned(), link);
        let named: u64 = drops.values().sum();
        // Frames that come while a capture starts or ends may be in its account.
        let after = self.device_counts()?;
        let (least, most) = (
            now.packets - started.packets,
            after.packets - before.packets,
        );
        let due = (unique + named).clamp(least + link, most + link);
        let missing = due.saturating_sub(unique);
        if names_drops && (due < sent || unique + named != due) {
            outcome.flags.push(format!(
                "{sent} packets sent, {due} came or found the link full; {unique} exported, {named} counted where dropped"
            ));
        }
        let drops = drops.into_iter();
        let drops = drops.map(|(name, count)| (format!("drops.{name}"), count));
        outcome.counts.extend(drops);
        for (name, count) in [
            ("sent", sent),
            ("foreign", due.saturating_sub(sent)),
            ("due", due),
            ("unique", unique),
            ("missing", missing),
        ] {
            outcome.counts.insert(name.to_owned(), count);
        }
        outcome.values.insert("loss_pct".to_owned(), lost(outcome));
        if self.filtered {
            let accuracy = accuracy(outcome);
            outcome.values.insert("accuracy_pct".to_owned(), accuracy);
        }
        outcome.environment.extend(self.bed.facts());
        Ok(())
    }
}

/// Notes a capture's account. Returns the packets that it exported, and those that it dropped by their reasons.
fn note_account(account: &Value, outcome: &mut Outcome) -> Result<(u64, BTreeMap<String, u64>)> {
    let count = |name: &str| {
        let count = account[name].as_u64();
        count.with_context(|| format!("a capture's account without {name}: {account}"))
    };
    if count("rows_lost")? > 0 {
        outcome.flags.push("rows are lost".to_owned());
    }
    outcome.counts.insert("rows".to_owned(), count("rows")?);
    let mut drops = BTreeMap::from([("no_room".to_owned(), count("no_room")?)]);
    for name in ["filtered", "sampled_out"] {
        drops.insert(name.to_owned(), count(name)?);
    }
    for (name, refused) in account["drops"].as_object().into_iter().flatten() {
        drops.insert(name.clone(), refused.as_u64().unwrap_or(0));
    }
    drops.retain(|name, packets| *packets > 0 || name == "no_room");
    let capture = account.clone();
    outcome.environment.insert("capture".to_owned(), capture);
    Ok((count("packets_exported")?, drops))
}

/// Packets that were lost without being filtered out.
fn lost(outcome: &Outcome) -> f64 {
    let count = |name: &str| outcome.counts.get(name).copied().unwrap_or(0);
    let wanted_out = count("drops.filtered") + count("drops.sampled_out");
    let lost = count("missing").saturating_sub(wanted_out);
    share(lost, count("due") - wanted_out.min(count("due")))
}

/// The share of packets that a filter for the generator's packets classified correctly: the generator's are
/// in rows, and all others are filtered out.
fn accuracy(outcome: &Outcome) -> f64 {
    let count = |name: &str| outcome.counts.get(name).copied().unwrap_or(0);
    let wrong = count("unique").abs_diff(count("sent"));
    share(count("due").saturating_sub(wrong), count("due"))
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn share(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// How many frames of a rate come together.
fn burst(rate: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small number of frames"
    )]
    let together = (rate * MODERATION.as_secs_f64()).round() as usize;
    together.clamp(1, MAX_BURST)
}

impl Device {
    fn find(bed: &Bed, (generator, capture_host): (String, String), link: Link) -> Result<Self> {
        if link == Link::Loopback {
            return Ok(Self {
                generator: capture_host.clone(),
                capture_host,
                name: "lo".to_owned(),
                ifindex: 1,
                sender: (1, [0; 6]),
                source: Ipv4Addr::LOCALHOST.into(),
                before: [DeviceCounts::default(); 2],
            });
        }
        let sender = bed.host(&generator)?.interface(&capture_host)?;
        let (sender, source) = ((sender.ifindex, sender.mac), sender.v4);
        let interface = bed.host(&capture_host)?.interface(&generator)?;
        Ok(Self {
            name: interface.name.clone(),
            ifindex: interface.ifindex,
            generator,
            capture_host,
            sender,
            source,
            before: [DeviceCounts::default(); 2],
        })
    }
}

/// Names that no other stage has, of this process or another: the device's, which is the generator's,
/// is in the name of its NAPI thread.
fn names() -> (String, String) {
    static STAGES: AtomicU32 = AtomicU32::new(0);
    let number = STAGES.fetch_add(1, Ordering::Relaxed) % 10_000;
    (
        format!("g{}x{number}", std::process::id()),
        "tap".to_owned(),
    )
}

fn bed(
    (generator, capture_host): &(String, String),
    spec: &TrialSpec<'_>,
    capture_cpu: usize,
) -> Result<Bed> {
    let mut topology = Topology::default();
    let mut host = program::host(spec.environment);
    host.cpus = vec![capture_cpu];
    topology.host.insert(capture_host.clone(), host);
    if spec.load.link != Link::Loopback {
        topology.host.insert(generator.clone(), HostSpec::native());
        let mut link = LinkSpec::new(LinkKind::Direct, &[generator, capture_host]);
        // Receiving has a thread, of which it can be said where it runs and what it takes; in a guest
        // that is the guest's own affair.
        let guest = Kind::find(spec.environment).is_some_and(|kind| kind.guest);
        link.settings.threaded_napi = !guest;
        topology.link.push(link);
    }
    Ok(Bed::up(&topology, generator)?)
}

/// The thread that takes in the frames of a device.
fn napi_thread(device: &str) -> Result<u32> {
    let wanted = format!("napi/{device}-");
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(task) = entry.file_name().to_str().and_then(|id| id.parse().ok()) else {
            continue;
        };
        // One may end meanwhile.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        // Older kernels cut the name off.
        let name = name.trim();
        if !name.is_empty()
            && (name.starts_with(&wanted) || name.len() == 15 && wanted.starts_with(name))
        {
            return Ok(task);
        }
    }
    anyhow::bail!("{device} has no NAPI thread")
}

/// Columns of a device's counters in `/proc/net/dev`.
const RX_PACKETS: usize = 1;
const RX_DROPPED: usize = 3;
const TX_DROPPED: usize = 11;

/// A device's counters: eight of what comes in, and eight of what goes out.
fn counters(host: &Host, device: &str) -> Result<[u64; 16]> {
    let table = host.read("/proc/thread-self/net/dev")?;
    counters_of(&table, device).with_context(|| format!("no statistics of {device}"))
}

fn counters_of(table: &str, device: &str) -> Option<[u64; 16]> {
    let counters = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    let counters: Result<Vec<u64>, _> = counters.split_whitespace().map(str::parse).collect();
    counters.ok()?.try_into().ok()
}

/// A run id that no other trial uses.
fn run_id(seed: u64) -> u32 {
    u32::try_from(seed & 0xffff_ffff).unwrap_or(1)
}

/// The run time of a process and its threads, or of another task, in nanoseconds.
pub(super) fn ran_ns(task: &Path) -> Result<u64> {
    let text = fs::read_to_string(task.join("schedstat"))?;
    let first = text.split_whitespace().next();
    first
        .and_then(|word| word.parse().ok())
        .with_context(|| format!("{}/schedstat", task.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_devices_counters_are_found_by_its_whole_name() {
        let table = "  g1x2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n   \
                     g1x: 10 20 30 40 5 6 7 8 9 10 11 120 13 14 15 16\n";
        let counted = counters_of(table, "g1x").unwrap();
        let places = [RX_PACKETS, RX_DROPPED, TX_DROPPED];
        assert_eq!(places.map(|place| counted[place]), [20, 40, 120]);
        assert!(counters_of(table, "g1").is_none());
        assert!(counters_of("g1: 1 2 3", "g1").is_none());
    }

    #[test]
    fn frames_come_together_as_often_as_a_nic_interrupts() {
        let bursts = [500.0, 10e3, 100e3, 700e3, 20e6].map(burst);
        assert_eq!(bursts, [1, 1, 5, 35, 64]);
    }
}
