//! The other side: a broker in KRaft mode, and the command-line tools that come with it.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest, Sha256};
use sys::child::die_with_parent;
use sys::require::{self, Class};
use tempfile::TempDir;

use crate::common::free_port;

const POM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/kafka/pom.xml");
/// The jars and their sums, as `sha256sum` prints them.
const JARS: &str = include_str!("jars.sha256");
const CLUSTER: &str = "AAAAAAAAQACAAAAAAAAAAQ";
/// Java starts slowly on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Kafka, installed.
pub(crate) struct Kafka {
    jars: PathBuf,
}

/// A broker with a folder of its own. Dropping it ends it.
pub(crate) struct Broker {
    jars: PathBuf,
    folder: TempDir,
    port: u16,
    process: Child,
}

/// A message, as a consumer got it.
#[derive(Debug)]
pub(crate) struct StoredMessage {
    pub(crate) partition: usize,
    pub(crate) key: String,
    pub(crate) row: Value,
}

impl Kafka {
    /// Fetches it once for all tests; reports the skip where that cannot be.
    pub(crate) fn install() -> Option<Self> {
        if !require::requested("writes to a Kafka broker") {
            return None;
        }
        let sums = Sha256::digest(JARS);
        let name = format!("kafka-{:02x}{:02x}{:02x}", sums[0], sums[1], sums[2]);
        let jars = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if !jars.exists()
            && let Err(why) = fetch(&jars)
        {
            require::skip(Class::OptIn, &format!("Kafka is not installed: {why}"));
            return None;
        }
        check(&jars);
        Some(Self { jars })
    }

    pub(crate) fn start(&self) -> Broker {
        let folder = tempfile::tempdir().unwrap();
        let (port, controller) = (free_port(), free_port());
        let settings = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
             log.dirs={}\n\
             auto.create.topics.enable=false\n\
             offsets.topic.replication.factor=1\n",
            folder.path().join("data").display()
        );
        let file = folder.path().join("server.properties");
        fs::write(&file, settings).unwrap();
        let mut format = java(&self.jars, "kafka.tools.StorageTool");
        format.args(["format", "-t", CLUSTER, "-c"]).arg(&file);
        finish(&mut format);
        Broker {
            process: spawn(&self.jars, &file),
            jars: self.jars.clone(),
            folder,
            port,
        }
        .ready()
    }
}

impl Broker {
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// As a machine does that loses its power, but for what the disk holds.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.process = spawn(&self.jars, &self.folder.path().join("server.properties"));
        self.wait();
    }

    pub(crate) fn create_topic(&self, topic: &str, partitions: usize) {
        let mut create = self.tool("TopicCommand");
        create.args(["--create", "--topic", topic]);
        finish(create.args(["--partitions", &partitions.to_string()]));
    }

    /// Everything in a topic.
    pub(crate) fn consume(&self, topic: &str) -> Vec<StoredMessage> {
        let mut consume = self.tool("consumer.ConsoleConsumer");
        consume.args(["--topic", topic, "--from-beginning"]);
        for property in ["print.key=true", "print.partition=true"] {
            consume.args(["--property", property]);
        }
        // Ends when nothing has come for so long.
        let text = finish(consume.args(["--timeout-ms", "20000"]));
        text.lines().filter_map(stored).collect()
    }

    /// Sends empty objects under these keys, with the partitioner that Kafka's clients have.
    pub(crate) fn produce(&self, topic: &str, keys: &[&str]) {
        let mut produce = self.tool("ConsoleProducer");
        produce.args(["--topic", topic]);
        for property in ["parse.key=true", "key.separator=\t"] {
            produce.args(["--property", property]);
        }
        let mut produce = produce
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let lines: String = keys.iter().map(|key| format!("{key}\t{{}}\n")).collect();
        let mut input = produce.stdin.take().unwrap();
        input.write_all(lines.as_bytes()).unwrap();
        drop(input);
        assert!(produce.wait().unwrap().success());
    }

    fn tool(&self, name: &str) -> Command {
        let mut tool = java(&self.jars, &format!("org.apache.kafka.tools.{name}"));
        tool.arg("--bootstrap-server");
        tool.arg(format!("127.0.0.1:{}", self.port));
        tool
    }

    fn ready(mut self) -> Self {
        self.wait();
        self
    }

    fn wait(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(
                self.process.try_wait().unwrap().is_none(),
                "the broker has ended"
            );
            assert!(Instant::now() < deadline, "the broker does not listen");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `Partition:0`, the key and the value, between tabs.
fn stored(line: &str) -> Option<StoredMessage> {
    let mut parts = line.splitn(3, '\t');
    let partition = parts.next()?.strip_prefix("Partition:")?.parse().ok()?;
    Some(StoredMessage {
        partition,
        key: parts.next()?.to_owned(),
        row: serde_json::from_str(parts.next()?).unwrap(),
    })
}

fn spawn(jars: &Path, settings: &Path) -> Child {
    let mut broker = java(jars, "kafka.Kafka");
    broker
        .arg(settings)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    die_with_parent(&mut broker).spawn().unwrap()
}

fn java(jars: &Path, class: &str) -> Command {
    let mut java = Command::new("java");
    java.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp"]);
    java.arg(jars.join("*")).arg(class).stdin(Stdio::null());
    java
}

/// Runs a tool to its end: what it printed.
fn finish(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Under another name first: tests run at the same time, and find either nothing or all of it.
fn fetch(jars: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let made = folder.path().join("jars");
    let output = Command::new("mvn")
        .args(["--quiet", "--batch-mode", "--file", POM])
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", made.display()))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("mvn: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    // Where another test was faster, its one serves as well.
    match fs::rename(&made, jars) {
        Err(error) if !jars.exists() => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Fails unless the jars are those that were looked at.
fn check(jars: &Path) {
    let mut expected = 0;
    for line in JARS.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        let found = Sha256::digest(fs::read(jars.join(name)).unwrap());
        let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, sum, "{name}");
        expected += 1;
    }
    assert_eq!(fs::read_dir(jars).unwrap().count(), expected);
}
