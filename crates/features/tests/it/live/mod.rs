//! Every live datapath over a veth pair: the rows of the same frames from a capture, but for time; and
//! an account that adds up.

mod refusals;

use std::fs;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use datapath::Datapath;
use features::Options;
use features::kernel::Wakeup;
use features::live::{Direction, Features, LiveCounters, Plan, Running, datapaths};
use features::pcap::{Progress, Run};
use features::schema::{self, Schema};
use features::sink::json_lines;
use netdev::attach::{TcVia, tc_via};
use netdev::{LinkSpec, Netlink};
use nix::sys::socket::{self, MsgFlags};
use packet::build;
use packet::pcap::{ETHERNET, Writer};

use crate::common::MemorySink;

/// Rows as text without what depends on time, sorted.
fn rows(kept: &MemorySink) -> Vec<String> {
    let mut rows: Vec<String> = kept.0.lock().unwrap().iter().flat_map(timeless).collect();
    rows.sort();
    rows
}

fn timeless(batch: &RecordBatch) -> Vec<String> {
    let depends_on_time = |field: &arrow_schema::Field| {
        let unit = field.metadata()["unit"].as_str();
        let is_id = ["flow_id", "id"].contains(&field.name().as_str());
        is_id || ["ns", "us", "ms", "s"].contains(&unit) || unit.ends_with("/s")
    };
    let schema = batch.schema();
    let kept: Vec<usize> = (0..batch.num_columns())
        .filter(|&index| !depends_on_time(schema.field(index)))
        .collect();
    let json = json_lines(&batch.project(&kept).unwrap()).unwrap();
    let text = String::from_utf8(json).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Frames of many kinds, tagged ones among them.
fn frames() -> Vec<Vec<u8>> {
    let capture = loadgen::mix::write(Vec::new(), 3000, 7).unwrap();
    let reader = packet::pcap::Reader::new(capture.as_slice()).unwrap();
    let mut frames: Vec<Vec<u8>> = reader.map(|one| one.unwrap().frame).collect();
    let (from, to) = (
        "192.0.2.1:7".parse().unwrap(),
        "192.0.2.2:9".parse().unwrap(),
    );
    let datagram = || build::udp(from, to).payload(vec![1; 30]);
    frames.push(datagram().vlan(0x2005).frame());
    frames.push(datagram().tag(0x88a8, 7).tag(0x8100, 8).frame());
    frames.push(vec![0xff; 60]);
    frames
}

/// No time decides anything: frames are sent when the sender has its turn.
fn options() -> Options {
    let mut options = Options::default();
    options.timers.linger_ns = Some(1 << 60);
    let gaps = &mut options.timers.gaps;
    (gaps.active_ns, gaps.subflow_ns, gaps.bulk_ns) = (1 << 60, 1 << 60, 1 << 60);
    options
}

/// What the frames of a capture give, a microsecond apart.
fn expected(frames: &[Vec<u8>], schema: &'static Schema) -> Vec<String> {
    let mut writer = Writer::new(Vec::new(), ETHERNET).unwrap();
    for (time, frame) in (1_700_000_000_000_000_000..).step_by(1000).zip(frames) {
        writer.write(time, frame).unwrap();
    }
    let run = Run {
        options: options(),
        schema,
    };
    let kept = MemorySink::default();
    let capture = writer.finish().unwrap();
    let summary = run.run(
        capture.as_slice(),
        Box::new(kept.clone()),
        &Progress::default(),
    );
    assert_eq!(summary.counters.unaccounted(), 0);
    rows(&kept)
}

#[test]
fn live_rows_are_those_of_a_capture_but_for_time() {
    if !sys::require::root() {
        return;
    }
    let frames = frames();
    for datapath in datapaths() {
        for schema in schemas(datapath.name()) {
            let expected = expected(&frames, schema);
            compare(find(datapath.name()), &frames, schema, &expected, |_| ());
        }
    }
}

#[test]
fn when_records_are_read_and_where_flows_are_counted_changes_no_row() {
    if !sys::require::root() {
        return;
    }
    let frames = frames();
    let expected = expected(&frames, schema_for("xdp-flow"));
    let told: [(&str, Change); 5] = [
        ("xdp-ringbuf", |plan| plan.wakeup = Wakeup::Every),
        ("xdp-ringbuf", |plan| {
            plan.wakeup = Wakeup::Timer(Duration::from_millis(5));
        }),
        ("xdp-flow", |plan| plan.wakeup = Wakeup::Every),
        ("xdp-flow", |plan| plan.steer = true),
        ("xdp-generic", |plan| plan.steer = true),
    ];
    for (name, change) in told {
        compare(find(name), &frames, schema_for(name), &expected, change);
    }
}

#[test]
fn several_workers_write_the_rows_of_one() {
    if !sys::require::root() {
        return;
    }
    let frames = frames();
    for name in ["recv", "tpacket", "xdp-ringbuf"] {
        let schema = schema_for(name);
        let expected = expected(&frames, schema);
        let datapath = find(name);
        compare(datapath, &frames, schema, &expected, |plan| {
            plan.workers = NonZeroUsize::new(3);
        });
    }
}

/// What a plan is told beside what all are.
type Change = fn(&mut Plan);

/// What the kernel's programs read is no payload, which flow.v1 needs.
fn schema_for(name: &str) -> &'static Schema {
    let schema = if reads_headers_only(name) {
        "nfstream.v1"
    } else {
        "flow.v1"
    };
    schema::find(schema).unwrap()
}

fn find(name: &str) -> Box<dyn Datapath<Features>> {
    let mut all = datapaths().into_iter();
    all.find(|datapath| datapath.name() == name).unwrap()
}

fn compare(
    datapath: Box<dyn Datapath<Features>>,
    frames: &[Vec<u8>],
    schema: &'static Schema,
    expected: &[String],
    change: Change,
) {
    let name = datapath.name();
    let what = format!("{name}, {}", schema.name);
    let sent = frames.to_vec();
    let (rows, counters) = in_namespace(move |left, right| {
        let kept = MemorySink::default();
        let mut plan = plan(right, schema, &kept);
        plan.tap = name == "af-xdp";
        change(&mut plan);
        let mut running = datapath.start(&plan).unwrap();
        let mut done = 0;
        // A slow reader must not lose frames: no more are sent than every ring holds.
        for window in sent.chunks(512) {
            send(left, window);
            done += window.len() as u64;
            wait(&mut running, done);
        }
        let ended = running.stop();
        assert_eq!(ended.failed, None);
        (rows(&kept), ended.counters)
    });
    assert_eq!(counters.account.unaccounted(), 0, "{what}: {counters:?}");
    assert_eq!(counters.no_room, 0, "{what}");
    let told = ["xdp-flow", "xdp-generic"].contains(&name).then_some(0);
    assert_eq!(counters.changed_queue, told, "{what}");
    assert_eq!(counters.account.seen.packets, frames.len() as u64, "{what}");
    assert_eq!(counters.rows, rows.len() as u64, "{what}");
    assert_eq!(rows, expected, "{what}");
}

/// Starts what is to see frames in turn, sends them, waits until each has seen as many as expected, and says how
/// many each has seen.
fn seen_by(
    plans: Vec<(&'static str, Plan)>,
    expected: [u64; 2],
    from: impl Fn(u32, u32) -> u32 + Send + 'static,
) -> Vec<u64> {
    let frames = frames();
    in_namespace(move |left, right| {
        let started = plans.into_iter().map(|(name, plan)| {
            let plan = Plan {
                ifindex: right,
                ..plan
            };
            find(name).start(&plan).unwrap()
        });
        let mut started: Vec<Running> = started.collect();
        send(from(left, right), &frames);
        for (running, frames) in started.iter_mut().zip(expected) {
            wait(running, frames);
        }
        let ended = started.into_iter().map(|running| running.stop().counters);
        ended
            .map(|counters| counters.account.seen.packets)
            .collect()
    })
}

#[test]
fn a_tap_drops_what_it_counts_and_nothing_else_does() {
    if !sys::require::root() {
        return;
    }
    let frames = frames().len() as u64;
    let kept = MemorySink::default();
    for (tap, behind) in [
        ("xdp-flow", "recv"),
        ("xdp-generic", "recv"),
        ("xdp-ringbuf", "recv"),
        ("tc-flow", "tc-flow"),
        ("af-xdp", "recv"),
    ] {
        if tap == "tc-flow" && tc_via() == TcVia::Clsact {
            continue; // There the latest filter runs first, before the tap.
        }
        let both = [(false, frames), (true, 0)];
        for (is_tap, passed) in both.into_iter().skip(usize::from(tap == "af-xdp")) {
            let plan = |tap, name| Plan {
                tap,
                ..plan(0, schema_for(name), &kept)
            };
            let plans = vec![(tap, plan(is_tap, tap)), (behind, plan(false, behind))];
            let expected = [frames, passed];
            assert_eq!(seen_by(plans, expected, |left, _| left), expected, "{tap}");
        }
    }
}

#[test]
fn what_is_sent_is_told_from_what_comes_in() {
    if !sys::require::root() {
        return;
    }
    let frames = frames().len() as u64;
    let kept = MemorySink::default();
    let plan = |name, direction| Plan {
        direction,
        ..plan(0, schema_for(name), &kept)
    };
    for name in ["tc-flow", "recv", "tpacket"] {
        let plans = |directions: &[Direction]| {
            let plans = directions
                .iter()
                .map(|&direction| (name, plan(name, direction)));
            plans.collect()
        };
        let plans = || plans(&[Direction::Both, Direction::In]);
        let sent = seen_by(plans(), [frames, 0], |_, right| right);
        assert_eq!(sent, [frames, 0], "{name}");
        let received = seen_by(plans(), [frames, frames], |left, _| left);
        assert_eq!(received, [frames, frames], "{name}");
    }
    let out = |first| {
        vec![
            ("tc-flow", plan("tc-flow", first)),
            ("tc-flow", plan("tc-flow", Direction::Out)),
        ]
    };
    let all = [frames, frames];
    assert_eq!(seen_by(out(Direction::Both), all, |_, right| right), all);
    let incoming = [frames, 0];
    assert_eq!(
        seen_by(out(Direction::In), incoming, |left, _| left),
        incoming
    );
}

#[test]
fn a_device_is_promiscuous_for_as_long_as_a_run_wants_it() {
    if !sys::require::root() {
        return;
    }
    let kept = MemorySink::default();
    in_namespace(move |_, right| {
        let promiscuity = || {
            let link = Netlink::new().unwrap().link_by_index(right);
            link.unwrap().promiscuity
        };
        for datapath in datapaths() {
            for promiscuous in [false, true] {
                let plan = Plan {
                    promiscuous,
                    tap: datapath.name() == "af-xdp",
                    ..plan(right, schema_for(datapath.name()), &kept)
                };
                let running = datapath.start(&plan).unwrap();
                assert_eq!(promiscuity() > 0, promiscuous, "{}", datapath.name());
                running.stop();
                assert_eq!(promiscuity(), 0, "{}", datapath.name());
            }
        }
    });
}

#[test]
fn every_datapath_ends_when_its_device_is_deleted_and_keeps_its_rows() {
    if !sys::require::root() {
        return;
    }
    let frames = frames();
    for datapath in datapaths() {
        let (name, schema) = (datapath.name(), schema_for(datapath.name()));
        let expected = expected(&frames, schema);
        let sent = frames.clone();
        let (rows, ended) = in_namespace(move |left, right| {
            let kept = MemorySink::default();
            let plan = Plan {
                tap: name == "af-xdp",
                ..plan(right, schema, &kept)
            };
            let mut running = datapath.start(&plan).unwrap();
            let mut done = 0;
            for window in sent.chunks(512) {
                send(left, window);
                done += window.len() as u64;
                wait(&mut running, done);
            }
            Netlink::new().unwrap().delete_link(right).unwrap();
            let deadline = Instant::now() + Duration::from_secs(30);
            while running.failed().is_none() {
                assert!(Instant::now() < deadline, "{name} goes on");
                thread::sleep(Duration::from_millis(20));
            }
            let ended = running.stop();
            (rows(&kept), ended)
        });
        let why = ended.failed.as_deref();
        assert_eq!(why, Some("the interface was deleted"), "{name}");
        assert_eq!(ended.counters.account.unaccounted(), 0, "{name}");
        assert_eq!(rows, expected, "{name}");
    }
}

/// Whether the kernel's programs, which read no payload, are all that sees its packets.
fn reads_headers_only(name: &str) -> bool {
    name.starts_with("xdp") || name == "tc-flow"
}

/// A schema of each kind that a datapath gives. The kernel's programs hand up no payload and no bits.
fn schemas(datapath: &str) -> Vec<&'static Schema> {
    let find = |name| schema::find(name).unwrap();
    let headers = || {
        let left_out = ["payload_entropy".to_owned()];
        find("packet.v1").without(&left_out).unwrap()
    };
    match datapath {
        "xdp-ringbuf" => vec![find("nfstream.v1"), headers()],
        name if reads_headers_only(name) => vec![find("nfstream.v1")],
        _ => ["flow.v1", "packet.v1", "nprint.v1"].map(find).into(),
    }
}

fn plan(ifindex: u32, schema: &'static Schema, kept: &MemorySink) -> Plan {
    let kept = kept.clone();
    Plan {
        interface: "right".to_owned(),
        ifindex,
        options: options(),
        schema,
        direction: Direction::In,
        promiscuous: false,
        tap: false,
        workers: None,
        wakeup: Wakeup::default(),
        model: None,
        steer: false,
        recorder: None,
        sink: Arc::new(move || Box::new(kept.clone())),
    }
}

/// Waits until the datapath has told of all frames.
fn wait(running: &mut Running, frames: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let seen = |counters: LiveCounters| counters.account.seen.packets + counters.no_room;
    while seen(running.counters()) < frames {
        assert!(Instant::now() < deadline, "{:?}", running.counters());
        assert_eq!(running.failed(), None);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends frames as they are; not so fast that they find no room.
fn send(ifindex: u32, frames: &[Vec<u8>]) {
    // Where frames are taken in follows where they are sent: on one CPU they keep their order.
    sys::sched::pin(sys::sched::allowed_cpus().unwrap()[0]).unwrap();
    let sender = sys::socket::raw_sender(ifindex).unwrap();
    for burst in frames.chunks(16) {
        for frame in burst {
            let sent = socket::send(sender.as_raw_fd(), frame, MsgFlags::empty());
            assert_eq!(sent.unwrap(), frame.len());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs on a thread in a fresh network namespace with a veth pair, which disappears with the thread.
fn in_namespace<T: Send + 'static>(test: impl FnOnce(u32, u32) -> T + Send + 'static) -> T {
    thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        // No router solicitation among the frames.
        fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        let mut netlink = Netlink::new().unwrap();
        netlink
            .add_veth(&LinkSpec::new("left"), &LinkSpec::new("right"))
            .unwrap();
        let [left, right] = ["left", "right"].map(|name| netlink.link_by_name(name).unwrap().index);
        for index in [left, right] {
            netlink.set_link(index, &LinkSpec::unnamed().up()).unwrap();
        }
        // Until the kernel has got round to it, what is sent is lost without a word.
        while netlink.link_by_index(left).unwrap().qdisc == "noop" {
            thread::yield_now();
        }
        test(left, right)
    })
    .join()
    .unwrap()
}
