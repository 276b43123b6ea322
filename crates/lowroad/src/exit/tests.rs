//! The exit code and the printed text of each error that commands end with.
#![expect(clippy::too_many_lines, reason = "a table has a row for each variant")]

mod features_errors;
mod netbench_errors;
mod replicate_errors;
mod router_errors;
mod shipping_errors;

use std::io;
use std::path::PathBuf;

use super::*;

/// An error, its exit code and what is printed.
type Row = (Failure, (u8, String));

fn check(rows: impl IntoIterator<Item = Row>) {
    for (failure, (code, text)) in rows {
        assert_eq!(failure.message(), text);
        assert_eq!(failure.class().exit_code(), code, "{text}");
    }
}

fn failed(text: &str) -> (u8, String) {
    (1, format!("error: {text}\n"))
}

fn input(text: &str) -> (u8, String) {
    (2, format!("error: {text}\n"))
}

fn missing(line: &str) -> (u8, String) {
    (3, format!("cannot run here:\n  {line}\n"))
}

fn full() -> io::Error {
    io::Error::other("full")
}

fn absent() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "absent")
}

fn path() -> PathBuf {
    "p".into()
}

#[test]
fn missing_table_aligns_columns() {
    let list = [
        (
            "xdp".to_owned(),
            Missing::new("needs CAP_BPF", "run with sudo"),
        ),
        ("af-xdp".to_owned(), Missing::new("no driver", "none")),
    ];
    assert_eq!(
        missing_table(&list),
        "  xdp     needs CAP_BPF  run with sudo\n  af-xdp  no driver      none\n"
    );
}

#[test]
fn name_is_set_once() {
    let unnamed = Failure::from(Missing::new("no driver", "none"));
    let named = unnamed.needed_by("xdp").needed_by("relay");
    assert_eq!(
        (3, named.message()),
        missing("xdp  no driver  none"),
        "the first name stays"
    );
}

#[test]
fn errors_without_class_are_failures() {
    let context = |error: io::Error| Err::<(), _>(error).context("signals").unwrap_err();
    let bare = |error: io::Error| Err::<(), _>(error).or_fail().unwrap_err();
    check([
        (context(full()), failed("signals: full")),
        (bare(full()), failed("full")),
    ]);
}

#[test]
fn datapath_errors() {
    use datapath::Error;
    let lacking = Missing::new("needs CAP_BPF", "run with sudo");
    check([
        (
            lacking.clone().into(),
            missing("  needs CAP_BPF  run with sudo"),
        ),
        (
            Error::Missing(lacking).into(),
            missing("  needs CAP_BPF  run with sudo"),
        ),
        (
            Error::Plan("no stream".to_owned()).into(),
            input("no stream"),
        ),
        (
            Error::failed("attaching", full()).into(),
            failed("attaching: full"),
        ),
    ]);
}

#[test]
fn control_errors() {
    use control::{Error, Kind, config};
    let error = |kind| Failure::from(Error::new(kind, "why; do this")).needed_by("relay");
    check([
        (error(Kind::BadRequest), input("why; do this")),
        (error(Kind::TooLarge), input("why; do this")),
        (error(Kind::Unauthorised), input("why; do this")),
        (error(Kind::UnknownMethod), input("why; do this")),
        (error(Kind::NotFound), input("why; do this")),
        (error(Kind::Conflict), failed("why; do this")),
        (error(Kind::Missing), missing("relay  why  do this")),
        (error(Kind::Failed), failed("why; do this")),
        (error(Kind::Unreachable), failed("why; do this")),
        (
            Failure::from(Error::new(Kind::Missing, "no driver")).needed_by("relay"),
            missing("relay  no driver"),
        ),
        (
            config::Error {
                file: "relay.toml".to_owned(),
                line: Some(3),
                message: "no such key".to_owned(),
            }
            .into(),
            input("relay.toml:3: no such key"),
        ),
    ]);
}
