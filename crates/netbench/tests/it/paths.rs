//! What paths do to datagrams that a loopback does not.

use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::process::Command;
use std::time::Duration;

use netbench::client::Session;
use netbench::server::{Limits, Server, Settings};
use netbench::{Direction, Outcome, Spec, Test, Token};
use sys::netns::{self, Namespace};

/// Namespaces of a test, which end with it.
struct Places {
    prefix: String,
    names: Vec<&'static str>,
}

impl Places {
    fn new(test: &str, names: &[&'static str]) -> Self {
        let prefix = format!("lr-test-{test}-{}", std::process::id());
        let places = Self {
            prefix,
            names: names.to_vec(),
        };
        for name in names {
            Namespace::create(&format!("{}-{name}", places.prefix)).unwrap();
            places.shell(name, "ip link set lo up");
        }
        places
    }

    fn find(&self, name: &str) -> Namespace {
        Namespace::named(&format!("{}-{name}", self.prefix)).unwrap()
    }

    /// `@NAME` is the namespace of that name.
    fn shell(&self, name: &str, text: &str) {
        let text = text.replace('@', &format!("{}-", self.prefix));
        let place = format!("{}-{name}", self.prefix);
        let mut shell = Command::new("ip");
        shell.args(["netns", "exec", &place, "sh", "-ec", &text]);
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}: {said}");
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for name in &self.names {
            // One that was not created needs no removal.
            let _removed = netns::remove(&format!("{}-{name}", self.prefix));
        }
    }
}

pub(crate) fn token() -> Token {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "a word that both ends know").unwrap();
    let owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, owner).unwrap();
    Token::read(&file).unwrap()
}

/// One test from one place to a server in another.
fn measured(from: &Namespace, to: (&Namespace, Ipv4Addr), spec: &Spec) -> Outcome {
    let start = || {
        Server::start(Settings {
            listen: (to.1, 0).into(),
            token: Some(token()),
            limits: Limits::default(),
            data_ports: None,
        })
    };
    let server = to.0.run(start).unwrap().unwrap();
    let at = server.address().to_string();
    let measure = || {
        let mut session = Session::open(&at, Some(&token())).unwrap();
        session.measure(spec, &mut |_| ControlFlow::Continue(()))
    };
    from.run(measure).unwrap().unwrap()
}

#[test]
fn datagrams_fit_path_or_are_fragmented() {
    if !sys::require::root() {
        return;
    }
    let second = Duration::from_secs(1);
    let rated = |direction| Spec {
        // So few that a receiver's buffer has room for most of them: a pause of either end loses little.
        rate: Some(100.0),
        direction,
        ..Spec::new(Test::UdpStream, second)
    };
    let given = |direction| Spec {
        message: 1472,
        fit_message: false,
        ..rated(direction)
    };
    let transactions = Spec {
        request: 1472,
        response: 1472,
        // One is lost each way, and waited for.
        ..Spec::new(Test::UdpRr, second * 4)
    };
    let (up, down) = (Direction::Up, Direction::Down);
    for spec in [rated(up), rated(down), given(up), given(down), transactions] {
        // Afresh for each: a machine remembers what a path takes.
        let places = Places::new("mtu", &["client", "near", "far", "server"]);
        places.shell(
            "client",
            "ip link add right type veth peer name left netns @near
             ip addr add 10.77.1.1/24 dev right; ip link set right up; ip route add default via 10.77.1.2",
        );
        places.shell(
            "near",
            "ip link add right mtu 1300 type veth peer name left mtu 1300 netns @far
             ip addr add 10.77.1.2/24 dev left; ip addr add 10.77.2.1/24 dev right
             ip link set left up; ip link set right up; ip route add 10.77.3.0/24 via 10.77.2.2
             echo 1 >/proc/sys/net/ipv4/ip_forward",
        );
        places.shell(
            "far",
            "ip link add right type veth peer name left netns @server
             ip addr add 10.77.2.2/24 dev left; ip addr add 10.77.3.1/24 dev right
             ip link set left up; ip link set right up; ip route add 10.77.1.0/24 via 10.77.2.1
             echo 1 >/proc/sys/net/ipv4/ip_forward",
        );
        places.shell(
            "server",
            "ip addr add 10.77.3.2/24 dev left; ip link set left up; ip route add default via 10.77.3.1",
        );
        let to = (&places.find("server"), Ipv4Addr::new(10, 77, 3, 2));
        let outcome = measured(&places.find("client"), to, &spec);
        assert_eq!(outcome.ended_early, None, "{outcome:?}");
        match outcome.transfer {
            Some(transfer) => {
                assert!(transfer.loss.unwrap() < 0.1, "{outcome:?}");
                // Either the datagrams fit, or those of the size that was asked for are sent in fragments.
                let size = if spec.fit_message { 1272 } else { 1472 };
                assert_eq!((outcome.spec.message, outcome.path_mtu), (size, Some(1300)));
            }
            None => assert!(outcome.transactions_per_s().unwrap() > 1.0, "{outcome:?}"),
        }
    }
}

#[test]
fn datagrams_that_server_may_not_send_are_counted() {
    if !sys::require::root() {
        return;
    }
    let places = Places::new("fault", &["both"]);
    // A firewall that drops every datagram longer than a cookie.
    places.shell(
        "both",
        "nft 'table inet t { chain c { type filter hook output priority 0; udp length > 100 drop; }; }'",
    );
    let spec = Spec {
        direction: Direction::Down,
        ..Spec::new(Test::UdpStream, Duration::from_secs(2))
    };
    let both = places.find("both");
    let outcome = measured(&both, (&both, Ipv4Addr::LOCALHOST), &spec);
    let why = outcome.ended_early.unwrap();
    assert!(why.contains("the sender's own kernel refused all"), "{why}");
    let far = outcome.far.unwrap();
    assert!(
        far.send_errors > 0 && far.send_errors == far.all_messages,
        "{far:?}"
    );
}
