//! Typed maps, sums over CPUs, and runs of a program.

use bpf::{Counters, Map, PerCpu, Run};
use libbpf_rs::{MapCore as _, MapMut, Object};

use crate::common;

/// `struct counters` of maps.bpf.c.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
struct Sums([u64; 2]);

// SAFETY: an array of integers.
unsafe impl bpf::Plain for Sums {}
impl Counters for Sums {}

fn map<'o>(object: &'o mut Object, name: &str) -> MapMut<'o> {
    object.maps_mut().find(|map| map.name() == name).unwrap()
}

#[test]
fn entries_are_written_read_and_removed() {
    if !sys::require::root() {
        return;
    }
    let mut object = common::load("maps");
    let table = Map::<u64, u32>::new(&map(&mut object, "table")).unwrap();
    assert_eq!(table.get(&7).unwrap(), None);
    table.set(&7, &70).unwrap();
    assert_eq!(table.try_clone().unwrap().get(&7).unwrap(), Some(70));
    assert_eq!(table.keys().collect::<Vec<_>>(), [7]);
    table.remove(&7).unwrap();
    let error = table.remove(&7).unwrap_err().to_string();
    assert!(error.starts_with("erasing from map table: "), "{error}");
    for key in 0..4 {
        table.set(&key, &0).unwrap();
    }
    let error = table.set(&4, &0).unwrap_err().to_string();
    assert!(error.starts_with("writing map table: "), "{error}");
}

#[test]
fn a_range_of_an_array_is_written_at_once() {
    if !sys::require::root() {
        return;
    }
    let mut object = common::load("maps");
    let array = Map::<u32, [u16; 2]>::new(&map(&mut object, "array")).unwrap();
    assert_eq!(array.max_entries(), 4);
    array.set_range(1, &[]).unwrap();
    array.set_range(1, &[[1, 2], [3, 4]]).unwrap();
    let entries: Vec<_> = (0..5).map(|key| array.get(&key).unwrap()).collect();
    assert_eq!(
        entries,
        [Some([0, 0]), Some([1, 2]), Some([3, 4]), Some([0, 0]), None]
    );
    assert!(array.set_range(3, &[[5, 6], [7, 8]]).is_err());
}

#[test]
fn maps_of_another_size_are_refused() {
    if !sys::require::root() {
        return;
    }
    let mut object = common::load("maps");
    let table = map(&mut object, "table");
    let keys = Map::<u32, u32>::new(&table).unwrap_err().to_string();
    assert!(keys.contains("table has keys of another size"), "{keys}");
    let values = Map::<u64, u64>::new(&table).unwrap_err().to_string();
    assert!(
        values.contains("table has values of another size"),
        "{values}"
    );
    assert!(PerCpu::<u64>::new(&map(&mut object, "counts")).is_err());
}

#[test]
fn runs_on_any_cpu_are_in_the_sum() {
    if !sys::require::root() {
        return;
    }
    let mut object = common::load("maps");
    let counts = PerCpu::<Sums>::new(&map(&mut object, "counts")).unwrap();
    let program = object.progs_mut().next().unwrap();
    let program = bpf::program(&program).unwrap();
    let cpus = sys::sched::allowed_cpus().unwrap();
    let run = Run {
        frame: &[0; 64],
        repeat: 3,
        ..Default::default()
    };
    for cpu in &cpus {
        let done = sys::sched::on_cpu(*cpu, || bpf::run(&program, &run));
        done.unwrap().unwrap();
    }
    let runs = 3 * cpus.len() as u64;
    assert_eq!(counts.sum(1).unwrap(), Sums([runs, 64 * runs]));
    assert_eq!(counts.sum(0).unwrap(), Sums([0, 0]));
    counts.zero(1).unwrap();
    assert_eq!(counts.sum(1).unwrap(), Sums([0, 0]));
    let short = Run {
        frame: &[0; 4],
        ..Default::default()
    };
    assert!(bpf::run(&program, &short).is_err());
}
