//! Trials of the router. Lookups: our engines and those of others, each a process of its own that
//! stays for the experiment and makes a pass when it is asked to. Forwarding: see [`forwarding`].

mod arms;
mod check;
mod engine;
mod files;
mod forwarding;
mod huge_pages;
mod load;
mod prefixes;
mod process;
mod rules;
mod serve;
mod tables;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use datapath::Missing;
use lpm::{Fib4, Simd};
use probes::occupancy::OccupancyProbe;
use tempfile::TempDir;

use self::arms::{Arm, LOWROAD, Program, TableKind};
use self::engine::{Engine, LoadAnswer, PassAnswer, Request, UpdateAnswer};
use self::files::{Files, table_key};
use self::forwarding::Networks;
use self::huge_pages::HugePages;
use self::load::{Load, Measure, OFFERED_OPTION, TrialSpec};
use self::process::Process;
pub use self::serve::serve;
use self::tables::{Table, Traffic};
use crate::arms::{FOLDER, HERE, Placeholder, ProgramArm, ProgramTerms};
use crate::bench::{BuildCheck, JobBench, JobRequirements};
use crate::idle::IdleGuard;
use crate::noise::{NoiseMonitor, Watch};
use crate::outcome::Outcome;
use crate::placement::{Placement, on_no_host};
use crate::plan::Plan;
use crate::program::Lowroad;

/// The placeholders in commands of programs that forward.
const PLACEHOLDERS: &[Placeholder] = &[
    Placeholder::new("interface", "the device that packets come in by"),
    Placeholder::new("egress_interface", "the device that they leave by"),
    Placeholder::new("address", "the address of `{interface}`"),
    Placeholder::new("egress_address", "the address of `{egress_interface}`"),
    Placeholder::new("rules", "the load's rules as `nft --json` lists them"),
    FOLDER,
    HERE,
];

/// The requirements of the arms and loads of the router.
#[derive(Debug)]
pub(crate) struct RouterRequirements;

impl JobRequirements<Load> for RouterRequirements {
    fn check(&self, arm: &str) -> Result<(), Missing> {
        match arms::find(arm) {
            Some(arm) => arm.check(),
            None if process::ARMS.contains(&arm) => process::check(arm),
            None => forwarding::check(arm),
        }
    }

    fn check_load(&self, load: &Load, measure: Measure) -> Result<(), Missing> {
        if measure == Measure::Forward {
            forwarding::check_load(load)?;
        }
        let Some(path) = &load.file else {
            return Ok(());
        };
        std::fs::File::open(path).map(drop).map_err(|error| {
            Missing::new(
                format!("{}: {error}", path.display()),
                "tables are looked for from the working directory",
            )
        })
    }

    fn applies(&self, arm: &str, load: &Load, measure: Measure) -> Result<(), Missing> {
        let forwards = forwarding::ARMS.contains(&arm);
        match (measure == Measure::Process, process::ARMS.contains(&arm)) {
            (true, true) => return Ok(()),
            (true, false) => return Err(Missing::new("it is not an arm of process", "cpu is")),
            (false, true) => return Err(Missing::new("it processes", "say measure = \"process\"")),
            (false, false) => {}
        }
        match (measure == Measure::Forward, forwards) {
            (true, true) => return forwarding::applies(arm, load),
            (true, false) => return Err(Missing::new("it only looks up", "xdp forwards")),
            (false, true) => return Err(Missing::new("it forwards", "say measure = \"forward\"")),
            (false, false) => {}
        }
        let (Some(arm), Some(table)) = (arms::find(arm), &load.table) else {
            return Ok(());
        };
        if !arm.tables.contains(&arms::table_kind(table)) {
            return Err(Missing::new(
                "it has no tables of this kind",
                "its own loads have",
            ));
        }
        if measure == Measure::Updates && !arm.updates {
            return Err(Missing::new(
                "it cannot change while others look up",
                "lookups compare it",
            ));
        }
        let bytes = arm.name.starts_with("bytes-") || arm.name == "bpf-arrays";
        if bytes && load.next_hops.is_some_and(|hops| hops > 254) {
            return Err(Missing::new(
                "its entries hold 254 next hops",
                "words and mixed hold more",
            ));
        }
        Ok(())
    }

    fn program_applies(
        &self,
        program: &ProgramArm,
        load: &Load,
        measure: Measure,
    ) -> Result<(), Missing> {
        match measure {
            Measure::Forward => forwarding::program_applies(program, load),
            _ => Err(Missing::new("it forwards", "say measure = \"forward\"")),
        }
    }

    /// The program's own command, which then prints its help. Engines are in the program beside it.
    fn build_checks(
        &self,
        build: &BuildCheck<'_>,
        load: &Load,
        measure: Measure,
    ) -> Result<Vec<Vec<OsString>>> {
        Ok(match measure {
            Measure::Forward => vec![forwarding::build_check(build.folder)],
            Measure::Process => vec![process::build_check(build.arm, load)?],
            Measure::Lookup | Measure::Updates | Measure::Build => {
                arms::engine_program(build.lowroad)?;
                Vec::new()
            }
        })
    }

    fn datapath<'a>(&self, arm: &'a str) -> Result<Option<&'a str>, Missing> {
        match forwarding::ARMS.contains(&arm) {
            true => Ok(forwarding::datapath(arm)),
            false => Err(on_no_host("engines look up in processes of no host")),
        }
    }

    fn applies_in(
        &self,
        arm: &str,
        load: &Load,
        _measure: Measure,
        placement: &Placement,
    ) -> Result<(), Missing> {
        forwarding::applies_in(arm, load, placement.guest)
    }
}

/// Runs router trials.
#[derive(Debug)]
pub(crate) struct RouterBench {
    monitor: NoiseMonitor,
    foreign: OccupancyProbe,
    /// Where engines look up; this process waits on another meanwhile.
    cpu: usize,
    files: Files,
    networks: Networks,
    process: Process,
    engines: HashMap<EngineKey, TableEngine>,
    huge_pages: Option<HugePages>,
    folder: TempDir,
}

/// The arm, the build, and the table of an engine.
type EngineKey = (&'static str, PathBuf, String);

/// An engine with its table.
#[derive(Debug)]
struct TableEngine {
    engine: Engine,
    loaded: LoadAnswer,
}

impl RouterBench {
    fn start(&self, arm: &Arm, lowroad: &Lowroad, cpus: &str) -> Result<Engine> {
        let errors = self.folder.path().join(format!("{}.stderr", arm.name));
        match arm.program {
            Program::Own => {
                let program = arms::engine_program(lowroad)?;
                Engine::start(&program, &["engine"], cpus, &errors)
            }
            Program::Peer { name, dpdk, .. } => {
                let program = arms::peer(name).map_err(|missing| anyhow::anyhow!(missing.what))?;
                let ordinary = dpdk && self.huge_pages.is_none();
                let words: &[&str] = if ordinary { &["ordinary"] } else { &[] };
                Engine::start(&program, words, cpus, &errors)
            }
        }
    }

    /// A new process with the load's table.
    fn build(
        &mut self,
        arm: &Arm,
        (lowroad, load): (&Lowroad, &Load),
        cpus: &str,
    ) -> Result<TableEngine> {
        let table = self.files.table(load)?.path;
        let mut engine = self.start(arm, lowroad, cpus)?;
        let loaded = engine.ask(&Request::Load {
            engine: name_of(arm, load)?,
            table,
        })?;
        Ok(TableEngine { engine, loaded })
    }

    /// The arm's process, which has the load's table.
    fn ready(&mut self, arm: &Arm, of: (&Lowroad, &Load)) -> Result<&mut TableEngine> {
        let (lowroad, load) = of;
        let key = (arm.name, lowroad.path().to_owned(), table_key(load));
        if !self.engines.contains_key(&key) {
            let ready = self.build(arm, of, &self.cpu.to_string())?;
            self.engines.insert(key.clone(), ready);
        }
        self.engines.get_mut(&key).context("it was just started")
    }

    fn lookup(&mut self, arm: &Arm, of: (&Lowroad, &Load), outcome: &mut Outcome) -> Result<()> {
        let (lowroad, load) = of;
        let files = self
            .files
            .keys(load, load.traffic.unwrap_or(Traffic::Rules))?;
        let request = Request::Pass {
            keys: files.keys,
            answers: files.answers,
            ms: load.duration.0.as_secs_f64() * 1e3,
        };
        let own = self.ready(arm, of)?.engine.id();
        let watch = Watch::start(&self.foreign, &[own])?;
        let key = (arm.name, lowroad.path().to_owned(), table_key(load));
        let ready = self.engines.get_mut(&key).context("it was just started")?;
        let passed: PassAnswer = ready.engine.ask(&request)?;
        let loaded = ready.loaded;
        outcome
            .environment
            .insert("peer".to_owned(), ready.engine.ready.clone());
        watch.end(&[own], outcome)?;
        let metric = match load.table {
            Some(Table::Rules(_)) => "ns_per_packet",
            _ => "ns_per_lookup",
        };
        #[expect(clippy::cast_precision_loss, reason = "a count of keys")]
        let wrong = passed.wrong as f64;
        for (name, value) in [(metric, passed.ns), ("wrong", wrong), ("mib", loaded.mib)] {
            outcome.values.insert(name.to_owned(), value);
        }
        outcome.counts.insert("lookups".to_owned(), passed.lookups);
        outcome
            .counts
            .insert("checksum".to_owned(), passed.checksum);
        if let Some(simd) = passed.simd {
            outcome.environment.insert("simd".to_owned(), simd.into());
        }
        Ok(())
    }

    /// Each trial builds in a process of its own: the heap of the last build would help the next.
    fn measure_build(
        &mut self,
        arm: &Arm,
        of: (&Lowroad, &Load),
        outcome: &mut Outcome,
    ) -> Result<()> {
        let loaded = self.build(arm, of, &self.cpu.to_string())?.loaded;
        for (name, value) in [("build_s", loaded.build_s), ("mib", loaded.mib)] {
            outcome.values.insert(name.to_owned(), value);
        }
        Ok(())
    }

    /// Each trial begins with the same table: updates change it.
    fn updates(&mut self, arm: &Arm, of: (&Lowroad, &Load), outcome: &mut Outcome) -> Result<()> {
        let (_, load) = of;
        let traffic = match load.table {
            Some(Table::Rules(_)) => Traffic::Rules,
            _ => Traffic::PerPrefix,
        };
        let offered = load.options.get(OFFERED_OPTION);
        let offered = offered.and_then(toml::Value::as_integer).unwrap_or(0);
        let request = Request::Update {
            updates: self.files.updates(load)?,
            keys: self.files.keys(load, traffic)?.keys,
            ms: load.duration.0.as_secs_f64() * 1e3,
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            offered: offered as f64,
        };
        let everywhere = format!("0-{}", self.cpu);
        let mut ready = self.build(arm, of, &everywhere)?;
        let own = ready.engine.id();
        let watch = Watch::start(&self.foreign, &[own])?;
        let updated: UpdateAnswer = ready.engine.ask(&request)?;
        watch.end(&[own], outcome)?;
        for (name, value) in [
            ("updates_per_s", updated.updates_per_s),
            ("update_us", updated.median_us),
            ("longest_update_us", updated.longest_us),
            ("ns_per_lookup", updated.ns),
            ("longest_batch_us", updated.longest_batch_us),
        ] {
            outcome.values.insert(name.to_owned(), value);
        }
        outcome.counts.insert("updates".to_owned(), updated.updates);
        outcome.counts.insert("batches".to_owned(), updated.batches);
        Ok(())
    }

    /// A trial of an engine.
    fn engine(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        let arm = arms::find(spec.arm).with_context(|| format!("no engine {}", spec.arm))?;
        let mut outcome = Outcome::default();
        let table = self.files.table(spec.load)?;
        for (name, value) in [
            ("table", table.source),
            ("engine", name_of(arm, spec.load)?),
        ] {
            outcome.environment.insert(name.to_owned(), value.into());
        }
        if spec.measure == Measure::Lookup {
            // Before the machine is looked at: a build may take long.
            self.ready(arm, (spec.lowroad, spec.load))?;
            self.files
                .keys(spec.load, spec.load.traffic.unwrap_or(Traffic::Rules))?;
        }
        let of = (spec.lowroad, spec.load);
        let awake = IdleGuard::start(spec.idle)?;
        match spec.measure {
            Measure::Build => self.measure_build(arm, of, &mut outcome)?,
            Measure::Updates => self.updates(arm, of, &mut outcome)?,
            _ => self.lookup(arm, of, &mut outcome)?,
        }
        drop(awake);
        self.monitor.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }

    fn process(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let table = self.files.table(spec.load)?;
        let source = table.source.into();
        outcome.environment.insert("table".to_owned(), source);
        self.process.prepare(spec, &mut self.files)?;
        let awake = IdleGuard::start(spec.idle)?;
        let (files, foreign) = (&mut self.files, &self.foreign);
        self.process.trial(spec, files, foreign, &mut outcome)?;
        drop(awake);
        self.monitor.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }

    fn forward(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let table = self.files.table(spec.load)?;
        let source = table.source.into();
        outcome.environment.insert("table".to_owned(), source);
        let cpu = self.cpu;
        self.networks.prepare(spec, &mut self.files, cpu)?;
        let awake = IdleGuard::start(spec.idle)?;
        let (files, foreign) = (&mut self.files, &self.foreign);
        self.networks
            .trial(spec, files, cpu, foreign, &mut outcome)?;
        drop(awake);
        self.monitor.note(&self.foreign, &mut outcome)?;
        Ok(outcome)
    }
}

/// A process's name of the arm's engine: `lowroad` stands for another engine for each kind of table.
fn name_of(arm: &Arm, load: &Load) -> Result<String> {
    if arm.name != LOWROAD {
        return Ok(arm.name.to_owned());
    }
    let table = load.table.as_ref().context("a load without a table")?;
    let many = load.next_hops.is_some_and(|hops| hops > 254);
    let (layout, simd) = match arms::table_kind(table) {
        TableKind::Ipv4 if many => ("words", Fib4::usual_simd()),
        TableKind::Ipv4 => ("bytes", Fib4::usual_simd()),
        TableKind::Ipv6 => ("flat", Simd::widest()),
        TableKind::Rules => ("acl", Simd::widest()),
    };
    Ok(format!("{layout}-{}", simd.name()))
}

impl JobBench for RouterBench {
    const NAME: &'static str = "router";
    const PROGRAMS: ProgramTerms = ProgramTerms {
        placeholders: PLACEHOLDERS,
        ..ProgramTerms::NONE
    };

    type Load = Load;
    type Requirements = RouterRequirements;

    fn arms() -> Vec<&'static str> {
        let others = forwarding::ARMS.into_iter().chain(process::ARMS);
        arms::names().chain(others).collect()
    }

    fn runs_lowroad(arm: &str) -> bool {
        let engine = arms::find(arm).is_some_and(|arm| arm.program == Program::Own);
        engine || process::ARMS.contains(&arm) || forwarding::datapath(arm).is_some()
    }

    fn check(load: &Load, measure: Measure) -> Result<(), String> {
        check::check(load, measure)
    }

    fn requirements(_plan: &Plan) -> Result<RouterRequirements> {
        Ok(RouterRequirements)
    }

    fn new(plan: &Plan) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let dpdk = |arm: &String| {
            let program = arms::find(arm).map(|arm| arm.program);
            matches!(program, Some(Program::Peer { dpdk: true, .. }))
        };
        let huge_pages = if plan.arms.iter().any(dpdk) {
            HugePages::reserve()?
        } else {
            None
        };
        Ok(Self {
            monitor: NoiseMonitor::new()?,
            foreign: OccupancyProbe::attach()?,
            cpu: crate::cpus::ends()?[1],
            files: Files::new(folder.path()),
            networks: Networks::default(),
            process: Process::new(folder.path()),
            engines: HashMap::new(),
            huge_pages,
            folder,
        })
    }

    fn set_up_time(&self) -> Duration {
        self.networks.set_up_time
    }

    fn trial(&mut self, spec: &TrialSpec<'_>) -> Result<Outcome> {
        match spec.measure {
            Measure::Forward => self.forward(spec),
            Measure::Process => self.process(spec),
            Measure::Lookup | Measure::Updates | Measure::Build => self.engine(spec),
        }
    }
}
