use super::*;
use crate::ship::nats::Published;
use crate::ship::tcp::{Replica as Served, Status};

/// A part that serves these replicas, given by their ports and last records.
fn serving(replicas: &[(u16, u64)]) -> Progress {
    let replicas = replicas.iter().map(|(port, number)| Served {
        address: SocketAddr::from(([127, 0, 0, 1], *port)),
        name: "edge".to_owned(),
        number: *number,
        epoch: 0,
        lag_records: 0,
        lag_ms: 0,
    });
    let status = Status {
        replicas: replicas.collect(),
        ..Status::default()
    };
    Progress::Serve(SocketAddr::from(([127, 0, 0, 1], 1)), status)
}

fn published(number: u64, server: Option<&str>) -> Progress {
    Progress::Publish(Published {
        number,
        server: server.map(str::to_owned),
        ..Published::default()
    })
}

/// The acknowledgements of a log that has its tree with record 10, and 100 bytes in each record.
fn followed() -> Acknowledgements {
    let confirmed = Acknowledgements::new(1000);
    confirmed.wrote(9, 0, false);
    confirmed.wrote(10, 100, false);
    confirmed.wrote(10, 100, true);
    confirmed
}

fn write(confirmed: &Acknowledgements, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        confirmed.wrote(number, (number - 9) * 100, true);
    }
}

#[test]
fn the_slowest_of_those_that_had_caught_up_is_waited_for() {
    let confirmed = followed();
    assert_eq!(confirmed.unconfirmed(), 0, "there is none");
    confirmed.report("serve", Some(&serving(&[(1, 10), (2, 10)])));
    confirmed.report("publish", Some(&published(10, Some("n1"))));
    write(&confirmed, 11..=60);
    assert_eq!(confirmed.unconfirmed(), 5000);
    confirmed.report("serve", Some(&serving(&[(1, 20), (2, 60)])));
    confirmed.report("publish", Some(&published(30, Some("n1"))));
    assert_eq!(confirmed.unconfirmed(), 4000);
    // A replica that is gone is not waited for.
    confirmed.report("serve", Some(&serving(&[(2, 60)])));
    assert_eq!(confirmed.unconfirmed(), 3000);
    confirmed.report("publish", Some(&published(30, None)));
    assert_eq!(confirmed.unconfirmed(), 0);
}

#[test]
fn one_that_comes_late_counts_when_it_has_caught_up() {
    let confirmed = followed();
    write(&confirmed, 11..=60);
    confirmed.report("serve", Some(&serving(&[(1, 3)])));
    assert_eq!(confirmed.unconfirmed(), 0);
    confirmed.report("serve", Some(&serving(&[(1, 49)])));
    assert_eq!(confirmed.unconfirmed(), 0, "1100 behind");
    confirmed.report("serve", Some(&serving(&[(1, 50)])));
    assert_eq!(confirmed.unconfirmed(), 1000);
    write(&confirmed, 61..=70);
    assert_eq!(confirmed.unconfirmed(), 2000);
}

#[test]
fn one_that_was_let_go_counts_when_it_has_caught_up() {
    let confirmed = followed();
    confirmed.report("serve", Some(&serving(&[(1, 10), (2, 55)])));
    write(&confirmed, 11..=60);
    confirmed.report("serve", Some(&serving(&[(1, 10), (2, 55)])));
    assert_eq!(confirmed.unconfirmed(), 5000);
    confirmed.let_go();
    assert_eq!(confirmed.unconfirmed(), 500);
    confirmed.report("serve", Some(&serving(&[(1, 52), (2, 60)])));
    assert_eq!(confirmed.unconfirmed(), 800);
}

#[test]
fn the_copy_of_a_tree_is_waited_for_by_nobody() {
    let confirmed = followed();
    confirmed.report("serve", Some(&serving(&[(1, 10)])));
    // The capture restarts, and counts its bytes anew.
    confirmed.wrote(10, 0, false);
    for number in 11..=99 {
        confirmed.wrote(number, number * 100, false);
    }
    confirmed.report("serve", Some(&serving(&[(1, 11)])));
    assert_eq!(confirmed.unconfirmed(), 0);
    confirmed.wrote(100, 10_000, true);
    assert_eq!(confirmed.unconfirmed(), 0);
    confirmed.report("serve", Some(&serving(&[(1, 99)])));
    assert_eq!(confirmed.unconfirmed(), 100);
    confirmed.report("serve", None);
    assert_eq!(confirmed.unconfirmed(), 0);
}

#[test]
fn what_is_kept_of_a_log_does_not_grow_with_it() {
    let confirmed = followed();
    confirmed.report("serve", Some(&serving(&[(1, 10)])));
    for number in 11..=10_000 {
        confirmed.report("serve", Some(&serving(&[(1, number - 1)])));
        confirmed.wrote(number, number * 100, true);
    }
    let marks = confirmed.state().marks.len();
    assert!((10..=12).contains(&marks), "{marks}");
    assert_eq!(confirmed.unconfirmed(), 100);
}
