//! Trouble at the highest rate that this machine makes: more flows than the table holds, and an output
//! that does not move, has no room or is gone. Every packet and every row is in the output or counted.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use datapath::Datapath;
use features::Options;
use features::kernel::Wakeup;
use features::live::{Direction, Features, LiveCounters, Plan, RunSummary, Running, datapaths};
use features::schema;
use features::sink::ipfix::TcpExporter;
use features::sink::{Error, FileSink, Format, Mode, Queue, Rotation, SchemaRef, Shared, Sink};
use loadgen::{Amount, Backend, Load};
use netdev::{LinkSpec, Netlink};
use nix::sched::{CloneFlags, unshare};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::common::disk::mount_disk;

const PACKETS: u64 = 200_000;
const FLOWS: u16 = 4096;
/// Of these, so many have room: nearly every packet makes a row.
const CAPACITY: usize = 256;

/// The datapaths that can take a packet as fast as it comes.
const FAST: [&str; 5] = ["tpacket", "xdp-ringbuf", "xdp-flow", "tc-flow", "af-xdp"];

/// What a run over a fresh pair of devices came to.
struct Done {
    generated: u64,
    /// Frames that the devices had no room for.
    dropped: u64,
    ended: RunSummary,
}

impl Done {
    /// Every packet is accounted for, and so is every row.
    fn check(&self, name: &str) {
        let LiveCounters {
            account,
            no_room,
            changed_queue: _,
            rows,
            lost_rows,
        } = self.ended.counters;
        let counters = &self.ended.counters;
        assert_eq!(account.unaccounted(), 0, "{name}: {counters:?}");
        assert_eq!(account.open, 0, "{name}");
        // What a socket has no room for, the device could not hand over: it is counted there, too.
        let known = if name == "af-xdp" { 0 } else { no_room };
        assert!(no_room <= known + self.dropped, "{name}: {counters:?}");
        assert_eq!(
            account.seen.packets + known + self.dropped,
            self.generated,
            "{name}: {} dropped, {counters:?}",
            self.dropped
        );
        assert!(account.exported.table_full > 0, "{name}: {counters:?}");
        assert_eq!(account.exported.flows, rows + lost_rows, "{name}");
        assert!(lost_rows > 0, "{name}: {counters:?}");
    }
}

/// Captures what a generator sends as fast as it can until rows are lost; `meanwhile` runs before the
/// capture is stopped.
fn overload(name: &str, sink: Box<dyn Sink>, meanwhile: impl FnOnce()) -> Done {
    let [left, right] = devices();
    let shared = Shared::new(sink);
    let mut options = Options::default();
    options.limits.most_flows = CAPACITY;
    let plan = Plan {
        interface: "right".to_owned(),
        ifindex: right,
        options,
        schema: schema::find("ipfix").unwrap(),
        direction: Direction::In,
        promiscuous: false,
        tap: name != "tpacket",
        workers: NonZeroUsize::new(1),
        wakeup: Wakeup::default(),
        steer: false,
        recorder: None,
        sink: Arc::new(move || shared.handle()),
        model: None,
    };
    let running = find(name).start(&plan).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut generated = 0;
    while running.counters().lost_rows == 0 {
        assert!(Instant::now() < deadline, "{:?}", running.counters());
        generated += generate(left);
        wait(&running, generated);
    }
    meanwhile();
    let ended = running.stop();
    Done {
        generated,
        dropped: dropped(),
        ended,
    }
}

fn find(name: &str) -> Box<dyn Datapath<Features>> {
    let mut all = datapaths().into_iter();
    all.find(|datapath| datapath.name() == name).unwrap()
}

/// A pair of devices that take live frames, in a network namespace of the calling thread's own.
fn devices() -> [u32; 2] {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    // No router solicitation among the frames.
    let silence = Path::new("/proc/sys/net/ipv6/conf/default/disable_ipv6");
    fs::write(silence, "1").unwrap();
    let mut netlink = Netlink::new().unwrap();
    netlink
        .add_veth(&LinkSpec::new("left"), &LinkSpec::new("right"))
        .unwrap();
    let indices = ["left", "right"].map(|name| netlink.link_by_name(name).unwrap().index);
    for index in indices {
        netlink.set_link(index, &LinkSpec::unnamed().up()).unwrap();
    }
    while !netlink.link_by_index(indices[0]).unwrap().carrier {
        thread::yield_now();
    }
    // Frames that a program redirects to the other end need this where nothing else is attached.
    let device = sys::ethtool::Ethtool::open("right").unwrap();
    device.set_features(&[("rx-gro", true)]).unwrap();
    indices
}

/// Sends as fast as it goes; how many.
fn generate(ifindex: u32) -> u64 {
    let destination = |port| SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), port));
    let load = Load {
        backend: Backend::Live,
        ifindex,
        source: SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 20_000)),
        destinations: (1..=FLOWS).map(destination).collect(),
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        payload_len: 64,
        rate: None,
        amount: Amount::Packets(PACKETS),
        burst: 64,
        run: 1,
        cpu: None,
        fifo: false,
    };
    let sent = loadgen::generate(&load, &AtomicBool::new(false)).unwrap();
    sent.flows.iter().sum()
}

/// Waits until the datapath has told of all that was not dropped before it.
fn wait(running: &Running, generated: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let counters = running.counters();
        let told = counters.account.seen.packets + counters.no_room;
        if told + dropped() >= generated {
            return;
        }
        assert!(Instant::now() < deadline, "{counters:?}, {}", dropped());
        assert_eq!(running.failed(), None);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Frames that the right end had no room for, or that the left end could not hand over.
fn dropped() -> u64 {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = table
        .lines()
        .find(|line| line.trim_start().starts_with("right:"));
    let (_, numbers) = line.unwrap().split_once(':').unwrap();
    let received_dropped = numbers.split_whitespace().nth(3).unwrap();
    received_dropped.parse().unwrap()
}

/// Each datapath on a thread of its own, whose namespaces go with it.
fn on_each(test: impl Fn(&'static str) + Sync) {
    if !sys::require::root() {
        return;
    }
    for name in FAST {
        thread::scope(|scope| {
            let ran = scope.spawn(|| test(name));
            ran.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }
}

/// Takes nothing until nobody holds its gate shut.
struct GatedSink {
    gate: Receiver<()>,
    rows: Arc<AtomicU64>,
}

impl Sink for GatedSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let _opened = self.gate.recv();
        let rows = u64::try_from(batch.num_rows()).unwrap();
        self.rows.fetch_add(rows, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn lost(&self) -> u64 {
        0
    }
}

#[test]
fn a_consumer_that_does_not_move_costs_rows_that_are_counted() {
    on_each(|name| {
        let (shut, gate) = channel();
        let rows = Arc::<AtomicU64>::default();
        let gated = GatedSink {
            gate,
            rows: Arc::clone(&rows),
        };
        let queue = Queue::start(Box::new(gated), Mode::Live).unwrap();
        let done = overload(name, Box::new(queue), || drop(shut));
        done.check(name);
        let counters = done.ended.counters;
        assert!(counters.rows > 0, "{name}: nothing after it moved again");
        assert_eq!(counters.rows, rows.load(Ordering::Relaxed), "{name}");
        assert_eq!(done.ended.failed, None, "{name}");
    });
}

#[test]
fn a_full_disk_costs_rows_that_are_counted_and_leaves_a_readable_file() {
    on_each(|name| {
        let folder = tempfile::tempdir().unwrap();
        mount_disk(folder.path(), 512);
        let path = folder.path().join("flows.parquet");
        let file = FileSink::create(
            &path,
            Format::Parquet,
            &rows_schema(),
            Rotation::default(),
            Mode::Live,
        );
        let queue = Queue::start(Box::new(file.unwrap()), Mode::Live).unwrap();
        let done = overload(name, Box::new(queue), || ());
        done.check(name);
        let counters = done.ended.counters;
        let files = fs::read_dir(folder.path()).unwrap();
        let rows = files.map(|file| rows_in(&file.unwrap().path()));
        assert_eq!(counters.rows, rows.sum::<u64>(), "{name}");
    });
}

fn rows_schema() -> SchemaRef {
    features::arrow_schema(schema::find("ipfix").unwrap(), &Options::default())
}

fn rows_in(path: &Path) -> u64 {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap());
    let batches = reader.unwrap().build().unwrap();
    let rows: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
    u64::try_from(rows).unwrap()
}

#[test]
fn a_dead_collector_costs_rows_that_are_counted() {
    on_each(|name| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = listener.local_addr().unwrap().to_string();
        let exporter = TcpExporter::connect(&collector, &rows_schema(), 0, Mode::Live).unwrap();
        // Connected, and gone.
        drop(listener.accept().unwrap());
        drop(listener);
        let queue = Queue::start(Box::new(exporter), Mode::Live).unwrap();
        let done = overload(name, Box::new(queue), || ());
        done.check(name);
        let why = done.ended.failed.unwrap();
        assert!(why.contains(&collector), "{name}: {why}");
    });
}
