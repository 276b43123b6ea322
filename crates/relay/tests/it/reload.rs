//! A configuration file that is read again: what differs is changed, and nothing else.

use relay::config;
use relay::core::{Changes, Core};

use crate::common::relay_rig::{Rig, datagram};

const SENDER: &str = "10.91.0.1:4000";

fn stream(name: &str, port: u16, datapath: &str, receivers: &[u16]) -> String {
    let mut text = format!(
        "[[stream]]\nname = \"{name}\"\nlisten = \"10.91.0.2:{port}\"\ndatapath = \"{datapath}\"\nsource = \"any\"\n"
    );
    for receiver in receivers {
        text += &format!(
            "[[stream.subscriber]]\nname = \"n{receiver}\"\nto = \"10.91.1.2:{receiver}\"\n"
        );
    }
    text
}

#[test]
fn only_what_differs_is_changed() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.toml");
    let names: Vec<_> = relay::datapaths().iter().map(|one| one.name()).collect();
    let write = |text: &[String]| std::fs::write(&path, text.concat()).unwrap();
    let rig = Rig::new(None);
    write(&[
        stream("same", 5004, "tc", &[6000]),
        stream("changes", 5006, "mmsg", &[6001, 6002]),
        stream("goes", 5008, "tc", &[6003]),
    ]);
    let core = rig
        .relay
        .run(|| Core::start(&config::load(&path, &names).unwrap()).unwrap());
    let send = |port: u16| {
        let to = format!("10.91.0.2:{port}");
        rig.inject(&datagram(SENDER, &to, vec![7; 100]).frame());
    };
    let capture = rig.capture();
    send(5004);
    send(5006);
    assert_eq!(capture.take(3).len(), 3);
    write(&[
        stream("same", 5004, "tc", &[6000]),
        stream("changes", 5006, "xdp", &[6002, 6004]),
        stream("comes", 5010, "recv", &[6005]),
    ]);
    let changes = rig.relay.run(|| core.reload().unwrap());
    let expected = Changes {
        added: vec!["comes".into()],
        changed: vec!["changes".into()],
        removed: vec!["goes".into()],
        refused: Vec::new(),
    };
    assert_eq!(changes, expected);
    for port in [5004, 5006, 5008, 5010] {
        send(port);
    }
    let mut ports: Vec<_> = capture
        .take(4)
        .iter()
        .map(|copy| copy.destination.port())
        .collect();
    ports.sort_unstable();
    assert_eq!(ports, [6000, 6002, 6004, 6005]);
    let views = core.counters();
    let received = |name: &str| {
        let mut named = views.iter().filter(|view| view.stream == name);
        named.next().unwrap().received.packets
    };
    assert_eq!(received("same"), 2, "it was not touched");
    assert_eq!(received("changes"), 2, "it moved and did not start anew");
    std::fs::write(&path, "[[stream]]\nname = 1\n").unwrap();
    rig.relay.run(|| core.reload().unwrap_err());
    assert_eq!(core.streams().len(), 3, "a wrong file changes nothing");
}
