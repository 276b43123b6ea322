//! Connections that are refused over TCP. Malformed data affects neither end.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use replicate::ship::tcp::{
    Error, InvalidMessage, KeyFiles, Limits, Message, Peer, Reason, VERSION, make,
};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, SignatureScheme, StreamOwned};

use crate::shipping::{self, Bed, fails, follow, hear, put, read, some, until, write};

#[test]
fn certificates_of_others_are_refused_in_a_line_each() {
    let [bed, other] = [Bed::new(), Bed::new()];
    write(&bed.log(), &some(5));
    let server = bed.server(Limits::default());
    let peer = Peer::parse(&server.address().to_string()).unwrap();
    let open = |files: &replicate::ship::tcp::Files| {
        let tls = files.client().unwrap();
        let to = bed.copy(1);
        replicate::ship::tcp::Client::open(&to, peer.clone(), tls, false, shipping::waits())
            .unwrap()
    };
    let said = |error: Error, words: &str| {
        let text = error.to_string();
        assert!(text.contains(words) && text.lines().count() == 1, "{text}");
        assert!(!error.heals(), "{text}");
    };
    let mut wrong = other.files("edge-1");
    wrong.authority = bed.files("edge-1").authority;
    said(fails(&mut open(&wrong)), "it is from another authority");
    let server_as_client = bed.files("server");
    said(
        fails(&mut open(&server_as_client)),
        "refuses this replica's certificate",
    );
    let mut distrust = bed.files("edge-1");
    distrust.authority = other.files("edge-1").authority;
    said(
        fails(&mut open(&distrust)),
        "server's certificate is not to be trusted",
    );
    let expired = expired(&bed);
    said(fails(&mut open(&expired)), "it has expired");
    until(&server, |status| status.counts.strangers == 4);
    assert_eq!(server.status().counts.welcomed, 0);
    assert_eq!(read(&bed.copy(1)), []);
    let key = bed.files("edge-1").key;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    said(
        bed.files("edge-1").client().unwrap_err(),
        "others can open the file",
    );
    fs::write(bed.files("edge-2").certificate, "nothing").unwrap();
    said(
        bed.files("edge-2").client().unwrap_err(),
        "no certificate in PEM",
    );
}

/// A certificate of the bed's authority from another time.
fn expired(bed: &Bed) -> replicate::ship::tcp::Files {
    let files = bed.files("expired");
    let keys = files.key.parent().unwrap();
    let authority = fs::read_to_string(keys.join("ca.key")).unwrap();
    let authority = rcgen::KeyPair::from_pem(&authority).unwrap();
    let mut name = rcgen::DistinguishedName::new();
    let hash = ring::digest::digest(&ring::digest::SHA256, authority.public_key_raw());
    let digits = hash.as_ref()[..4].iter().map(|byte| format!("{byte:02x}"));
    let digits: String = digits.collect();
    name.push(
        rcgen::DnType::CommonName,
        format!("lowroad replicate {digits}"),
    );
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = name;
    let issuer = rcgen::Issuer::new(params, authority);
    let mut params = rcgen::CertificateParams::new(vec!["expired".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::write(&files.certificate, certificate.pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
    files
}

#[test]
fn who_shows_no_certificate_hears_nothing_of_the_log() {
    let bed = Bed::new();
    write(&bed.log(), &some(5));
    let server = bed.server(Limits::default());
    let mut config = ClientConfig::clone(&bed.files("edge-1").client().unwrap());
    config.client_auth_cert_resolver = Arc::new(NoCertificate);
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut raw = StreamOwned::new(connection, TcpStream::connect(server.address()).unwrap());
    // In TLS 1.3 a client's handshake is over before the server has seen what it lacks.
    let refused = hear(&mut raw).unwrap_err().to_string();
    assert!(refused.contains("CertificateRequired"), "{refused}");
    until(&server, |status| status.counts.strangers == 1);
    assert_eq!(server.status().counts.welcomed, 0);
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn keys_are_their_owners_and_are_never_written_over() {
    let bed = Bed::new();
    let folder = bed.folder.path().join("keys");
    let made = |server: &[&str], clients: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        make(
            &folder,
            &KeyFiles {
                server: owned(server),
                clients: owned(clients),
                years: 1,
            },
        )
    };
    assert!(made(&["localhost"], &[]).is_err(), "there is one");
    for name in ["ca", "server", "../x", "", "a b", "*.x"] {
        assert!(made(&[], &[name]).is_err(), "{name}");
    }
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder.clone()), 0o700);
    // One more of the same authority.
    let files = made(&[], &["edge-3"]).unwrap();
    assert_eq!(files.len(), 2);
    for name in ["ca", "server", "edge-1", "edge-3"] {
        assert_eq!(mode(folder.join(format!("{name}.key"))), 0o600);
    }
    write(&bed.log(), &some(1));
    let server = bed.server(Limits::default());
    let peer = Peer::parse(&format!("localhost:{}", server.address().port())).unwrap();
    let tls = bed.files("edge-3").client().unwrap();
    let mut client =
        replicate::ship::tcp::Client::open(&bed.copy(1), peer, tls, false, shipping::waits())
            .unwrap();
    follow(&mut client, 5);
    assert_eq!(server.status().replicas[0].name, "edge-3");
}

#[test]
fn garbage_and_floods_are_counted_and_end() {
    let bed = Bed::new();
    write(&bed.log(), &some(5));
    let limits = Limits {
        strangers: 2,
        handshake: Duration::from_secs(2),
        ..Limits::default()
    };
    let server = bed.server(limits);
    let to = server.address();
    for (garbage, strangers) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], 1),
        (&[0xff; 40_000], 2),
        (&[22, 3, 3, 0xff, 0xff], 3),
    ] {
        let mut stream = TcpStream::connect(to).unwrap();
        // It may hang up before it has read all of it.
        let _ = stream.write_all(garbage);
        let _ = stream.read_to_end(&mut Vec::new());
        // Its room is free for the next one a moment after the end of its connection.
        until(&server, |status| status.counts.strangers == strangers);
    }
    // After all of it, a replica is served.
    let mut client = bed.client(to, 1, false);
    follow(&mut client, 21);
    assert!(read(&bed.copy(1)) == read(&bed.log()));
}

#[test]
fn who_says_nothing_keeps_no_replica_out() {
    let bed = Bed::new();
    write(&bed.log(), &some(5));
    let limits = Limits {
        strangers: 2,
        handshake: Duration::from_secs(3600),
        ..Limits::default()
    };
    let server = bed.server(limits);
    let to = server.address();
    let mut silent: Vec<_> = (0..5).map(|_| TcpStream::connect(to).unwrap()).collect();
    until(&server, |status| status.counts.crowded == 3);
    // The oldest ones are closed.
    for closed in &mut silent[..3] {
        assert_eq!(closed.read(&mut [0]).unwrap(), 0);
    }
    let mut client = bed.client(to, 1, false);
    follow(&mut client, 21);
    assert!(read(&bed.copy(1)) == read(&bed.log()));
    let counts = server.status().counts;
    assert_eq!(
        (counts.crowded, counts.strangers, counts.welcomed),
        (4, 0, 1)
    );
}

#[test]
fn replicas_that_say_nonsense_or_are_too_many_are_counted_and_end() {
    let bed = Bed::new();
    write(&bed.log(), &some(5));
    let limits = Limits {
        replicas: 2,
        ..Limits::default()
    };
    let server = bed.server(limits);
    let to = server.address();
    let welcome = |bytes: &[u8]| {
        let mut raw = bed.raw(to);
        assert!(matches!(hear(&mut raw).unwrap(), Message::Welcome { .. }));
        raw.write_all(bytes).unwrap();
        raw
    };
    let hello = |version| {
        put(&Message::Hello {
            version,
            held: None,
        })
    };
    let before = server.status().counts;
    for (told, nonsense) in (1..).zip([
        &u32::MAX.to_le_bytes()[..],
        &[1, 0, 0, 0, 99],
        &[0, 0, 0, 0],
        &put(&Message::Received {
            number: 1,
            epoch: 1,
        }),
        &[hello(VERSION), hello(VERSION)].concat(),
    ]) {
        let mut raw = welcome(nonsense);
        while hear(&mut raw).is_ok() {}
        // Before, it has its place still.
        until(&server, |status| {
            status.counts.malformed == before.malformed + told
        });
    }
    let mut raw = welcome(&hello(VERSION + 1));
    let refused = hear(&mut raw).unwrap();
    assert!(matches!(
        refused,
        Message::Refused {
            reason: Reason::Version,
            ..
        }
    ));
    until(&server, |status| status.replicas.is_empty());
    let held: Vec<_> = [1, 2].map(|_| welcome(&hello(VERSION))).into();
    until(&server, |status| status.replicas.len() == 2);
    let mut third = bed.raw(to);
    let full = hear(&mut third).unwrap();
    assert!(matches!(
        full,
        Message::Refused {
            reason: Reason::Full,
            ..
        }
    ));
    drop(held);
    // After all of it, a replica is served.
    let mut client = bed.client(to, 1, false);
    follow(&mut client, 21);
    assert!(read(&bed.copy(1)) == read(&bed.log()));
}

#[test]
fn a_server_that_says_nonsense_is_left() {
    let bed = Bed::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let tls = bed.files("server").server().unwrap();
    let serve = thread::spawn(move || {
        let welcome = put(&Message::Welcome { version: VERSION });
        for nonsense in [
            put(&Message::Welcome { version: 9 }),
            put(&Message::Tip(replicate::ship::tcp::Tip::default())),
            u32::MAX.to_le_bytes().to_vec(),
            [welcome.clone(), welcome].concat(),
        ] {
            let (stream, _) = listener.accept().unwrap();
            let connection = rustls::ServerConnection::new(tls.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            stream.write_all(&nonsense).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    for due in [
        |error: &Error| matches!(error, Error::Version(9)),
        |error: &Error| matches!(error, Error::Malformed(InvalidMessage::NotDue)),
        |error: &Error| matches!(error, Error::Malformed(InvalidMessage::Long(_))),
        |error: &Error| matches!(error, Error::Malformed(InvalidMessage::NotDue)),
    ] {
        let mut client = bed.client(to, 1, false);
        let error = fails(&mut client);
        assert!(due(&error) && !error.heals(), "{error}");
    }
    serve.join().unwrap();
}
