//! Which clients are refused and by which errors, and malformed messages, which do a server no harm.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use datapath::{Classify, ErrorClass};
use netbench::client::{Client, Error, Progress, Session, Target};
use netbench::server::{self, Limits, Server, Settings, Status};
use netbench::{LoadDirection, LoadPlan, Options, Phase, Plan, Spec, Test, Token, TokenError};
use serde_json::json;

use crate::wire::{drip, greeting, receive, send};

fn started(token: Option<Token>, limits: Limits) -> Server {
    Server::start(Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        token,
        limits,
        data_ports: None,
    })
    .unwrap()
}

fn open(server: &Server, token: Option<&Token>) -> Result<Session, Error> {
    Session::open(&server.address().to_string(), token)
}

fn error_of(result: Result<Session, Error>) -> String {
    let text = result.unwrap_err().to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn short(test: Test) -> Spec {
    Spec::new(test, Duration::from_millis(50))
}

fn until(server: &Server, holds: impl Fn(&Status) -> bool) {
    let begun = Instant::now();
    while !holds(&server.status()) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?}",
            server.status()
        );
        thread::sleep(Duration::from_millis(5));
    }
}

fn word(folder: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn token_is_required() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name, text, mode| word(folder.path(), name, text, mode);
    let right = Token::read(&file("right", "correct horse\n", 0o600)).unwrap();
    let wrong = Token::read(&file("wrong", "correct hearse", 0o600)).unwrap();
    let read = |name, text, mode| Token::read(&file(name, text, mode)).unwrap_err();
    assert!(matches!(
        read("open", "correct horse", 0o644),
        TokenError::Io { cause, .. } if cause.kind() == ErrorKind::PermissionDenied
    ));
    assert!(matches!(
        read("short", "horse\nand more", 0o600),
        TokenError::Short(_)
    ));
    assert!(matches!(
        Token::read(&folder.path().join("none")),
        Err(TokenError::Io { .. })
    ));

    let server = started(Some(right.clone()), Limits::default());
    assert!(error_of(open(&server, None)).contains("asks for a token"));
    assert!(error_of(open(&server, Some(&wrong))).contains("does not know the token"));
    let mut session = open(&server, Some(&right)).unwrap();
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    let outcome = session.measure(&short(Test::TcpRr), go_on).unwrap();
    assert_eq!(outcome.ended_early, None);
    until(&server, |status| (status.refused, status.tests) == (2, 1));
    // A client that has a token wants proof that the server has it, too.
    let unproven = open(&started(None, Limits::default()), Some(&right));
    assert!(
        matches!(unproven, Err(Error::NotAuthenticated(_))),
        "{unproven:?}"
    );
}

#[test]
fn reachable_server_needs_token() {
    let anywhere = Settings {
        listen: "0.0.0.0:0".parse().unwrap(),
        token: None,
        limits: Limits::default(),
        data_ports: None,
    };
    let error = Server::start(anywhere).unwrap_err();
    assert!(matches!(error, server::Error::NoToken(_)));
    let there = started(None, Limits::default());
    let taken = Settings {
        listen: there.address(),
        token: None,
        limits: Limits::default(),
        data_ports: None,
    };
    let error = Server::start(taken).unwrap_err();
    assert!(matches!(error, server::Error::Listen { .. }));
}

#[test]
fn limits_hold_and_session_continues() {
    let limits = Limits {
        clients: 2,
        duration: Duration::from_secs(2),
        ..Limits::default()
    };
    let server = started(None, limits);
    let mut first = open(&server, None).unwrap();
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    let long = Spec::new(Test::TcpRr, Duration::from_secs(3));
    let declined = first.measure(&long, go_on).unwrap_err();
    assert!(
        declined.to_string().contains("no test longer than 2 s"),
        "{declined}"
    );
    let absurd = Spec {
        flows: 0,
        ..short(Test::TcpRr)
    };
    assert!(matches!(
        first.measure(&absurd, go_on),
        Err(Error::Invalid(_))
    ));
    assert!(first.measure(&short(Test::UdpRr), go_on).is_ok());
    let second = open(&server, None).unwrap();
    let full = open(&server, None).unwrap_err();
    // Another try may find room.
    assert_eq!(full.class(), ErrorClass::Failed);
    assert!(full.to_string().contains("as many clients"), "{full}");
    drop(second);
    until(&server, |status| status.clients == 1);
    assert!(open(&server, None).is_ok());
}

/// A short test of latency under load.
fn loaded() -> Plan {
    let options = Options {
        duration: Some(Duration::from_millis(300)),
        interval: Some(Duration::from_millis(50)),
        load: Some(LoadPlan {
            direction: LoadDirection::Both,
            flows: 1,
        }),
        ..Options::default()
    };
    options.plans(&[Test::TcpRr]).unwrap().remove(0)
}

#[test]
fn load_keeps_limit_of_server() {
    let plan = loaded();
    let run = |seconds, phases: &mut Vec<Phase>| {
        let limits = Limits {
            duration: Duration::from_secs(seconds),
            ..Limits::default()
        };
        let server = started(None, limits);
        let target = Target::new(&server.address().to_string());
        let mut client = Client::new(target, std::slice::from_ref(&plan)).unwrap();
        let outcome = client.run(&plan, &mut |progress: &Progress| {
            phases.extend(progress.interval.as_ref().and_then(|it| it.phase));
            ControlFlow::Continue(())
        });
        (outcome, server.status().tests)
    };
    let mut phases = Vec::new();
    // The load lasts longer than its test: the client knows that before it measures anything.
    let (declined, tests) = run(2, &mut phases);
    let why = declined.unwrap_err();
    assert!(why.to_string().contains("no test longer than 2 s"), "{why}");
    assert_eq!(
        (tests, why.class(), phases.len()),
        (0, ErrorClass::Input, 0)
    );
    let (outcomes, tests) = run(8, &mut phases);
    let outcome = &outcomes.unwrap()[0];
    assert_eq!((&outcome.ended_early, tests), (&None, 4));
    let load = outcome.load.as_ref().unwrap();
    assert!(load.up.unwrap().bits_per_s > 0.0 && load.down.unwrap().bits_per_s > 0.0);
    phases.dedup();
    assert_eq!(phases, [Phase::Idle, Phase::Loaded]);
}

#[test]
fn streams_keep_server_rate_limit() {
    let limits = Limits {
        bits_per_s: Some(1e6),
        ..Limits::default()
    };
    let server = started(None, limits);
    let mut session = open(&server, None).unwrap();
    let stream = Spec {
        direction: netbench::Direction::Down,
        message: 125,
        ..Spec::new(Test::UdpStream, Duration::from_secs(1))
    };
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    let begun = Instant::now();
    let outcome = session.measure(&stream, go_on).unwrap();
    // A thousand a second, and the first at once.
    let most = begun.elapsed().as_secs_f64() * 1000.0 + 1.0;
    let sent = outcome.far.as_ref().unwrap().all_messages;
    assert!(sent > 0 && sent as f64 <= most, "{outcome:?}");
}

/// Something else that listens, and says this.
fn something(says: impl Into<Vec<u8>>) -> String {
    let says = says.into();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&says).unwrap();
        // Until the other end has seen enough.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    address
}

/// A greeting, and a message of more than any may have.
fn too_long() -> Vec<u8> {
    [&greeting()[..], &[0xff; 4]].concat()
}

#[test]
fn other_servers_are_recognised() {
    let to = |target: &str| error_of(Session::open(target, None));
    assert!(to(&something(b"SSH-2.0-OpenSSH_9.2\r\n")).contains("not a netbench server"));
    assert!(to(&something(b"lrnb\r\n\x63\0")).contains("speaks version 99"));
    assert!(to(&something(too_long())).contains("is gone"));
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    assert!(to(&closed.to_string()).contains("no netbench server at"));
    assert!(to("no-such-host.invalid").contains("no-such-host.invalid"));
    assert!(to("host:port:9").contains("is not an address"));
}

#[test]
fn malformed_messages_are_counted_and_end() {
    let server = started(None, Limits::default());
    let greeting = greeting();
    let message = |body: &[u8]| {
        let length = u32::try_from(body.len()).unwrap().to_le_bytes();
        [&greeting[..], &length, body].concat()
    };
    let hello = message(hello().to_string().as_bytes());
    let after_hello = |body: &[u8]| [&hello, &message(body)[greeting.len()..]].concat();
    let refused = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        too_long(),
        message(b"{}"),
        message(br#""Mark""#),
    ];
    let broken = [
        after_hello(br#""Mark""#),
        after_hello(br#"{"Begin":{}}"#),
        after_hello(br#"{"Begin":{"test":"tcp_rr","duration_us":1e99}}"#),
    ];
    for bytes in refused.iter().chain(&broken) {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(bytes).unwrap();
        // It closes, whatever it has said.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    until(&server, |status| (status.clients, status.refused) == (0, 4));
    let status = server.status();
    assert_eq!(status.tests, 0, "{status:?}");
    let mut session = open(&server, None).unwrap();
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    assert!(session.measure(&short(Test::TcpRr), go_on).is_ok());
}

/// The first message of a client without a token.
fn hello() -> serde_json::Value {
    json!({ "Hello": { "answer": null, "challenge": vec![0; 32] } })
}

/// A client that has been greeted and has not authenticated.
fn stranger(server: &Server) -> TcpStream {
    let mut stranger = TcpStream::connect(server.address()).unwrap();
    stranger.write_all(&greeting()).unwrap();
    stranger.read_exact(&mut [0; 8]).unwrap();
    receive(&mut stranger);
    stranger
}

fn admitted(server: &Server) -> TcpStream {
    let mut client = stranger(server);
    send(&client, &hello());
    let admitted = &receive(&mut client)["Admitted"];
    assert!(
        admitted["answer"].is_null() && admitted["path_mtu"].is_u64(),
        "{admitted}"
    );
    client
}

/// Where a test's flows go, and its cookie.
fn begun(client: &mut TcpStream, spec: &Spec) -> (Vec<u16>, Vec<u8>) {
    send(client, &json!({ "Begin": spec }));
    let ready = receive(client)["Ready"].clone();
    let [ports, cookie] = ["ports", "cookie"].map(|name| ready[name].clone());
    (
        serde_json::from_value(ports).unwrap(),
        serde_json::from_value(cookie).unwrap(),
    )
}

#[test]
fn oldest_strangers_make_room() {
    let limits = Limits {
        clients: 1,
        ..Limits::default()
    };
    let server = started(None, limits);
    // More than it lets wait, half of them greeted.
    let mut strangers: Vec<TcpStream> = (0..50).map(|_| stranger(&server)).collect();
    strangers.extend((0..50).map(|_| TcpStream::connect(server.address()).unwrap()));
    let mut session = open(&server, None).unwrap();
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    assert!(session.measure(&short(Test::TcpRr), go_on).is_ok());
    assert_eq!(server.status().clients, 1);
    // The first that came is gone, without having been waited for.
    let first = strangers.first_mut().unwrap();
    assert_eq!(first.read_to_end(&mut Vec::new()).unwrap(), 0);
    until(&server, |status| status.refused > 0);
}

#[test]
fn first_message_is_limited() {
    let server = started(None, Limits::default());
    let mut talks = stranger(&server);
    talks.write_all(&513_u32.to_le_bytes()).unwrap();
    // It has heard enough before any of it has come.
    assert_eq!(talks.read_to_end(&mut Vec::new()).unwrap(), 0);
    until(&server, |status| status.refused == 1);
}

#[test]
fn server_stops_while_clients_are_silent() {
    let server = started(None, Limits::default());
    let mut client = admitted(&server);
    // A message that takes minutes to say.
    client.write_all(&(60_000_u32).to_le_bytes()).unwrap();
    let mut unknown = stranger(&server);
    unknown.write_all(&200_u32.to_le_bytes()).unwrap();
    let mut streams = vec![client, unknown];
    // A connection of a test that is for one request, and says it as slowly.
    let mut other = admitted(&server);
    let crr = Spec {
        request: 60_000,
        ..Spec::new(Test::TcpCrr, Duration::from_secs(60))
    };
    let (ports, cookie) = begun(&mut other, &crr);
    let mut one = TcpStream::connect(("127.0.0.1", ports[0])).unwrap();
    one.write_all(&cookie).unwrap();
    streams.push(one);
    let dripping: Vec<_> = streams
        .into_iter()
        .map(|stream| thread::spawn(move || drip(stream)))
        .collect();
    until(&server, |status| status.tests == 1);
    drop(server);
    for thread in dripping {
        thread.join().unwrap();
    }
}

#[test]
fn slow_message_times_out() {
    let server = started(None, Limits::default());
    let mut client = admitted(&server);
    let stream = Spec {
        direction: netbench::Direction::Down,
        ..Spec::new(Test::UdpStream, Duration::from_millis(10))
    };
    begun(&mut client, &stream);
    send(&client, &json!("Mark"));
    // That the window ends, in a message of five minutes.
    client.write_all(&60_000_u32.to_le_bytes()).unwrap();
    assert!(drip(client) < 60_000);
    until(&server, |status| (status.clients, status.broken) == (0, 1));
}

#[test]
fn simultaneous_requests_do_not_queue() {
    let server = started(None, Limits::default());
    let mut client = admitted(&server);
    let crr = Spec {
        flows: 2,
        request: 60_000,
        ..Spec::new(Test::TcpCrr, Duration::from_secs(60))
    };
    let (ports, cookie) = begun(&mut client, &crr);
    let connect = || {
        let mut one = TcpStream::connect(("127.0.0.1", ports[0])).unwrap();
        one.write_all(&cookie).unwrap();
        one
    };
    // The first is not done for minutes; it has come first.
    let mut slow = connect();
    slow.write_all(&[0]).unwrap();
    let slow = thread::spawn(move || drip(slow));
    let mut second = connect();
    second.write_all(&[0; 60_000]).unwrap();
    second
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    second.read_exact(&mut [0]).unwrap();
    drop(client);
    slow.join().unwrap();
}

#[test]
fn answers_keep_server_rate_limit() {
    let limits = Limits {
        bits_per_s: Some(1e6),
        ..Limits::default()
    };
    let server = started(None, limits);
    let mut session = open(&server, None).unwrap();
    let asked = Spec {
        response: 12_500,
        warmup_us: 0,
        ..Spec::new(Test::UdpRr, Duration::from_secs(2))
    };
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    let begun = Instant::now();
    let outcome = session.measure(&asked, go_on).unwrap();
    // Ten a second, and one that it has saved.
    let most = begun.elapsed().as_secs_f64() * 10.0 + 1.0;
    let answered = outcome.near.all_messages;
    assert!(answered > 0 && answered as f64 <= most, "{outcome:?}");
    assert!(outcome.lost > 0, "the others are not put off: {outcome:?}");
}

#[test]
fn datagrams_need_cookie_and_client_address() {
    let server = started(None, Limits::default());
    let mut client = admitted(&server);
    let stream = Spec {
        direction: netbench::Direction::Down,
        ..Spec::new(Test::UdpStream, Duration::from_secs(5))
    };
    let (ports, cookie) = begun(&mut client, &stream);
    let port = ports[0];
    let bound = |at: &str| {
        let socket = UdpSocket::bind(at).unwrap();
        socket.connect(("127.0.0.1", port)).unwrap();
        socket
    };
    let (elsewhere, here) = (bound("127.0.0.2:0"), bound("127.0.0.1:0"));
    elsewhere.send(&cookie).unwrap();
    here.send(&[9; 16]).unwrap();
    here.send(&cookie[..15]).unwrap();
    here.send(&[&cookie[..], &[0]].concat()).unwrap();
    until(&server, |status| status.strangers == 4);
    for socket in [&elsewhere, &here] {
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 2000]).is_err());
        socket.set_nonblocking(false).unwrap();
    }
    here.send(&cookie).unwrap();
    let mut room = [0; 2000];
    assert_eq!(here.recv(&mut room).unwrap(), cookie.len());
    assert_eq!(room[..cookie.len()], cookie);
    assert_eq!(here.recv(&mut room).unwrap(), 1472);
}
