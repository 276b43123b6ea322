//! A program to run inside an environment, by its words and what it needs of this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is to run. Its output goes where this process's does, unless told otherwise.
#[derive(Debug)]
pub struct Program {
    words: Vec<OsString>,
    needs: Vec<PathBuf>,
    may: Vec<&'static str>,
    stdin: Stdio,
    stdout: Option<Stdio>,
    stderr: Option<Stdio>,
}

impl Program {
    /// A program of this machine, by its path or its name in PATH. It reads nothing from standard input.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            words: vec![program.into()],
            needs: Vec::new(),
            may: Vec::new(),
            stdin: Stdio::null(),
            stdout: None,
            stderr: None,
        }
    }

    #[must_use]
    pub fn args<W: Into<OsString>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// A file or folder of this machine that must be there under the same path, and what is written
    /// below a folder must be seen here. The program itself need not be named.
    #[must_use]
    pub fn needs(mut self, path: impl Into<PathBuf>) -> Self {
        self.needs.push(path.into());
        self
    }

    /// Capabilities it must have where programs have few, such as `CAP_NET_ADMIN`.
    #[must_use]
    pub fn may(mut self, capabilities: &[&'static str]) -> Self {
        self.may.extend(capabilities);
        self
    }

    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = stdin.into();
        self
    }

    #[must_use]
    pub fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdout = Some(stdout.into());
        self
    }

    #[must_use]
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = Some(stderr.into());
        self
    }

    /// The program and its arguments.
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// The files it named.
    pub fn needed(&self) -> impl Iterator<Item = &Path> {
        self.needs.iter().map(PathBuf::as_path)
    }

    /// What it may do beside the `usual`.
    pub(crate) fn capabilities(&self, usual: &[&'static str]) -> Vec<&'static str> {
        usual.iter().chain(&self.may).copied().collect()
    }

    /// As it is, on this machine.
    pub(crate) fn command(self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        self.connected(command)
    }

    /// Has `command` read and write what the program would: it stands for it on this machine.
    pub(crate) fn connected(self, mut command: Command) -> Command {
        command.stdin(self.stdin);
        if let Some(stdout) = self.stdout {
            command.stdout(stdout);
        }
        if let Some(stderr) = self.stderr {
            command.stderr(stderr);
        }
        command
    }
}
