//! Real programs in a network namespace that goes with its test.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use sys::netns::Namespace;

pub(crate) struct Net {
    name: String,
    namespace: Namespace,
}

impl Net {
    /// A namespace with a device `dummy0` (a veth, as not all kernels have dummies) that has addresses; nothing without root.
    pub(crate) fn new(name: &str) -> Option<Self> {
        if !sys::require::root() {
            return None;
        }
        let name = format!("lr-{}-{name}", std::process::id());
        let namespace = Namespace::create(&name).unwrap();
        let net = Self { name, namespace };
        for command in [
            "ip link set lo up",
            "ip link add dummy0 type veth peer name far0",
            "ip link set far0 up",
            "ip link set dummy0 up",
            "ip addr add 192.0.2.254/24 dev dummy0",
            "ip addr add 2001:db8:f::1/64 dev dummy0 nodad",
        ] {
            net.run(command);
        }
        Some(net)
    }

    /// What a command line writes, which must succeed.
    pub(crate) fn run(&self, line: &str) -> String {
        self.feed(line, "")
    }

    /// As `run`, with standard input.
    pub(crate) fn feed(&self, line: &str, input: &str) -> String {
        let output = self.output(line, input);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a function returns whose sockets are of the namespace.
    pub(crate) fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(act).unwrap()
    }

    fn output(&self, line: &str, input: &str) -> Output {
        let run = || {
            let mut child = Command::new("sh")
                .args(["-c", line])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            child
                .stdin
                .take()
                .unwrap()
                .write_all(input.as_bytes())
                .unwrap();
            child.wait_with_output().unwrap()
        };
        self.namespace.run(run).unwrap()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // A daemon that its test did not come to end.
        for process in self
            .namespace
            .inode()
            .into_iter()
            .flat_map(sys::netns::processes_in)
        {
            let _ = Command::new("kill").arg(process.to_string()).status();
        }
        let _ = sys::netns::remove(&self.name);
    }
}

/// Whether a program is there; reports the skip when not.
pub(crate) fn installed(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        let reason = format!("no {program} here");
        sys::require::skip(sys::require::Class::Core, &reason);
    }
    found
}
