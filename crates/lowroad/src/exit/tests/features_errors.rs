//! Errors of `lowroad features`.

use super::*;

#[test]
fn sink_errors() {
    use features::sink::Error;
    let path = || "rows".to_owned();
    check([
        (
            Error::Io {
                path: path(),
                cause: full(),
            }
            .into(),
            failed("rows: full"),
        ),
        (
            Error::UnknownFormat { path: path() }.into(),
            input(
                "rows: the name says no format: end it in .parquet, .arrow, .csv, .jsonl or .ipfix, or name one with --format",
            ),
        ),
        (
            Error::NoElement("ttl".to_owned()).into(),
            input("column ttl is no IPFIX information element; use --schema ipfix"),
        ),
        (
            Error::IsAFolder { path: path() }.into(),
            input("rows: is a folder"),
        ),
        (
            Error::NotAFile { path: path() }.into(),
            input("rows: only files can be rotated"),
        ),
        (
            Error::NoSubject("box".to_owned()).into(),
            input("nats://box: names no subject; write nats://HOST:PORT/SUBJECT"),
        ),
        (
            Error::NoTopic("box".to_owned()).into(),
            input("kafka://box: names no topic; write kafka://HOST:PORT/TOPIC"),
        ),
        (
            Error::LinkTypes.into(),
            failed("the frames have several link types, and a pcap file has one"),
        ),
        (
            Error::Scores("no model".to_owned()).into(),
            failed("scoring: no model"),
        ),
        (
            Error::Thread(full()).into(),
            failed("the output's thread: full"),
        ),
        (Error::Stuck.into(), failed("the output takes nothing more")),
    ]);
}

#[test]
fn model_and_capture_errors() {
    use features::model::Error;
    use features::pcap::Fault;
    let (path, what) = ("m.toml".to_owned(), "has no trees".to_owned());
    check([
        (
            Error::Io {
                path: path.clone(),
                source: absent(),
            }
            .into(),
            input("m.toml: absent"),
        ),
        (
            Error::In {
                path,
                what: what.clone(),
            }
            .into(),
            input("m.toml: has no trees"),
        ),
        (
            Error::Model(what.clone()).into(),
            input("the model has no trees"),
        ),
        (Error::Rows(what).into(), input("has no trees")),
        (
            Error::Missing {
                model: "m.onnx".to_owned(),
                missing: Missing::new("no lowroad-onnx", "install it"),
            }
            .into(),
            missing("m.onnx  no lowroad-onnx  install it"),
        ),
        (
            Fault::Input("cut off".to_owned()).into(),
            input("cut off; the rows of what came before are complete"),
        ),
        (
            Fault::NoCapture("no pcap".to_owned()).into(),
            input("no pcap"),
        ),
        (
            Fault::LinkType.into(),
            input(
                "no frame has a link type that is read: Ethernet, raw IP, Linux SLL, PPP, BSD loopback",
            ),
        ),
        (
            Fault::Output {
                why: "full".to_owned(),
                lost: 2,
                rest: "3 packets were not read".to_owned(),
            }
            .into(),
            failed("full; 2 rows are lost, and 3 packets were not read"),
        ),
    ]);
}
