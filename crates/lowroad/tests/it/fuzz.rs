//! The relay's configuration file on damaged text, from ten fixed seeds: read, or refused in one line
//! that names the file.

use std::fs;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const GOOD: &str = r#"[relay]
control = "/tmp/r.sock"
cpus = [1]
http = { listen = "127.0.0.1:8640", token_file = "/etc/lowroad/token" }
[[stream]]
name = "cam1"
listen = "232.1.1.1:5004"
datapath = "xdp"
source = ["10.0.0.0/8"]
interfaces = ["eth0"]
rate = { stream = "50kpps", source = "10kpps" }
latch_timeout = "30s"
ttl = 64
multicast = { interface = "eth0", source = "10.0.0.9" }
[[stream.subscriber]]
name = "edge-1"
to = "192.0.2.4:6000"
expires = "30s"
[[stream.subscriber]]
name = "group"
to = "[ff3e::5]:6000"
interface = "eth1"
ttl = 8
[[stream]]
name = "worked"
listen = "192.0.2.1:5004"
datapath = "recv"
source = "any"
work = "50us"
fec = { group = 10 }
"#;

/// What befalls a line: another byte somewhere, the place of another line, or its end.
fn damage(lines: &mut Vec<Vec<u8>>, kind: u8, line: Index, other: Index, byte: u8) {
    if lines.is_empty() {
        return;
    }
    let (at, elsewhere) = (line.index(lines.len()), other.index(lines.len()));
    match kind {
        0..4 if !lines[at].is_empty() => {
            let place = other.index(lines[at].len());
            lines[at][place] = byte;
        }
        4 => {
            let copied = lines[elsewhere].clone();
            lines.insert(at, copied);
        }
        5 => lines.swap(at, elsewhere),
        _ => {
            lines.remove(at);
        }
    }
}

#[test]
fn a_damaged_configuration_is_read_or_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.toml");
    let change = (0..8_u8, any::<Index>(), any::<Index>(), any::<u8>());
    let changes = prop::collection::vec(change, 1..6);
    for seed in 0..10 {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let config = Config {
            failure_persistence: None,
            ..Config::with_cases(100 * sys::require::fuzz())
        };
        let result = TestRunner::new_with_rng(config, rng).run(&changes, |changes| {
            let mut lines: Vec<_> = GOOD.lines().map(|line| line.as_bytes().to_vec()).collect();
            for (kind, line, other, byte) in changes {
                damage(&mut lines, kind, line, other, byte);
            }
            fs::write(&path, lines.join(&b'\n')).unwrap();
            let read = relay::config::load(&path, &["recv", "xdp"]);
            // Some file systems write a file out at once that replaces itself.
            fs::remove_file(&path).unwrap();
            if let Err(error) = read {
                let said = error.to_string();
                prop_assert!(said.starts_with(path.to_str().unwrap()), "{said}");
                prop_assert_eq!(said.lines().count(), 1, "{}", said);
            }
            Ok(())
        });
        assert!(result.is_ok(), "seed {seed}: {result:?}");
    }
}
