//! Errors of `lowroad netbench`.

use super::*;

#[test]
fn client_and_server_errors() {
    use netbench::client::Error;
    use netbench::{Invalid, Test, TokenError, server};
    let (target, why) = ("box".to_owned(), "why".to_owned());
    let (test, cause) = (Test::TcpRr, "reset".to_owned());
    let one_flow = Invalid::OneFlow { test: Test::Icmp };
    let declined = |later| Error::Declined {
        target: "box".to_owned(),
        test,
        why: "why".to_owned(),
        later,
    };
    let address = "127.0.0.1:7411".parse().unwrap();
    check([
        (
            Error::Invalid(one_flow.clone()).into(),
            input("icmp has one flow"),
        ),
        (
            Error::Unreachable {
                target: target.clone(),
                cause: full(),
            }
            .into(),
            failed("box: full"),
        ),
        (
            Error::NoServer(address).into(),
            failed(
                "no netbench server at 127.0.0.1:7411; start one there: lowroad netbench serve --listen 127.0.0.1:7411",
            ),
        ),
        (
            Error::Target(target.clone()).into(),
            input("box is not an address: write HOST or HOST:PORT"),
        ),
        (
            Error::Stranger(target.clone()).into(),
            input("box is not a netbench server: start one there with `lowroad netbench serve`"),
        ),
        (
            Error::Version {
                target: target.clone(),
                theirs: 9,
            }
            .into(),
            input(&format!(
                "box speaks version 9 of the protocol, this is version {}: use the same lowroad at both ends",
                netbench::VERSION
            )),
        ),
        (
            Error::Refused {
                target: target.clone(),
                why: why.clone(),
            }
            .into(),
            input("box refuses this client: why"),
        ),
        (
            Error::Busy {
                target: target.clone(),
                why,
            }
            .into(),
            failed("box has no room for this client: why; try again later"),
        ),
        (
            Error::NoToken(target.clone()).into(),
            input("box asks for a token: name its file"),
        ),
        (declined(false).into(), input("box declines tcp_rr: why")),
        (declined(true).into(), failed("box declines tcp_rr: why")),
        (
            Error::Lost { target, cause }.into(),
            failed("box is gone: reset"),
        ),
        (
            Error::Icmp {
                target: [127, 0, 0, 1].into(),
                cause: full(),
            }
            .into(),
            failed("icmp to 127.0.0.1: full"),
        ),
        (
            Error::Missing {
                what: "no raw socket",
                remedy: "run with sudo",
            }
            .into(),
            missing("  no raw socket  run with sudo"),
        ),
        (Error::Io(full()).into(), failed("full: full")),
        (one_flow.into(), input("icmp has one flow")),
        (
            TokenError::Io {
                path: path(),
                cause: full(),
            }
            .into(),
            input("p: full"),
        ),
        (
            server::Error::NoToken(address).into(),
            input(
                "127.0.0.1:7411 is reached by other machines: name a token that clients have to know",
            ),
        ),
        (
            server::Error::Listen {
                at: address,
                cause: full(),
            }
            .into(),
            failed("listening on 127.0.0.1:7411: full"),
        ),
    ]);
}
