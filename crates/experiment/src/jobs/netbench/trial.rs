//! One trial: two hosts and a link, fresh each time; a server in one, and a client in the other.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netbench::Test;
use probes::account::Usage;
use probes::occupancy::OccupancyProbe;
use testbed::{Bed, Child, Host, HostSpec, LinkKind, LinkSpec, Stream, Teardown, Topology};

use super::arm::{Arm, nics};
use super::client::ClientRun;
use super::tool::{DATA_PORTS, PORT, TestRequest};
use super::tuning::{TunedArm, Tuning};
use super::{line, metric_names, path};
use crate::account::{accountant, idle as idle_usage, spent, watch};
use crate::jobs::netbench::load::{Measure, TrialSpec};
use crate::neighbour::Neighbour;
use crate::outcome::Outcome;

const CLIENT: &str = "client";
const SERVER: &str = "server";
const READY_WITHIN: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(2);

/// The two hosts, and the server.
#[derive(Debug)]
pub(super) struct Stage {
    // Dropped in this order: the server ends before its namespace does.
    server: Child,
    bed: Bed,
    folder: tempfile::TempDir,
}

impl Stage {
    fn set(tuned: &TunedArm, spec: &TrialSpec<'_>) -> Result<Self> {
        let arm = tuned.arm;
        let folder = testbed::folder()?;
        let mut secret = File::options();
        let secret = secret.write(true).create_new(true).mode(0o600);
        secret.open(token(&folder))?.write_all(b"of one trial\n")?;
        let mut topology = Topology::default();
        let mut client = HostSpec::native();
        [client.cpus, _] = tuned.cpus();
        topology.host.insert(CLIENT.to_owned(), client);
        topology.host.insert(SERVER.to_owned(), server(tuned));
        topology.link.push(link(arm, spec.load.path.as_ref())?);
        let bed = Bed::up(&topology, &trial_name())?;
        let token = token(&folder);
        let request = request(&bed, arm, spec, &token)?;
        let errors = File::create(folder.path().join("server.stderr"))?;
        let program = arm
            .tool
            .server(&request)?
            .stdout(Stream::Null)
            .stderr(errors);
        let program = tuned.server(program);
        let server = bed.host(SERVER)?.start(program)?;
        let mut stage = Self {
            server,
            bed,
            folder,
        };
        stage.wait(arm.tool.by_datagram(request.test))?;
        Ok(stage)
    }

    /// Until the server's port is there.
    fn wait(&mut self, datagrams: bool) -> Result<()> {
        let begun = Instant::now();
        while !waits(self.bed.host(SERVER)?, datagrams)? {
            let ended = self.server.try_wait()?;
            if ended.is_some() || begun.elapsed() > READY_WITHIN {
                let said = std::fs::read_to_string(self.folder.path().join("server.stderr"));
                bail!("the server is not ready: {}", said.unwrap_or_default());
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    pub(super) fn bed(&self) -> &Bed {
        &self.bed
    }

    /// Ends the server, and gives back what the next trial may want.
    pub(super) fn leave(self) -> StageTeardown {
        drop(self.server);
        StageTeardown {
            _bed: self.bed.leave(),
            _folder: self.folder,
        }
    }
}

/// Hosts that are taken down while those of the next trial come up, when neither is measured.
#[derive(Debug)]
pub(super) struct StageTeardown {
    _bed: Teardown,
    _folder: tempfile::TempDir,
}

/// How many links a server has.
pub(super) const LINKS: usize = 1;

/// The host of the server.
pub(super) fn server(tuned: &TunedArm) -> HostSpec {
    let mut host = HostSpec::of(tuned.arm.env);
    [_, host.cpus] = tuned.cpus();
    host.huge_pages = tuned.has(Tuning::HugePages);
    host.may(&tuned.capabilities())
}

/// Runs a trial once the hosts of the last one are down. `idle` is the CPU time of the machine without a load, which is
/// measured where that is needed and not known yet.
pub(super) fn run(
    foreign: &OccupancyProbe,
    tuned: &TunedArm,
    spec: &TrialSpec<'_>,
    idle: &mut Option<Usage>,
    teardown: Option<StageTeardown>,
) -> Result<(Stage, Outcome)> {
    let arm = tuned.arm;
    // Before the server starts: its work is not part of idling.
    let accounted = match spec.measure {
        Measure::Cpu => {
            let accountant = accountant()?;
            let usage = match idle.take() {
                Some(known) => known,
                None => idle_usage(&accountant)?,
            };
            Some((accountant, &*idle.insert(usage)))
        }
        _ => None,
    };
    let stage = thread::scope(|scope| {
        scope.spawn(|| drop(teardown));
        Stage::set(tuned, spec)
    })?;
    let token = token(&stage.folder);
    let request = request(&stage.bed, arm, spec, &token)?;
    let mut outcome = Outcome::default();
    // Ends with the load: what is taken away beside this trial would flag the next one.
    let neighbour = neighbour(tuned)?;
    if let Some(neighbour) = &neighbour {
        let id = neighbour.id().into();
        outcome.environment.insert("neighbour.pid".to_owned(), id);
    }
    note_policy("server", stage.server.id(), &mut outcome);
    if arm.link == LinkKind::Nic {
        note_line(stage.bed.host(CLIENT)?, &mut outcome)?;
    }
    let warmup = spec.load.duration.0 / 10;
    let command = tuned.client(arm.tool.client(&request, warmup));
    let client_run = ClientRun {
        foreign,
        cpus: tuned.used(),
        own: vec![stage.server.id()],
        duration: spec.load.duration.0,
        search: request.test.searches(),
        errors: stage.folder.path().join("client.stderr"),
    };
    let mut busy = None;
    let account = |outcome: &mut Outcome| -> Result<()> {
        if let Some((accountant, idle)) = &accounted {
            // A rate that does not change: the middle of the window stands for all of it.
            thread::sleep(warmup * 3);
            let middle = || {
                thread::sleep(spec.load.duration.0 / 2);
                Ok(())
            };
            let (usage, ()) = watch(accountant, middle)?;
            outcome.cpu = usage.by_name();
            outcome.violations.extend(usage.violations());
            #[expect(clippy::cast_precision_loss, reason = "a quotient")]
            let wall = usage.wall_ns.max(1) as f64;
            busy = Some(spent(&usage, idle) / wall);
        }
        Ok(())
    };
    let client = stage.bed.host(CLIENT)?;
    let start = |command| -> Result<Child> { Ok(client.spawn(command)?) };
    let said = client_run.run(command, start, account, &mut outcome)?;
    drop(neighbour);
    arm.tool.read(request.test, &said, &mut outcome)?;
    if let Some(busy) = busy {
        note_cpu(busy, request.test, &mut outcome)?;
    }
    Ok((stage, outcome))
}

/// The card that the client has.
fn note_line(client: &Host, outcome: &mut Outcome) -> Result<()> {
    let index = client.interface(SERVER)?.ifindex;
    let link = client.netlink().link_by_index(index)?;
    let speed = client.read(&line::speed_of(&link.name));
    line::note(&link, speed.ok().as_deref(), outcome);
    Ok(())
}

/// CPUs that were busy, by what they moved. What the instrument slows down is told of no more.
fn note_cpu(busy: f64, test: Test, outcome: &mut Outcome) -> Result<()> {
    let values = std::mem::take(&mut outcome.values);
    outcome.histograms.clear();
    // Nanoseconds of a second; of a stream a thousand times a second, for a thousand megabits.
    let (name, of, scale) = match test.streams() {
        false => (
            metric_names::CPU_OF_TRANSACTION,
            metric_names::TRANSACTIONS.to_owned(),
            1e9,
        ),
        true => (metric_names::CPU_OF_GBIT, metric_names::goodput(test), 1e3),
    };
    let rate = values.get(&of).context("a load without a rate")?;
    outcome.values.insert(name.to_owned(), busy * scale / rate);
    Ok(())
}

/// How the kernel here schedules an end; a guest's is the process that the guest is.
fn note_policy(end: &str, pid: u32, outcome: &mut Outcome) {
    let policy = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| policy(&stat));
    let policy = policy.map_or("unknown", |number| match number {
        0 => "other",
        1 => "fifo",
        _ => "another",
    });
    outcome
        .environment
        .insert(format!("{end}.policy"), policy.into());
}

/// The 41st word; the second, a name in brackets, may hold spaces.
fn policy(stat: &str) -> Option<u32> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(38)?.parse().ok()
}

/// The busy process that must be detected: it is not among the trial's own.
fn neighbour(tuned: &TunedArm) -> Result<Option<Neighbour>> {
    let [_, server] = tuned.cpus();
    let cpu = server.first().filter(|_| tuned.arm.neighbour);
    cpu.map(|&cpu| Neighbour::start(cpu)).transpose()
}

fn link(arm: &Arm, of_load: Option<&path::Path>) -> Result<LinkSpec> {
    let ends = [CLIENT, SERVER];
    let [first, last] = DATA_PORTS;
    Ok(match arm.link {
        LinkKind::Published => LinkSpec::published(&ends, &[PORT, first, last]),
        LinkKind::Nic => LinkSpec::nics(&ends, &nics()?),
        LinkKind::Direct => path::link(of_load, &ends),
        kind => LinkSpec::new(kind, &ends),
    })
}

fn request<'a>(
    bed: &Bed,
    arm: &Arm,
    spec: &TrialSpec<'a>,
    token: &'a Path,
) -> Result<TestRequest<'a>> {
    Ok(TestRequest {
        test: spec.load.test().context("a load without a test")?,
        load: spec.load,
        lowroad: spec.lowroad,
        server: bed.host(SERVER)?.interface(CLIENT)?.v4,
        target: bed.host(CLIENT)?.reaches(SERVER)?,
        published: arm.link == LinkKind::Published,
        token,
    })
}

fn token(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("token")
}

/// Whether a socket of the host waits on the port that all tools take.
fn waits(server: &Host, datagrams: bool) -> Result<bool> {
    let table = match datagrams {
        true => "/proc/thread-self/net/udp",
        false => "/proc/thread-self/net/tcp",
    };
    let sockets = server.read(table)?;
    let port = format!(":{PORT:04X}");
    // The second word is where it waits; ten is LISTEN, and seven a socket without a connection.
    Ok(sockets.lines().skip(1).any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let open = matches!(words.get(3), Some(&"0A" | &"07"));
        open && words.get(1).is_some_and(|local| local.ends_with(&port))
    }))
}

/// A name for a bed that no other bed of this process has.
fn trial_name() -> String {
    static TRIALS: AtomicU32 = AtomicU32::new(0);
    format!("n{}", TRIALS.fetch_add(1, Ordering::Relaxed))
}
