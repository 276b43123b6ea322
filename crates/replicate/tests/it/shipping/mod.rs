//! A source that is written, certificates, servers and replicas, for tests.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use replicate::log::{Durability, Options, Reader, Writer, compact};
use replicate::record::{Entry, Kind, Record};
use replicate::ship::tcp::{
    Client, Error, Files, KeyFiles, Limits, MAX_RESPONSE, Message, Peer, Progress, Server, Status,
    Waits, make,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::common::{data, epoch, link, new, start};

/// Longer than anything may take, and shorter than a test's deadline.
const TIMEOUT_MS: usize = 3_000;
const STEP: Duration = Duration::from_millis(20);

pub(crate) fn some(count: u64) -> Vec<Entry> {
    let mut all = vec![start()];
    for inode in 10..10 + count {
        all.push(new(inode, Kind::Regular));
        all.push(link(2, &format!("file {inode}"), inode));
        all.push(data(
            inode,
            3,
            &vec![7; 50 * usize::try_from(inode % 100).unwrap()],
        ));
        all.push(epoch(inode));
    }
    all
}

pub(crate) fn writer(folder: &Path) -> Writer {
    let options = Options {
        durability: Durability::OnRequest,
        segment: 64 << 10,
    };
    Writer::open(folder, options).unwrap()
}

pub(crate) fn append(writer: &mut Writer, entries: &[Entry]) {
    for entry in entries {
        let at_ns = 1_000 + writer.number();
        writer.append(at_ns, entry.clone()).unwrap();
    }
    writer.flush().unwrap();
}

pub(crate) fn write(folder: &Path, entries: &[Entry]) {
    append(&mut writer(folder), entries);
}

pub(crate) fn fold(folder: &Path, epoch: u64) {
    let mut writer = writer(folder);
    writer.seal().unwrap();
    drop(writer);
    compact(folder, epoch).unwrap();
}

pub(crate) fn read(folder: &Path) -> Vec<Record> {
    let mut reader = Reader::open(folder).unwrap();
    let mut all = Vec::new();
    while let Some(located) = reader.read().unwrap() {
        all.push(located.record);
    }
    all
}

/// A folder with an authority, a server and a replica.
pub(crate) struct Bed {
    pub(crate) folder: tempfile::TempDir,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let bed = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        make(
            &bed.folder.path().join("keys"),
            &KeyFiles {
                server: vec!["127.0.0.1".to_owned(), "localhost".to_owned()],
                clients: vec!["edge-1".to_owned(), "edge-2".to_owned()],
                years: 10,
            },
        )
        .unwrap();
        std::fs::create_dir(bed.log()).unwrap();
        bed
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub(crate) fn copy(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("copy-{number}"))
    }

    pub(crate) fn files(&self, name: &str) -> Files {
        let keys = self.folder.path().join("keys");
        Files {
            certificate: keys.join(format!("{name}.pem")),
            key: keys.join(format!("{name}.key")),
            authority: keys.join("ca.pem"),
        }
    }

    pub(crate) fn server(&self, limits: Limits) -> Server {
        self.server_of(&self.log(), limits)
    }

    pub(crate) fn server_of(&self, log: &Path, limits: Limits) -> Server {
        let listen = "127.0.0.1:0".parse().unwrap();
        let tls = self.files("server").server().unwrap();
        Server::start(log, listen, tls, limits).unwrap()
    }

    pub(crate) fn client(&self, to: SocketAddr, number: usize, fresh: bool) -> Client {
        let peer = Peer::parse(&to.to_string()).unwrap();
        let tls = self.files("edge-1").client().unwrap();
        Client::open(&self.copy(number), peer, tls, fresh, waits()).unwrap()
    }

    /// A replica that speaks for itself.
    pub(crate) fn raw(&self, to: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
        let tls = self.files("edge-2").client().unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connection = ClientConnection::new(Arc::clone(&tls), name).unwrap();
        StreamOwned::new(connection, TcpStream::connect(to).unwrap())
    }
}

pub(crate) fn waits() -> Waits {
    Waits {
        again: Duration::from_millis(200),
        ..Waits::default()
    }
}

/// Waits until the client has this record.
pub(crate) fn follow(client: &mut Client, number: u64) -> Progress {
    for _ in 0..TIMEOUT_MS {
        let progress = client.poll(STEP).unwrap();
        if progress.number >= number {
            return progress.clone();
        }
    }
    panic!("record {number} does not arrive");
}

pub(crate) fn fails(client: &mut Client) -> Error {
    for _ in 0..TIMEOUT_MS {
        if let Err(error) = client.poll(STEP) {
            return error;
        }
    }
    panic!("no error in a long time");
}

pub(crate) fn until(server: &Server, reached: impl Fn(&Status) -> bool) -> Status {
    for _ in 0..TIMEOUT_MS {
        let status = server.status();
        if reached(&status) {
            return status;
        }
        std::thread::sleep(STEP);
    }
    panic!("never: {:?}", server.status());
}

pub(crate) fn put(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.put(&mut bytes);
    bytes
}

/// The next message from a server.
pub(crate) fn hear(from: &mut impl std::io::Read) -> std::io::Result<Message> {
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head) as usize;
    assert!(length <= MAX_RESPONSE);
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Message::get(&body).unwrap())
}
