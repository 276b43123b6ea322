//! Which CPUs there are to measure on, by their numbers: `taskset`, cpusets and `isolcpus=` leave holes among those.

use std::fs;
use std::io;
use std::thread;

use splitmix::SplitMix64;

const ISOLATED_PATH: &str = "/sys/devices/system/cpu/isolated";

/// The CPUs that the scheduler uses for ordinary programs, and this process may use.
pub(crate) fn ordinary() -> io::Result<Vec<usize>> {
    sys::sched::allowed_cpus()
}

/// The first of them, for who sends or asks, and the last, for who is measured: the same where there is one.
pub(crate) fn ends() -> io::Result<[usize; 2]> {
    match ordinary()?.as_slice() {
        [first, .., last] => Ok([*first, *last]),
        [only] => Ok([*only; 2]),
        [] => Err(io::Error::other("this process may run on no CPU")),
    }
}

/// The CPUs of who sends and of who is measured in a trial with this seed: where there are more than two, they are drawn for
/// each trial, so that no arm owes what it takes to its CPU. Both are of the package that the last CPU is of, and where it
/// has two cores they are of two: otherwise trials would differ by more than the arms do.
pub(crate) fn draw(seed: u64) -> io::Result<[usize; 2]> {
    let cpus = ordinary()?;
    let places: Vec<CpuPlace> = cpus.iter().map(|&cpu| CpuPlace::of(cpu)).collect();
    match draw_of(&places, seed) {
        Some(drawn) => Ok(drawn),
        None => ends(),
    }
}

/// Where a CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuPlace {
    cpu: usize,
    package: Option<u32>,
    core: Option<u32>,
}

impl CpuPlace {
    fn of(cpu: usize) -> Self {
        let number = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}");
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        Self {
            cpu,
            package: number("physical_package_id"),
            core: number("core_id"),
        }
    }
}

/// None where there is nothing to draw.
fn draw_of(cpus: &[CpuPlace], seed: u64) -> Option<[usize; 2]> {
    let last = cpus.last().filter(|_| cpus.len() > 2)?;
    let mut random = SplitMix64::new(seed);
    let near = cpus.iter().filter(|cpu| cpu.package == last.package);
    let near: Vec<&CpuPlace> = near.collect();
    let measured = near[random.index(near.len())];
    let others = near.iter().filter(|other| other.cpu != measured.cpu);
    let (apart, beside): (Vec<&CpuPlace>, Vec<_>) =
        others.partition(|other| other.core.is_none() || other.core != measured.core);
    let others = if apart.is_empty() { beside } else { apart };
    let other = (!others.is_empty()).then(|| others[random.index(others.len())])?;
    Some([other.cpu, measured.cpu])
}

/// The CPUs that run only programs that are pinned to them.
pub(crate) fn isolated() -> io::Result<Vec<usize>> {
    let text = fs::read_to_string(ISOLATED_PATH).unwrap_or_default();
    let text = text.trim();
    list(text).ok_or_else(|| {
        io::Error::other(format!(
            "{ISOLATED_PATH} has {text:?}, which is not a list of CPUs"
        ))
    })
}

/// All that a trial may be on.
pub(crate) fn all() -> io::Result<Vec<usize>> {
    let mut all = ordinary()?;
    let apart = isolated()?.into_iter();
    all.extend(apart.filter(|&cpu| may_use(cpu)));
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Whether a cpuset leaves it to this process.
fn may_use(cpu: usize) -> bool {
    let tried = thread::spawn(move || sys::sched::pin(cpu)).join();
    tried.is_ok_and(|pinned| pinned.is_ok())
}

/// `1-3,8` as the numbers that it stands for.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<usize>().ok();
        cpus.extend(number(first)?..=number(last)?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(list(""), Some(vec![]));
        assert_eq!(list("1,4-6"), Some(vec![1, 4, 5, 6]));
        assert_eq!(list("one"), None);
    }

    /// CPUs with these packages and cores.
    fn places(at: &[(u32, u32)]) -> Vec<CpuPlace> {
        let places = at
            .iter()
            .enumerate()
            .map(|(cpu, &(package, core))| CpuPlace {
                cpu,
                package: Some(package),
                core: Some(core),
            });
        places.collect()
    }

    #[test]
    fn roles_are_drawn_by_the_seed_on_two_cores_of_one_package() {
        assert_eq!(draw_of(&places(&[(0, 0), (0, 1)]), 7), None);
        // Two packages of two cores, each with two CPUs.
        let cpus: Vec<(u32, u32)> = (0..8).map(|cpu| (cpu / 4, cpu / 2)).collect();
        let cpus = places(&cpus);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let [sender, measured] = draw_of(&cpus, seed).unwrap();
            assert_eq!(draw_of(&cpus, seed), Some([sender, measured]));
            assert!(sender >= 4 && measured >= 4 && sender / 2 != measured / 2);
            seen.insert((sender, measured));
        }
        assert_eq!(seen.len(), 8);
        // A package of one core: what there is.
        let one = places(&[(0, 0), (0, 0), (0, 0)]);
        let [sender, measured] = draw_of(&one, 1).unwrap();
        assert_ne!(sender, measured);
    }

    #[test]
    fn what_is_left_to_a_thread_are_numbers_not_a_count() {
        let last = *ordinary().unwrap().last().unwrap();
        let left = thread::spawn(move || {
            sys::sched::pin(last).unwrap();
            (ordinary().unwrap(), ends().unwrap())
        });
        assert_eq!(left.join().unwrap(), (vec![last], [last; 2]));
        assert!(!may_use(1_000_000));
    }
}
