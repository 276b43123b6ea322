//! Each key of a stream and of a subscriber means the same on every datapath.

use std::time::{Duration, Instant};

use relay::counters::Drops;
use relay::spec::StreamSpec;

use crate::common::relay_rig::{Capture, Rig, SENDER_MAC, datagram};
use crate::common::space::TIMEOUT;

const DATAPATHS: [&str; 7] = ["recv", "mmsg", "gso", "busy", "tc", "xdp", "af-xdp"];
const INGEST: &str = "10.91.0.2:5004";
const GROUP: &str = "239.91.0.1:5004";
const GROUP_MAC: [u8; 6] = [1, 0, 0x5e, 0x5b, 0, 1];
const FIRST: &str = "10.91.0.1:4000";
const SECOND: &str = "10.91.0.1:4001";
const ELSEWHERE: &str = "198.51.100.9:4000";

/// A stream in a configuration file, what is sent to it, and what becomes of that.
struct Case {
    /// Lines of the stream, and of its only subscriber.
    stream: &'static str,
    subscriber: &'static str,
    steps: &'static [Step],
    /// The copies: the payload, the device, the source and the TTL.
    copies: &'static [(&'static str, u8, &'static str, u8)],
    /// In JSON; `None` where the network stack drops what a fast path counts.
    drops: Option<&'static str>,
}

enum Step {
    /// A datagram with this payload from this address.
    Send(&'static str, &'static str),
    /// The same with this TTL.
    SendTtl(&'static str, &'static str, u8),
    Wait(Duration),
}
use Step::{Send, SendTtl, Wait};

const LISTEN: &str = "listen = \"10.91.0.2:5004\"\n";
const TO: &str = "to = \"10.91.1.2:6000\"\n";
const FROM_BOTH: &[Step] = &[Send("a", FIRST), Send("b", SECOND)];
const LAST_HOPS: &[Step] = &[SendTtl("a", FIRST, 1), SendTtl("b", FIRST, 2)];
/// Copies of a group's stream come from the device that they leave by.
const OUT1: &str = "10.91.1.1:5004";
const TTL: u8 = 63;

const CASES: &[Case] = &[
    Case {
        stream: "source = \"any\"",
        subscriber: "",
        steps: &[Send("a", FIRST), Send("b", ELSEWHERE)],
        copies: &[("a", 1, INGEST, TTL), ("b", 1, INGEST, TTL)],
        drops: Some("{}"),
    },
    Case {
        stream: "source = [\"10.91.0.0/24\", \"192.0.2.0/24\"]",
        subscriber: "",
        steps: &[Send("a", FIRST), Send("b", ELSEWHERE), Send("c", SECOND)],
        copies: &[("a", 1, INGEST, TTL), ("c", 1, INGEST, TTL)],
        drops: Some("{\"source_denied\":1}"),
    },
    Case {
        stream: "source = \"latch\"",
        subscriber: "",
        steps: FROM_BOTH,
        copies: &[("a", 1, INGEST, TTL)],
        drops: Some("{\"source_denied\":1}"),
    },
    Case {
        stream: "source = \"latch\"\nlatch_timeout = \"100ms\"",
        subscriber: "",
        steps: &[
            Send("a", FIRST),
            Wait(Duration::from_millis(1500)),
            Send("b", SECOND),
        ],
        copies: &[("a", 1, INGEST, TTL), ("b", 1, INGEST, TTL)],
        drops: Some("{}"),
    },
    Case {
        stream: "source = \"any\"\ninterfaces = [\"in0\"]",
        subscriber: "",
        steps: FROM_BOTH,
        copies: &[("a", 1, INGEST, TTL), ("b", 1, INGEST, TTL)],
        drops: Some("{}"),
    },
    Case {
        stream: "source = \"any\"\ninterfaces = [\"out2\"]",
        subscriber: "",
        steps: FROM_BOTH,
        copies: &[],
        drops: Some("{\"source_denied\":2}"),
    },
    Case {
        // One more token comes after a second.
        stream: "source = \"any\"\nrate = { stream = \"1pps\" }",
        subscriber: "",
        steps: FROM_BOTH,
        copies: &[("a", 1, INGEST, TTL)],
        drops: Some("{\"rate_limited\":1}"),
    },
    Case {
        stream: "source = \"any\"\nrate = { source = \"1pps\" }",
        subscriber: "",
        steps: &[Send("a", FIRST), Send("b", ELSEWHERE), Send("c", SECOND)],
        copies: &[("a", 1, INGEST, TTL), ("b", 1, INGEST, TTL)],
        drops: Some("{\"rate_limited\":1}"),
    },
    Case {
        stream: "source = \"any\"",
        subscriber: "from = \"10.91.1.1:7777\"",
        steps: FROM_BOTH,
        copies: &[
            ("a", 1, "10.91.1.1:7777", TTL),
            ("b", 1, "10.91.1.1:7777", TTL),
        ],
        drops: Some("{}"),
    },
    Case {
        stream: "source = \"any\"",
        subscriber: "interface = \"out1\"",
        steps: FROM_BOTH,
        copies: &[("a", 1, INGEST, TTL), ("b", 1, INGEST, TTL)],
        drops: Some("{}"),
    },
    Case {
        stream: "source = \"any\"",
        subscriber: "to = \"239.91.0.9:6000\"\ninterface = \"out2\"\nttl = 7",
        steps: FROM_BOTH,
        copies: &[("a", 2, INGEST, 7), ("b", 2, INGEST, 7)],
        drops: Some("{}"),
    },
    Case {
        stream: "source = \"any\"",
        subscriber: "expires = \"500ms\"",
        steps: &[
            Send("a", FIRST),
            Wait(Duration::from_millis(2500)),
            Send("b", FIRST),
        ],
        copies: &[("a", 1, INGEST, TTL)],
        drops: Some("{}"),
    },
    Case {
        stream: "listen = \"239.91.0.1:5004\"\nsource = \"any\"\nmulticast = { interface = \"in0\" }",
        subscriber: "",
        steps: FROM_BOTH,
        copies: &[("a", 1, OUT1, TTL), ("b", 1, OUT1, TTL)],
        drops: Some("{}"),
    },
    Case {
        stream: "listen = \"239.91.0.1:5004\"\nsource = \"any\"\n\
                 multicast = { interface = \"in0\", source = \"10.91.0.1\" }",
        subscriber: "",
        steps: &[Send("a", FIRST), Send("b", ELSEWHERE), Send("c", SECOND)],
        copies: &[("a", 1, OUT1, TTL), ("c", 1, OUT1, TTL)],
        drops: None,
    },
    Case {
        stream: "listen = \"239.91.0.1:5004\"\nsource = \"any\"\nmulticast = { interface = \"in0\" }",
        subscriber: "",
        steps: LAST_HOPS,
        copies: &[("b", 1, OUT1, 1)],
        drops: Some("{\"ttl_exceeded\":1}"),
    },
    Case {
        // Senders to groups use TTL 1 unless told otherwise.
        stream: "listen = \"239.91.0.1:5004\"\nsource = \"any\"\nmulticast = { interface = \"in0\" }\n\
                 ttl = 33",
        subscriber: "",
        steps: LAST_HOPS,
        copies: &[("a", 1, OUT1, 33), ("b", 1, OUT1, 33)],
        drops: Some("{}"),
    },
    Case {
        stream: "source = \"any\"\nttl = 33",
        subscriber: "",
        steps: LAST_HOPS,
        copies: &[("a", 1, INGEST, 33), ("b", 1, INGEST, 33)],
        drops: Some("{}"),
    },
    Case {
        stream: "source = \"any\"\nttl = 33",
        subscriber: "ttl = 7",
        steps: LAST_HOPS,
        copies: &[("a", 1, INGEST, 7), ("b", 1, INGEST, 7)],
        drops: Some("{}"),
    },
];

impl Case {
    /// The stream on this datapath, as a file states it.
    fn spec(&self, datapath: &str) -> StreamSpec {
        let listen = if self.stream.contains("listen") {
            ""
        } else {
            LISTEN
        };
        let to = if self.subscriber.contains("to =") {
            ""
        } else {
            TO
        };
        let text = format!(
            "name = \"s\"\ndatapath = \"{datapath}\"\n{listen}{}\n[[subscriber]]\nname = \"r\"\n{to}{}\n",
            self.stream, self.subscriber
        );
        toml::from_str(&text).unwrap()
    }

    /// Sends what is to be sent, and returns what becomes of it.
    fn run(&self, rig: &Rig, datapath: &str) -> (Vec<(String, u8, String, u8)>, Drops) {
        let spec = self.spec(datapath);
        let is_group = spec.multicast.is_some();
        let core = rig.serve(vec![spec]);
        let capture = rig.capture();
        let mut copies = Vec::new();
        for step in self.steps {
            let (payload, from, ttl) = match *step {
                Wait(time) => {
                    std::thread::sleep(time);
                    continue;
                }
                Send(payload, from) => (payload, from, TTL + 1),
                SendTtl(payload, from, ttl) => (payload, from, ttl),
            };
            let (to, mac) = if is_group {
                (GROUP, Some(GROUP_MAC))
            } else {
                (INGEST, None)
            };
            let packet = datagram(from, to, payload.as_bytes()).ttl(ttl);
            let packet = match mac {
                Some(mac) => packet.macs(SENDER_MAC, mac),
                None => packet,
            };
            rig.inject(&packet.frame());
            copies.extend(delivered(&capture));
        }
        let view = core.counters().remove(0);
        (copies, view.drops)
    }
}

/// What arrives until nothing has for a while.
fn delivered(capture: &Capture) -> Vec<(String, u8, String, u8)> {
    std::thread::sleep(Duration::from_millis(30));
    let copies = capture.rest().into_iter();
    let copy = copies.map(|copy| {
        let payload = String::from_utf8(copy.payload).unwrap();
        (payload, copy.device, copy.source.to_string(), copy.ttl)
    });
    copy.collect()
}

#[test]
fn each_key_means_the_same_on_every_datapath() {
    if !sys::require::root() {
        return;
    }
    std::thread::scope(|scope| {
        for datapath in DATAPATHS {
            scope.spawn(move || check(datapath));
        }
    });
}

fn check(datapath: &str) {
    let rig = Rig::new(None);
    for case in CASES {
        let copies: Vec<_> = case
            .copies
            .iter()
            .map(|(payload, device, source, ttl)| {
                ((*payload).to_owned(), *device, (*source).to_owned(), *ttl)
            })
            .collect();
        let drops: Option<Drops> = case.drops.map(|drops| serde_json::from_str(drops).unwrap());
        // A busy machine may be late.
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let result = case.run(&rig, datapath);
            if result.0 == copies && drops.as_ref().is_none_or(|drops| result.1 == *drops) {
                break;
            }
            let keys = (case.stream, case.subscriber);
            assert!(
                Instant::now() < deadline,
                "{datapath}: {keys:?}: {result:?}"
            );
        }
    }
}
