//! The configuration file: its shape, and every complaint with its line.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use control::config::{Document, Error, Http, Spanned};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::spec::{Part, StreamSpec};

/// Where the control socket is by default.
pub const CONTROL: &str = "/run/lowroad-relay/relay.sock";

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file, which [`Core::reload`](crate::core::Core::reload) reads again.
    pub path: PathBuf,
    pub control: PathBuf,
    pub http: Option<Http>,
    /// CPUs that the datapaths are pinned to, in turn; empty: anywhere.
    pub cpus: Vec<usize>,
    pub streams: Vec<StreamSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    relay: RelaySection,
    #[serde(default)]
    stream: Vec<StreamSpec>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RelaySection {
    control: Option<PathBuf>,
    http: Option<Spanned<Http>>,
    #[serde(default)]
    cpus: Vec<usize>,
}

/// Reads and checks a file; `datapaths` are the names there are.
pub fn load(path: &Path, datapaths: &[&str]) -> Result<Config, Error> {
    check(&Document::read(path)?, path, datapaths)
}

fn check(document: &Document, path: &Path, datapaths: &[&str]) -> Result<Config, Error> {
    let File { relay, stream } = document.parse()?;
    let mut streams: Vec<StreamSpec> = Vec::new();
    for spec in stream {
        spec.check(datapaths, &streams).map_err(|problem| {
            let span = place(document, streams.len(), problem.part);
            document.error(span.unwrap_or_default(), problem.message)
        })?;
        streams.push(spec);
    }
    Ok(Config {
        path: path.into(),
        control: relay.control.unwrap_or_else(|| CONTROL.into()),
        http: Http::check(relay.http, document)?,
        cpus: relay.cpus,
        streams,
    })
}

/// Where the streams stand in a file that has been read already.
#[derive(Deserialize)]
struct SpannedStreams<T> {
    stream: Vec<Spanned<T>>,
}

#[derive(Deserialize)]
struct Subscribers {
    subscriber: Vec<Spanned<IgnoredAny>>,
}

/// Where a part of a stream stands: of a key that is not there, where the stream does.
fn place(document: &Document, stream: usize, part: Part) -> Option<Range<usize>> {
    match part {
        Part::Subscriber(at) => {
            let places: SpannedStreams<Subscribers> = document.parse().ok()?;
            let subscribers = &places.stream.get(stream)?.get_ref().subscriber;
            subscribers.get(at).map(Spanned::span)
        }
        Part::Key(key) => {
            let places: SpannedStreams<BTreeMap<String, Spanned<IgnoredAny>>> =
                document.parse().ok()?;
            let stream = places.stream.get(stream)?;
            let key = stream.get_ref().get(key);
            Some(key.map_or_else(|| stream.span(), Spanned::span))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "[[stream]]\nname = \"cam1\"\nlisten = \"192.0.2.1:5004\"\n\
                          datapath = \"recv\"\nsource = \"any\"\n";

    fn read(text: &str) -> Result<Config, String> {
        let document = Document::new("r.toml", text);
        check(&document, Path::new("r.toml"), &["recv", "xdp"]).map_err(|error| error.to_string())
    }

    fn complaint(more: &str) -> String {
        read(&format!("{STREAM}{more}")).unwrap_err()
    }

    fn subscriber(more: &str) -> String {
        complaint(&format!(
            "[[stream.subscriber]]\nname = \"edge-3\"\n{more}\n"
        ))
    }

    #[test]
    fn a_complete_file_is_read() {
        let config = read(
            "[relay]\ncontrol = \"/tmp/r.sock\"\ncpus = [1]\n\
             http = { listen = \"127.0.0.1:8640\", token_file = \"/etc/lowroad/token\" }\n\
             [[stream]]\nname = \"cam1\"\nlisten = \"232.1.1.1:5004\"\ndatapath = \"xdp\"\n\
             source = [\"10.0.0.0/8\"]\ninterfaces = [\"eth0\"]\n\
             rate = { stream = \"50kpps\", source = \"10kpps\" }\nlatch_timeout = \"30s\"\n\
             multicast = { interface = \"eth0\", source = \"10.0.0.9\" }\n\
             [[stream.subscriber]]\nname = \"edge-1\"\nto = \"192.0.2.4:6000\"\n\
             [[stream.subscriber]]\nname = \"group\"\nto = \"[ff3e::5]:6000\"\ninterface = \"eth1\"\nttl = 8\n",
        )
        .unwrap();
        assert_eq!(config.streams[0].subscribers.len(), 2);
        assert_eq!(config.streams[0].rate.stream.unwrap().0, 50_000);
        assert_eq!(config.cpus, [1]);
    }

    #[test]
    fn a_loop_names_its_line() {
        assert_eq!(
            subscriber("to = \"192.0.2.1:5004\""),
            "r.toml:6: subscriber \"edge-3\": destination 192.0.2.1:5004 is this relay's own ingest (loop)"
        );
    }

    #[test]
    fn a_wrong_key_names_its_line() {
        for (from, to, line) in [
            ("recv", "udp", 4),
            (":5004", ":0", 3),
            ("\"any\"", "[]", 5),
            ("192.0.2.1", "239.1.1.1", 3),
            ("source = \"any\"", "source = \"any\"\nwork = \"2s\"", 6),
            ("source = \"any\"", "source = \"any\"\nttl = 0", 6),
        ] {
            let message = read(&STREAM.replace(from, to)).unwrap_err();
            assert!(
                message.starts_with(&format!("r.toml:{line}: ")),
                "{message}"
            );
        }
    }

    #[test]
    fn loops_through_other_streams_are_found_whichever_comes_first() {
        let feeds = "[[stream.subscriber]]\nname = \"s\"\nto = \"192.0.2.9:7000\"\n";
        let fed = "[[stream]]\nname = \"b\"\nlisten = \"192.0.2.9:7000\"\ndatapath = \"recv\"\nsource = \"any\"\n";
        let message = read(&format!("{STREAM}{feeds}{fed}")).unwrap_err();
        assert_eq!(
            message,
            "r.toml:11: stream \"b\": 192.0.2.9:7000 is where subscriber \"s\" of stream \"cam1\" is sent (loop)"
        );
        let message = read(&format!("{fed}{STREAM}{feeds}")).unwrap_err();
        assert!(message.contains("own ingest (loop)"), "{message}");
    }

    #[test]
    fn each_complaint_says_what() {
        for (more, expected) in [
            ("to = \"192.0.2.4\"", "\"192.0.2.4\" has no port"),
            ("to = \"0.0.0.0:1\"", "0.0.0.0:1 is no destination"),
            (
                "to = \"239.1.1.1:1\"",
                "239.1.1.1 is a group: say interface",
            ),
            ("to = \"192.0.2.4:1\"\nttl = 0", "ttl is 1 to 255"),
            (
                "to = \"192.0.2.4:1\"\nfrom = \"[::1]:5\"",
                "different families",
            ),
            (
                "to = \"192.0.2.4:1\"\nfrmo = \"192.0.2.1:5\"",
                "did you mean \"from\"?",
            ),
            (
                "to = \"192.0.2.4:1\"\nexpires = \"soon\"",
                "is not a duration",
            ),
        ] {
            let message = subscriber(more);
            assert!(message.contains(expected), "{more}: {message}");
        }
        for (from, to, expected) in [
            ("recv", "udp", "no datapath \"udp\"; there are recv, xdp"),
            ("\"any\"", "[]", "the list of sources is empty"),
            (
                "\"any\"",
                "[\"2001:db8::/32\"]",
                "not of the ingest's family",
            ),
            (
                "\"any\"",
                "\"some\"",
                "expected \"any\", \"latch\" or a list of prefixes",
            ),
            (
                "192.0.2.1:5004",
                "239.1.1.1:5004",
                "239.1.1.1 is a group: say multicast",
            ),
            (":5004", ":0", "the ingest needs a port"),
        ] {
            let message = read(&STREAM.replace(from, to)).unwrap_err();
            assert!(message.contains(expected), "{to}: {message}");
        }
    }

    #[test]
    fn a_group_joined_for_one_sender_has_no_other_source() {
        let joined = STREAM.replace("192.0.2.1", "232.1.1.1");
        let by = "multicast = { interface = \"eth0\", source = \"10.0.0.9\" }\n";
        assert!(read(&format!("{joined}{by}")).is_ok());
        for (source, expected) in [
            ("\"latch\"", "nobody else to latch"),
            ("[\"10.1.0.0/16\"]", "10.0.0.9, which may not send"),
        ] {
            let message = read(&format!("{}{by}", joined.replace("\"any\"", source))).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn work_keeps_a_stream_in_userspace() {
        let config = read(&format!(
            "{STREAM}work = \"50us\"\nfec = {{ group = 10 }}\n"
        ))
        .unwrap();
        let work = config.streams[0].per_packet();
        assert_eq!((work.spin.as_micros(), work.fec_group), (50, Some(10)));
        let fast = STREAM.replace("\"recv\"", "\"xdp\"");
        assert!(read(&format!("{fast}work = \"0us\"\n")).is_ok());
        for (stream, more, expected) in [
            (
                fast.as_str(),
                "work = \"1us\"",
                "the fast path does not apply",
            ),
            (
                fast.as_str(),
                "fec = { group = 10 }",
                "the fast path does not apply",
            ),
            (STREAM, "fec = { group = 1 }", "2 to 64 packets"),
            (STREAM, "work = \"2s\"", "at most 10ms"),
        ] {
            let message = read(&format!("{stream}{more}\n")).unwrap_err();
            assert!(message.contains(expected), "{more}: {message}");
        }
    }

    #[test]
    fn duplicates_are_refused() {
        let second = STREAM.replace("cam1", "cam2");
        assert!(complaint(STREAM).contains("this name is taken"));
        assert!(complaint(&second).contains("is the ingest of stream \"cam1\""));
        let wildcard = second.replace("192.0.2.1", "0.0.0.0");
        assert!(complaint(&wildcard).contains("is the ingest of stream"));
        let edge = "[[stream.subscriber]]\nname = \"a\"\nto = \"192.0.2.4:1\"\n";
        assert!(complaint(&format!("{edge}{edge}")).contains("this name is taken"));
        let same = edge.replace("\"a\"", "\"b\"");
        assert!(complaint(&format!("{edge}{same}")).contains("is subscriber \"a\" already"));
    }

    #[test]
    fn a_stream_has_at_most_256_subscribers() {
        let many: String = (0..257)
            .map(|n| {
                format!(
                    "[[stream.subscriber]]\nname = \"s{n}\"\nto = \"192.0.2.4:{}\"\n",
                    1000 + n
                )
            })
            .collect();
        assert!(complaint(&many).contains("257 subscribers; 256 at most"));
    }
}
