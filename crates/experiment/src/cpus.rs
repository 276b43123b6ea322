//! Which CPUs there are to measure on, by their numbers: `taskset`, cpusets and `isolcpus=` leave holes among those.

use std::fs;
use std::io;
use std::thread;

const ISOLATED_PATH: &str = "/sys/devices/system/cpu/isolated";

/// Those that the scheduler puts ordinary programs on, and this process may use.
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

/// Those that nothing runs on but what is put there.
pub(crate) fn isolated() -> io::Result<Vec<usize>> {
    let text = fs::read_to_string(ISOLATED_PATH).unwrap_or_default();
    let text = text.trim();
    list(text).ok_or_else(|| io::Error::other(format!("{ISOLATED_PATH} says {text:?}")))
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
