//! Errors of what ships a log, and of the services of `lowroad replicate`.

use super::replicate_errors::{DAMAGE_ERROR, damaged};
use super::*;

#[test]
fn shipping_errors() {
    use replicate::ship::nats::Error as NatsError;
    use replicate::ship::tcp::{Error, InvalidMessage, KeysError, Reason, VERSION};
    let stream = || "APP".to_owned();
    check([
        (
            Error::File {
                path: path(),
                what: "no certificate".to_owned(),
            }
            .into(),
            input("p: no certificate"),
        ),
        (
            Error::NotAdmitted("it has expired").into(),
            input(
                "the server refuses this replica's certificate: it has expired; use one of the authority that `serve --clients-ca` names",
            ),
        ),
        (
            Error::NotTrusted("it has expired".to_owned()).into(),
            input(
                "the server's certificate is not to be trusted: it has expired; `--server-ca` names its authority, and the address a name that it is for",
            ),
        ),
        (
            Error::Refused {
                reason: Reason::Full,
                text: "8".to_owned(),
            }
            .into(),
            input("the server has as many replicas as it takes: 8"),
        ),
        (
            Error::Version(9).into(),
            input(&format!(
                "the other end speaks version 9 of the protocol, this one {VERSION}: use the same lowroad"
            )),
        ),
        (
            Error::Listen {
                what: "[::]:7400".to_owned(),
                source: full(),
            }
            .into(),
            failed("[::]:7400: full: full"),
        ),
        (Error::Io(full()).into(), failed("full")),
        (
            Error::Malformed(InvalidMessage::Short).into(),
            failed(
                "the other end sent a message that ends too early: a message that ends too early",
            ),
        ),
        (
            Error::Closed.into(),
            failed("the other end closed the connection"),
        ),
        (Error::Log(damaged()).into(), failed(DAMAGE_ERROR)),
        (
            NatsError::Settings {
                stream: stream(),
                what: "keeps too little".to_owned(),
            }
            .into(),
            input("stream APP: keeps too little"),
        ),
        (
            NatsError::OtherLog {
                stream: stream(),
                found: "1".to_owned(),
                expected: "2".to_owned(),
            }
            .into(),
            input("stream APP has another log, 1, not 2; use another stream"),
        ),
        (
            NatsError::Fenced { stream: stream() }.into(),
            failed("stream APP: another publisher has taken it over; this one stops"),
        ),
        (NatsError::Log(damaged()).into(), failed(DAMAGE_ERROR)),
        (
            KeysError::Name("ca".to_owned()).into(),
            input(
                "ca: no name for a certificate: letters, digits, dots and hyphens, neither ca nor server",
            ),
        ),
        (
            KeysError::Io {
                path: path(),
                source: full(),
            }
            .into(),
            failed("p: full: full"),
        ),
    ]);
}

#[test]
fn service_errors() {
    use replicate::service::Error;
    use replicate::service::freezer::FreezeError;
    use replicate::service::receive::Needs;
    use replicate::ship::tcp;
    use replicate::{apply, capture, coverage};
    let needs = Needs {
        from: "tcp://box:7400".to_owned(),
    };
    check([
        (Error::Input("no part".to_owned()).into(), input("no part")),
        (
            Error::Needs(needs).into(),
            input("tcp://box:7400 needs --cert, --key and --server-ca"),
        ),
        (
            Error::Freezer(FreezeError::Root(path())).into(),
            input("cgroup p: the root cgroup cannot be frozen: name the application's"),
        ),
        (
            Error::Capture(capture::Error::Privileges).into(),
            missing("capture  needs root  run with sudo"),
        ),
        (
            Error::Coverage(coverage::Error::Capture(capture::Error::Privileges)).into(),
            missing("capture  needs root  run with sudo"),
        ),
        (
            Error::Invisible(vec!["write", "rename"]).into(),
            missing(
                "capture  write is not seen on this file system   see lowroad replicate coverage; what can be looked for, --allow names\n  \
                   capture  rename is not seen on this file system  see lowroad replicate coverage; what can be looked for, --allow names",
            ),
        ),
        (Error::Log(damaged()).into(), failed(DAMAGE_ERROR)),
        (
            Error::Tcp(tcp::Error::Version(9)).into(),
            input(&tcp::Error::Version(9).to_string()),
        ),
        (
            Error::Tcp(tcp::Error::Log(damaged())).into(),
            failed(DAMAGE_ERROR),
        ),
        (
            Error::Apply(apply::Error::Log(damaged())).into(),
            input(DAMAGE_ERROR),
        ),
        (
            Error::Watch(full()).into(),
            failed("watching the log: full"),
        ),
        (
            Error::Watchdog(full()).into(),
            failed("no process that thaws what is frozen: full"),
        ),
        (Error::Thread(full()).into(), failed("no thread: full")),
        (
            Error::Unfinished("2 left".to_owned()).into(),
            failed("2 left"),
        ),
        (
            Error::Panicked.into(),
            failed(
                "it panicked; this is a mistake in lowroad: please report what was said on standard error",
            ),
        ),
    ]);
}
