//! Which functions a CPU was in, by asking each CPU some hundred times a second: kernel, BPF and
//! user stacks together.
//!
//! It finds where time goes, not how much: idle CPUs and stretches with interrupts off are asked
//! less often, so CPU time comes from the accountant.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;
use std::time::Instant;

use bpf::{Map, PerCpu, Plain as _};
use libbpf_rs::Link;
use netdev::requirement::{self, Requirement};
use sys::caps::Capability;

use crate::Error;

mod hottest;
pub mod pprof;
mod symbols;

pub use hottest::{Function, hottest};

use symbols::Symbols;

bpf::skeleton!(mod skel = "stacks");

use skel::types::stack_key as Key;

/// Return addresses of a stack, leaf first; zeros after the last.
type Stack = [u64; 127];

/// Samples a second that are not a multiple of anything periodic.
pub const HERTZ: u32 = 997;

/// A running sampler. Dropping it stops it.
#[derive(Debug)]
pub struct Sampler {
    stacks: Map<u32, Stack>,
    counts: Map<Key, u64>,
    samples: PerCpu<u64>,
    hertz: u32,
    started: Instant,
    links: Vec<Link>,
}

/// The samples of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// `root;caller;leaf` to samples; the root is the command's name.
    pub folded: BTreeMap<String, u64>,
    pub obtained: u64,
    /// The samples that the clock would have taken if no CPU had been idle or had interrupts off.
    pub expected: u64,
    /// Samples of `obtained` whose stack there was no room for.
    pub lost: u64,
    /// Samples a second, on each CPU.
    pub hertz: u32,
}

/// The requirements of the sampler.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement::TypeInformation,
    Requirement::Capabilities(&[Capability::Bpf, Capability::Perfmon]),
    Requirement::KernelOption("CONFIG_PERF_EVENTS"),
];

impl Sampler {
    /// Starts on every CPU this process may use, `hertz` times a second ([`HERTZ`] is usual).
    pub fn start(hertz: u32) -> Result<Self, Error> {
        requirement::check(REQUIREMENTS)?;
        let mut storage = MaybeUninit::uninit();
        let builder = skel::StacksSkelBuilder::default();
        let skel = bpf::load(builder, &mut storage, "the stack sampler", |_| {
            Ok::<_, Error>(())
        })?;
        let io = |source: std::io::Error| Error::bpf("sampling the CPU clock")(source);
        let mut sampler = Self {
            stacks: Map::new(&skel.maps.stacks)?,
            counts: Map::new(&skel.maps.counts)?,
            samples: PerCpu::new(&skel.maps.samples)?,
            hertz,
            started: Instant::now(),
            links: Vec::new(),
        };
        for cpu in sys::sched::allowed_cpus().map_err(io)? {
            let event = sys::perf::cpu_clock(cpu, hertz).map_err(io)?;
            // The link closes the event.
            let link = skel
                .progs
                .sample_stack
                .attach_perf_event(event.into_raw_fd());
            sampler
                .links
                .push(link.map_err(Error::bpf("sampling the CPU clock"))?);
        }
        sampler.started = Instant::now();
        Ok(sampler)
    }

    /// Stops, and names every function. Call it while the processes of interest still run: the
    /// addresses of one that has ended have no names any more.
    pub fn stop(mut self) -> Result<Profile, Error> {
        let cpus = self.links.len() as f64;
        let expected = f64::from(self.hertz) * cpus * self.started.elapsed().as_secs_f64();
        self.links.clear();
        let mut profile = Profile {
            obtained: self.samples.sum(0)?,
            lost: self.samples.sum(1)?,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count of samples"
            )]
            expected: expected.round() as u64,
            hertz: self.hertz,
            ..Profile::default()
        };
        let mut symbols = Symbols::new();
        for key in self.counts.keys() {
            let count = self.counts.get(&key);
            let count = count.map_err(Error::bpf("reading a stack's count"))?;
            let stack = self.frames(&key, &mut symbols)?.join(";");
            *profile.folded.entry(stack).or_default() += count.unwrap_or(0);
        }
        Ok(profile)
    }

    /// Root first: the command, the user stack, the kernel stack.
    fn frames(&self, key: &Key, symbols: &mut Symbols) -> Result<Vec<String>, Error> {
        let mut frames = vec![root(key)];
        let user = self.addresses(key.user)?;
        frames.extend(symbols.user(key.tgid, &user).into_iter().rev());
        let kernel = self.addresses(key.kernel)?;
        frames.extend(symbols.kernel(&kernel).into_iter().rev());
        if unplaced(key) {
            frames.push("[no room for the stack]".into());
        }
        Ok(frames)
    }

    /// Leaf first.
    fn addresses(&self, stack: i32) -> Result<Vec<u64>, Error> {
        let Ok(stack) = u32::try_from(stack) else {
            return Ok(Vec::new());
        };
        let addresses = self.stacks.get(&stack)?.into_iter().flatten();
        Ok(addresses.take_while(|at| *at != 0).collect())
    }
}

fn root(key: &Key) -> String {
    if key.tgid == 0 {
        return "idle".into();
    }
    let name = key.comm.bytes();
    let end = name.iter().position(|byte| *byte == 0);
    let name = &name[..end.unwrap_or(name.len())];
    symbols::frame(&String::from_utf8_lossy(name))
}

/// EEXIST: another stack has the place of this one's hash.
fn unplaced(key: &Key) -> bool {
    key.kernel == -libc::EEXIST || key.user == -libc::EEXIST
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[inline(never)]
    fn spin_where_the_sampler_looks() {
        // Measured in CPU time: on a busy machine the same wall-clock time may have no sample.
        let start = sys::clock::thread_cpu_ns();
        let mut sum = 0_u64;
        while sys::clock::thread_cpu_ns() - start < 300_000_000 {
            sum = (0..100_000).fold(sum, |sum, i| black_box(sum ^ i));
            for _ in 0..20 {
                sum ^= std::fs::read("/proc/self/status").unwrap().len() as u64;
            }
        }
        black_box(sum);
    }

    #[test]
    fn a_spinning_function_and_the_kernel_are_found_by_name() {
        if !sys::require::root() {
            return;
        }
        let sampler = Sampler::start(HERTZ).unwrap();
        spin_where_the_sampler_looks();
        let profile = sampler.stop().unwrap();
        assert!(profile.obtained > 0 && profile.lost == 0, "{profile:?}");
        assert_eq!(profile.folded.values().sum::<u64>(), profile.obtained);
        let functions = hottest(&profile.folded);
        let named = |part: &str| functions.iter().any(|f| f.name.contains(part));
        assert!(named("spin_where_the_sampler_looks"), "{functions:?}");
        assert!(named("syscall") && named("seq_read"), "{functions:?}");
    }
}
