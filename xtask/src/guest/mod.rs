//! Debian's 6.1 kernel, the oldest we support, booted by QEMU's emulator with our test programs.
//!
//! It decides what runs there; `boot` gets the kernel, `image` fills the file system, `console` boots it
//! and talks to its shell.

mod console;
mod image;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use boot::{Flavour, Kernel};

use crate::run;
use crate::tally::{Outcome, Skip, Tally};
use crate::test::{self, Binary};
use console::{Console, Ended};

/// Packages whose test programs meet the kernel, and single programs; the others ran on this machine.
const IN_GUEST: &[&str] = &[
    "features",
    "loadgen",
    "lowroad",
    "netdev",
    "probes",
    "relay",
    "replicate barrier",
    "replicate coverage",
    "replicate disks",
    "replicate functions",
    "replicate holes",
    "replicate place",
    "replicate waiting",
    "replicate workers",
    "router",
    "sys",
    "testbed",
    "xsk",
];
/// Programs left to the host: emulated they take minutes, or they need what the guest lacks. The
/// kernel datapaths they use are loaded and tried there by `lowroad relay_smoke`, `relay bpf_xdp`
/// and `relay traps`.
const HOST_ONLY: &[&str] = &[
    "features cic_defects",
    "features collectors",
    "features files",
    "features filter_tcpdump",
    "features ipfix",
    "features kafka",
    "features model",
    "features nats",
    "features nfstream",
    "features parallel",
    "features payload",
    "features queue",
    "features scored",
    "features stream",
    "features tshark",
    "lowroad bad_input",
    "lowroad media",
    "lowroad models",
    "lowroad netbench",
    "lowroad netbench_agent",
    "lowroad replicate",
    "lowroad replicate_bounded",
    "lowroad replicate_check",
    "lowroad replicate_keep",
    "lowroad replicate_nats",
    "lowroad replicate_segments",
    "lowroad replicate_service",
    "lowroad replicate_ship",
    "lowroad replicate_unprivileged",
    "lowroad router_build",
    "lowroad router_cpu",
    "lowroad router_gpu",
    "lowroad router_image",
    "lowroad router_made",
    "lowroad router_run",
    "lowroad scan",
    "relay af_xdp",
    "relay bad_input",
    "relay bpf_datapaths",
    "relay bpf_membership",
    "relay core",
    "relay devices",
    "relay same_output",
    "relay userspace",
    "router",
    "router af_xdp_network",
    "router cpu",
    "router following",
    "router fuzz",
    "router gpu",
    "router image",
    "router listings",
    "router lists",
    "router mrt",
    "router nft",
    "router nft_listing",
    "router rules",
    "router xdp_network",
    "testbed container",
    "testbed impaired",
    "testbed vm",
];
/// Guests that share the programs, since one thread emulates all CPUs of a guest.
const GUESTS: usize = 2;
/// How long one test program may take in the guest, which is some ten times slower, and slower still where others
/// have the CPUs.
const DEADLINE: Duration = Duration::from_secs(1800);

/// `cargo xtask guest`: builds the tests and runs those of the guest.
pub(crate) fn run() -> Result<Tally> {
    let mut tally = Tally::default();
    let start = Instant::now();
    test(&test::build()?, &mut tally)?;
    tally.stage("Linux 6.1 guest", start.elapsed());
    tally.close();
    Ok(tally)
}

/// `cargo xtask guest COMMAND`: what the command prints there.
pub(crate) fn shell(command: &str) -> Result<Tally> {
    if let Some(skip) = missing() {
        bail!("cannot run here: {}", skip.reason);
    }
    let ended = Guest::pack(&[])?.boot()?.run(command, DEADLINE)?;
    print!("{}", ended.output);
    let mut tally = Tally::default();
    tally.add(command, judge(&ended));
    Ok(tally)
}

/// Runs the tests that meet the kernel, and `lowroad doctor`, in guests.
pub(crate) fn test(binaries: &[Binary], tally: &mut Tally) -> Result<()> {
    if let Some(skip) = missing() {
        tally.add("Linux 6.1 guest", Outcome::Skipped(skip));
        return Ok(());
    }
    let chosen: Vec<&Binary> = binaries.iter().filter(|binary| in_guest(binary)).collect();
    let guest = Guest::pack(&chosen)?;
    let waiting = Mutex::new(chosen.into_iter());
    let together = Mutex::new(&mut *tally);
    thread::scope(|scope| {
        let guests: Vec<_> = (0..GUESTS)
            .map(|_| scope.spawn(|| work(&guest, &waiting, &together)))
            .collect();
        guests.into_iter().try_for_each(|guest| {
            guest
                .join()
                .map_err(|_| anyhow!("a guest's thread panicked"))?
        })
    })?;
    let command = format!("{} doctor", image::lowroad().display());
    let doctor = guest.boot()?.run(&command, DEADLINE)?;
    print!("{}", doctor.output);
    tally.add("6.1: lowroad doctor", judge(&doctor));
    Ok(())
}

/// Runs the programs that wait, one after the other, until there are none.
fn work<'a>(
    guest: &Guest,
    waiting: &Mutex<impl Iterator<Item = &'a Binary>>,
    tally: &Mutex<&mut Tally>,
) -> Result<()> {
    let mut console = guest.boot()?;
    while let Some(binary) = locked(waiting).next() {
        let command = format!(
            "cd {} && LOWROAD_REQUIRE=core {} --nocapture --test-threads 2",
            binary.folder.display(),
            binary.program.display()
        );
        let start = Instant::now();
        let ended = console.run(&command, DEADLINE)?;
        let took = start.elapsed().as_secs_f64();
        println!("{took:>7.1} s  6.1: {}", binary.name);
        count(&mut locked(tally), &format!("6.1: {}", binary.name), &ended);
        if ended.status.is_none() {
            // It still runs, and what came after would wait for it.
            console = guest.boot()?;
        }
    }
    Ok(())
}

/// A thread that panicked fails the run by itself.
fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn in_guest(binary: &Binary) -> bool {
    let name = binary.name.as_str();
    let package = name.split(' ').next().unwrap_or_default();
    [package, name].iter().any(|word| IN_GUEST.contains(word)) && !HOST_ONLY.contains(&name)
}

/// Adds the tests of one program: each that passed, each that was skipped, or its failure.
fn count(tally: &mut Tally, name: &str, ended: &Ended) {
    if ended.status != Some(0) {
        return tally.add(name, judge(ended));
    }
    let skips: Vec<Skip> = ended.output.lines().filter_map(Skip::parse).collect();
    let passed: usize = ended.output.lines().filter_map(test::passed).sum();
    tally.add_passed(passed.saturating_sub(skips.len()));
    for skip in skips {
        tally.add(name, Outcome::Skipped(skip));
    }
}

fn judge(ended: &Ended) -> Outcome {
    match ended.status {
        Some(0) => Outcome::Passed,
        Some(status) => Outcome::Failed(format!("exit {status}\n{}", ended.output)),
        None => Outcome::Failed(format!("no end in {DEADLINE:?}\n{}", ended.output)),
    }
}

fn missing() -> Option<Skip> {
    ["qemu-system-x86_64", "dpkg-deb", "ldd"]
        .iter()
        .find(|program| !run::exists(program))
        .map(|program| Skip::new("core", format!("needs {program} (apt-get install)")))
        .or_else(|| {
            (!std::path::Path::new(image::BUSYBOX).exists())
                .then(|| Skip::new("core", "needs apt-get install busybox-static"))
        })
        .or_else(|| {
            Kernel::available(Flavour::Cloud)
                .err()
                .map(|error| Skip::new("core", format!("no guest kernel: {error}")))
        })
}

/// What guests boot from.
#[derive(Debug)]
struct Guest {
    kernel: Kernel,
    initrd: PathBuf,
}

impl Guest {
    /// Puts the programs into a file system.
    fn pack(binaries: &[&Binary]) -> Result<Self> {
        let kernel = Kernel::available(Flavour::Cloud)?;
        let mut image = image::base(&kernel)?;
        for binary in binaries {
            image.program(&binary.program, &binary.program);
            image.folder(&binary.folder);
        }
        let initrd = PathBuf::from(".cache/guest/initrd");
        std::fs::create_dir_all(".cache/guest").context(".cache/guest")?;
        image.write(&initrd, image::stripped)?;
        Ok(Self { kernel, initrd })
    }

    fn boot(&self) -> Result<Console> {
        Console::boot(&self.kernel.image, &self.initrd)
    }
}
