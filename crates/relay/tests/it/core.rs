//! What the relay sees to around its datapaths: it follows its devices, latches and hand-overs.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use control::metrics::Format;
use netdev::{LinkSpec, Netlink};
use relay::core::SlowSubscriber;
use relay::counters::DropReason;
use relay::spec::{Source, SubscriberSpec};
use test_support::exposition::{Page, Sample, Syntax};
use units::Span;

use crate::common::relay_rig::{Rig, await_counts, datagram, stream, subscriber};
use crate::common::space::{TIMEOUT, recv_datagram};

const DATAPATHS: [&str; 4] = ["mmsg", "xdp", "tc", "af-xdp"];
const FAST: [&str; 3] = ["xdp", "tc", "af-xdp"];
const SENDER: &str = "10.91.0.1:4000";
const INGEST: &str = "10.91.0.2:5004";

#[test]
fn a_fast_path_follows_its_devices_address() {
    const NEW_MAC: [u8; 6] = [2, 0x91, 0, 0, 0, 0x77];
    if !sys::require::root() {
        return;
    }
    for datapath in FAST {
        let rig = Rig::new(None);
        let core = rig.serve(vec![stream(datapath, INGEST, vec![])]);
        let rename = || {
            let mut netlink = Netlink::new().unwrap();
            let index = netlink.link_by_name("in0").unwrap().index;
            let spec = LinkSpec::unnamed().mac(NEW_MAC);
            netlink.set_link(index, &spec).unwrap();
        };
        rig.relay.run(rename);
        // Only a fast path counts a datagram that lies about its length.
        let mut frame = datagram(SENDER, INGEST, *b"lie").frame();
        frame[..6].copy_from_slice(&NEW_MAC);
        frame[39] += 1;
        let deadline = Instant::now() + TIMEOUT;
        while !core.counters()[0]
            .drops
            .0
            .contains_key(&DropReason::Malformed)
        {
            assert!(Instant::now() < deadline, "{datapath} has not followed");
            rig.inject(&frame);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_latch_is_the_first_senders_until_it_is_silent() {
    const LATCH_TIMEOUT: Duration = Duration::from_secs(1);
    const SECOND: &str = "10.91.0.1:4001";
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        let mut spec = stream(datapath, INGEST, vec![subscriber("s", "10.91.1.2:6000")]);
        spec.source = Source::Latch;
        spec.latch_timeout = Span(LATCH_TIMEOUT);
        let core = rig.serve(vec![spec]);
        let send = |from| rig.inject(&datagram(from, INGEST, *b"x").frame());
        let holder = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        let began = Instant::now();
        send(SENDER);
        await_counts(&core, |view| view.forwarded.packets == 1);
        send(SECOND);
        let view = await_counts(&core, |view| view.received.packets == 2);
        // Unless it took as long as a silence to come here.
        if began.elapsed() < LATCH_TIMEOUT {
            assert_eq!(view.latched, holder(SENDER), "{datapath}");
            let denied = view.drops.0.get(&DropReason::SourceDenied);
            assert_eq!(denied, Some(&1), "{datapath}");
        }
        let forwarded = view.forwarded.packets;
        let deadline = Instant::now() + TIMEOUT;
        while core.counters()[0].forwarded.packets == forwarded {
            assert!(Instant::now() < deadline, "{datapath}: latched for ever");
            send(SECOND);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(core.counters()[0].latched, holder(SECOND), "{datapath}");
    }
}

#[test]
fn programs_on_this_machine_get_every_datagram() {
    const REMOTE: &str = "10.91.1.2:6000";
    const LOCAL: [&str; 2] = ["10.91.2.1:6500", "127.0.0.1:6501"];
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        let programs = LOCAL.map(|local| rig.relay.listen(local));
        let mut subscribers = vec![subscriber("remote", REMOTE)];
        subscribers.extend(LOCAL.map(|local| subscriber(local, local)));
        let core = rig.serve(vec![stream(datapath, INGEST, subscribers)]);
        let capture = rig.capture();
        for size in [0, 1, 700, 1400] {
            rig.inject(&datagram(SENDER, INGEST, vec![7; size]).frame());
            for program in &programs {
                assert_eq!(recv_datagram(program), (size, INGEST.into()), "{datapath}");
            }
            let lengths = capture.take(1).into_iter().map(|copy| copy.payload.len());
            assert_eq!(lengths.collect::<Vec<_>>(), [size], "{datapath}");
        }
        let view = await_counts(&core, |view| {
            view.subscribers
                .iter()
                .all(|one| one.delivered.packets == 4)
        });
        assert_eq!(
            (view.received.packets, view.forwarded.packets),
            (4, 4),
            "{datapath}"
        );
        let explanation = core.explain(None).unwrap().remove(0);
        if explanation.has_fast_path {
            assert_eq!(explanation.served, 1, "{datapath}");
            let is_local = |slow: &SlowSubscriber| slow.reason.contains("on this machine");
            assert!(explanation.slow.iter().all(is_local), "{explanation}");
        }
    }
}

#[test]
fn the_cpus_take_turns() {
    if !sys::require::root() || std::thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    let rig = Rig::new(None);
    let mut streams = Vec::new();
    for (port, datapath) in [(5004, "recv"), (5006, "mmsg"), (5008, "tc")] {
        let mut spec = stream(datapath, &format!("10.91.0.2:{port}"), Vec::new());
        spec.name = datapath.to_owned();
        streams.push(spec);
    }
    let core = rig.serve_on(vec![0, 1], streams).unwrap();
    // In the order of their names.
    for (thread, cpu) in [("relay-mmsg", 0), ("relay-recv", 1), ("relay-slow", 0)] {
        let deadline = Instant::now() + TIMEOUT;
        while !runs_on(thread, cpu) {
            assert!(Instant::now() < deadline, "{thread} is not on CPU {cpu}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(core);
}

/// Whether a thread of this name is pinned to this CPU.
fn runs_on(thread: &str, cpu: usize) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.flatten().any(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        status.contains(&format!("Name:\t{thread}\n"))
            && status.contains(&format!("Cpus_allowed_list:\t{cpu}\n"))
    })
}

/// So many that a datagram takes userspace much longer than it takes to arrive.
fn crowd() -> Vec<SubscriberSpec> {
    let one = |number| {
        subscriber(
            &format!("s{number}"),
            &format!("10.91.1.2:{}", 6000 + number),
        )
    };
    (0..256).map(one).collect()
}

/// The relay's sender, which numbers its datagrams.
struct Numbers<'a> {
    rig: &'a Rig,
    sent: u32,
}

impl Numbers<'_> {
    fn send(&mut self, count: u32) {
        let numbers = self.sent..self.sent + count;
        let frame = |number: u32| datagram(SENDER, INGEST, number.to_be_bytes()).frame();
        self.rig.inject_in_order(numbers.map(frame));
        self.sent += count;
    }
}

#[test]
fn a_stream_whose_backlog_does_not_drain_stays_where_it_was() {
    if !sys::require::root() {
        return;
    }
    for datapath in FAST {
        let rig = Rig::new(None);
        let first = || UdpSocket::bind("10.91.1.2:6000").unwrap();
        let first = rig.receivers.run(first);
        first.set_read_timeout(Some(TIMEOUT)).unwrap();
        sys::socket::receive_buffer(&first, 16 << 20).unwrap();
        let core = rig.serve(vec![stream("mmsg", INGEST, crowd())]);
        let mut numbers = Numbers { rig: &rig, sent: 0 };
        let switch = |patience| {
            let switch = || core.switch("s", datapath, patience);
            rig.relay.run(switch)
        };
        // Where this thread is held up, the backlog may have drained in time: then it is built up again.
        let error = (0..16).find_map(|_| {
            numbers.send(500);
            let most = numbers.sent + 2000;
            let tried = std::thread::scope(|scope| {
                let switch = scope.spawn(|| switch(Duration::from_millis(1)));
                while !switch.is_finished() && numbers.sent < most {
                    numbers.send(1);
                    std::thread::sleep(Duration::from_micros(50));
                }
                switch.join().unwrap()
            });
            if tried.is_ok() {
                rig.relay.run(|| core.switch("s", "mmsg", TIMEOUT)).unwrap();
            }
            tried.err()
        });
        let error = error.expect("a backlog that does not drain");
        assert!(error.message.starts_with("not switched: "), "{error}");
        let view = core.counters().remove(0);
        assert_eq!(view.datapath.as_deref(), Some("mmsg"), "{datapath}");
        numbers.send(100);
        switch(TIMEOUT).unwrap();
        numbers.send(100);
        for number in 0..numbers.sent {
            let mut buffer = [0; 16];
            assert_eq!(first.recv(&mut buffer).unwrap(), 4, "{datapath}");
            assert_eq!(buffer[..4], number.to_be_bytes(), "{datapath}");
        }
        let all = u64::from(numbers.sent);
        let view = await_counts(&core, |view| view.forwarded.packets == all);
        assert_eq!(view.received.packets, all, "{datapath}");
        assert_eq!(view.datapath.as_deref(), Some(datapath));
    }
}

/// System calls of the calling thread that read from a file.
fn reads() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let mut reads = io.lines().filter_map(|line| line.strip_prefix("syscr: "));
    reads.next().unwrap().parse().unwrap()
}

#[test]
fn a_scrape_of_many_streams_reads_the_kernels_counters_as_often_as_one_of_few() {
    if !sys::require::root() {
        return;
    }
    let reads_of_scrape = |streams: u16| {
        let rig = Rig::new(None);
        let spec = |number: u16| {
            let ingest = format!("10.91.0.2:{}", 5000 + number);
            let mut spec = stream("recv", &ingest, vec![subscriber("s", "10.91.1.2:6000")]);
            spec.name = number.to_string();
            spec
        };
        let core = rig.serve((0..streams).map(spec).collect());
        let before = reads();
        let metrics = core.metrics();
        let reads = reads() - before;
        let page = metrics.encode(Format::OpenMetrics);
        let page = Page::read(&page, Syntax::OpenMetrics).unwrap();
        let is_received = |sample: &&Sample| sample.name == "lowroad_relay_received_packets_total";
        let found = page.samples().filter(is_received).count();
        assert_eq!(found, usize::from(streams));
        reads
    };
    let (few, many) = (reads_of_scrape(2), reads_of_scrape(256));
    // The kernel's files may need another read for longer numbers.
    assert!(many <= few + 4, "{few} reads of 2 streams, {many} of 256");
}
