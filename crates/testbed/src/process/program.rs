//! A program to run inside an environment: its arguments, and the files that it needs of this machine.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::libraries::libraries;

/// Where a program reads from or writes to.
#[derive(Debug, Default)]
pub enum Stream {
    /// Where this process does.
    #[default]
    Inherited,
    /// Reads end at once, and writes are lost.
    Null,
    /// A pipe, which the [`crate::Child`] has the other end of.
    Piped,
    File(File),
}

/// A program to run. By default its output goes where this process's does.
#[derive(Debug)]
pub struct Program {
    words: Vec<OsString>,
    needs: Vec<PathBuf>,
    folder: Option<PathBuf>,
    ready_notification: bool,
    may: Vec<&'static str>,
    stdin: Stream,
    stdout: Stream,
    stderr: Stream,
}

impl Program {
    /// A program of this machine, by its path or its name in PATH. It reads nothing from standard input.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            words: vec![program.into()],
            needs: Vec::new(),
            folder: None,
            ready_notification: false,
            may: Vec::new(),
            stdin: Stream::Null,
            stdout: Stream::Inherited,
            stderr: Stream::Inherited,
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

    /// The program as another starts it, which is named with its arguments: `chrt --fifo 10`.
    #[must_use]
    pub fn under(mut self, starter: &[&str]) -> Self {
        if let Some(program) = find(Path::new(&self.words[0])) {
            self.needs.extend(libraries(&program).unwrap_or_default());
            self.words[0] = program.clone().into();
            self.needs.push(program);
        }
        self.words.splice(0..0, starter.iter().map(OsString::from));
        self
    }

    /// A folder of this machine that the environment has under the same path, with its present files.
    /// [`crate::Host::fetch`] returns the files that the program writes there, while the bed stands.
    #[must_use]
    pub fn works_in(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// The program notifies when it is ready, as a service does its manager: [`crate::Child::wait_ready`].
    #[must_use]
    pub fn with_ready_notification(mut self) -> Self {
        self.ready_notification = true;
        self
    }

    /// Capabilities it must have where programs have few, such as `CAP_NET_ADMIN`.
    #[must_use]
    pub fn may(mut self, capabilities: &[&'static str]) -> Self {
        self.may.extend(capabilities);
        self
    }

    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Stream>) -> Self {
        self.stdin = stdin.into();
        self
    }

    #[must_use]
    pub fn stdout(mut self, stdout: impl Into<Stream>) -> Self {
        self.stdout = stdout.into();
        self
    }

    #[must_use]
    pub fn stderr(mut self, stderr: impl Into<Stream>) -> Self {
        self.stderr = stderr.into();
        self
    }

    /// The program and its arguments.
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// The files and folders of this machine that it named, where it can share them.
    pub fn needed(&self) -> impl Iterator<Item = &Path> {
        self.needs.iter().chain(&self.folder).map(PathBuf::as_path)
    }

    /// The files that must be the same in the environment as here, and the folder that need not be.
    pub(crate) fn files_and_folder(&self) -> (&[PathBuf], Option<&Path>) {
        (&self.needs, self.folder.as_deref())
    }

    pub(crate) fn notifies_ready(&self) -> bool {
        self.ready_notification
    }

    /// Its capabilities: the `usual` ones and its own.
    pub(crate) fn capabilities(&self, usual: &[&'static str]) -> Vec<&'static str> {
        usual.iter().chain(&self.may).copied().collect()
    }

    /// As it is, on this machine.
    pub(crate) fn command(self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        self.connected(command)
    }

    /// Gives `command`, which stands for the program on this machine, the program's streams.
    pub(crate) fn connected(self, mut command: Command) -> Command {
        command.stdin(self.stdin).stdout(self.stdout);
        command.stderr(self.stderr);
        command
    }

    /// A `runner` that runs it, with the files that both need, and with its streams.
    pub(crate) fn run_by(self, mut runner: Self) -> Self {
        runner.needs.extend(self.needs);
        runner.folder = self.folder;
        runner.stdin = self.stdin;
        runner.stdout = self.stdout;
        runner.stderr = self.stderr;
        runner
    }

    /// Its standard input, output and errors.
    pub(crate) fn streams(self) -> [Stream; 3] {
        [self.stdin, self.stdout, self.stderr]
    }
}

/// A program of this machine, also where administrators' programs are.
pub(crate) fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

impl From<File> for Stream {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

impl From<Stream> for Stdio {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Inherited => Self::inherit(),
            Stream::Null => Self::null(),
            Stream::Piped => Self::piped(),
            Stream::File(file) => file.into(),
        }
    }
}
