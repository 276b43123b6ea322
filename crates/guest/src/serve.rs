//! The host's programs: started, fed, listened to and ended as it asks, until the port is closed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::sd_notify::NotifySocket;
use crate::{Frame, Kind, MAX_FRAME_LEN, PORT, VERSION, init};

/// How often the port is looked for. The kernel finds it some time after its driver is loaded.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub(crate) fn run() -> io::Result<()> {
    let port = loop {
        match port() {
            Some(path) => break File::options().read(true).write(true).open(path)?,
            None => thread::sleep(POLL_INTERVAL),
        }
    };
    serve(port.try_clone()?, FrameWriter::new(port))
}

/// Serves a host at the standard streams.
pub(crate) fn run_on_streams() -> io::Result<()> {
    serve(io::stdin(), FrameWriter::new(io::stdout()))
}

/// The device whose port has our name.
fn port() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    ports.flatten().find_map(|port| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        let device = Path::new("/dev").join(port.file_name());
        (name.trim() == PORT && device.exists()).then_some(device)
    })
}

/// Sends frames to the host, from any thread.
#[derive(Clone)]
struct FrameWriter(Arc<Mutex<Box<dyn Write + Send>>>);

impl FrameWriter {
    fn new(port: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(port))))
    }

    fn send(&self, kind: Kind, number: u32, bytes: impl Into<Vec<u8>>) -> io::Result<()> {
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Frame::new(kind, number, bytes).write(&mut *port)
    }
}

/// The host's running programs and open files.
struct Session {
    host: FrameWriter,
    inputs: BTreeMap<u32, mpsc::Sender<Vec<u8>>>,
    groups: Arc<Mutex<BTreeMap<u32, Pid>>>,
    files: BTreeMap<u32, io::Result<File>>,
    /// The sockets of programs that are not started yet.
    notify_sockets: BTreeMap<u32, NotifySocket>,
    netlink: Arc<Socket>,
}

fn serve(mut from: impl Read, host: FrameWriter) -> io::Result<()> {
    let netlink = Arc::new(routing_netlink()?);
    let mut hello = VERSION.to_le_bytes().to_vec();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    hello.extend(kernel.trim().as_bytes());
    host.send(Kind::Hello, 0, hello)?;
    pass_answers(Arc::clone(&netlink), host.clone());
    let mut session = Session {
        host,
        inputs: BTreeMap::new(),
        groups: Arc::default(),
        files: BTreeMap::new(),
        notify_sockets: BTreeMap::new(),
        netlink,
    };
    while let Some(frame) = Frame::read(&mut from)? {
        session.handle(frame)?;
    }
    Ok(())
}

impl Session {
    fn handle(&mut self, frame: Frame) -> io::Result<()> {
        let number = frame.number;
        match frame.kind {
            Kind::Ping => self.host.send(Kind::Ping, number, frame.bytes),
            Kind::Start => match self.start(number, &frame.bytes) {
                Ok(()) => Ok(()),
                Err(error) => self.host.send(Kind::Failed, number, error.to_string()),
            },
            Kind::Listen => match NotifySocket::bind(&frame.bytes) {
                Ok(socket) => {
                    self.notify_sockets.insert(number, socket);
                    self.host.send(Kind::Done, number, [])
                }
                Err(error) => self.host.send(Kind::Failed, number, error.to_string()),
            },
            Kind::Input if self.files.contains_key(&number) => self.write(number, &frame.bytes),
            Kind::Input => {
                self.feed(number, frame.bytes);
                Ok(())
            }
            Kind::Signal => {
                self.signal(&frame);
                Ok(())
            }
            Kind::Put => {
                self.files.insert(number, create(&frame));
                Ok(())
            }
            Kind::Get => match self.read(number, &frame.bytes) {
                Ok(()) => self.host.send(Kind::Done, number, []),
                Err(error) => self.host.send(Kind::Failed, number, error.to_string()),
            },
            Kind::Clear => match clear(&frame.bytes) {
                Ok(()) => self.host.send(Kind::Done, number, []),
                Err(error) => self.host.send(Kind::Failed, number, error.to_string()),
            },
            Kind::Netlink => self.netlink.send(&frame.bytes, 0).map(drop),
            other => Err(io::Error::other(format!(
                "unexpected message from the host: {other:?}"
            ))),
        }
    }

    fn start(&mut self, number: u32, words: &[u8]) -> io::Result<()> {
        let notify_socket = self.notify_sockets.remove(&number);
        let words = words_of(words);
        let mut words = words.into_iter();
        let variables = words.by_ref().take_while(|word| !word.is_empty());
        let variables: Vec<_> = variables.filter_map(variable).collect();
        let program = words.next();
        let program = program.ok_or_else(|| io::Error::other("no program is named"))?;
        let mut child = Command::new(program)
            .args(words)
            .envs(variables)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let group = Pid::from_raw(child.id().cast_signed());
        groups(&self.groups).insert(number, group);
        if let Some(mut stdin) = child.stdin.take() {
            let (input, parts) = mpsc::channel::<Vec<u8>>();
            self.inputs.insert(number, input);
            thread::spawn(move || {
                for part in parts {
                    if part.is_empty() || stdin.write_all(&part).is_err() {
                        break;
                    }
                }
            });
        }
        self.host
            .send(Kind::Started, number, group.as_raw().to_le_bytes())?;
        if let Some(stdout) = child.stdout.take() {
            forward(stdout, self.host.clone(), Kind::Output, number);
        }
        if let Some(stderr) = child.stderr.take() {
            forward(stderr, self.host.clone(), Kind::Errors, number);
        }
        let stop_handle = notify_socket.map(|socket| {
            let host = self.host.clone();
            socket.forward(move || host.send(Kind::Ready, number, []))
        });
        let (host, running) = (self.host.clone(), Arc::clone(&self.groups));
        thread::spawn(move || {
            wait_for(child, &host, &running, number);
            // No other program sends to this socket.
            let _ = stop_handle.map(|handle| handle.stop());
        });
        Ok(())
    }

    fn feed(&mut self, number: u32, part: Vec<u8>) {
        let ended = part.is_empty();
        if let Some(input) = self.inputs.get(&number) {
            // A program that no longer reads is told nothing.
            let _ = input.send(part);
        }
        if ended {
            self.inputs.remove(&number);
        }
    }

    fn signal(&self, frame: &Frame) {
        let signal = frame
            .value()
            .and_then(|(value, _)| Signal::try_from(value).ok());
        let groups = groups(&self.groups);
        if let (Some(signal), Some(&group)) = (signal, groups.get(&frame.number)) {
            // It may have ended meanwhile: its status is on the way.
            let _ = killpg(group, signal);
        }
    }

    fn read(&self, number: u32, path: &[u8]) -> io::Result<()> {
        let content = fs::read(OsStr::from_bytes(path))?;
        let mut parts = content.chunks(MAX_FRAME_LEN);
        parts.try_for_each(|part| self.host.send(Kind::Output, number, part))
    }

    /// A part of a file; at its end the host hears how it went.
    fn write(&mut self, number: u32, part: &[u8]) -> io::Result<()> {
        if !part.is_empty() {
            if let Some(file) = self.files.get_mut(&number)
                && let Ok(open) = file
                && let Err(error) = open.write_all(part)
            {
                *file = Err(error);
            }
            return Ok(());
        }
        match self.files.remove(&number) {
            Some(Err(error)) => self.host.send(Kind::Failed, number, error.to_string()),
            _ => self.host.send(Kind::Done, number, []),
        }
    }
}

/// Words that are each ended by a zero byte.
fn words_of(bytes: &[u8]) -> Vec<&OsStr> {
    let mut words: Vec<_> = bytes.split(|byte| *byte == 0).collect();
    words.pop();
    words.into_iter().map(OsStr::from_bytes).collect()
}

/// `NAME=value` as its two sides.
fn variable(word: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&bytes[..at], &bytes[at + 1..]);
    Some((OsStr::from_bytes(name), OsStr::from_bytes(value)))
}

/// Kills all but the first process and this one, and removes what is named.
fn clear(named: &[u8]) -> io::Result<()> {
    const ALL_PROCESSES: Pid = Pid::from_raw(-1);
    if std::os::unix::process::parent_id() != 1 || !init::is_first() {
        return Err(io::Error::other("this is not a guest"));
    }
    match kill(ALL_PROCESSES, Signal::SIGKILL) {
        // The process no longer exists.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    words_of(named).into_iter().try_for_each(|path| {
        let path = Path::new(path);
        match path.is_dir() {
            true => fs::remove_dir_all(path),
            false => fs::remove_file(path),
        }
    })
}

fn create(frame: &Frame) -> io::Result<File> {
    let (mode, path) = frame
        .value()
        .ok_or_else(|| io::Error::other("a file without a mode"))?;
    let path = Path::new(OsStr::from_bytes(path));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // Settings of the kernel are files that exist, and whose mode is not ours to choose.
    let exists = path.exists();
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    if !exists {
        file.set_permissions(fs::Permissions::from_mode(mode.cast_unsigned()))?;
    }
    Ok(file)
}

fn groups(of: &Mutex<BTreeMap<u32, Pid>>) -> std::sync::MutexGuard<'_, BTreeMap<u32, Pid>> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_for(
    mut child: Child,
    host: &FrameWriter,
    running: &Mutex<BTreeMap<u32, Pid>>,
    number: u32,
) {
    let status = child.wait().map_or(-1, ExitStatusExt::into_raw);
    groups(running).remove(&number);
    // Without the host, nothing can receive the status.
    let _ = host.send(Kind::Ended, number, status.to_le_bytes());
}

/// Forwards a program's output to the host, and an empty frame at its end.
fn forward(
    mut from: impl Read + AsFd + Send + 'static,
    host: FrameWriter,
    kind: Kind,
    number: u32,
) {
    thread::spawn(move || {
        let mut said = vec![0; MAX_FRAME_LEN];
        loop {
            let length = match from.read(&mut said) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.unwrap_or(0),
            };
            if host.send(kind, number, &said[..length]).is_err() || length == 0 {
                break;
            }
        }
    });
}

/// Opens it as `netdev` does on the host, because the host's `netdev` uses this one.
fn routing_netlink() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.set_cap_ack(true)?;
    socket.set_ext_ack(true)?;
    socket.set_netlink_get_strict_chk(true)?;
    Ok(socket)
}

fn pass_answers(netlink: Arc<Socket>, host: FrameWriter) {
    thread::spawn(move || {
        let mut answer = vec![0; MAX_FRAME_LEN];
        while let Ok(length) = netlink.recv(&mut answer.as_mut_slice(), 0) {
            if host.send(Kind::Netlink, 0, &answer[..length]).is_err() {
                break;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::sd_notify::send_to;

    const KILL: i32 = Signal::SIGKILL as i32;

    /// A served host's end of the port.
    struct Host(UnixStream);

    impl Host {
        fn new() -> Self {
            let (host, guest) = UnixStream::pair().unwrap();
            thread::spawn(move || {
                let speaker = FrameWriter::new(guest.try_clone().unwrap());
                serve(guest, speaker).unwrap();
            });
            let mut host = Self(host);
            let hello = host.next();
            assert_eq!(hello.kind, Kind::Hello);
            assert_eq!(hello.value().unwrap().0, VERSION.cast_signed());
            host
        }

        fn send(&mut self, kind: Kind, number: u32, bytes: impl Into<Vec<u8>>) {
            Frame::new(kind, number, bytes).write(&mut self.0).unwrap();
        }

        fn next(&mut self) -> Frame {
            Frame::read(&mut self.0).unwrap().unwrap()
        }

        /// All that is said of a program until its status and the ends of its outputs: what it
        /// printed, what of errors, and the status. The two outputs are read each for itself.
        fn until_ended(&mut self, number: u32) -> (Vec<u8>, Vec<u8>, i32) {
            let (mut printed, mut errors) = (Vec::new(), Vec::new());
            let (mut status, mut open) = (None, 2);
            while status.is_none() || open > 0 {
                let frame = self.next();
                assert_eq!(frame.number, number);
                match frame.kind {
                    Kind::Started => {}
                    Kind::Output | Kind::Errors if frame.bytes.is_empty() => open -= 1,
                    Kind::Output => printed.extend(frame.bytes),
                    Kind::Errors => errors.extend(frame.bytes),
                    Kind::Ended => status = frame.value().map(|(status, _)| status),
                    other => panic!("{other:?}"),
                }
            }
            (printed, errors, status.unwrap())
        }
    }

    #[test]
    fn programs_get_input_output_and_signals() {
        let mut host = Host::new();
        host.send(Kind::Start, 1, *b"\0sh\0-c\0cat; echo err >&2; exit 3\0");
        host.send(Kind::Input, 1, *b"to cat\n");
        host.send(Kind::Input, 1, []);
        let ended = (b"to cat\n".to_vec(), b"err\n".to_vec(), 3 << 8);
        assert_eq!(host.until_ended(1), ended);
        // A program of a pipeline is in the group, too: all of it ends.
        host.send(Kind::Start, 2, *b"\0sh\0-c\0sleep 300 | sleep 300\0");
        assert_eq!(host.next().kind, Kind::Started);
        host.send(Kind::Signal, 2, KILL.to_le_bytes());
        assert_eq!(host.until_ended(2).2, KILL);
    }

    #[test]
    fn readiness_is_reported_to_host() {
        let mut host = Host::new();
        let name = format!("lowroad-test-{}", std::process::id()).into_bytes();
        host.send(Kind::Listen, 7, name.clone());
        assert_eq!(host.next(), Frame::new(Kind::Done, 7, []));
        host.send(Kind::Listen, 8, name.clone());
        assert_eq!(host.next().kind, Kind::Failed, "it is in use");
        host.send(
            Kind::Start,
            7,
            *b"ONE=two=three\0\0sh\0-c\0echo $ONE $NOTIFY_SOCKET; read -r never\0",
        );
        assert_eq!(host.next().kind, Kind::Started);
        assert_eq!(host.next().bytes, b"two=three\n");
        send_to(&name, b"STOPPING=1\n").unwrap();
        send_to(&name, b"READY=1\n").unwrap();
        assert_eq!(host.next(), Frame::new(Kind::Ready, 7, []));
        host.send(Kind::Input, 7, []);
        host.until_ended(7);
        // Its listener ends with it, some time after.
        while send_to(&name, b"STOPPING=1\n").is_ok() {
            thread::yield_now();
        }
    }

    #[test]
    fn failures_are_reported() {
        let mut host = Host::new();
        host.send(Kind::Start, 1, *b"\0/no/such/program\0");
        assert_eq!(host.next().kind, Kind::Failed);
        host.send(Kind::Start, 2, []);
        assert_eq!(host.next().kind, Kind::Failed);
        let mut put = 0o600_u32.to_le_bytes().to_vec();
        put.extend(b"/proc/version");
        host.send(Kind::Put, 3, put);
        host.send(Kind::Input, 3, *b"6.6");
        host.send(Kind::Input, 3, []);
        assert_eq!(host.next().kind, Kind::Failed);
        host.send(Kind::Clear, 4, []);
        assert_eq!(
            host.next().kind,
            Kind::Failed,
            "this machine is not a guest"
        );
        host.send(Kind::Get, 5, *b"/no/such/file");
        assert_eq!(host.next().kind, Kind::Failed);
        host.send(Kind::Ping, 9, *b"?");
        assert_eq!(host.next(), Frame::new(Kind::Ping, 9, *b"?"));
    }

    #[test]
    fn a_file_is_written_whole_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/token");
        let mut host = Host::new();
        let mut put = 0o640_u32.to_le_bytes().to_vec();
        put.extend(path.as_os_str().as_bytes());
        host.send(Kind::Put, 1, put);
        host.send(Kind::Input, 1, vec![b'x'; MAX_FRAME_LEN]);
        host.send(Kind::Input, 1, *b"yz");
        host.send(Kind::Input, 1, []);
        assert_eq!(host.next(), Frame::new(Kind::Done, 1, []));
        assert_eq!(fs::read(&path).unwrap().len(), MAX_FRAME_LEN + 2);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        host.send(Kind::Get, 2, path.as_os_str().as_bytes());
        assert_eq!(host.next().bytes.len(), MAX_FRAME_LEN);
        assert_eq!(host.next(), Frame::new(Kind::Output, 2, *b"yz"));
        assert_eq!(host.next().kind, Kind::Done);
    }
}
