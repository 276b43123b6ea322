//! NATS servers that a test starts, kills and starts again.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sys::child::die_with_parent;
use sys::require::{Class, skip};
use tempfile::TempDir;

/// Much longer than any wait here takes.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// A server with a folder and ports of its own.
#[derive(Debug)]
pub struct Server {
    child: Option<Child>,
    folder: TempDir,
    program: PathBuf,
    pub port: u16,
}

/// The program; reports the skip where there is none.
pub fn program() -> Option<PathBuf> {
    let program =
        env::var_os("LOWROAD_NATS_SERVER").map_or_else(|| "nats-server".into(), PathBuf::from);
    let version = Command::new(&program)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if version.is_err() {
        skip(Class::Core, "needs nats-server");
        return None;
    }
    Some(program)
}

impl Server {
    /// With JetStream, and more lines of configuration.
    pub fn start(more: &str) -> Option<Self> {
        let mut server = Self::prepared(program()?, more);
        server.revive();
        Some(server)
    }

    /// One that does not run yet.
    pub fn prepared(program: PathBuf, more: &str) -> Self {
        Self::on(program, free_port(), "jetstream", more)
    }

    fn on(program: PathBuf, port: u16, name: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let jetstream = if more.contains("jetstream") {
            String::new()
        } else {
            format!("jetstream {{ store_dir: {store:?} }}\n")
        };
        let more = more.replace("STORE", store.to_str().unwrap());
        let text = format!("listen: 127.0.0.1:{port}\nserver_name: {name}\n{jetstream}{more}\n");
        fs::write(folder.path().join("server.conf"), text).unwrap();
        Self {
            child: None,
            folder,
            program,
            port,
        }
    }

    pub fn revive(&mut self) {
        self.spawn();
        wait_until("the server listens", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    pub fn revive_if_dead(&mut self) {
        if self.child.is_none() {
            self.revive();
        }
    }

    fn spawn(&mut self) {
        let output = fs::File::create(self.folder.path().join("output")).unwrap();
        let mut command = Command::new(&self.program);
        command
            .arg("-c")
            .arg(self.folder.path().join("server.conf"))
            .stdout(Stdio::null())
            .stderr(output);
        self.child = Some(die_with_parent(&mut command).spawn().unwrap());
    }

    /// As SIGKILL does it.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Removes the streams of a server that was killed.
    pub fn forget_streams(&self) {
        fs::remove_dir_all(self.folder.path().join("store")).unwrap();
    }

    /// As SIGINT does it: the others of its cluster are told.
    pub fn end(&mut self) {
        self.signal(Signal::SIGINT);
        if let Some(mut child) = self.child.take() {
            child.wait().unwrap();
        }
    }

    /// Connections stay, and are taken, and nobody answers.
    pub fn hang(&self) {
        self.signal(Signal::SIGSTOP);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().unwrap();
        let process = Pid::from_raw(child.id().cast_signed());
        kill(process, signal).unwrap();
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self, stream: &str) -> String {
        format!("nats://{}/{stream}", self.address())
    }
}

impl Drop for Server {
    #[expect(
        clippy::print_stderr,
        reason = "a failed test shows what its servers said"
    )]
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let output = fs::read_to_string(self.folder.path().join("output"));
            let output = output.unwrap_or_default();
            let lines: Vec<&str> = output.lines().collect();
            let last = lines.len().saturating_sub(20);
            eprintln!("server {}:\n{}", self.port, lines[last..].join("\n"));
        }
    }
}

/// Servers that keep streams together.
#[derive(Debug)]
pub struct Cluster(pub Vec<Server>);

impl Cluster {
    pub fn start(program: &Path, servers: usize) -> Self {
        let ports: Vec<u16> = (0..servers).map(|_| free_port()).collect();
        let mut routes = String::new();
        for port in &ports {
            write!(routes, "nats://127.0.0.1:{port}, ").unwrap();
        }
        let servers = ports.iter().enumerate().map(|(index, port)| {
            let more =
                format!("cluster {{ name: c, listen: 127.0.0.1:{port}, routes: [{routes}] }}\n");
            Self::one(program, &format!("n{index}"), &more)
        });
        let mut cluster = Self(servers.collect());
        for server in &mut cluster.0 {
            server.spawn();
        }
        for server in &mut cluster.0 {
            let port = server.port;
            wait_until("the server listens", || {
                TcpStream::connect(("127.0.0.1", port)).is_ok()
            });
        }
        cluster
    }

    fn one(program: &Path, name: &str, more: &str) -> Server {
        Server::on(program.to_owned(), free_port(), name, more)
    }

    pub fn url(&self, stream: &str) -> String {
        let servers: Vec<String> = self.0.iter().map(Server::address).collect();
        format!("nats://{}/{stream}", servers.join(","))
    }
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < TIMEOUT, "{what}: not in time");
        thread::sleep(Duration::from_millis(10));
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
