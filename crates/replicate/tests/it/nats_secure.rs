//! Servers that ask for certificates, and for keys.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use replicate::ship::Sink;
use replicate::ship::nats::{Error, Publisher, Receiver};
use replicate::ship::tcp::{KeyFiles, make};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use test_support::nats_server::Server;

use crate::common::{epoch, start};
use crate::nats_peers::{assert_equal, options, publish, receive, single, write};

/// As a server and a `.creds` file write keys: RFC 4648, with a CRC behind.
fn nkey(prefix: &[u8], key: &[u8]) -> String {
    let mut bytes = prefix.to_vec();
    bytes.extend(key);
    let crc = bytes.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    });
    bytes.extend(crc.to_le_bytes());
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let five = bits.as_bytes().chunks(5).map(|five| {
        let text = format!("{:0<5}", std::str::from_utf8(five).unwrap());
        let value = usize::from_str_radix(&text, 2).unwrap();
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[value])
    });
    five.collect()
}

#[test]
fn who_has_the_key_publishes_and_receives_and_nobody_else_does() {
    let seed = [5; 32];
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
    let public = nkey(&[20 << 3], pair.public_key().as_ref());
    let users = format!("authorization {{ users: [ {{ nkey: {public} }} ] }}");
    let Some(server) = Server::start(&users) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (log, copy) = (folder.path().join("log"), folder.path().join("copy"));
    write(&log, [start(), epoch(1)]);
    let file = folder.path().join("user.creds");
    let secret = nkey(&[(18 << 3) | (20 >> 2), (20 & 3) << 6], &seed);
    fs::write(
        &file,
        format!("-----BEGIN USER NKEY SEED-----\n{secret}\n------END USER NKEY SEED------\n"),
    )
    .unwrap();
    let mut known = options(&server.url("APP"), None);
    let refused = known.credentials(&file).unwrap_err().to_string();
    assert!(refused.contains("chmod 600"), "{refused}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    known.credentials(&file).unwrap();
    let mut source = Publisher::new(&log, known.clone(), single()).unwrap();
    publish(&mut source, 2).unwrap();
    let mut edge = Receiver::new(Sink::open(&copy).unwrap(), known);
    receive(&mut edge, 2).unwrap();
    assert_equal(&copy, &log);
    let unknown = options(&server.url("APP"), None);
    let error = publish(&mut Publisher::new(&log, unknown, single()).unwrap(), 2);
    let refused = |error| matches!(error, Error::Nats(nats::Error::Refused { .. }));
    assert!(refused(error.unwrap_err()));
}

#[test]
fn certificates_are_asked_for_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for keys in ["keys", "others"] {
        let made = KeyFiles {
            server: vec!["127.0.0.1".to_owned()],
            clients: vec!["edge".to_owned()],
            years: 1,
        };
        make(&at(keys), &made).unwrap();
    }
    let text = |name: &str| at(name).to_str().unwrap().to_owned();
    let tls = format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        text("keys/server.pem"),
        text("keys/server.key"),
        text("keys/ca.pem"),
    );
    let Some(server) = Server::start(&tls) else {
        return;
    };
    let (log, copy) = (at("log"), at("copy"));
    write(&log, [start(), epoch(1)]);
    let secure = |ca: &str, own: &str| {
        let mut secure = options(&server.url("APP"), None);
        let (certificate, key) = (at(&format!("{own}.pem")), at(&format!("{own}.key")));
        secure
            .tls(Some(&at(ca)), Some((&certificate, &key)))
            .unwrap();
        secure
    };
    let known = secure("keys/ca.pem", "keys/edge");
    let mut source = Publisher::new(&log, known.clone(), single()).unwrap();
    publish(&mut source, 2).unwrap();
    let mut edge = Receiver::new(Sink::open(&copy).unwrap(), known);
    receive(&mut edge, 2).unwrap();
    assert_equal(&copy, &log);
    let key = at("keys/edge.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let mut open = options(&server.url("APP"), None);
    let own = Some((at("keys/edge.pem"), key.clone()));
    let own = own
        .as_ref()
        .map(|(cert, key)| (cert.as_path(), key.as_path()));
    let refused = open.tls(Some(&at("keys/ca.pem")), own).unwrap_err();
    assert!(refused.to_string().contains("chmod 600"), "{refused}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    // In the clear, and to a server that shows another authority's certificate.
    for other in [
        options(&server.url("APP"), None),
        secure("others/ca.pem", "keys/edge"),
    ] {
        let error = publish(&mut Publisher::new(&log, other, single()).unwrap(), 2);
        let error = error.unwrap_err();
        let refused = matches!(error, Error::Nats(nats::Error::Refused { .. }));
        assert!(refused, "{error}");
    }
}
