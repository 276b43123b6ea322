//! Each test over loopback, between a client and a server of this process.

use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use netbench::client::{self, Error, Progress, Session, Target};
use netbench::server::{Limits, Server, Settings, Status};
use netbench::{Direction, End, MAX_DATAGRAM, MAX_LOSS, Outcome, Source, Spec, Test};

fn server(at: &str) -> Server {
    Server::start(Settings {
        listen: at.parse().unwrap(),
        token: None,
        limits: Limits::default(),
        data_ports: None,
    })
    .unwrap()
}

/// The first of `many` ports that are free here, and not of those that connections come from.
fn free_ports(many: u16) -> u16 {
    let free = |port: u16| {
        let at = ("127.0.0.1", port);
        UdpSocket::bind(at).is_ok() && TcpListener::bind(at).is_ok()
    };
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let mut firsts = (first..32_700).step_by(usize::from(many));
    let all_free = |first: &u16| (*first..first + many).all(free);
    firsts.find(all_free).unwrap()
}

#[test]
fn tests_use_given_data_ports() {
    let port = free_ports(1);
    let server = Server::start(Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        token: None,
        limits: Limits::default(),
        data_ports: Some((port..=port).into()),
    })
    .unwrap();
    // One after the other has the port; connections share a listener.
    for (test, flows) in [
        (Test::TcpRr, 3),
        (Test::UdpRr, 1),
        (Test::TcpCrr, 1),
        (Test::TcpStream, 2),
    ] {
        measure(
            &server,
            &Spec {
                flows,
                ..spec(test)
            },
        );
    }
    let many = Spec {
        flows: 2,
        ..spec(Test::UdpRr)
    };
    let mut session = Session::open(&server.address().to_string(), None).unwrap();
    let why = session.measure(&many, &mut go_on).unwrap_err().to_string();
    let said = format!("ports {port}-{port} are all in use");
    assert!(why.contains(&said), "{why}");
}

#[test]
fn flows_of_every_test_keep_their_client_ports() {
    let server = server("127.0.0.1:0");
    let target = Target {
        source: Source {
            address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            port: Some(free_ports(2)),
            ..Source::default()
        },
        ..Target::new(&server.address().to_string())
    };
    let mut session = target.open().unwrap();
    for test in with_flows() {
        let spec = Spec {
            flows: 2,
            ..Spec::new(test, Duration::from_secs(1))
        };
        let outcome = session.measure(&spec, &mut go_on).unwrap();
        assert_eq!(outcome.ended_early, None, "{outcome:?}");
        // A connection for each request has the same ports as the one before.
        let least = u64::from(spec.flows) * 2;
        assert!(outcome.near.all_messages > least, "{outcome:?}");
    }
}

#[test]
fn given_bytes_arrive_in_a_window() {
    let server = server("127.0.0.1:0");
    for test in [Test::TcpStream, Test::UdpStream] {
        for direction in [Direction::Up, Direction::Down] {
            for (bytes, flows) in [(1000, 1), (1_000_000, 3)] {
                let mut session = Session::open(&server.address().to_string(), None).unwrap();
                let asked = Spec {
                    bytes: Some(bytes),
                    warmup_us: 0,
                    interval_us: Some(10_000_000),
                    direction,
                    flows,
                    ..Spec::new(test, Duration::from_secs(60))
                };
                let mut reported = 0;
                let mut watch = |progress: &Progress| {
                    reported += progress.interval.as_ref().map_or(0, |it| it.bytes);
                    ControlFlow::Continue(())
                };
                let outcome = session.measure(&asked, &mut watch).unwrap();
                assert_eq!(outcome.ended_early, None, "{outcome:?}");
                let (near, far) = (&outcome.near, outcome.far.as_ref().unwrap());
                assert!(outcome.transfer.unwrap().bits_per_s > 0.0, "{outcome:?}");
                assert!(near.window_ns > 0 && far.window_ns > 0, "{outcome:?}");
                // The only interval ends with the bytes.
                assert_eq!(reported, near.all_bytes, "{outcome:?}");
                if test == Test::TcpStream {
                    assert_eq!([near.bytes, far.bytes], [bytes; 2], "{outcome:?}");
                }
            }
        }
    }
}

fn spec(test: Test) -> Spec {
    Spec::new(test, Duration::from_millis(200))
}

/// The tests in which flows of both ends take part.
fn with_flows() -> impl Iterator<Item = Test> {
    let tests = Test::ALL.into_iter();
    tests.filter(|test| test.needs_server() && !test.searches())
}

/// Those of them in which transactions are timed.
fn transacting() -> impl Iterator<Item = Test> {
    with_flows().filter(|test| !test.streams())
}

fn go_on(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// One test, and a longer one after it where an end was away for all of a short window.
fn measure(server: &Server, spec: &Spec) -> Outcome {
    let mut outcome = measured(server, spec);
    if is_empty(&outcome) || outcome.ended_early.is_some() {
        let longer = Spec {
            duration_us: 25 * spec.duration_us,
            ..spec.clone()
        };
        outcome = measured(server, &longer);
    }
    assert_eq!(outcome.ended_early, None, "{spec:?}");
    outcome
}

fn measured(server: &Server, spec: &Spec) -> Outcome {
    let mut session = Session::open(&server.address().to_string(), None).unwrap();
    let outcome = session.measure(spec, &mut go_on).unwrap();
    if let Some(why) = &outcome.ended_early {
        let nothing = why.starts_with("no transaction") || why.starts_with("nothing");
        assert!(nothing, "{why}: {spec:?}");
    }
    // What the end of the window finds under way is done soon after.
    assert_eq!(outcome.unfinished, 0, "{spec:?}");
    assert_eq!(
        (outcome.spec.test, outcome.spec.flows),
        (spec.test, spec.flows)
    );
    outcome
}

fn is_empty(outcome: &Outcome) -> bool {
    let (near, far) = (&outcome.near, outcome.far.as_ref().unwrap());
    near.messages == 0 || far.messages == 0 || has_transacted_nothing(outcome)
}

fn has_transacted_nothing(outcome: &Outcome) -> bool {
    outcome.transactions_per_s().is_some_and(|rate| rate <= 0.0)
}

/// Echo requests, again where this machine has sent none in a short window.
fn echoes(target: &str, spec: &Spec) -> Outcome {
    let mut tries = (0..5).map(|_| client::measure(target, spec, &mut go_on).unwrap());
    let some = tries.find(|outcome| outcome.lost > 0 || !has_transacted_nothing(outcome));
    let outcome = some.expect("some are sent");
    assert_eq!(outcome.lost, 0, "nothing is lost on a loopback");
    outcome
}

fn transacts(server: &Server, spec: &Spec) -> Outcome {
    let outcome = measure(server, spec);
    let latency = outcome.latency.as_ref().unwrap();
    assert!(latency.count() > 0, "{spec:?}: {outcome:?}");
    assert!(latency.min() > 0 && latency.max() >= latency.quantile(0.5));
    assert!(outcome.transactions_per_s().unwrap() > 0.0);
    assert!(outcome.transfer.is_none());
    outcome
}

/// Bytes and messages are read one after the other: each flow may have counted one of the two.
fn assert_bytes(end: &End, size: u64, flows: u64) {
    let off = end.bytes.abs_diff(end.messages * size);
    assert!(off <= flows * size && off.is_multiple_of(size), "{end:?}");
}

#[test]
fn both_ends_count_the_same_transactions() {
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let server = server(at);
        let mut tests = 0;
        for test in transacting() {
            for flows in [1, 3] {
                let asked = Spec {
                    flows,
                    request: 100,
                    response: 300,
                    ..spec(test)
                };
                let outcome = transacts(&server, &asked);
                tests += 1 + u64::from(outcome.spec.duration_us != asked.duration_us);
                let far = outcome.far.as_ref().unwrap();
                let flows = u64::from(flows);
                // Each flow may have one that its other end has not counted yet, or not any more. Of what was
                // lost one end may know.
                let off = outcome.near.all_messages.abs_diff(far.all_messages);
                assert!(off <= flows + outcome.lost, "{outcome:?}");
                assert_bytes(&outcome.near, 300, flows);
                assert_bytes(far, 100, flows);
            }
        }
        assert_eq!(server.status().tests, tests);
        assert_eq!(server.status().broken, 0);
    }
}

#[test]
fn messages_of_every_size_arrive() {
    let server = server("127.0.0.1:0");
    let sizes = |test, request, response| Spec {
        request,
        response,
        ..spec(test)
    };
    for (request, response) in [(1, 1), (16, 16), (1, MAX_DATAGRAM), (MAX_DATAGRAM, 1)] {
        transacts(&server, &sizes(Test::UdpRr, request, response));
    }
    for (request, response) in [(1, 3 << 20), (3 << 20, 1), (1 << 20, 1 << 20)] {
        transacts(&server, &sizes(Test::TcpRr, request, response));
        transacts(&server, &sizes(Test::TcpCrr, request, response));
    }
    for message in [1, 16, 1472, MAX_DATAGRAM] {
        for direction in [Direction::Up, Direction::Down] {
            let stream = Spec {
                message,
                fit_message: false,
                direction,
                rate: Some(500.0),
                ..spec(Test::UdpStream)
            };
            let outcome = measure(&server, &stream);
            let (near, far) = (&outcome.near, outcome.far.as_ref().unwrap());
            for end in [near, far] {
                assert_bytes(end, message.into(), 1);
            }
            let (sent, received) = match direction {
                Direction::Up => (near, far),
                Direction::Down => (far, near),
            };
            // The last one is counted after it is sent.
            assert!(
                received.all_messages <= sent.all_messages + 1,
                "{outcome:?}"
            );
            assert!(received.all_messages > 0, "{outcome:?}");
            // One byte has no room for a number.
            let arrivals = outcome.datagrams()[0].arrivals;
            assert_eq!(arrivals.unnumbered, message == 1, "{outcome:?}");
            assert_eq!(arrivals.duplicates, 0, "{outcome:?}");
            let late = outcome.far.as_ref().unwrap().late_p99_ns;
            assert_eq!(late.is_some(), direction == Direction::Down);
        }
    }
}

#[test]
fn streams_report_sent_and_arrived() {
    let server = server("127.0.0.1:0");
    for direction in [Direction::Up, Direction::Down] {
        for flows in [1, 4] {
            let stream = |test| Spec {
                direction,
                flows,
                ..spec(test)
            };
            let outcome = measure(&server, &stream(Test::TcpStream));
            let transfer = outcome.transfer.unwrap();
            assert!(transfer.bits_per_s > 0.0 && transfer.offered_bits_per_s > 0.0);
            assert_eq!(transfer.loss, None);
            assert!(outcome.latency.is_none());
            let (near, far) = (&outcome.near, outcome.far.as_ref().unwrap());
            assert_eq!(near.all_bytes, far.all_bytes);
            let outcome = measure(&server, &stream(Test::UdpStream));
            let transfer = outcome.transfer.unwrap();
            assert!(transfer.bits_per_s > 0.0, "{outcome:?}");
            let loss = transfer.loss.unwrap();
            assert!((0.0..1.0).contains(&loss), "{outcome:?}");
            for end in [outcome.near, outcome.far.unwrap()] {
                assert!(end.window_ns > 0 && end.cpu_ns > 0);
                assert!(end.send_buffer > 0 && end.receive_buffer > 0);
            }
        }
    }
}

#[test]
fn socket_buffers_are_set_at_both_ends() {
    let server = server("127.0.0.1:0");
    for test in with_flows() {
        let outcome = measure(
            &server,
            &Spec {
                socket_buffer: Some(40_000),
                ..spec(test)
            },
        );
        for end in [outcome.near, outcome.far.unwrap()] {
            // Linux gives twice as much, for what it needs beside the bytes.
            assert_eq!((end.send_buffer, end.receive_buffer), (80_000, 80_000));
        }
    }
}

#[test]
fn busy_polling_is_set_at_both_ends() {
    if !sys::require::root() {
        return;
    }
    let server = server("127.0.0.1:0");
    for test in with_flows().filter(|test| test.can_busy_poll()) {
        let spec = Spec {
            busy_poll_us: Some(50),
            ..spec(test)
        };
        let outcome = measure(&server, &spec);
        for end in [outcome.near, outcome.far.unwrap()] {
            assert_eq!(end.busy_poll_us, 50, "{test}");
        }
    }
}

#[test]
fn open_loop_keeps_rate() {
    let server = server("127.0.0.1:0");
    for test in transacting() {
        let paced = Spec {
            rate: Some(100.0),
            flows: 2,
            warmup_us: 0,
            ..spec(test)
        };
        let begun = Instant::now();
        let outcome = transacts(&server, &paced);
        // From the beginning on: what was late before the window is sent within it.
        let due = begun.elapsed().as_secs_f64() * 100.0 + 3.0;
        assert!(outcome.near.all_messages as f64 <= due, "{outcome:?}");
    }
}

#[test]
fn open_loop_reports_unsent_with_their_wait() {
    let server = server("127.0.0.1:0");
    let beyond = |test| Spec {
        // More than any machine does.
        rate: Some(1e9),
        warmup_us: 0,
        ..spec(test)
    };
    let all = transacting().map(|test| transacts(&server, &beyond(test)));
    let mut all: Vec<Outcome> = all.collect();
    if sys::require::root() {
        all.push(echoes("127.0.0.1", &beyond(Test::Icmp)));
    }
    for outcome in all {
        let (latency, bounds) = (outcome.latency.as_ref().unwrap(), &outcome.bounds);
        let done = latency.count();
        assert!(outcome.unsent > 1_000_000 && done > 0, "{outcome:?}");
        let rate = done as f64 / (outcome.near.window_ns as f64 / 1e9);
        assert!((outcome.transactions_per_s().unwrap() - rate).abs() < 1e-3);
        // Nearly all of them were never begun: they have waited, and have no time.
        assert_eq!(bounds.count(), outcome.unsent + outcome.unfinished);
        assert!(bounds.quantile(0.5) < outcome.near.window_ns, "{outcome:?}");
        let middle = outcome.quantile(0.5).unwrap();
        assert!(!middle.is_exact() && middle.ns > 1_000_000, "{outcome:?}");
        // Each that began did so at some time.
        let late = outcome.late.as_ref().unwrap().count();
        assert!((done..=outcome.sent).contains(&late), "{outcome:?}");
    }
    let closed = transacts(&server, &spec(Test::TcpRr));
    assert_eq!((closed.unsent, closed.late.is_none()), (0, true));
}

#[test]
fn rate_search_finds_low_loss() {
    let server = server("127.0.0.1:0");
    let mut session = Session::open(&server.address().to_string(), None).unwrap();
    let outcome = session.measure(&spec(Test::UdpRate), &mut go_on).unwrap();
    let transfer = outcome.transfer.unwrap();
    // A machine that stops its receivers again and again loses some at every rate.
    match outcome.ended_early.as_deref() {
        None => assert!(transfer.loss.unwrap() <= MAX_LOSS, "{outcome:?}"),
        Some(why) => assert!(why.starts_with("no rate found"), "{outcome:?}"),
    }
    assert!(server.status().tests > 2);
}

#[test]
fn icmp_needs_no_server() {
    if !sys::require::root() {
        return;
    }
    for target in ["127.0.0.1", "::1"] {
        for (message, rate) in [(1, Some(200.0)), (1400, None)] {
            let echo = Spec {
                message,
                rate,
                ..spec(Test::Icmp)
            };
            let outcome = echoes(target, &echo);
            assert!(outcome.latency.as_ref().unwrap().count() > 0);
            let datagrams = &outcome.datagrams()[0];
            let arrivals = datagrams.arrivals;
            assert!(
                (1..=datagrams.sent).contains(&arrivals.unique),
                "{outcome:?}"
            );
            assert_eq!(
                (arrivals.duplicates, arrivals.unnumbered),
                (0, message == 1)
            );
            assert_eq!(
                outcome.near.bytes,
                outcome.near.messages * u64::from(message)
            );
        }
    }
}

/// A test ends after this number of messages in its window.
const MIN_MESSAGES: u64 = 50;

/// The number of messages at the beginning of the window.
#[derive(Default)]
struct WindowStart(Option<u64>);

impl WindowStart {
    fn is_complete(&mut self, progress: &Progress) -> bool {
        let messages = progress.messages;
        progress.measured.is_some() && messages >= *self.0.get_or_insert(messages) + MIN_MESSAGES
    }
}

/// Each message of the window has its time, except one of each flow that began before it.
fn assert_timed(outcome: &Outcome) {
    if let Some(latency) = &outcome.latency {
        let least = MIN_MESSAGES - u64::from(outcome.spec.flows);
        assert!(latency.count() >= least && latency.min() > 0, "{outcome:?}");
    }
}

#[test]
fn server_that_dies_leaves_partial_result() {
    let several = [(Test::TcpRr, 3), (Test::TcpCrr, 2)];
    for (test, flows) in with_flows().map(|test| (test, 1)).chain(several) {
        let mut server = Some(server("127.0.0.1:0"));
        let target = server.as_ref().unwrap().address().to_string();
        let mut session = Session::open(&target, None).unwrap();
        let long = Spec {
            warmup_us: 0,
            flows,
            ..Spec::new(test, Duration::from_secs(60))
        };
        let mut start = WindowStart::default();
        let outcome = session.measure(&long, &mut |progress| {
            if start.is_complete(progress) {
                drop(server.take());
            }
            ControlFlow::Continue(())
        });
        let outcome = outcome.unwrap();
        assert!(outcome.ended_early.is_some(), "{test}");
        assert!(outcome.far.is_none(), "{test}");
        assert!(outcome.near.messages >= MIN_MESSAGES, "{test}");
        assert_eq!(outcome.latency.is_none(), test.streams());
        assert_timed(&outcome);
        assert!(matches!(
            session.measure(&long, &mut go_on),
            Err(Error::Lost { .. })
        ));
    }
}

#[test]
fn stopped_test_leaves_result_and_session() {
    let server = server("127.0.0.1:0");
    let mut session = Session::open(&server.address().to_string(), None).unwrap();
    for test in [Test::TcpRr, Test::UdpStream, Test::UdpRate] {
        let long = Spec {
            warmup_us: 0,
            ..Spec::new(test, Duration::from_secs(60))
        };
        let mut start = WindowStart::default();
        let outcome = session.measure(&long, &mut |progress| match start.is_complete(progress) {
            false => ControlFlow::Continue(()),
            true => ControlFlow::Break(()),
        });
        let outcome = outcome.unwrap();
        assert_eq!(outcome.ended_early.as_deref(), Some("stopped"));
        assert!(outcome.near.messages >= MIN_MESSAGES);
        assert!(outcome.far.is_some());
        assert_timed(&outcome);
    }
    assert_eq!(
        server.status(),
        Status {
            clients: 1,
            tests: 3,
            ..Status::default()
        }
    );
}
